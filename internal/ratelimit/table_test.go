package ratelimit

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"pgregory.net/rapid"
)

func tableStats(l *Local) TableStats { return l.Stats().Tables[Registered] }

// TestDrainedNeverComesBackFull: a table of 100, a drained key, 200 others.
func TestDrainedNeverComesBackFull(t *testing.T) {
	slow, quick := Limit{60 * second, 1}, Limit{1, 1}
	for _, tt := range []struct {
		name   string
		others Limit
	}{{"others can go", quick}, {"others owe too", slow}} {
		l := NewLocal(Options{TableSize: 100})
		if _, v := l.take(Registered, KindKey, "K", slow, 1); v.Outcome != Admitted {
			t.Fatal(v.Outcome)
		}
		for i := range 200 {
			l.take(Registered, KindKey, fmt.Sprint("other-", i), tt.others, int64(2+i))
		}
		for range 10 {
			if _, v := l.take(Registered, KindKey, "K", slow, 1000); v.Outcome != RateLimited {
				t.Errorf("%s: K is %v again", tt.name, v.Outcome)
			}
		}
		if st := tableStats(l); st.Entries != 100 || st.UnexpiredEvictions != 0 || st.Evicted+st.Overflowed != 101 {
			t.Errorf("%s: %+v", tt.name, st)
		}
		if _, v := l.take(Callers, KindKey, "K", slow, 1000); v.Outcome != Admitted {
			t.Errorf("%s: the table of others is full too", tt.name)
		}
	}
}

// TestLeastRecentlyUsedGoes, and not what was only looked at, by a reader or by a
// sweep that found it too young.
func TestLeastRecentlyUsedGoes(t *testing.T) {
	l := NewLocal(Options{TableSize: 3})
	for i, k := range []string{"a", "b", "c", "a"} {
		l.take(Registered, KindKey, k, Limit{1, 1}, int64(i*10))
	}
	l.peek(Registered, KindKey, "b", Limit{1, 1}, 50)
	l.Sweep(55)
	l.take(Registered, KindKey, "d", Limit{1, 1}, 60)
	var names []string
	l.Each(Registered, KindKey, 60, func(e Entry) bool { names = append(names, e.Partition); return true })
	slices.Sort(names)
	if !slices.Equal(names, []string{"a", "c", "d"}) {
		t.Errorf("kept %v", names)
	}
}

// TestRefKeepsItsEntry: one used through a Ref only is not the oldest, and a Ref
// whose entry went finds the new one instead of keeping a second state alive.
func TestRefKeepsItsEntry(t *testing.T) {
	l := NewLocal(Options{TableSize: 3})
	limit := Limit{1, 1}
	ref := NewRef(Registered, KindKey, "a", limit)
	l.Take(ref, 0)
	l.take(Registered, KindKey, "b", limit, 10)
	l.take(Registered, KindKey, "c", limit, 20)
	l.Take(ref, 30)
	l.take(Registered, KindKey, "d", limit, 40)
	if l.tables[Registered].peek(id{KindKey, "a"}) == nil || l.tables[Registered].peek(id{KindKey, "b"}) != nil {
		t.Error("the wrong one went")
	}
	for i := range 10 {
		l.take(Registered, KindKey, fmt.Sprint("more-", i), limit, int64(50+i*10))
	}
	if l.tables[Registered].peek(id{KindKey, "a"}) != nil {
		t.Fatal("a is still there")
	}
	slow := Limit{1000, 1}
	ref.limit = slow
	l.Take(ref, 500)
	if _, v := l.take(Registered, KindKey, "a", slow, 500); v.Outcome != RateLimited {
		t.Error("the name and its Ref have two buckets")
	}
	if !l.Take(ref, 500).Refused() {
		t.Error("the name and its Ref have two buckets")
	}
}

