package ratelimit

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// TestOverflowEntry: with a full table in which all owe, the newcomers of one
// limit share one bucket; a warning a minute; and when one gets an entry of its
// own, it gets no second burst with it.
func TestOverflowEntry(t *testing.T) {
	var warned []string
	l := NewLocal(Options{TableSize: 2, Warn: func(table string) { warned = append(warned, table) }})
	slow := Limit{100 * second, 3}
	drain := func(names ...string) {
		for _, n := range names {
			for range 3 {
				l.take(Registered, KindKey, n, slow, 0)
			}
		}
	}
	drain("a", "b")
	admitted := 0
	for i := range 9 {
		if _, v := l.take(Registered, KindKey, fmt.Sprint("new-", i%3), slow, second); v.Outcome == Admitted {
			admitted++
		}
	}
	if st := tableStats(l); admitted != 3 || st.Entries != 2 || st.Overflowed != 9 {
		t.Errorf("%d admitted, want the burst of one; %+v", admitted, st)
	}
	if _, v := l.take(Registered, KindTenant, "t", slow, second); v.Outcome != Admitted {
		t.Error("a tenant and a key share a bucket: a call would be charged twice")
	}
	if !slices.Equal(warned, []string{"registered"}) {
		t.Errorf("warned %v", warned)
	}
	ref := NewRef(Registered, KindKey, "new-0", slow)
	l.Take(ref, 2*second)
	l.take(Registered, KindKey, "new-9", slow, 61*second-1)
	if len(warned) != 1 {
		t.Errorf("warned %v within a minute", warned)
	}
	l.take(Registered, KindKey, "new-9", slow, 61*second)
	if len(warned) != 2 {
		t.Errorf("warned %v after a minute", warned)
	}
	var seen []Entry
	l.Each(Registered, KindKey, 100*second, func(e Entry) bool { seen = append(seen, e); return true })
	if last := seen[len(seen)-1]; !last.Overflow || last.Partition != "overflow" || last.Limit != slow || last.Remaining != 0 {
		t.Errorf("operators do not see it: %+v", seen)
	}
	// At 300 s a and b are full again; the shared bucket is a second behind.
	if r, _ := l.Peek(ref, 300*second); r.Remaining != 2 {
		t.Errorf("a look shows %d left, want what the next call will find", r.Remaining)
	}
	if l.Take(ref, 300*second).Refused() {
		t.Error("refused although both buckets have tokens")
	}
	if l.tables[Registered].peek(id{KindKey, "new-0"}) == nil {
		t.Fatal("new-0 has no entry of its own although there is room")
	}
	if r := l.peek(Registered, KindKey, "new-0", slow, 300*second); r.Remaining != 1 {
		t.Errorf("new-0 has %d left, want what the shared bucket had less one", r.Remaining)
	}
}

// crowded returns a limiter of a table that has one seat, which owes for 1000 s.
func crowded() *Local {
	l := NewLocal(Options{TableSize: 1})
	l.take(Registered, KindAddress, "first", Limit{1000 * second, 1}, 0)
	return l
}

