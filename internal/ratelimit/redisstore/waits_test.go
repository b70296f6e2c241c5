package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/ratelimit"
	"agentgw/internal/ratelimit/redisstore"
	"agentgw/internal/redistest"
)

// waiters is a fleet whose calls may wait: each replica hears the bell, and stands for who
// waits, as a process does.
type waiters struct {
	*fleet
	clock ratelimit.Clock
	end   []func()    // of each replica's standing for who waits
	deaf  atomic.Bool // nothing that is published reaches anybody
	rings atomic.Int64
}

func newWaiters(t testing.TB, f *fleet, url string, n int, policy ratelimit.Policy) *waiters {
	t.Helper()
	w := &waiters{fleet: f, clock: ratelimit.NewClock(clockwork.NewRealClock())}
	for i := range n {
		var shared atomic.Pointer[ratelimit.Shared]
		name := fmt.Sprint("replica", i)
		store, err := redisstore.Open(redisstore.Options{
			URL: url, Clock: clockwork.NewRealClock(), Timeout: 10 * time.Second, Channel: ratelimit.Bell(name),
			Heard: func(set string) {
				if s := shared.Load(); s != nil && !w.deaf.Load() {
					w.rings.Add(1)
					s.Ring(set)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		eventually(t, "the store decides", func() bool {
			_, err := store.Ask(ratelimit.Probe())
			return err == nil
		})
		f.stores = append(f.stores, store)
		l := ratelimit.NewShared(ratelimit.NewLocal(ratelimit.Options{Clock: w.clock}), store, ratelimit.SharedOptions{
			Replica: name, Away: policy, Divided: store.Divided(), Failed: func(err error) { f.failed.Add(1); t.Log(name, err) },
		})
		shared.Store(l)
		f.limiters = append(f.limiters, l)
		ctx, cancel := context.WithCancel(context.Background())
		var standing sync.WaitGroup
		w.end = append(w.end, func() { cancel(); standing.Wait() })
		standing.Go(func() {
			for ctx.Err() == nil {
				l.Stand()
				select {
				case <-ctx.Done():
				case <-time.After(ratelimit.StandEvery):
				}
			}
		})
		t.Cleanup(func() { cancel(); standing.Wait() })
	}
	return w
}

func waitersOfOne(t testing.TB, n int, policy ratelimit.Policy) *waiters {
	t.Helper()
	f := &fleet{server: redistest.Start(t)}
	return newWaiters(t, f, f.server.URL(), n, policy)
}

func waitersOfMany(t testing.TB, n int, policy ratelimit.Policy) *waiters {
	t.Helper()
	f := &fleet{cluster: redistest.StartCluster(t)}
	return newWaiters(t, f, f.cluster.URL(), n, policy)
}

// enter makes a call that may wait with so many others.
func (w *waiters) enter(replica int, a ratelimit.Admission, queue int64) (ratelimit.Ticket, *ratelimit.Place, ratelimit.Verdict) {
	return w.limiters[replica].Enter(ratelimit.Charge{}, a, queue, w.clock.Nanos())
}

// occupy makes a call that must be admitted at once.
func (w *waiters) occupy(t testing.TB, replica int, a ratelimit.Admission) ratelimit.Ticket {
	t.Helper()
	ticket, v := w.limiters[replica].Admit(ratelimit.Charge{}, a, w.clock.Nanos())
	if v.Outcome != ratelimit.Admitted {
		t.Fatalf("%v by %v", v.Outcome, v.Limit)
	}
	return ticket
}

// occupySoon makes a call that must be admitted when what was told before is run.
func (w *waiters) occupySoon(t testing.TB, replica int, a ratelimit.Admission) (ticket ratelimit.Ticket) {
	t.Helper()
	eventually(t, "a slot is free", func() bool {
		var v ratelimit.Verdict
		ticket, v = w.limiters[replica].Admit(ratelimit.Charge{}, a, w.clock.Nanos())
		return v.Outcome == ratelimit.Admitted
	})
	return ticket
}

// wait makes a call that must wait.
func (w *waiters) wait(t testing.TB, replica int, a ratelimit.Admission) *ratelimit.Place {
	t.Helper()
	_, p, v := w.enter(replica, a, 100)
	if v.Outcome != ratelimit.Queued {
		t.Fatalf("%v by %v, want it to wait", v.Outcome, v.Limit)
	}
	return p
}

// served is what becomes of a call that waits until it is served, or patience is over.
func (w *waiters) served(p *ratelimit.Place, patience time.Duration) (ratelimit.Ticket, ratelimit.Verdict) {
	over := time.After(patience)
	for {
		select {
		case <-p.Ready():
			if ticket, v := p.Claim(w.clock.Nanos()); v.Outcome != ratelimit.Queued {
				return ticket, v
			}
		case <-over:
			return p.End(w.clock.Nanos())
		}
	}
}

// turns has calls wait, and tells in which order they were served.
type turns struct {
	mu      sync.Mutex
	order   []string
	tickets []ratelimit.Ticket
	all     sync.WaitGroup
}

func (o *turns) add(t testing.TB, w *waiters, name string, p *ratelimit.Place) {
	o.all.Go(func() {
		ticket, v := w.served(p, time.Minute)
		if v.Outcome != ratelimit.Admitted {
			t.Errorf("%s: %v", name, v.Outcome)
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.order, o.tickets = append(o.order, name), append(o.tickets, ticket)
	})
}

func (o *turns) sofar() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.order, " ")
}

// next is the ticket of who was served last, once so many were.
func (o *turns) next(t testing.TB, n int) ratelimit.Ticket {
	t.Helper()
	eventually(t, fmt.Sprint(n, " are served"), func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.order) >= n
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tickets[n-1]
}

// count is how many stand in a set.
func (f *fleet) count(set string) string {
	if f.cluster != nil {
		return strings.TrimPrefix(f.cluster.Do(set, "ZCARD", set), ":")
	}
	return strings.TrimPrefix(f.server.Do("ZCARD", set), ":")
}

// nothingIsLeft waits until nobody stands in a tenant's set.
func (f *fleet) nothingIsLeft(t testing.TB, tenant string) {
	t.Helper()
	eventually(t, "nothing is left in the store", func() bool { return f.leases(tenant) == "0" })
}

// onBoth runs a test with one server and with a Cluster.
func onBoth(t *testing.T, policy ratelimit.Policy, n int, f func(*testing.T, *waiters)) {
	for name, of := range map[string]func(testing.TB, int, ratelimit.Policy) *waiters{"one server": waitersOfOne, "a Cluster": waitersOfMany} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, of(t, n, policy))
		})
	}
}

