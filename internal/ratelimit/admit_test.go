package ratelimit

import (
	"slices"
	"testing"
	"time"
)

const second = int64(time.Second)

// call is one whole call: the key's token, then everything else.
type call struct {
	key      string
	keyLimit Limit
	admission
}

func (l *Local) call(c call, now int64) (Ticket, Verdict) {
	charge, v := l.take(c.Table, KindKey, c.key, c.keyLimit, now)
	if v.Outcome != Admitted {
		return Ticket{}, v
	}
	c.Charge = charge
	return l.admit(c.admission, now)
}

func wantVerdict(t *testing.T, what string, v Verdict, o Outcome, limit Kind, wait time.Duration, violated ...Kind) {
	t.Helper()
	if v.Outcome != o || v.Limit != limit || v.Wait != wait || !slices.Equal(slices.Collect(v.Violated()), violated) {
		t.Errorf("%s: %v, limit %v, wait %v, violated %v; want %v, %v, %v, %v", what,
			v.Outcome, v.Limit, v.Wait, slices.Collect(v.Violated()), o, limit, wait, violated)
	}
}

func remaining(l *Local, kind Kind, partition string, limit Limit, now int64) int64 {
	return l.peek(Registered, kind, partition, limit, now).Remaining
}

// TestAllOrNothing: for every subset of limits that refuse, the others keep
// exactly what they had.
func TestAllOrNothing(t *testing.T) {
	const (
		tenantDry = 1 << iota
		serviceDry
		tenantFull
		serviceFull
		processFull
		all
	)
	two := Limit{second, 2}
	for set := range all {
		// One more than run before the call, or just as many.
		running := int64(set&tenantFull/tenantFull + set&serviceFull/serviceFull)
		l := NewLocal(Options{MaxInFlight: running + 1})
		now := 100 * second
		if set&tenantDry != 0 {
			l.take(Registered, KindTenant, "t", two, now)
			l.take(Registered, KindTenant, "t", two, now)
		}
		if set&serviceDry != 0 {
			l.take(Registered, KindService, "k/s", two, now-second/2)
			l.take(Registered, KindService, "k/s", two, now-second/2)
		}
		a := admission{Tenant: "t", TenantLimit: two, TenantSlots: 1, Service: "s", ServiceBucket: "k/s", ServiceLimit: two, ServiceSlots: 1}
		occupy := func(a admission) {
			if _, v := l.admit(a, now); v.Outcome != Admitted {
				t.Fatalf("set %b: %+v", set, v)
			}
		}
		if set&tenantFull != 0 {
			occupy(admission{Tenant: "t", Service: "elsewhere"})
		}
		if set&serviceFull != 0 {
			occupy(admission{Tenant: "other", Service: "s"})
		}
		if set&processFull != 0 {
			occupy(admission{Tenant: "other", Service: "elsewhere"})
		}
		key := Limit{second, 5}
		charge, _ := l.take(Registered, KindKey, "k", key, now)
		tenant, service := l.tables[Registered].peek(id{KindTenant, "t"}), l.tables[Registered].peek(id{KindService, "k/s"})
		state := func() (b [2]bucket, n [4]int64) {
			for i, e := range []*entry{tenant, service} {
				if e != nil {
					b[i] = e.bucket
					b[i].limit, b[i].seen = Limit{}, 0 // may be set without an effect
					n[i] = e.inFlightLocked()
				}
			}
			st := l.Stats()
			for _, service := range st.Services {
				if service.Name == "s" {
					n[2] = service.InFlight
				}
			}
			n[3] = st.Process.InFlight
			return b, n
		}
		buckets, counts := state()
		ticket, v := l.admit(withCharge(a, charge), now)
		keyLeft := remaining(l, KindKey, "k", key, now)
		if set == 0 {
			if v.Outcome != Admitted || keyLeft != 4 {
				t.Errorf("nothing refuses: %v by %v, key has %d", v.Outcome, v.Limit, keyLeft)
			}
			ticket.Release()
			continue
		}
		var violated []Kind
		for i, k := range []Kind{KindTenant, KindService, KindTenantSlots, KindServiceSlots, KindProcessSlots} {
			if set&(1<<i) != 0 {
				violated = append(violated, k)
			}
		}
		switch {
		case set&tenantDry != 0:
			wantVerdict(t, "tenant dry", v, RateLimited, KindTenant, time.Second, violated...)
		case set&serviceDry != 0:
			wantVerdict(t, "service dry", v, RateLimited, KindService, time.Second/2, violated...)
		default:
			wantVerdict(t, "slots", v, ConcurrencyLimited, violated[0], time.Second, violated...)
		}
		wantKey := int64(4) // a rate refusal has consumed the key's token
		if v.Outcome == ConcurrencyLimited {
			wantKey = 5
		}
		if keyLeft != wantKey {
			t.Errorf("set %b: key has %d tokens, want %d", set, keyLeft, wantKey)
		}
		if b, n := state(); b != buckets && tenant != nil && service != nil || n != counts {
			t.Errorf("set %b: a refusal changed %+v %v to %+v %v", set, buckets, counts, b, n)
		}
		if got := remaining(l, KindTenant, "t", two, now); got != 2 && set&tenantDry == 0 {
			t.Errorf("set %b: tenant has %d", set, got)
		}
		if got := remaining(l, KindService, "k/s", two, now); got != 2 && set&serviceDry == 0 {
			t.Errorf("set %b: service has %d", set, got)
		}
	}
}

