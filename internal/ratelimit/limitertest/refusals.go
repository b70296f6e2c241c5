package limitertest

import (
	"testing"
	"time"

	"agentgw/internal/ratelimit"
)

// allOrNothing: for every subset of limits that refuse, the verdict names just
// them, and all keep exactly what they had.
func allOrNothing(t *testing.T, make Maker) {
	const (
		tenantDry = 1 << iota
		serviceDry
		tenantFull
		serviceFull
		processFull
		all
	)
	two := ratelimit.Limit{Interval: second, Burst: 2}
	for set := range all {
		// One more than run before the call, or just as many.
		running := int64(set&tenantFull/tenantFull + set&serviceFull/serviceFull)
		s := make(t).under(running + 1)
		s.Advance(100 * time.Second)
		k := key("k", ratelimit.Limit{Interval: second, Burst: 5})
		t1, b := tenant("t", two, 1), bucket("k", "s", two)
		service, elsewhere := ratelimit.NewService("s", 1), ratelimit.NewService("elsewhere", 0)
		other := tenant("other", ratelimit.Limit{}, 0)
		if set&serviceDry != 0 {
			s.take(b)
			s.take(b)
			s.Advance(time.Second / 2)
		}
		if set&tenantDry != 0 {
			s.take(t1)
			s.take(t1)
		}
		occupy := func(a ratelimit.Admission) {
			if _, v := s.admit(a); v.Outcome != ratelimit.Admitted {
				t.Fatalf("set %b: %+v", set, v)
			}
		}
		if set&tenantFull != 0 {
			occupy(ratelimit.Admission{Tenant: tenant("t", ratelimit.Limit{}, 0), Service: elsewhere})
		}
		if set&serviceFull != 0 {
			occupy(ratelimit.Admission{Tenant: other, Service: service})
		}
		if set&processFull != 0 {
			occupy(ratelimit.Admission{Tenant: other, Service: elsewhere})
		}
		type levels struct{ tenant, service, slots ratelimit.Reading }
		read := func() (r levels) {
			r.tenant, r.slots = s.Peek(t1, s.Now())
			r.service, _ = s.Peek(b, s.Now())
			return r
		}
		before := read()
		ticket, v := s.call(k, ratelimit.Admission{Tenant: t1, Bucket: b, Service: service})
		if set == 0 {
			after := read()
			if v.Outcome != ratelimit.Admitted || s.left(k) != 4 || after.tenant.Remaining != 1 || after.service.Remaining != 1 || after.slots.Remaining != 0 {
				t.Errorf("nothing refuses: %v by %v, key has %d, %+v", v.Outcome, v.Limit, s.left(k), after)
			}
			ticket.Release()
			continue
		}
		var violated []ratelimit.Kind
		for i, k := range []ratelimit.Kind{ratelimit.KindTenant, ratelimit.KindService, ratelimit.KindTenantSlots, ratelimit.KindServiceSlots, ratelimit.KindProcessSlots} {
			if set&(1<<i) != 0 {
				violated = append(violated, k)
			}
		}
		wantKey := int64(4) // a rate refusal has consumed the key's token
		switch {
		case set&tenantDry != 0:
			wantVerdict(t, "tenant dry", v, ratelimit.RateLimited, ratelimit.KindTenant, time.Second, violated...)
		case set&serviceDry != 0:
			wantVerdict(t, "service dry", v, ratelimit.RateLimited, ratelimit.KindService, time.Second/2, violated...)
		default:
			wantVerdict(t, "slots", v, ratelimit.ConcurrencyLimited, violated[0], time.Second, violated...)
			wantKey = 5
		}
		if s.left(k) != wantKey {
			t.Errorf("set %b: key has %d tokens, want %d", set, s.left(k), wantKey)
		}
		if after := read(); after != before {
			t.Errorf("set %b: a refusal changed %+v to %+v", set, before, after)
		}
		// Neither does it hold a slot of what has no reading.
		if set&(serviceFull|processFull) == 0 {
			if _, v := s.admit(ratelimit.Admission{Tenant: other, Service: service}); v.Outcome != ratelimit.Admitted {
				t.Errorf("set %b: a refusal kept a slot: %v by %v", set, v.Outcome, v.Limit)
			}
		}
	}
}