// TestWhoWaitsIsServedByAnyReplica: a call waits for slots that other replicas' calls have, and
// gets the one that any of them gives back.
func TestWhoWaitsIsServedByAnyReplica(t *testing.T) {
	t.Parallel()
	onBoth(t, ratelimit.PolicyClosed, 3, func(t *testing.T, w *waiters) {
		held := []ratelimit.Ticket{w.occupy(t, 0, at("t", 2)), w.occupy(t, 1, at("t", 2))}
		for round := range 6 { // at its own replica, at another's, and at one that has no slot
			var o turns
			o.add(t, w, "it", w.wait(t, 2, at("t", 2)))
			held[round%2].Release()
			held[round%2] = o.next(t, 1)
		}
		for _, h := range held {
			h.Release()
		}
		w.nothingIsLeft(t, "t")
		if n := w.failed.Load(); n > 0 {
			t.Errorf("%d decisions failed", n)
		}
	})
}

// TestNobodyOvertakesAcrossReplicas: calls that wait at several replicas are served in the
// order in which they came, and who comes meanwhile, at any replica, is behind them; who may not
// wait is refused.
func TestNobodyOvertakesAcrossReplicas(t *testing.T) {
	t.Parallel()
	onBoth(t, ratelimit.PolicyClosed, 3, func(t *testing.T, w *waiters) {
		first := w.occupy(t, 0, at("t", 1))
		var o turns
		want := []string{}
		for i := range 9 {
			name := fmt.Sprint(i)
			want = append(want, name)
			o.add(t, w, name, w.wait(t, []int{1, 2, 2, 0, 1, 1, 0, 2, 0}[i], at("t", 1)))
			time.Sleep(2 * time.Millisecond) // their ages are told apart
		}
		var overtook atomic.Int64
		over := make(chan struct{})
		var others sync.WaitGroup
		for replica := range 3 { // who would take it if they could
			others.Go(func() {
				for {
					select {
					case <-over:
						return
					default:
					}
					if ticket, v := w.limiters[replica].Admit(ratelimit.Charge{}, at("t", 1), w.clock.Nanos()); v.Outcome == ratelimit.Admitted {
						overtook.Add(1)
						ticket.Release()
					}
				}
			})
		}
		first.Release()
		for i := range want {
			ticket := o.next(t, i+1)
			if i == len(want)-1 {
				close(over)
				others.Wait()
			}
			ticket.Release()
		}
		o.all.Wait()
		if got := o.sofar(); got != strings.Join(want, " ") || overtook.Load() > 0 {
			t.Errorf("served %s, want %s; %d overtook", got, strings.Join(want, " "), overtook.Load())
		}
		w.nothingIsLeft(t, "t")
	})
}

