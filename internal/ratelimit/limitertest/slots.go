package limitertest

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"agentgw/internal/ratelimit"
)

// changesOfCap: a lowered cap lets the running calls finish and admits none until
// below; one that is set while calls run counts those.
func changesOfCap(t *testing.T, make Maker) {
	for _, which := range []string{"tenant", "service", "process"} {
		s := make(t)
		admit := func(most int64) (ratelimit.Ticket, ratelimit.Outcome) {
			a := ratelimit.Admission{Tenant: tenant("t", ratelimit.Limit{}, 0), Service: ratelimit.NewService("s", 0)}
			s := s
			switch which {
			case "tenant":
				a.Tenant = tenant("t", ratelimit.Limit{}, most)
			case "service":
				a.Service = ratelimit.NewService("s", most)
			case "process":
				s = s.under(most)
			}
			ticket, v := s.admit(a)
			if v.Outcome != ratelimit.Admitted && v.Limit.String() != which {
				t.Errorf("%s: refused by %v", which, v.Limit)
			}
			return ticket, v.Outcome
		}
		for _, before := range []int64{0, 9, 0} { // without a cap, and with a higher one
			var running []ratelimit.Ticket
			for range 4 {
				ticket, o := admit(before)
				if o != ratelimit.Admitted {
					t.Fatal(which, o)
				}
				running = append(running, ticket)
			}
			for i, want := range []ratelimit.Outcome{ratelimit.ConcurrencyLimited, ratelimit.ConcurrencyLimited, ratelimit.ConcurrencyLimited, ratelimit.Admitted} {
				ticket, got := admit(2)
				if got != want {
					t.Errorf("%s, cap %d before: with %d running under a cap of 2: %v, want %v", which, before, 4-i, got, want)
				}
				ticket.Release()
				running[i].Release()
			}
		}
	}
}

func releaseIsOnce(t *testing.T, make Maker) {
	s := make(t)
	a := ratelimit.Admission{Tenant: tenant("t", ratelimit.Limit{}, 2), Service: ratelimit.NewService("s", 2)}
	want := func(left int64) {
		t.Helper()
		if n := s.slotsLeft(a.Tenant); n != left {
			t.Errorf("%d slots left, want %d", n, left)
		}
	}
	first, _ := s.admit(a)
	second, _ := s.admit(a)
	want(0)
	var wg sync.WaitGroup
	for range 8 {
		copied := first
		wg.Go(func() {
			for range 50 {
				copied.Release()
			}
		})
	}
	wg.Wait()
	want(1)
	third, v := s.admit(a)
	if v.Outcome != ratelimit.Admitted {
		t.Fatal(v)
	}
	first.Release() // whatever it is made of may be the third's by now
	want(0)
	if _, v := s.admit(a); v.Outcome != ratelimit.ConcurrencyLimited {
		t.Errorf("%v: an old ticket released another's slot", v.Outcome)
	}
	second.Release()
	third.Release()
	want(2)
	ratelimit.Ticket{}.Release()
	want(2)
}

func releaseAfterPanic(t *testing.T, make Maker) {
	s := make(t)
	a := ratelimit.Admission{Tenant: tenant("t", ratelimit.Limit{}, 1), Service: ratelimit.NewService("s", 1)}
	for range scaled(1000) {
		func() {
			defer func() { recover() }()
			ticket, v := s.admit(a)
			if v.Outcome != ratelimit.Admitted {
				t.Fatal(v.Outcome)
			}
			defer ticket.Release()
			panic("in the handler")
		}()
	}
	if n := s.slotsLeft(a.Tenant); n != 1 {
		t.Errorf("%d slots left", n)
	}
}