func withCharge(a admission, c Charge) admission { a.Charge = c; return a }

// TestWaitIsTrue: whatever refuses, the same call made one nanosecond before the
// wait is over is refused, and admitted after it, also when the limit that takes
// longest is the key's, whose token the refused call has spent.
func TestWaitIsTrue(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		key, tenant, service Limit
		limit                Kind
		wait                 time.Duration
	}{
		{"tenant", Limit{second, 9}, Limit{3 * second, 1}, Limit{second, 9}, KindTenant, 3 * time.Second},
		{"service", Limit{second, 9}, Limit{second, 9}, Limit{4 * second, 1}, KindService, 4 * time.Second},
		{"both: the longest", Limit{second, 9}, Limit{300 * second / 1000, 1}, Limit{7 * second, 1}, KindService, 7 * time.Second},
		{"both alike: the first", Limit{second, 9}, Limit{7 * second, 1}, Limit{7 * second, 1}, KindTenant, 7 * time.Second},
		{"the key's own next token", Limit{5 * second, 2}, Limit{3 * second, 1}, Limit{}, KindTenant, 5 * time.Second},
		{"key", Limit{5 * second, 1}, Limit{second, 9}, Limit{}, KindKey, 5 * time.Second},
	} {
		c := call{key: "k", keyLimit: tt.key, admission: admission{
			Tenant: "t", TenantLimit: tt.tenant, Service: "s", ServiceBucket: "k/s", ServiceLimit: tt.service}}
		try := func(at int64) Verdict {
			l := NewLocal(Options{})
			if _, v := l.call(c, 0); v.Outcome != Admitted {
				t.Fatalf("%s: %+v", tt.name, v)
			}
			_, v := l.call(c, 0)
			if v.Outcome != RateLimited || v.Limit != tt.limit || v.Wait != tt.wait {
				t.Errorf("%s: %v by %v, wait %v; want %v, %v", tt.name, v.Outcome, v.Limit, v.Wait, tt.limit, tt.wait)
			}
			_, v = l.call(c, at)
			return v
		}
		if v := try(int64(tt.wait)); v.Outcome != Admitted {
			t.Errorf("%s: refused by %v after the wait", tt.name, v.Limit)
		}
		if v := try(int64(tt.wait) - 1); v.Outcome != RateLimited {
			t.Errorf("%s: admitted before the wait was over", tt.name)
		}
	}
}