// TestADeadReplicasPlacesAreGone: a replica that dies while its calls wait, and came first, holds up who
// waits at another for no longer than its place is believed.
func TestADeadReplicasPlacesAreGone(t *testing.T) {
	t.Parallel()
	w := waitersOfOne(t, 3, ratelimit.PolicyClosed)
	held := w.occupy(t, 0, at("t", 1))
	w.wait(t, 1, at("t", 1))
	w.end[1]()
	w.stores[1].Close()
	var o turns
	o.add(t, w, "it", w.wait(t, 2, at("t", 1)))
	held.Release()
	o.next(t, 1).Release()
	w.nothingIsLeft(t, "t")
}

// TestHangingUpLeavesNothing: calls that wait and leave, or give up, stand nowhere any
// more, have their tokens back, and are in nobody's way.
func TestHangingUpLeavesNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, ratelimit.PolicyClosed, 2, func(t *testing.T, w *waiters) {
		limit := ratelimit.Limit{Interval: int64(time.Hour), Burst: 10}
		call := func() ratelimit.Admission {
			return ratelimit.Admission{Tenant: ratelimit.NewTenant(ratelimit.Registered, "t", limit, 1), Service: ratelimit.NewService("s", 0)}
		}
		held := w.occupy(t, 0, call())
		var places []*ratelimit.Place
		for i := range 8 {
			places = append(places, w.wait(t, i%2, call()))
		}
		if bucket, _ := w.limiters[0].Peek(call().Tenant, w.clock.Nanos()); bucket.Remaining != 1 {
			t.Errorf("%d tokens are left while eight wait, want 1", bucket.Remaining)
		}
		for i, p := range places {
			if i%3 == 0 {
				if ticket, v := p.End(w.clock.Nanos()); v.Outcome != ratelimit.ConcurrencyLimited || v.Limit != ratelimit.KindTenantSlots || ticket != (ratelimit.Ticket{}) {
					t.Error(v.Outcome, v.Limit)
				}
			} else {
				p.Leave(w.clock.Nanos())
			}
		}
		eventually(t, "the lease alone is left", func() bool { return w.leases("t") == "1" })
		held.Release()
		w.nothingIsLeft(t, "t")
		if bucket, _ := w.limiters[0].Peek(call().Tenant, w.clock.Nanos()); bucket.Remaining != 9 {
			t.Errorf("%d tokens are left, want 9", bucket.Remaining)
		}
	})
}

// TestWhatIsNotHeardIsFound: without any notification who waits is served all the same.
func TestWhatIsNotHeardIsFound(t *testing.T) {
	t.Parallel()
	onBoth(t, ratelimit.PolicyClosed, 2, func(t *testing.T, w *waiters) {
		w.deaf.Store(true)
		held := []ratelimit.Ticket{w.occupy(t, 0, at("t", 3)), w.occupy(t, 0, at("t", 3)), w.occupy(t, 0, at("t", 3))}
		var o turns
		for i := range 6 {
			o.add(t, w, fmt.Sprint(i), w.wait(t, 1, at("t", 3)))
		}
		for _, h := range held {
			h.Release()
		}
		for i := range 6 {
			o.next(t, i+1).Release()
		}
		w.nothingIsLeft(t, "t")
	})
}

