package ratelimit

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

// TestFirstCapCountsWhatRuns: calls of many tenants run at a service without a
// cap; one comes, and a crowd of the first calls under it meets the others as
// they end. None is admitted while as many as the cap run.
func TestFirstCapCountsWhatRuns(t *testing.T) {
	const most = 3
	for range scaled(500) {
		l := NewLocal(Options{TableSize: 8})
		free, capped := NewService("s", 0), NewService("s", most)
		var running, over atomic.Int64
		var open []Ticket
		for i := range 20 {
			ticket, v := l.Admit(Charge{}, Admission{Tenant: NewTenant(Registered, fmt.Sprint(i%7), Limit{}, 0), Service: free}, 0)
			if v.Outcome != Admitted {
				t.Fatal(v)
			}
			running.Add(1)
			open = append(open, ticket)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for _, ticket := range open {
				running.Add(-1)
				ticket.Release()
			}
		})
		for g := range 4 {
			tenant := NewTenant(Registered, fmt.Sprint(g), Limit{}, 0)
			wg.Go(func() {
				for range 50 {
					ticket, v := l.Admit(Charge{}, Admission{Tenant: tenant, Service: capped}, 0)
					if v.Outcome != Admitted {
						continue
					}
					if running.Add(1) > most {
						over.Add(1)
					}
					running.Add(-1)
					ticket.Release()
				}
			})
		}
		wg.Wait()
		if over.Load() != 0 {
			t.Fatalf("%d times over the cap", over.Load())
		}
		l.wantInFlight(t, 0)
	}
}

// TestCapsComeAndGo: calls decided by a view with a cap, and by one without, end
// up in one count, which is 0 when they have ended.
func TestCapsComeAndGo(t *testing.T) {
	for range scaled(500) {
		l := NewLocal(Options{TableSize: 4})
		views := []*Service{NewService("s", 0), NewService("s", 5)}
		var wg sync.WaitGroup
		for g := range 8 {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			wg.Go(func() {
				var open []Ticket
				for i := range 50 {
					// The first calls are without a cap, so that there is something to take over.
					view := views[min(r.IntN(2), i/5)]
					tenant := NewTenant(Registered, fmt.Sprint(r.IntN(12)), Limit{}, 0)
					if ticket, v := l.Admit(Charge{}, Admission{Tenant: tenant, Service: view}, int64(i)); v.Outcome == Admitted {
						open = append(open, ticket)
					}
					if len(open) > r.IntN(4) {
						open[0].Release()
						open = open[1:]
					}
				}
				for _, ticket := range open {
					ticket.Release()
				}
			})
		}
		wg.Wait()
		if !l.service("s").whole.Load() {
			t.Fatal("the service does not count its calls")
		}
		l.wantInFlight(t, 0)
	}
}

// TestFirstCapFindsEveryCall: of a tenant, of one that shares the overflow entry,
// in another table, without a tenant, and of one admitted without a cap after
// the counting began.
func TestFirstCapFindsEveryCall(t *testing.T) {
	l := NewLocal(Options{TableSize: 1})
	l.take(Registered, KindKey, "fills the table", Limit{1 << 40, 1}, 0)
	l.take(Callers, KindKey, "fills the table", Limit{1 << 40, 1}, 0)
	free, capped := NewService("s", 0), NewService("s", 6)
	var open []Ticket
	admit := func(tenant *Ref, s *Service, want Outcome) {
		t.Helper()
		ticket, v := l.Admit(Charge{}, Admission{Tenant: tenant, Service: s}, 1)
		if v.Outcome != want {
			t.Errorf("with %d running: %v, want %v", len(open), v.Outcome, want)
		}
		if v.Outcome == Admitted {
			open = append(open, ticket)
		}
	}
	shared, caller := NewTenant(Registered, "shares", Limit{}, 0), NewTenant(Callers, "caller", Limit{}, 0)
	admit(nil, free, Admitted)
	admit(nil, free, Admitted)
	admit(shared, free, Admitted)
	admit(caller, free, Admitted)
	admit(shared, capped, Admitted)
	admit(caller, free, Admitted)
	admit(shared, capped, ConcurrencyLimited)
	l.wantInFlight(t, 6)
	for _, ticket := range open {
		ticket.Release()
	}
	l.wantInFlight(t, 0)
}