// TestChargeOutlivesItsEntry: a refund of a charge whose entry went must not
// reach the entry that is there now.
func TestChargeOutlivesItsEntry(t *testing.T) {
	l := NewLocal(Options{TableSize: 1})
	c, _ := l.take(Registered, KindKey, "a", Limit{10, 2}, 0)
	l.take(Registered, KindKey, "b", Limit{10, 2}, 10)
	l.take(Registered, KindKey, "a", Limit{10, 2}, 20)
	l.take(Registered, KindKey, "a", Limit{10, 2}, 20)
	c.refund(20)
	if _, v := l.take(Registered, KindKey, "a", Limit{10, 2}, 20); v.Outcome != RateLimited {
		t.Error("a stale refund was credited")
	}
}

// TestEvictedMemoryComesBack: nothing of a tenant that had calls, and went, is
// kept from the garbage collector; not by the watch over its lost tickets either.
func TestEvictedMemoryComesBack(t *testing.T) {
	l := NewLocal(Options{TableSize: 1})
	l.admitAndRelease("t", 0)
	gone := weak.Make(l.tables[Registered].peek(id{KindTenant, "t"}))
	l.admitAndRelease("u", 1)
	for i := 0; gone.Value() != nil; i++ {
		if i == 1000 {
			t.Fatal("an evicted entry is still in memory")
		}
		runtime.GC()
	}
}

func (l *Local) admitAndRelease(tenant string, now int64) {
	ticket, _ := l.admit(admission{Tenant: tenant, Service: "s"}, now)
	ticket.Release()
}

// TestFreeRefusalsAreNotForgotten: a key that has used up its free concurrency
// refusals, and whose bucket is full, is not made anew by eviction.
func TestFreeRefusalsAreNotForgotten(t *testing.T) {
	l := NewLocal(Options{TableSize: 2})
	c := call{key: "k", keyLimit: Limit{100 * second, 1}, admission: admission{Tenant: "t", TenantSlots: 1, Service: "s"}}
	l.admit(c.admission, 0)
	for range 10 {
		if _, v := l.call(c, 0); v.Outcome != ConcurrencyLimited {
			t.Fatal(v.Outcome)
		}
	}
	for i := range 20 {
		l.take(Registered, KindKey, fmt.Sprint("other-", i), Limit{1, 1}, int64(100*i))
	}
	if _, v := l.call(c, 2000); v.Outcome != RateLimited || v.Limit != KindKey {
		t.Errorf("%v by %v: its free refusals came back", v.Outcome, v.Limit)
	}
}

// TestEvictedWhileWaiting: a call that found an entry and waits for its lock,
// while the entry goes, must find the one that is there then.
func TestEvictedWhileWaiting(t *testing.T) {
	l := NewLocal(Options{TableSize: 10})
	limit := Limit{1000, 1}
	l.take(Registered, KindKey, "k", limit, 0)
	s := l.tables[Registered].shards[0]
	old := l.tables[Registered].peek(id{KindKey, "k"})
	old.mu.Lock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.take(Registered, KindKey, "k", limit, 5000)
	}()
	for found := false; !found; runtime.Gosched() {
		s.mu.Lock()
		found = old.seated == 5000
		s.mu.Unlock()
	}
	s.mu.Lock()
	s.dropLocked(old, 5000)
	s.mu.Unlock()
	old.mu.Unlock()
	<-done
	if _, v := l.take(Registered, KindKey, "k", limit, 5000); v.Outcome != RateLimited {
		t.Error("the token was taken from a bucket that is nobody's")
	}
	if st := tableStats(l); st.UnexpiredEvictions != 0 {
		t.Errorf("%+v", st)
	}
}