// TestOverflowKeepsLimitsApart: newcomers of a fast limit neither fill the bucket
// of those of a slow one nor empty it, whichever bucket it is; nor does whoever
// gets an entry of its own among calls of the fast ones.
func TestOverflowKeepsLimitsApart(t *testing.T) {
	fast, slow := Limit{second / 10_000, 10_000}, Limit{100 * second, 2}
	for _, kind := range []Kind{KindKey, KindTenant, KindService} {
		l := crowded()
		take := func(name string, limit Limit, now int64) bool {
			a := admission{Service: "s"}
			switch kind {
			case KindKey:
				_, v := l.take(Registered, KindKey, name, limit, now)
				return v.Outcome == Admitted
			case KindTenant:
				a.Tenant, a.TenantLimit = name, limit
			case KindService:
				a.ServiceBucket, a.ServiceLimit = name, limit
			}
			ticket, v := l.admit(a, now)
			ticket.Release()
			return v.Outcome == Admitted
		}
		now, slowAdmitted := int64(0), 0
		for ; now < 50*second; now += second {
			if !take("fast", fast, now) {
				t.Fatalf("%v: the fast one is refused at %d s, with the slow one's bucket", kind, now/second)
			}
			if take(fmt.Sprint("slow-", now%2), slow, now) {
				slowAdmitted++
			}
		}
		if slowAdmitted != 2 {
			t.Errorf("%v: %d of the slow ones admitted, want their burst of 2", kind, slowAdmitted)
		}
		for take("fast", fast, now) {
		}
		if take("slow-0", slow, 99*second) || !take("slow-0", slow, 100*second) || take("slow-1", slow, 100*second) {
			t.Errorf("%v: the slow ones do not have a token after their interval, and one", kind)
		}
		take("fast", fast, 1001*second) // has a seat now, and leaves it at once
		if !take("slow-0", slow, 1002*second) || l.tables[Registered].peek(id{kind, "slow-0"}) == nil {
			t.Errorf("%v: no seat although there is one", kind)
		}
	}
}

// TestLimitChangesInOverflow: a drained bucket does not come back full because the
// limit of those that share it changes, nor when they get entries of their own
// after that, and pays back at the new rate.
func TestLimitChangesInOverflow(t *testing.T) {
	old, raised := Limit{1000 * second, 2}, Limit{second, 5}
	for _, seats := range []bool{false, true} {
		l := crowded()
		l.take(Registered, KindKey, "k", old, 0)
		l.take(Registered, KindKey, "other", old, 0)
		l.take(Registered, KindKey, "third", raised, 0)
		l.Changed(Registered, KindKey, old, raised, second/4)
		if seats {
			withRoom(l)
		}
		admitted := func(name string, now int64) (n int) {
			for {
				if _, v := l.take(Registered, KindKey, name, raised, now); v.Outcome != Admitted {
					return n
				}
				n++
			}
		}
		if n := admitted("k", second/2); n != 0 {
			t.Errorf("seats %v: %d admitted at the change", seats, n)
		}
		if n := admitted("k", 4*second); n != 3 {
			t.Errorf("seats %v: %d admitted 3.75 s after it, want 3", seats, n)
		}
		if n := admitted("late", 100*second); n != 5 {
			t.Errorf("seats %v: %d admitted when it is full, want the burst, whatever the old limit still owes", seats, n)
		}
	}
}

// TestLimitChangesToOneThatOwesMore: what comes along with a change of limit is the
// larger of the two debts; and a refund of what was charged before pays nothing of
// it.
func TestLimitChangesToOneThatOwesMore(t *testing.T) {
	l := crowded()
	old, is := Limit{1000 * second, 3}, Limit{second, 3}
	l.take(Registered, KindKey, "k", old, 0)
	var c Charge
	for range 3 {
		c, _ = l.take(Registered, KindKey, "other", is, 0)
	}
	left := func() int64 { return l.peek(Registered, KindKey, "k", is, 0).Remaining }
	if l.Changed(Registered, KindKey, old, is, 0); left() != 0 {
		t.Errorf("%d left where nothing was", left())
	}
	if c.refund(0); left() != 0 {
		t.Errorf("%d left after a refund from before the change", left())
	}
}

// withRoom makes the tables of l larger.
func withRoom(l *Local) {
	for _, t := range l.tables {
		t.size += 10
	}
}