// waitIsTrue: whatever refuses, the same call made one step before the wait is
// over is refused, and admitted after it, also when the limit that takes longest
// is the key's, whose token the refused call has spent.
func waitIsTrue(t *testing.T, make Maker) {
	every := func(seconds, burst int64) ratelimit.Limit {
		return ratelimit.Limit{Interval: seconds * second, Burst: burst}
	}
	for _, tt := range []struct {
		name                 string
		key, tenant, service ratelimit.Limit
		limit                ratelimit.Kind
		wait                 time.Duration
	}{
		{"tenant", every(1, 9), every(3, 1), every(1, 9), ratelimit.KindTenant, 3 * time.Second},
		{"service", every(1, 9), every(1, 9), every(4, 1), ratelimit.KindService, 4 * time.Second},
		{"both: the longest", every(1, 9), ratelimit.Limit{Interval: 300 * ms, Burst: 1}, every(7, 1), ratelimit.KindService, 7 * time.Second},
		{"both alike: the first", every(1, 9), every(7, 1), every(7, 1), ratelimit.KindTenant, 7 * time.Second},
		{"the key's own next token", every(5, 2), every(3, 1), ratelimit.Limit{}, ratelimit.KindTenant, 5 * time.Second},
		{"key", every(5, 1), every(1, 9), ratelimit.Limit{}, ratelimit.KindKey, 5 * time.Second},
	} {
		try := func(after func(Subject) time.Duration) ratelimit.Outcome {
			s := make(t)
			k := key("k", tt.key)
			a := ratelimit.Admission{Tenant: tenant("t", tt.tenant, 0), Bucket: bucket("k", "s", tt.service), Service: ratelimit.NewService("s", 0)}
			if _, v := s.call(k, a); v.Outcome != ratelimit.Admitted {
				t.Fatalf("%s: %+v", tt.name, v)
			}
			_, v := s.call(k, a)
			if v.Outcome != ratelimit.RateLimited || v.Limit != tt.limit || v.Wait != tt.wait {
				t.Errorf("%s: %v by %v, wait %v; want %v, %v", tt.name, v.Outcome, v.Limit, v.Wait, tt.limit, tt.wait)
			}
			s.Advance(after(s))
			_, v = s.call(k, a)
			return v.Outcome
		}
		if o := try(func(Subject) time.Duration { return tt.wait }); o != ratelimit.Admitted {
			t.Errorf("%s: %v after the wait", tt.name, o)
		}
		if o := try(func(s Subject) time.Duration { return tt.wait - s.step() }); o != ratelimit.RateLimited {
			t.Errorf("%s: %v before the wait was over", tt.name, o)
		}
	}
}

// concurrencyRefusalsAreFree up to ten times the key's rate and burst; after that
// they are the key's own refusals and cost it a token.
func concurrencyRefusalsAreFree(t *testing.T, make Maker) {
	s := make(t)
	k := key("k", ratelimit.Limit{Interval: second, Burst: 3})
	a := ratelimit.Admission{Tenant: tenant("t", ratelimit.Limit{Interval: second, Burst: 50}, 1), Service: ratelimit.NewService("s", 0)}
	held, v := s.admit(a)
	if v.Outcome != ratelimit.Admitted {
		t.Fatal(v)
	}
	for i := range 30 {
		_, v := s.call(k, a)
		wantVerdict(t, "free", v, ratelimit.ConcurrencyLimited, ratelimit.KindTenantSlots, time.Second, ratelimit.KindTenantSlots)
		if s.left(k) != 3 {
			t.Fatalf("refusal %d: key has %d of 3", i, s.left(k))
		}
	}
	for i := range int64(3) {
		_, v := s.call(k, a)
		wait := time.Second / 10 // until the next free refusal
		if i == 2 {
			wait = time.Second // until the key has a token
		}
		wantVerdict(t, "paid", v, ratelimit.RateLimited, ratelimit.KindKey, wait, ratelimit.KindKey, ratelimit.KindTenantSlots)
		if s.left(k) != 2-i {
			t.Fatalf("paid refusal %d: key has %d, want %d", i, s.left(k), 2-i)
		}
	}
	_, v = s.call(k, a)
	wantVerdict(t, "key dry", v, ratelimit.RateLimited, ratelimit.KindKey, time.Second, ratelimit.KindKey)
	if n := s.left(a.Tenant); n != 49 {
		t.Errorf("tenant has %d, want all but the one running", n)
	}
	held.Release()
	s.Advance(time.Second)
	if _, v := s.call(k, a); v.Outcome != ratelimit.Admitted {
		t.Errorf("after the release: %v by %v", v.Outcome, v.Limit)
	}
}

// aTenantIsNotDrainedByOneKey: a flood on one key that its own limit refuses
// leaves the tenant's other keys what they had.
func aTenantIsNotDrainedByOneKey(t *testing.T, make Maker) {
	s := make(t)
	a := ratelimit.Admission{Tenant: tenant("t", ratelimit.Limit{Interval: 3600 * second, Burst: 100}, 0), Service: ratelimit.NewService("s", 0)}
	noisy, quiet := key("k1", ratelimit.Limit{Interval: 60 * second, Burst: 1}), key("k2", ratelimit.Limit{})
	admitted := 0
	for i := range 250 {
		k := noisy
		if i >= 200 {
			k = quiet
		}
		if _, v := s.call(k, a); v.Outcome == ratelimit.Admitted {
			admitted++
		}
	}
	if left := s.left(a.Tenant); admitted != 51 || left != 49 {
		t.Errorf("%d admitted and %d left, want 51 and 49", admitted, left)
	}
}

// zeroDisables: limits that are off refuse nothing and say nothing.
func zeroDisables(t *testing.T, make Maker) {
	s := make(t)
	a := ratelimit.Admission{Tenant: tenant("t", ratelimit.Limit{}, 0), Bucket: bucket("k", "s", ratelimit.Limit{}), Service: ratelimit.NewService("s", 0)}
	for range 1000 {
		_, v := s.call(key("k", ratelimit.Limit{}), a)
		if v.Outcome != ratelimit.Admitted {
			t.Fatalf("%+v", v)
		}
		for r := range v.Readings() {
			t.Fatalf("a reading of a limit that is off: %+v", r)
		}
	}
	a.Tenant = nil
	if _, v := s.call(key("k", ratelimit.Limit{}), a); v.Outcome != ratelimit.Admitted {
		t.Errorf("a call without a tenant: %+v", v)
	}
}