// TestABellIsEnough: who waits is served by the notification alone, where nobody looks.
func TestABellIsEnough(t *testing.T) {
	t.Parallel()
	onBoth(t, ratelimit.PolicyClosed, 3, func(t *testing.T, w *waiters) {
		for i := range w.limiters {
			before := w.rings.Load()
			eventually(t, "it hears", func() bool {
				w.publish(ratelimit.Bell(fmt.Sprint("replica", i)), "nothing")
				time.Sleep(time.Millisecond)
				return w.rings.Load() > before
			})
		}
		for _, end := range w.end {
			end()
		}
		held := w.occupy(t, 0, at("t", 1))
		var o turns
		for i := range 6 { // before any place ends that is not renewed
			o.add(t, w, fmt.Sprint(i), w.wait(t, i%3, at("t", 1)))
		}
		held.Release()
		for i := range 6 {
			o.next(t, i+1).Release()
		}
		w.nothingIsLeft(t, "t")
	})
}

func (f *fleet) publish(channel, message string) {
	if f.cluster != nil {
		f.cluster.Nodes[0].Do("PUBLISH", channel, message)
		return
	}
	f.server.Do("PUBLISH", channel, message)
}

// TestAWaitForAFullService is in nobody's way who could use the tenant's slots, at no
// replica; and ends when the service has room, and the tenant too.
func TestAWaitForAFullService(t *testing.T) {
	t.Parallel()
	onBoth(t, ratelimit.PolicyClosed, 2, func(t *testing.T, w *waiters) {
		const capped, wide = "capped", "wide"
		of := func(tenant string, service string) ratelimit.Admission {
			most := map[string]int64{capped: 1, wide: 0}[service]
			return ratelimit.Admission{Tenant: ratelimit.NewTenant(ratelimit.Registered, tenant, ratelimit.Limit{}, 2), Service: ratelimit.NewService(service, most)}
		}
		held := w.occupy(t, 0, of("t", capped))
		var o turns
		o.add(t, w, "it", w.wait(t, 1, of("t", capped)))
		eventually(t, "a call of the tenant's at another service is admitted", func() bool {
			other, v := w.limiters[0].Admit(ratelimit.Charge{}, of("t", wide), w.clock.Nanos())
			other.Release()
			return v.Outcome == ratelimit.Admitted
		})
		second := w.occupy(t, 0, of("t", wide)) // the tenant is full as well
		held.Release()
		o.next(t, 1).Release()
		// Now both are full, each by another tenant's calls or its own, and come free one after the other.
		service, one, two := w.occupySoon(t, 0, of("u", capped)), second, w.occupySoon(t, 0, of("t", wide))
		o.add(t, w, "again", w.wait(t, 1, of("t", capped)))
		service.Release()
		one.Release()
		o.next(t, 2).Release()
		two.Release()
		w.nothingIsLeft(t, "t")
		w.nothingIsLeft(t, "u")
	})
}

// TestWhoIsNotNextStandsInNobodysWay: a call that lacks a slot of its service, and is behind
// another of its tenant that lacks one of the tenant alone, is not one for which its replica
// stands in the service's set: nobody there would ask.
func TestWhoIsNotNextStandsInNobodysWay(t *testing.T) {
	t.Parallel()
	onBoth(t, ratelimit.PolicyClosed, 2, func(t *testing.T, w *waiters) {
		of := func(tenant, service string, most int64) ratelimit.Admission {
			return ratelimit.Admission{Tenant: ratelimit.NewTenant(ratelimit.Registered, tenant, ratelimit.Limit{}, 1), Service: ratelimit.NewService(service, most)}
		}
		held := w.occupy(t, 0, of("t", "wide", 0))
		var o turns
		o.add(t, w, "first", w.wait(t, 0, of("t", "capped", 1)))
		other := w.occupy(t, 1, of("u", "capped", 1))
		o.add(t, w, "second", w.wait(t, 0, of("t", "capped", 1)))
		eventually(t, "in the service's set is the other's lease alone", func() bool { return w.count("agw2:{service:capped}:slots") == "1" })
		other.Release()
		held.Release()
		o.next(t, 1).Release()
		o.next(t, 2).Release()
		w.nothingIsLeft(t, "t")
		w.nothingIsLeft(t, "u")
	})
}