// TestFreeRefusalsAreNotReborn: a key that used up its free concurrency refusals
// while it shared an entry has not got them back with one of its own.
func TestFreeRefusalsAreNotReborn(t *testing.T) {
	l := crowded()
	c := call{key: "k", keyLimit: Limit{100 * second, 1}, admission: admission{Tenant: "t", TenantSlots: 1, Service: "s"}}
	l.admit(c.admission, 0)
	for range freeRefusals {
		if _, v := l.call(c, 0); v.Outcome != ConcurrencyLimited {
			t.Fatal(v.Outcome)
		}
	}
	wider := c
	wider.keyLimit.Burst = 2
	l.Changed(Registered, KindKey, c.keyLimit, wider.keyLimit, 0)
	if n := l.peek(Registered, KindKey, "k", wider.keyLimit, 0).Remaining; n != 2 {
		t.Errorf("%d left of a bucket that owed nothing", n)
	}
	if _, v := l.call(wider, 0); v.Outcome != RateLimited || v.Limit != KindKey {
		t.Errorf("%v by %v: its free refusals came back with another limit", v.Outcome, v.Limit)
	}
	withRoom(l)
	if _, v := l.call(c, second); v.Outcome != RateLimited || v.Limit != KindKey || l.tables[Registered].peek(id{KindKey, "k"}) == nil {
		t.Errorf("%v by %v: its free refusals came back", v.Outcome, v.Limit)
	}
}

// TestOverflowSlots: who shares an entry has its own cap, and once: when there is
// room for an entry of its own, and when its limits change.
func TestOverflowSlots(t *testing.T) {
	l := crowded()
	a := func(tenant string, most int64) admission {
		return admission{Tenant: tenant, TenantSlots: most, Service: "s"}
	}
	own := func(tenant string) bool { return l.tables[Registered].peek(id{KindTenant, tenant}) != nil }
	first, _ := l.admit(a("t", 2), 0)
	l.admit(a("u", 1), 0)
	second, v := l.admit(a("t", 2), 0)
	if v.Outcome != Admitted || l.peekSlots(Registered, "t", 3).Remaining != 1 {
		t.Errorf("%v, %d left: held up by another's slot", v.Outcome, l.peekSlots(Registered, "t", 3).Remaining)
	}
	for r := range v.Readings() {
		if r.Remaining != 0 {
			t.Errorf("told %+v", r)
		}
	}
	if _, v := l.admit(a("u", 1), 0); v.Outcome != ConcurrencyLimited {
		t.Errorf("%v: over the cap of one", v.Outcome)
	}
	changed := a("t", 2)
	changed.TenantLimit = Limit{1, 5}
	if _, v := l.admit(changed, 0); v.Outcome != ConcurrencyLimited {
		t.Errorf("%v: a second cap with another limit", v.Outcome)
	}
	changed.TenantSlots = 3
	third, v := l.admit(changed, 0)
	if v.Outcome != Admitted {
		t.Errorf("%v: the raised cap", v.Outcome)
	}
	var shown []string
	l.Each(Registered, KindTenant, 0, func(e Entry) bool {
		shown = append(shown, fmt.Sprint(e.Partition, " ", e.Limit.Interval, e.InFlight, e.Overflow))
		return true
	})
	if !slices.Equal(shown, []string{"overflow 0 3 true", "overflow 1 1 true"}) {
		t.Errorf("operators see %q", shown)
	}
	l.wantInFlight(t, 4)
	withRoom(l)
	if _, v := l.admit(a("t", 3), 1); v.Outcome != ConcurrencyLimited || own("t") {
		t.Errorf("%v: t has a second cap", v.Outcome)
	}
	if _, v := l.admit(a("v", 1), 1); v.Outcome != Admitted || !own("v") {
		t.Errorf("%v: v is held up by others' slots although there is room", v.Outcome)
	}
	first.Release()
	second.Release()
	if _, v := l.admit(a("t", 1), 2); v.Outcome != ConcurrencyLimited || own("t") {
		t.Errorf("%v: t still holds one", v.Outcome)
	}
	third.Release()
	if _, v := l.admit(a("t", 1), 3); v.Outcome != Admitted || !own("t") {
		t.Errorf("%v: t has no entry of its own", v.Outcome)
	}
	if held := l.tables[Registered].overflow[KindTenant].guests.held; len(held) != 1 || held["u"] != 1 {
		t.Errorf("%v is kept, want u's slot only", held)
	}
}