// TestLinger: in a large table an entry between two calls is not in the list, and
// is swept, evicted, counted and pinned as if it were.
func TestLinger(t *testing.T) {
	l := NewLocal(Options{TableSize: largeTable, Idle: time.Minute})
	table := l.tables[Registered]
	seats := func() {
		t.Helper()
		want := int64(0)
		for _, s := range table.shards {
			want += int64(s.idle.Len())
			for _, e := range s.linger {
				if e != nil {
					want++
				}
			}
		}
		if got := table.seats.Load(); got != want {
			t.Fatalf("%d seats taken, counted %d", got, want)
		}
	}
	const tenants = 2 * manyShards * lingerers
	admit := func(i int, now int64) Ticket {
		ticket, v := l.admit(admission{Tenant: fmt.Sprint(i), TenantLimit: Limit{1000, 5}, TenantSlots: 3, Service: "s"}, now)
		if v.Outcome != Admitted {
			t.Fatal(v.Outcome, v.Limit)
		}
		return ticket
	}
	for i := range tenants {
		admit(i, 0).Release()
	}
	seats()
	var open []Ticket
	for i := range tenants { // from places, and from the list
		open = append(open, admit(i, second))
	}
	if st := tableStats(l); st.Pinned != tenants || st.Entries != tenants {
		t.Errorf("all run: %+v", st)
	}
	seats()
	for i := range tenants { // newcomers take the places of those that run
		admit(tenants+i, second).Release()
	}
	seats()
	for _, ticket := range open {
		ticket.Release()
	}
	seats()
	if st := tableStats(l); st.Pinned != 0 || st.Entries != 2*tenants {
		t.Errorf("none runs: %+v", st)
	}
	l.Sweep(second + int64(time.Minute) - 1)
	if st := tableStats(l); st.Swept != 0 {
		t.Errorf("swept too early: %+v", st)
	}
	// Room is made of those that linger, too.
	for i := range 3 * largeTable {
		l.take(Registered, KindKey, fmt.Sprint("new-", i), Limit{1, 1}, 2*second+int64(i))
		if st := &table.seats; st.Load() > largeTable {
			t.Fatalf("%d seats", st.Load())
		}
	}
	seats()
	if st := tableStats(l); st.Entries != largeTable || st.UnexpiredEvictions != 0 || st.Overflowed != 0 {
		t.Errorf("%+v", st)
	}
	admit(0, 3*second).Release()
	for range 100 {
		l.Sweep(3*second + 2*int64(time.Minute))
	}
	if st := tableStats(l); st.Entries != 0 {
		t.Errorf("after a long idle time: %+v", st)
	}
	seats()
}

// TestLingererThatOwesStays, however long it idles.
func TestLingererThatOwesStays(t *testing.T) {
	l := NewLocal(Options{TableSize: largeTable, Idle: time.Minute})
	a := admission{Tenant: "t", TenantLimit: Limit{3600 * second, 1}, Service: "s"}
	ticket, _ := l.admit(a, 0)
	ticket.Release()
	for now := second; now < 1800*second; now += 10 * second {
		l.Sweep(now)
	}
	if _, v := l.admit(a, 1800*second); v.Outcome != RateLimited {
		t.Errorf("%v: the bucket came back full", v.Outcome)
	}
}

// TestTheLastCallMakesRoom: an entry whose call ends while all seats are taken
// takes that of one which can go, at once.
func TestTheLastCallMakesRoom(t *testing.T) {
	l := NewLocal(Options{TableSize: 2})
	ticket, _ := l.admit(admission{Tenant: "t", Service: "s"}, 0)
	l.take(Registered, KindKey, "a", Limit{1, 1}, 0)
	l.take(Registered, KindKey, "b", Limit{1, 1}, 0)
	ticket.Release()
	if st := tableStats(l); st.Entries != 3 {
		t.Errorf("%+v: at the time that the limiter knows, both owe", st)
	}
	ticket, _ = l.admit(admission{Tenant: "t", Service: "s"}, 10)
	ticket.Release()
	if st := tableStats(l); st.Entries != 2 || st.Pinned != 0 {
		t.Errorf("%+v: the table is left above its size", st)
	}
}

// TestLingererMakesRoom when all in the list owe.
func TestLingererMakesRoom(t *testing.T) {
	l := NewLocal(Options{TableSize: largeTable})
	ticket, _ := l.admit(admission{Tenant: "t", Service: "s"}, 0)
	ticket.Release()
	table := l.tables[Registered]
	home := table.peek(id{KindTenant, "t"}).home
	for i := 0; table.seats.Load() < largeTable; i++ {
		l.take(Registered, KindKey, fmt.Sprint(i), Limit{1 << 40, 1}, 1)
	}
	newcomer := ""
	for i := 0; newcomer == ""; i++ {
		if k := (id{KindKey, fmt.Sprint("new-", i)}); table.shardOf(k) == home {
			newcomer = k.partition
		}
	}
	if l.take(Registered, KindKey, newcomer, Limit{1, 1}, 2); table.peek(id{KindKey, newcomer}) == nil || table.peek(id{KindTenant, "t"}) != nil {
		t.Errorf("the newcomer shares an entry while one that rests keeps its own: %+v", tableStats(l))
	}
}