// TestRedisIsStoppedWhileCallsWait: they are served by what their replica may give without
// it, and nobody is left.
func TestRedisIsStoppedWhileCallsWait(t *testing.T) {
	t.Parallel()
	w := waitersOfOne(t, 2, ratelimit.PolicyShare)
	for i, l := range w.limiters { // they know of each other
		for range 2 {
			if _, err := l.Renew(w.stores[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := w.limiters[0].Renew(w.stores[0]); err != nil || w.limiters[0].Replicas() != 2 {
		t.Fatal(err, w.limiters[0].Replicas())
	}
	var held []ratelimit.Ticket
	for range 4 {
		held = append(held, w.occupy(t, 0, at("t", 4)))
	}
	var o turns
	for i := range 4 {
		o.add(t, w, fmt.Sprint(i), w.wait(t, 1, at("t", 4)))
	}
	w.server.Stop()
	o.next(t, 2) // its share
	o.mu.Lock()
	if len(o.order) != 2 {
		t.Errorf("%d run, want the share of 2", len(o.order))
	}
	o.mu.Unlock()
	for i := range 4 {
		o.next(t, i+1).Release()
	}
	for _, h := range held {
		h.Release()
	}
	w.server.Again()
	eventually(t, "the store decides again", func() bool {
		ticket, v := w.limiters[1].Admit(ratelimit.Charge{}, at("t", 4), w.clock.Nanos())
		ticket.Release()
		return v.Outcome == ratelimit.Admitted && !w.stores[1].Away() && !w.stores[0].Away()
	})
	w.nothingIsLeft(t, "t")
}

// TestARandomHistoryOfWaits: calls of two tenants at three replicas that come, wait, give up,
// hang up and end, at random. No cap is ever passed, who has the patience is served,
// and nothing is left.
func TestARandomHistoryOfWaits(t *testing.T) {
	t.Parallel()
	onBoth(t, ratelimit.PolicyClosed, 3, func(t *testing.T, w *waiters) {
		const most, inCapped = 3, 4
		var ofTenant [2]atomic.Int64
		var ofCapped, servedLate, left, refused atomic.Int64
		var all sync.WaitGroup
		for client := range 24 {
			random := rand.New(rand.NewPCG(uint64(client), 1))
			all.Go(func() {
				for range scaled(1000) {
					tenant, service := random.IntN(2), random.IntN(2)
					a := ratelimit.Admission{
						Tenant:  ratelimit.NewTenant(ratelimit.Registered, fmt.Sprint("t", tenant), ratelimit.Limit{}, most).Weighing(1 + tenant),
						Service: ratelimit.NewService([]string{"wide", "capped"}[service], []int64{0, inCapped}[service]),
					}
					ticket, p, v := w.enter(random.IntN(3), a, 100)
					if v.Outcome == ratelimit.Queued {
						switch random.IntN(6) {
						case 0:
							time.Sleep(time.Duration(random.IntN(2000)) * time.Microsecond)
							p.Leave(w.clock.Nanos())
							left.Add(1)
							continue
						case 1:
							ticket, v = w.served(p, time.Duration(random.IntN(2000))*time.Microsecond)
						default:
							if ticket, v = w.served(p, 2*time.Minute); v.Outcome != ratelimit.Admitted {
								t.Errorf("somebody was never served: %v by %v", v.Outcome, v.Limit)
							}
							servedLate.Add(1)
						}
					}
					if v.Outcome != ratelimit.Admitted {
						refused.Add(1)
						continue
					}
					if n := ofTenant[tenant].Add(1); n > most {
						t.Errorf("%d of a tenant run", n)
					}
					if service == 1 {
						if n := ofCapped.Add(1); n > inCapped {
							t.Errorf("%d of a service run", n)
						}
					}
					time.Sleep(time.Duration(random.IntN(500)) * time.Microsecond)
					if service == 1 {
						ofCapped.Add(-1)
					}
					ofTenant[tenant].Add(-1)
					ticket.Release()
				}
			})
		}
		all.Wait()
		t.Logf("%d waited and were served, %d left, %d gave up; %d rings", servedLate.Load(), left.Load(), refused.Load(), w.rings.Load())
		for _, end := range w.end {
			end()
		}
		for _, tag := range []string{"registered:4:t0", "registered:4:t1", "service:capped"} {
			for _, store := range w.stores { // what was told is run by then
				if _, err := store.Ask(ratelimit.ProbeOf(tag)); err != nil {
					t.Error(err)
				}
			}
			if set := "agw2:{" + tag + "}:slots"; w.count(set) != "0" {
				t.Errorf("%s stand in %s", w.count(set), set)
			}
		}
		if n := w.failed.Load(); n > 0 {
			t.Errorf("%d decisions failed", n)
		}
	})
}