// peakNeverExceedsTheCap: a crowd of keys that act for three tenants each, at two
// services, with a cap on tenant, service and process. What was refused cost no
// token of key, tenant or service.
func peakNeverExceedsTheCap(t *testing.T, make Maker) {
	s := make(t).under(5)
	wide := ratelimit.Limit{Interval: 3600 * second, Burst: 100_000}
	var tenants, services, keys, buckets = []*ratelimit.Ref{}, []*ratelimit.Service{}, []*ratelimit.Ref{}, []*ratelimit.Ref{}
	for i := range 3 {
		tenants = append(tenants, tenant(fmt.Sprint(i), wide, 3))
	}
	for i := range 2 {
		services = append(services, ratelimit.NewService(fmt.Sprint(i), 4))
	}
	for i := range 64 {
		keys = append(keys, key(fmt.Sprint(i), wide))
		for j := range services {
			buckets = append(buckets, bucket(fmt.Sprint(i), fmt.Sprint(j), wide))
		}
	}
	var perTenant [3]atomic.Int64
	var perService [2]atomic.Int64
	var process, admitted, refused, over atomic.Int64
	enter := func(n *atomic.Int64, most int64) {
		if n.Add(1) > most {
			over.Add(1)
		}
	}
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range scaled(40_000) {
				tenant, service, key := (g+i)%3, (g+i/3)%2, (7*g+i)%64
				ticket, v := s.call(keys[key], ratelimit.Admission{Tenant: tenants[tenant], Bucket: buckets[2*key+service], Service: services[service]})
				if v.Outcome != ratelimit.Admitted {
					if v.Outcome != ratelimit.ConcurrencyLimited {
						t.Errorf("%v by %v", v.Outcome, v.Limit)
					}
					refused.Add(1)
					continue
				}
				enter(&perTenant[tenant], 3)
				enter(&perService[service], 4)
				enter(&process, 5)
				runtime.Gosched()
				perTenant[tenant].Add(-1)
				perService[service].Add(-1)
				process.Add(-1)
				ticket.Release()
				admitted.Add(1)
			}
		})
	}
	wg.Wait()
	for i, refs := range [][]*ratelimit.Ref{keys, tenants, buckets} {
		spent := int64(0)
		for _, r := range refs {
			spent += wide.Burst - s.left(r)
		}
		if spent != admitted.Load() {
			t.Errorf("%s: %d tokens spent on %d admitted calls", []string{"keys", "tenants", "services"}[i], spent, admitted.Load())
		}
	}
	for _, r := range tenants {
		if n := s.slotsLeft(r); n != 3 {
			t.Errorf("%d slots left when all is over", n)
		}
	}
	if over.Load() != 0 || refused.Load() == 0 {
		t.Errorf("over a cap %d times; %d admitted, %d refused", over.Load(), admitted.Load(), refused.Load())
	}
}

// aSharedSlotIsOne: many tenants, which share no lock, at the only slot of a
// service or of the process. It finds a refusal that is decided by two looks at
// the count, between which the slot comes free: a call then runs without one.
func aSharedSlotIsOne(t *testing.T, make Maker) {
	for _, which := range []string{"service", "process"} {
		s, service := make(t), ratelimit.NewService("s", 1)
		if which == "process" {
			s, service = make(t).under(1), ratelimit.NewService("s", 0)
		}
		var running, over, admitted atomic.Int64
		var wg sync.WaitGroup
		for g := range 8 {
			a := ratelimit.Admission{Tenant: tenant(fmt.Sprint(g), ratelimit.Limit{}, 0), Service: service}
			wg.Go(func() {
				for range scaled(400_000) {
					ticket, v := s.admit(a)
					if v.Outcome != ratelimit.Admitted {
						continue
					}
					if running.Add(1) > 1 {
						over.Add(1)
					}
					running.Add(-1)
					admitted.Add(1)
					ticket.Release()
				}
			})
		}
		wg.Wait()
		if over.Load() != 0 || admitted.Load() == 0 {
			t.Errorf("%s: %d times more than one of %d", which, over.Load(), admitted.Load())
		}
		// No slot is lost, and none was given back that nobody had taken.
		last := ratelimit.Admission{Tenant: tenant("last", ratelimit.Limit{}, 0), Service: service}
		ticket, v := s.admit(last)
		_, w := s.admit(last)
		if v.Outcome != ratelimit.Admitted || w.Outcome != ratelimit.ConcurrencyLimited {
			t.Errorf("%s: afterwards, of two calls: %v, %v", which, v.Outcome, w.Outcome)
		}
		ticket.Release()
	}
}