// TestPinnedTailBlocksNothing: entries with calls in flight are neither evicted
// nor in the way, do not count, and the table shrinks when they end.
func TestPinnedTailBlocksNothing(t *testing.T) {
	const size = 100
	l := NewLocal(Options{TableSize: size})
	limit := Limit{1000, 2}
	var tickets []Ticket
	for i := range 5 * size {
		ticket, v := l.admit(admission{Tenant: fmt.Sprint("pinned-", i), TenantLimit: limit, TenantSlots: 1, Service: "s"}, 0)
		if v.Outcome != Admitted {
			t.Fatal(v.Outcome, v.Limit)
		}
		tickets = append(tickets, ticket)
	}
	if st := tableStats(l); st.Pinned != 5*size || st.Entries != 5*size || st.Overflowed != 0 {
		t.Fatalf("%+v", st)
	}
	now := int64(0)
	for i := range 10_000 {
		now += 100_000
		if _, v := l.take(Registered, KindKey, fmt.Sprint("new-", i), limit, now); v.Outcome != Admitted {
			t.Fatal(v.Outcome)
		}
		if st := tableStats(l); st.Entries > size+st.Pinned || st.Overflowed != 0 {
			t.Fatalf("%+v", st)
		}
	}
	l.Sweep(now + int64(24*time.Hour))
	for i := range tickets {
		_, v := l.admit(admission{Tenant: fmt.Sprint("pinned-", i), TenantLimit: limit, TenantSlots: 1, Service: "s"}, now)
		if v.Outcome != ConcurrencyLimited {
			t.Fatalf("the cap of %d is forgotten: %v", i, v.Outcome)
		}
	}
	for _, ticket := range tickets {
		ticket.Release()
	}
	// They were refilled long ago, but the limiter without a clock knows no
	// later time than their admission: they go with the next that come.
	for i := range 5 * size {
		l.take(Registered, KindKey, fmt.Sprint("after-", i), limit, now+int64(i)*100_000)
	}
	if st := tableStats(l); st.Entries != size || st.Pinned != 0 || st.UnexpiredEvictions != 0 {
		t.Errorf("%+v", st)
	}
}

// TestLongCallKeepsItsEntry through idle eviction and a crowd of others; also in a
// table so large that an entry lingers between two calls.
func TestLongCallKeepsItsEntry(t *testing.T) {
	for _, size := range []int{50, largeTable} {
		l := NewLocal(Options{TableSize: size, Idle: 10 * time.Minute})
		a := admission{Tenant: "t", TenantLimit: Limit{second, 2}, TenantSlots: 1, Service: "s"}
		l.admitAndRelease("t", 0)
		ticket, _ := l.admit(a, 0)
		for now := int64(0); now <= int64(11*time.Minute); now += second {
			l.take(Registered, KindKey, fmt.Sprint(now), Limit{1, 1}, now)
			l.Sweep(now)
		}
		if _, v := l.admit(a, int64(11*time.Minute)); v.Outcome != ConcurrencyLimited {
			t.Errorf("size %d: %v, want the cap enforced", size, v.Outcome)
		}
		ticket.Release()
		again, v := l.admit(a, int64(11*time.Minute))
		if v.Outcome != Admitted {
			t.Errorf("size %d: %v by %v", size, v.Outcome, v.Limit)
		}
		again.Release()
	}
}

