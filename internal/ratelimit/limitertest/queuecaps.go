package limitertest

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"agentgw/internal/ratelimit"
)

// capsInForce: those that wait are held to the caps last told, also where they came
// under others. What is gone from the file keeps what it had, and strands nobody.
func capsInForce(t *testing.T, make Maker) {
	for _, which := range []string{"tenant", "service", "process"} {
		s := make(t)
		caps := func(n int64) *ratelimit.Caps {
			c := &ratelimit.Caps{
				Tenant:  func(*ratelimit.Ref) *ratelimit.Ref { return nil },
				Service: func(*ratelimit.Service) *ratelimit.Service { return nil },
			}
			switch which {
			case "tenant":
				c.Tenant = func(r *ratelimit.Ref) *ratelimit.Ref { return tenant(r.Partition(), ratelimit.Limit{}, n) }
			case "service":
				c.Service = func(s *ratelimit.Service) *ratelimit.Service { return ratelimit.NewService(s.Name(), n) }
			case "process":
				c.Process = n
			}
			return c
		}
		under := func(n int64) ratelimit.Admission {
			a := ratelimit.Admission{Tenant: tenant("t", ratelimit.Limit{}, 0), Service: ratelimit.NewService("s", 0)}
			switch which {
			case "tenant":
				a.Tenant = tenant("t", ratelimit.Limit{}, n)
			case "service":
				a.Service = ratelimit.NewService("s", n)
			case "process":
				s = s.under(n)
			}
			return a
		}
		s.Follow(caps(1))
		holds := s.occupy(t, under(1))
		var places []*ratelimit.Place
		for range 6 {
			places = append(places, s.queue(t, under(1)))
		}
		s.Follow(caps(3))
		wantReady(t, which+": raised from 1 to 3", "110000", places...)
		_, late, _ := s.enter(under(1)) // decided by what held before
		s.Follow(caps(2))
		holds.Release()
		wantReady(t, which+": lowered to 2, with 2 running", "110000", places...)
		first, _ := places[0].End(s.Now())
		first.Release()
		wantReady(t, which+": one less", "111000", places...)
		s.Follow(caps(0))
		wantReady(t, which+": none", "1111111", append(places, late)...)

		// A call that comes under a cap that was raised meanwhile is not stuck at it.
		s.Follow(caps(50))
		if _, _, v := s.enter(under(1)); v.Outcome != ratelimit.Admitted {
			t.Errorf("%s: %v under the cap of before", which, v.Outcome)
		}

		gone := caps(0)
		gone.Tenant, gone.Service = func(*ratelimit.Ref) *ratelimit.Ref { return nil }, func(*ratelimit.Service) *ratelimit.Service { return nil }
		if which == "process" {
			continue // which cannot go
		}
		s.Follow(caps(7))
		p := s.queue(t, under(7))
		s.Follow(gone)
		wantReady(t, which+": gone", "0", p)
		second, _ := places[1].End(s.Now())
		second.Release()
		wantReady(t, which+": gone, and a slot free", "1", p)
	}
}

// aFirstCapHoldsForWhoWaits: where there was none, it counts what runs, also for a call
// that waits for something else and no longer has to.
func aFirstCapHoldsForWhoWaits(t *testing.T, make Maker) {
	for _, which := range []string{"service", "process"} {
		s := make(t)
		free := scene{tenant: 1}
		s.Follow(free.caps())
		running := s.running(t, free.call("t", nil))
		p := s.waiting(t, free.call("t", nil))
		s.Follow(free.with("tenant", 9).with(which, 1).caps())
		wantReady(t, which+": one runs", "0", p)
		running.Release()
		wantReady(t, which+": none runs", "1", p)
	}
}

// peakWithAQueue: a crowd that waits, leaves and gives up at the caps of tenants,
// services and process. No cap is ever exceeded, nobody is left, and nothing is.
func peakWithAQueue(t *testing.T, make Maker) {
	s := make(t).under(5)
	wide := ratelimit.Limit{Interval: 3600 * second, Burst: 1 << 20}
	var tenants []*ratelimit.Ref
	var services []*ratelimit.Service
	for i := range 3 {
		tenants = append(tenants, tenant(fmt.Sprint(i), wide, 3))
		services = append(services, ratelimit.NewService(fmt.Sprint(i), []int64{4, 2, 0}[i]))
	}
	var perTenant, perService [3]atomic.Int64
	var process, admitted, waited, left, over atomic.Int64
	run := func(tenant, service int, ticket ratelimit.Ticket) {
		for n, most := range map[*atomic.Int64]int64{&perTenant[tenant]: 3, &perService[service]: []int64{4, 2, many}[service], &process: 5} {
			if n.Add(1) > most {
				over.Add(1)
			}
		}
		admitted.Add(1)
		runtime.Gosched()
		perTenant[tenant].Add(-1)
		perService[service].Add(-1)
		process.Add(-1)
		ticket.Release()
	}
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range scaled(20_000) {
				tenant, service := (g+i)%3, (g+i/3)%3
				ticket, p, v := s.enterBy(ratelimit.Charge{}, ratelimit.Admission{Tenant: tenants[tenant], Service: services[service]}, 4)
				switch {
				case v.Outcome == ratelimit.Admitted:
					run(tenant, service, ticket)
				case v.Outcome == ratelimit.Queued && i%20 == 0:
					p.Leave(s.Now())
					left.Add(1)
				case v.Outcome == ratelimit.Queued && i%20 == 1:
					if ticket, v := p.End(s.Now()); v.Outcome == ratelimit.Admitted {
						run(tenant, service, ticket)
					}
				case v.Outcome == ratelimit.Queued:
					<-p.Ready()
					waited.Add(1)
					ticket, _ := p.End(s.Now())
					run(tenant, service, ticket)
				}
			}
		})
	}
	wg.Wait()
	spent := int64(0)
	for _, r := range tenants {
		spent += wide.Burst - s.left(r)
		if n := s.slotsLeft(r); n != 3 {
			t.Errorf("%d slots left when all is over", n)
		}
	}
	if over.Load() != 0 || waited.Load() == 0 || left.Load() == 0 || spent != admitted.Load() {
		t.Errorf("over a cap %d times; %d admitted for %d tokens, %d of them after a wait; %d left", over.Load(), admitted.Load(), spent, waited.Load(), left.Load())
	}
	for range 5 { // as many as the process has
		s.occupy(t, ratelimit.Admission{Tenant: tenant("last", ratelimit.Limit{}, 0), Service: services[2]})
	}
}