// TestConcurrencyRefusalsAreFree up to ten times the key's rate and burst; after
// that they are the key's own refusals and cost it a token.
func TestConcurrencyRefusalsAreFree(t *testing.T) {
	l := NewLocal(Options{})
	key, tenant := Limit{second, 3}, Limit{second, 50}
	c := call{key: "k", keyLimit: key, admission: admission{Tenant: "t", TenantLimit: tenant, TenantSlots: 1, Service: "s"}}
	held, v := l.admit(admission{Tenant: "t", TenantLimit: tenant, TenantSlots: 1, Service: "s"}, 0)
	if v.Outcome != Admitted {
		t.Fatal(v)
	}
	for i := range 30 {
		_, v := l.call(c, 0)
		wantVerdict(t, "free", v, ConcurrencyLimited, KindTenantSlots, time.Second, KindTenantSlots)
		if k := remaining(l, KindKey, "k", key, 0); k != 3 {
			t.Fatalf("refusal %d: key has %d of 3", i, k)
		}
	}
	for i := range int64(3) {
		_, v := l.call(c, 0)
		wait := time.Second / 10 // until the next free refusal
		if i == 2 {
			wait = time.Second // until the key has a token
		}
		wantVerdict(t, "paid", v, RateLimited, KindKey, wait, KindKey, KindTenantSlots)
		if k := remaining(l, KindKey, "k", key, 0); k != 2-i {
			t.Fatalf("paid refusal %d: key has %d, want %d", i, k, 2-i)
		}
	}
	_, v = l.call(c, 0)
	wantVerdict(t, "key dry", v, RateLimited, KindKey, time.Second, KindKey)
	if k := remaining(l, KindTenant, "t", tenant, 0); k != 49 {
		t.Errorf("tenant has %d, want all but the one running", k)
	}
	held.Release()
	if _, v := l.call(c, second); v.Outcome != Admitted {
		t.Errorf("after the release: %v by %v", v.Outcome, v.Limit)
	}
}

// TestTenantIsNotDrainedByOneKey: a flood on one key that its own limit or a full
// tenant refuses leaves the tenant's other keys what they had.
func TestTenantIsNotDrainedByOneKey(t *testing.T) {
	l := NewLocal(Options{})
	tenant := Limit{1 << 50, 100}
	a := admission{Tenant: "t", TenantLimit: tenant, Service: "s"}
	noisy := call{key: "k1", keyLimit: Limit{60 * second, 1}, admission: a}
	admitted := 0
	for range 200 {
		if _, v := l.call(noisy, 0); v.Outcome == Admitted {
			admitted++
		}
	}
	for range 50 {
		if _, v := l.call(call{key: "k2", admission: a}, 0); v.Outcome == Admitted {
			admitted++
		}
	}
	if left := remaining(l, KindTenant, "t", tenant, 0); admitted != 51 || left != 49 {
		t.Errorf("%d admitted and %d left, want 51 and 49", admitted, left)
	}
}

// TestZeroDisables: each limit alone, and none of them keeps state.
func TestZeroDisables(t *testing.T) {
	l := NewLocal(Options{})
	for range 1000 {
		if _, v := l.call(call{key: "k", admission: admission{Tenant: "t", Service: "s"}}, 0); v.Outcome != Admitted || v.n != 0 {
			t.Fatalf("%+v", v)
		}
	}
	if st := l.Stats(); st.Process.InFlight != 1000 || st.Tables[Registered].Entries != 1 {
		t.Errorf("%+v", st)
	}
}

// TestLoweredCap: the running calls finish, none is admitted until below, and a
// cap set later counts the calls that ran without one.
func TestLoweredCap(t *testing.T) {
	for _, which := range []string{"tenant", "service"} {
		l := NewLocal(Options{})
		admit := func(most int64) (Ticket, Outcome) {
			a := admission{Tenant: "t", Service: "s"}
			switch which {
			case "tenant":
				a.TenantSlots = most
			case "service":
				a.ServiceSlots = most
			}
			ticket, v := l.admit(a, 0)
			if v.Outcome != Admitted && v.Limit.String() != which {
				t.Errorf("%s: refused by %v", which, v.Limit)
			}
			return ticket, v.Outcome
		}
		var running []Ticket
		for range 4 {
			ticket, _ := admit(0)
			running = append(running, ticket)
		}
		for i, want := range []Outcome{ConcurrencyLimited, ConcurrencyLimited, ConcurrencyLimited, Admitted} {
			if _, got := admit(2); got != want {
				t.Errorf("%s: with %d running under a cap of 2: %v, want %v", which, 4-i, got, want)
			}
			if i < 3 {
				running[i].Release()
			}
		}
	}
}