// TestGuestWhileItIsSeated: a tenant that gets an entry of its own while another
// call of it takes a slot of the shared one goes on with that.
func TestGuestWhileItIsSeated(t *testing.T) {
	l := crowded()
	over := l.tables[Registered].overflow[KindTenant]
	shared := over.entry(Limit{}, 0)
	withRoom(l)
	shared.mu.Lock()
	verdict := make(chan Verdict)
	go func() {
		_, v := l.admit(admission{Tenant: "t", TenantSlots: 1, Service: "s"}, 1)
		verdict <- v
	}()
	for l.tables[Registered].peek(id{KindTenant, "t"}) == nil {
		runtime.Gosched()
	}
	over.guests.mu.Lock()
	over.guests.held["t"]++
	over.guests.mu.Unlock()
	shared.mu.Unlock()
	if v := <-verdict; v.Outcome != ConcurrencyLimited || l.tables[Registered].peek(id{KindTenant, "t"}) != nil {
		t.Errorf("%v: a second cap", v.Outcome)
	}
	if st := tableStats(l); st.UnexpiredEvictions != 0 || st.Entries != 1 {
		t.Errorf("%+v", st)
	}
}

// TestOverflowIsForgotten when nobody owes anything there, and a call that had
// found what was forgotten is charged where all others are.
func TestOverflowIsForgotten(t *testing.T) {
	l := crowded()
	over := l.tables[Registered].overflow[KindKey]
	for i := range int64(100) {
		l.take(Registered, KindKey, "k", Limit{second + i, 2}, 0)
	}
	late := NewRef(Registered, KindKey, "late", Limit{second, 2})
	late.entry.Store(over.entry(late.limit, 0))
	over.entry(Limit{300 * second, 2}, 0).bucket.tat = 600 * second
	if n := len(over.entries()); n != 101 {
		t.Fatalf("%d entries for 100 limits", n)
	}
	l.take(Registered, KindKey, "k", Limit{7, 1}, 500*second)
	if n := len(over.entries()); n != 2 {
		t.Fatalf("%d entries although something is owed under one limit only, and asked under another", n)
	}
	l.Take(late, 500*second)
	if r := l.peek(Registered, KindKey, "k", Limit{second, 2}, 500*second); r.Remaining != 1 {
		t.Errorf("%d left of 2: charged to what was forgotten", r.Remaining)
	}
}

// TestOverflowIsLate: a call that found the table full, and charges only after
// another of its partition key has got an entry of its own, is charged there.
func TestOverflowIsLate(t *testing.T) {
	l := crowded()
	limit := Limit{1000 * second, 1}
	late := NewRef(Registered, KindKey, "k", limit)
	late.entry.Store(l.tables[Registered].overflow[KindKey].entry(limit, 0))
	withRoom(l)
	if _, v := l.take(Registered, KindKey, "k", limit, 1); v.Outcome != Admitted {
		t.Fatal(v.Outcome)
	}
	if !l.Take(late, 1).Refused() {
		t.Error("two bursts of one")
	}
}

// TestNoSecondCapInACrowd: a tenant whose calls find the table full and not full
// in turn, under limits that change, never has more in flight than its cap.
func TestNoSecondCapInACrowd(t *testing.T) {
	t.Run("full in turn", func(t *testing.T) {
		l := NewLocal(Options{TableSize: 1})
		crowdAtCap(t, l)
		if st := tableStats(l); st.Overflowed == 0 || st.Evicted == 0 {
			t.Errorf("nothing was tested: %+v", st)
		}
	})
	t.Run("always full", func(t *testing.T) { crowdAtCap(t, crowded()) })
}

func crowdAtCap(t *testing.T, l *Local) {
	const most = 2
	var now, inFlight, over atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range scaled(50_000) {
				ticket, v := l.admit(admission{Tenant: "t", TenantLimit: Limit{int64(i%2 + 1), 1 << 40}, TenantSlots: most, Service: "s"}, now.Add(1))
				l.take(Registered, KindKey, fmt.Sprint("other-", i%3), Limit{5, 1}, now.Add(1))
				if v.Outcome != Admitted {
					continue
				}
				if inFlight.Add(1) > most {
					over.Add(1)
				}
				inFlight.Add(-1)
				ticket.Release()
			}
		})
	}
	wg.Wait()
	st := tableStats(l)
	if over.Load() > 0 || st.UnexpiredEvictions != 0 || st.Pinned != 0 {
		t.Errorf("%d times over the cap; %+v", over.Load(), st)
	}
	l.wantInFlight(t, 0)
}