// TestSweep: what is idle and full goes, at the age set and not before; what owes
// stays until it does not.
func TestSweep(t *testing.T) {
	l := NewLocal(Options{TableSize: 1000, Idle: time.Minute})
	l.take(Registered, KindKey, "full", Limit{second, 1}, 0)
	l.take(Registered, KindKey, "owing", Limit{300 * second, 1}, 0)
	entries := func(at, want int64) {
		t.Helper()
		l.Sweep(at)
		if st := tableStats(l); st.Entries != want || st.UnexpiredEvictions != 0 {
			t.Errorf("at %ds: %+v, want %d entries", at/second, st, want)
		}
	}
	entries(60*second-1, 2)
	entries(60*second, 1)
	entries(120*second, 1)
	if _, v := l.take(Registered, KindKey, "owing", Limit{300 * second, 1}, 120*second); v.Outcome != RateLimited {
		t.Error("a drained bucket came back full")
	}
	entries(299*second, 1)
	entries(360*second, 0)
	// One used through a Ref is not idle, although its place in the list is old.
	ref := NewRef(Registered, KindKey, "ref", Limit{1, 1})
	l.Take(ref, 360*second)
	l.Take(ref, 400*second)
	entries(420*second, 1)
	entries(480*second, 0)
	// Bounded work: not everything at once.
	for i := range 10 * sweepBatch {
		l.take(Registered, KindKey, fmt.Sprint(i), Limit{1, 1}, 500*second)
	}
	entries(1000*second, 9*sweepBatch)
}

// TestOverflowEntry: with a full table in which all owe, the newcomers share one
// bucket and one cap; a warning a minute; and when one gets an entry of its own,
// it gets no second burst and no second cap with it.
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
	// At 300 s a and b are full again; the shared bucket is a second behind.
	if l.Take(ref, 300*second).Refused() {
		t.Error("refused although both buckets have tokens")
	}
	if l.tables[Registered].peek(id{KindKey, "new-0"}) == nil {
		t.Fatal("new-0 has no entry of its own although there is room")
	}
	if r := l.peek(Registered, KindKey, "new-0", slow, 300*second); r.Remaining != 1 {
		t.Errorf("new-0 has %d left, want what the shared bucket had less one", r.Remaining)
	}
	var seen []Entry
	l.Each(Registered, KindKey, 100*second, func(e Entry) bool { seen = append(seen, e); return true })
	if last := seen[len(seen)-1]; !last.Overflow || last.Partition != "overflow" {
		t.Errorf("operators do not see it: %+v", seen)
	}
}

func TestOverflowSlots(t *testing.T) {
	l := NewLocal(Options{TableSize: 1})
	l.take(Registered, KindKey, "a", Limit{100 * second, 1}, 0)
	a := func(tenant string) admission { return admission{Tenant: tenant, TenantSlots: 2, Service: "s"} }
	first, _ := l.admit(a("t"), 0)
	other, _ := l.admit(a("u"), 0)
	if _, v := l.admit(a("t"), 0); v.Outcome != ConcurrencyLimited {
		t.Errorf("%v, want one cap for all that share the entry", v.Outcome)
	}
	// There is room now, but t holds a slot of the shared entry.
	other.Release()
	second, v := l.admit(a("t"), 101*second)
	if v.Outcome != Admitted || l.tables[Registered].peek(id{KindTenant, "t"}) != nil {
		t.Errorf("%v: t has a second cap", v.Outcome)
	}
	if _, v := l.admit(a("t"), 102*1e9); v.Outcome != ConcurrencyLimited {
		t.Errorf("%v: over the cap", v.Outcome)
	}
	if _, v := l.admit(a("v"), 102*1e9); v.Outcome != Admitted || l.tables[Registered].peek(id{KindTenant, "v"}) == nil {
		t.Errorf("%v: v is held up by others' slots although there is room", v.Outcome)
	}
	first.Release()
	second.Release()
	if _, v := l.admit(a("t"), 103*1e9); v.Outcome != Admitted || l.tables[Registered].peek(id{KindTenant, "t"}) == nil {
		t.Errorf("%v: t has no entry of its own", v.Outcome)
	}
}