func TestBlock(t *testing.T) {
	l := NewLocal(Options{})
	a := admission{Tenant: "t", TenantLimit: Limit{second, 1}, Service: "s"}
	key := Limit{second, 5}
	l.Block(Registered, "t")
	l.Block(Registered, "u")
	_, v := l.call(call{key: "k", keyLimit: key, admission: a}, 0)
	wantVerdict(t, "blocked", v, Blocked, KindTenant, 0, KindTenant)
	if !v.Never || remaining(l, KindKey, "k", key, 0) != 4 || remaining(l, KindTenant, "t", a.TenantLimit, 0) != 1 {
		t.Errorf("%+v", v)
	}
	if _, v := l.admit(admission{Table: Callers, Tenant: "t", Service: "s"}, 0); v.Outcome != Admitted {
		t.Errorf("a tenant of the same name in another table: %v", v.Outcome)
	}
	l.Unblock(Registered, "t")
	if _, v := l.admit(a, 0); v.Outcome != Admitted || !l.Blocked(Registered, "u") {
		t.Errorf("after unblock: %v", v.Outcome)
	}
	l.Unblock(Registered, "u")
	if l.blocked.Load() != nil {
		t.Error("an empty set is kept")
	}
}

// TestReadingsAreOfTheDecision: what a verdict says is what a look at the bucket
// says, looking costs nothing and makes no entry.
func TestReadingsAreOfTheDecision(t *testing.T) {
	l := NewLocal(Options{MaxInFlight: 9})
	key := Limit{second, 10}
	if r := l.peek(Registered, KindKey, "k", key, 5); r.Remaining != 10 || r.Next != 0 || l.Stats().Tables[Registered].Entries != 0 {
		t.Errorf("%+v", r)
	}
	admitted := 0
	for i := range 12 {
		_, v := l.take(Registered, KindKey, "k", key, 5)
		if v.Outcome == Admitted {
			admitted++
		}
		want := Reading{Kind: KindKey, Quota: 10, Remaining: max(0, 9-int64(i)), Window: 10 * time.Second, Next: time.Second}
		for r := range v.Readings() {
			if r != want {
				t.Errorf("%+v, want %+v", r, want)
			}
		}
		for range 3 {
			if r := l.peek(Registered, KindKey, "k", key, 5); r != want {
				t.Errorf("peek %+v, want %+v", r, want)
			}
		}
	}
	if admitted != 10 {
		t.Errorf("%d admitted, want 10", admitted)
	}
	if r := l.peek(Registered, KindKey, "k", Limit{second, 40}, 5); r.Remaining != 0 || r.Quota != 40 {
		t.Errorf("peek under another limit: %+v", r)
	}
	if r := l.peek(Registered, KindKey, "k", key, 3600*second); r.Remaining != 10 || r.Next != 0 {
		t.Errorf("peek after an hour: %+v", r)
	}

	_, v := l.admit(admission{Tenant: "t", TenantLimit: key, TenantSlots: 3, Service: "s", ServiceBucket: "b", ServiceLimit: Limit{second, 2}, ServiceSlots: 4}, 5)
	var got []Reading
	for r := range v.Readings() {
		got = append(got, r)
	}
	want := []Reading{
		{Kind: KindTenant, Quota: 10, Remaining: 9, Window: 10 * time.Second, Next: time.Second},
		{Kind: KindService, Quota: 2, Remaining: 1, Window: 2 * time.Second, Next: time.Second},
		{Kind: KindTenantSlots, Quota: 3, Remaining: 2, Gauge: true},
		{Kind: KindServiceSlots, Quota: 4, Remaining: 3, Gauge: true},
		{Kind: KindProcessSlots, Quota: 9, Remaining: 8, Gauge: true},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if r := l.peekSlots(Registered, "t", 3); r != want[2] {
		t.Errorf("slots: %+v", r)
	}
}

func TestServiceBucketNames(t *testing.T) {
	seen := map[string][2]string{}
	parts := []string{"", "a", "b", "a/b", "1:a", "/", "1", ":", "a/", "1:a/b"}
	for _, k := range parts {
		for _, s := range parts {
			name := ServiceBucket(k, s)
			if other, ok := seen[name]; ok {
				t.Errorf("%q for %q and for %q", name, [2]string{k, s}, other)
			}
			seen[name] = [2]string{k, s}
		}
	}
}