// TestSharingGivesNobodyMore: any mix of limits and caps in a table far too small:
// every partition key is held to its own, whether it shares an entry or not, and
// whoever is told to wait, and calls after that, is admitted.
func TestSharingGivesNobodyMore(t *testing.T) {
	shared := 0
	rapid.Check(t, func(t *rapid.T) {
		l := NewLocal(Options{TableSize: rapid.IntRange(1, 3).Draw(t, "size"), Idle: 50})
		limits := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Limit {
			return Limit{rapid.SampledFrom([]int64{1, 3, 20, 200}).Draw(t, "interval"), rapid.Int64Range(1, 4).Draw(t, "burst")}
		}), 1, 3).Draw(t, "limits")
		type member struct {
			kind Kind
			history
			most int64
			open []Ticket
		}
		members := make([]*member, 8)
		for i := range members {
			members[i] = &member{
				kind:    rapid.SampledFrom([]Kind{KindKey, KindTenant, KindService}).Draw(t, "kind"),
				history: history{limit: rapid.SampledFrom(limits).Draw(t, "limit")},
				most:    rapid.Int64Range(1, 2).Draw(t, "cap"),
			}
		}
		call := func(i int, now int64) Verdict {
			m, name := members[i], fmt.Sprint("name-", i)
			if m.kind == KindKey {
				_, v := l.take(Registered, KindKey, name, m.limit, now)
				return v
			}
			a := admission{Service: "s", Tenant: name, TenantLimit: m.limit, TenantSlots: m.most}
			if m.kind == KindService {
				a = admission{Service: "s", ServiceBucket: name, ServiceLimit: m.limit}
			}
			ticket, v := l.admit(a, now)
			if v.Outcome == Admitted && m.kind == KindTenant {
				m.open = append(m.open, ticket)
			} else {
				ticket.Release()
			}
			return v
		}
		now := int64(0)
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			now += rapid.SampledFrom([]int64{0, 0, 1, 5, 40, 300}).Draw(t, "dt")
			i := rapid.IntRange(0, len(members)-1).Draw(t, "who")
			m := members[i]
			if n := len(m.open); n > 0 && rapid.IntRange(0, 2).Draw(t, "release") == 0 {
				m.open[n-1].Release()
				m.open = m.open[:n-1]
				continue
			}
			v := call(i, now)
			if v.Outcome == RateLimited && rapid.IntRange(0, 3).Draw(t, "waits") == 0 {
				if now += int64(v.Wait); call(i, now-1).Outcome == Admitted {
					t.Fatalf("%d is admitted before it waited %v", i, v.Wait)
				}
				if v = call(i, now); v.Outcome == RateLimited {
					t.Fatalf("%d waited as it was told, and is told %v", i, v.Wait)
				}
			}
			if v.Outcome == Admitted {
				m.add(now)
			}
			if !m.conforms() {
				t.Fatalf("%v %d: %v breaks %+v", m.kind, i, m.times, m.limit)
			}
			if n := int64(len(m.open)); n > m.most {
				t.Fatalf("%d has %d in flight of %d", i, n, m.most)
			}
		}
		st := tableStats(l)
		if st.UnexpiredEvictions != 0 {
			t.Fatalf("%+v", st)
		}
		for _, over := range l.tables[Registered].overflow {
			if n := len(over.entries()); n > len(limits) {
				t.Fatalf("%d shared entries for %d limits", n, len(limits))
			}
		}
		shared += int(st.Overflowed)
	})
	if shared == 0 {
		t.Error("nobody had to share, so nothing was tested")
	}
}