// TestEvictionChangesNoVerdict: random calls of many keys and tenants in a table
// far too small, with sweeps: per partition key, no window is ever over its limit,
// no cap is exceeded, and the table keeps its bound.
func TestEvictionChangesNoVerdict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 4
		l := NewLocal(Options{TableSize: size, Idle: 50})
		limit := drawLimit(t)
		most := rapid.Int64Range(1, 2).Draw(t, "cap")
		passed := map[string]*history{}
		type running struct {
			tenant string
			ticket Ticket
		}
		var open []running
		inFlight := map[string]int64{}
		now := int64(0)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += rapid.Int64Range(0, 15).Draw(t, "dt")
			name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}).Draw(t, "name")
			h := passed[name]
			if h == nil {
				h = &history{limit: limit}
				passed[name] = h
			}
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0, 1, 2:
				ticket, v := l.admit(admission{Tenant: name, TenantLimit: limit, TenantSlots: most, Service: "s"}, now)
				if v.Outcome != Admitted {
					break
				}
				open = append(open, running{name, ticket})
				inFlight[name]++
				h.add(now)
			case 3:
				if len(open) > 0 {
					i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
					open[i].ticket.Release()
					inFlight[open[i].tenant]--
					open = slices.Delete(open, i, i+1)
				}
			case 4:
				l.Sweep(now)
			}
			if !h.conforms() {
				t.Fatalf("%s: %v breaks %+v", name, h.times, limit)
			}
			if inFlight[name] > most {
				t.Fatalf("%s has %d in flight", name, inFlight[name])
			}
			if st := tableStats(l); st.UnexpiredEvictions != 0 {
				t.Fatalf("%+v", st)
			}
		}
	})
}

// TestForgettingIsInvisible: as long as nobody has to share an entry, a table that
// keeps forgetting tells every caller, to the nanosecond, what one that never
// forgets does.
func TestForgettingIsInvisible(t *testing.T) {
	forgot := 0
	rapid.Check(t, func(t *rapid.T) {
		small := NewLocal(Options{TableSize: 4, Idle: 20})
		large := NewLocal(Options{TableSize: 1000, Idle: time.Hour})
		limit := drawLimit(t)
		now := int64(0)
		var open [2][]Ticket
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += rapid.Int64Range(0, 40).Draw(t, "dt")
			name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h"}).Draw(t, "name")
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0:
				small.Sweep(now)
			case 1:
				for i := range open {
					if len(open[i]) > 0 {
						open[i][0].Release()
						open[i] = open[i][1:]
					}
				}
			default:
				c := call{key: name, keyLimit: limit, admission: admission{Tenant: name, TenantLimit: limit, TenantSlots: 1, Service: "s"}}
				a, v := small.call(c, now)
				b, w := large.call(c, now)
				if tableStats(small).Overflowed > 0 {
					return
				}
				if v != w {
					t.Fatalf("at %d: %s is told %+v, and without eviction %+v", now, name, v, w)
				}
				if v.Outcome == Admitted {
					open[0], open[1] = append(open[0], a), append(open[1], b)
				}
			}
		}
		st := tableStats(small)
		forgot += int(st.Evicted + st.Swept)
	})
	if forgot == 0 {
		t.Error("nothing was ever forgotten, so nothing was tested")
	}
}

// TestRoomIsMadeInAFewLooks: a newcomer to a full table, of which half has calls in
// flight and the other half owes, costs no more than a few looks at its tail.
func TestRoomIsMadeInAFewLooks(t *testing.T) {
	const half = 3000 // below largeTable, so that all is in one list
	l := NewLocal(Options{TableSize: half})
	var open []Ticket
	for i := range half {
		ticket, _ := l.admit(admission{Tenant: fmt.Sprint("pinned-", i), Service: "s"}, 0)
		open = append(open, ticket)
		l.take(Registered, KindKey, fmt.Sprint("owing-", i), Limit{1 << 40, 1}, 1)
	}
	s := l.tables[Registered].shards[0]
	for now := int64(2); now < 100; now++ {
		l.take(Registered, KindKey, fmt.Sprint("new-", now), Limit{1 << 40, 1}, now)
		touched := 0
		for _, e := range s.idle.Values() {
			if e.seated == now {
				touched++
			}
		}
		if touched == 0 || touched > looks {
			t.Fatalf("%d entries of %d were looked at, want at most %d", touched, s.idle.Len(), looks)
		}
	}
	if st := tableStats(l); st.Pinned != half || st.Entries != 2*half || st.Overflowed != 98 {
		t.Errorf("%+v", st)
	}
	runtime.KeepAlive(open) // a lost ticket gives its slot back
}
