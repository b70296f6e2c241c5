package redisstore_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jonboulle/clockwork"

	"agentgw/internal/ratelimit"
	"agentgw/internal/ratelimit/redisstore"
	"agentgw/internal/redistest"
)

// fleet is replicas with one Redis, in real time but for what a test says.
type fleet struct {
	server   *redistest.Server // nil with a Cluster
	cluster  *redistest.Cluster
	stores   []*redisstore.Store
	limiters []*ratelimit.Shared
	failed   atomic.Int64
}

func newFleet(t testing.TB, n int, policy ratelimit.Policy) *fleet {
	t.Helper()
	f := &fleet{server: redistest.Start(t)}
	f.start(t, f.server.URL(), n, policy)
	return f
}

// newClusterFleet is one with a Cluster.
func newClusterFleet(t testing.TB, n int, policy ratelimit.Policy) *fleet {
	t.Helper()
	f := &fleet{cluster: redistest.StartCluster(t)}
	f.start(t, f.cluster.URL(), n, policy)
	return f
}

func (f *fleet) start(t testing.TB, url string, n int, policy ratelimit.Policy) {
	t.Helper()
	for i := range n {
		store := open(t, url, clockwork.NewFakeClock())
		eventually(t, "the store decides", func() bool {
			_, err := store.Ask(ratelimit.Probe())
			return err == nil
		})
		f.stores = append(f.stores, store)
		f.limiters = append(f.limiters, ratelimit.NewShared(ratelimit.NewLocal(ratelimit.Options{}), store, ratelimit.SharedOptions{
			Replica: fmt.Sprint("replica", i), Away: policy, Divided: store.Divided(), Failed: func(error) { f.failed.Add(1) },
		}))
	}
}

// at is where the calls of a tenant of so many slots go.
func at(tenant string, slots int64) ratelimit.Admission {
	return ratelimit.Admission{
		Tenant: ratelimit.NewTenant(ratelimit.Registered, tenant, ratelimit.Limit{}, slots), Service: ratelimit.NewService("s", 0),
	}
}

// admit makes a call of a tenant of so many slots through a replica.
func (f *fleet) admit(replica int, tenant string, slots int64) (ratelimit.Ticket, ratelimit.Verdict) {
	return f.limiters[replica].Admit(ratelimit.Charge{}, at(tenant, slots), 0)
}

// leases is how many slots Redis knows of.
func (f *fleet) leases(tenant string) string {
	set := "agw2:{registered:4:" + tenant + "}:slots"
	if f.cluster != nil {
		return strings.TrimPrefix(f.cluster.Do(set, "ZCARD", set), ":")
	}
	return strings.TrimPrefix(f.server.Do("ZCARD", set), ":")
}

// ask has a replica be answered by the server that the slots of a tenant are on.
func (f *fleet) ask(t testing.TB, replica int, tenant string) {
	if _, err := f.stores[replica].Ask(ratelimit.ProbeOf("registered:4:" + tenant)); err != nil {
		t.Error(err)
	}
}

type slotOp struct{ admits bool }

// slotsModel is the slots of one tenant, whoever is asked for them.
func slotsModel(most int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, output any) (bool, any) {
			used, in := state.(int), input.(slotOp)
			if !in.admits {
				return true, used - 1
			}
			if used == most {
				return output == ratelimit.ConcurrencyLimited, used
			}
			return output == ratelimit.Admitted, used + 1
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprint(in, out) },
	}
}

// TestSlotsAcrossReplicasAreLinearizable: calls of one tenant through three replicas, that
// come and end all at once, are decided as if by one limiter and one after the other. What is
// given back is told without waiting for it, and so is taken to be over at the latest when
// the replica's next question is answered.
func TestSlotsAcrossReplicasAreLinearizable(t *testing.T) {
	t.Parallel()
	slotsAreLinearizable(t, newFleet(t, 3, ratelimit.PolicyClosed))
}

// TestSlotsInAClusterAreLinearizable: so they are where tenants lie on three servers.
func TestSlotsInAClusterAreLinearizable(t *testing.T) {
	t.Parallel()
	slotsAreLinearizable(t, newClusterFleet(t, 3, ratelimit.PolicyClosed))
}

func slotsAreLinearizable(t *testing.T, f *fleet) {
	for history := range scaled(2000) {
		const most = 2
		tenant := fmt.Sprint("t", history)
		var tick atomic.Int64
		var mu sync.Mutex
		var done []porcupine.Operation
		var all sync.WaitGroup
		for client := range 6 {
			replica := client % 3
			record := func(in slotOp, f func() any) {
				from := tick.Add(1)
				out := f()
				to := tick.Add(1)
				mu.Lock()
				defer mu.Unlock()
				done = append(done, porcupine.Operation{ClientId: client, Input: in, Call: from, Output: out, Return: to})
			}
			all.Go(func() {
				for range 3 {
					var ticket ratelimit.Ticket
					var v ratelimit.Verdict
					record(slotOp{admits: true}, func() any {
						ticket, v = f.admit(replica, tenant, most)
						return v.Outcome
					})
					if v.Outcome == ratelimit.Admitted {
						for range 2 { // it lasts, so that others come and are answered meanwhile
							f.ask(t, replica, tenant)
						}
						record(slotOp{}, func() any {
							ticket.Release()
							f.ask(t, replica, tenant)
							return nil
						})
					}
				}
			})
		}
		all.Wait()
		if res := porcupine.CheckOperationsTimeout(slotsModel(most), done, time.Minute); res != porcupine.Ok {
			t.Fatalf("%v: %v", res, done)
		}
		if n := f.leases(tenant); n != "0" {
			t.Fatalf("%s leases when all is over", n)
		}
	}
	if n := f.failed.Load(); n != 0 {
		t.Errorf("%d decisions failed", n)
	}
}

// TestOneBucketForAllReplicas: a crowd at four of them gets the burst, exactly, and no
// store is asked twice of what it has just refused.
func TestOneBucketForAllReplicas(t *testing.T) {
	f := newFleet(t, 4, ratelimit.PolicyClosed)
	limit := ratelimit.Limit{Interval: int64(time.Hour), Burst: 100}
	var admitted, deferred atomic.Int64
	var all sync.WaitGroup
	for g := range 16 {
		all.Go(func() {
			l := f.limiters[g%4]
			for range scaled(2000) {
				c := l.Defer(ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, "k", limit), 0)
				if c.Deferred() {
					deferred.Add(1)
				}
				if c.Refused() {
					continue
				}
				if _, v := l.Admit(c, at("t", 0), 0); v.Outcome == ratelimit.Admitted {
					admitted.Add(1)
				}
				runtime.Gosched()
			}
		})
	}
	all.Wait()
	if admitted.Load() != 100 || f.failed.Load() != 0 {
		t.Errorf("%d admitted, %d failed", admitted.Load(), f.failed.Load())
	}
}

// TestARefusalIsRemembered for a second at most, for the limit that refused, and by the
// replica that was refused: a flood costs the store one question a second.
func TestARefusalIsRemembered(t *testing.T) {
	f := newFleet(t, 1, ratelimit.PolicyClosed)
	l := f.limiters[0]
	key := func(limit ratelimit.Limit) *ratelimit.Ref {
		return ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, "k", limit)
	}
	limit := ratelimit.Limit{Interval: int64(time.Hour), Burst: 1}
	known := key(limit)
	for i, want := range []bool{false, true} {
		if c := l.Take(known, 0); c.Refused() != want {
			t.Fatal(i, c.Verdict())
		}
	}
	for at, asks := range map[int64]bool{1: false, int64(time.Second) - 1: false, int64(time.Second): true} {
		if c := l.Defer(known, at); c.Deferred() != asks {
			t.Errorf("at %d: it asks again: %v", at, c.Deferred())
		}
	}
	if c := l.Defer(known, int64(time.Millisecond)); c.Verdict().Wait < 59*time.Minute {
		t.Errorf("told to wait %v", c.Verdict().Wait)
	}
	if raised := key(ratelimit.Limit{Interval: int64(time.Hour), Burst: 2}); !l.Defer(raised, 1).Deferred() {
		t.Error("a raised limit is refused by what another one was")
	}
	// A slot may come back at any time.
	ticket, _ := f.admit(0, "t", 1)
	if _, v := f.admit(0, "t", 1); v.Outcome != ratelimit.ConcurrencyLimited {
		t.Error(v.Outcome)
	}
	ticket.Release()
	if _, v := f.admit(0, "t", 1); v.Outcome != ratelimit.Admitted {
		t.Error(v.Outcome)
	}
}

// TestTheTruthComesBack: what the store has lost of the calls that run it is told again
// at the next renewal, also above a cap; and then nothing is admitted until below.
func TestTheTruthComesBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, ratelimit.PolicyClosed)
	var running []ratelimit.Ticket
	for i := range 3 {
		ticket, v := f.admit(i%2, "t", 3)
		if v.Outcome != ratelimit.Admitted {
			t.Fatal(v)
		}
		running = append(running, ticket)
	}
	f.server.Do("FLUSHALL")
	for range 2 { // before anybody knows
		ticket, v := f.admit(1, "t", 3)
		if v.Outcome != ratelimit.Admitted {
			t.Fatal(v)
		}
		running = append(running, ticket)
	}
	lost := int64(0)
	for i := range 2 {
		n, err := f.limiters[i].Renew(f.stores[i])
		if err != nil {
			t.Fatal(err)
		}
		lost += n
	}
	if lost != 3 || f.leases("t") != "5" {
		t.Errorf("%d were lost, and there are %s; want 3 and 5", lost, f.leases("t"))
	}
	for i, ticket := range running {
		if _, v := f.admit(0, "t", 3); (v.Outcome == ratelimit.Admitted) != (i == 3) {
			t.Errorf("with %d running: %v", 5-i, v.Outcome)
		}
		ticket.Release()
		ticket.Release()
		if _, err := f.stores[i%2].Ask(ratelimit.Probe()); err != nil { // for who is told, is told by then
			t.Fatal(err)
		}
		if _, err := f.stores[1-i%2].Ask(ratelimit.Probe()); err != nil {
			t.Fatal(err)
		}
		if i == 3 {
			break
		}
	}
	if n := f.leases("t"); n != "2" { // one of before, and the one that was just admitted
		t.Errorf("%s leases", n)
	}
}

// TestADeadReplicasSlotsComeBack after LeaseTime, by the store's clock, and those of one
// that renews its own stay.
func TestADeadReplicasSlotsComeBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := &served{server}
	s.SetTime(time.Unix(1000, 0))
	var limiters []*ratelimit.Shared
	var stores []*redisstore.Store
	for i := range 2 {
		store := open(t, server.URL(), clockwork.NewFakeClock(), redisstore.TestingOnlyClock)
		stores = append(stores, store)
		limiters = append(limiters, ratelimit.NewShared(ratelimit.NewLocal(ratelimit.Options{}), store, ratelimit.SharedOptions{Replica: fmt.Sprint(i), Away: ratelimit.PolicyClosed}))
	}
	var kept []ratelimit.Ticket
	for _, l := range limiters {
		ticket, v := l.Admit(ratelimit.Charge{}, at("t", 2), 0)
		if v.Outcome != ratelimit.Admitted {
			t.Fatal(v)
		}
		kept = append(kept, ticket)
	}
	for passed := time.Duration(0); passed < time.Minute; passed += ratelimit.RenewEvery {
		s.SetTime(time.Unix(1000, 0).Add(passed))
		if _, err := limiters[0].Renew(stores[0]); err != nil { // the other is dead
			t.Fatal(err)
		}
		ticket, v := limiters[0].Admit(ratelimit.Charge{}, at("t", 2), 0)
		if free := passed >= ratelimit.LeaseTime; (v.Outcome == ratelimit.Admitted) != free {
			t.Errorf("after %v: %v", passed, v.Outcome)
		}
		ticket.Release()
	}
	if n := limiters[0].Replicas(); n != 1 {
		t.Errorf("%d replicas live", n)
	}
	runtime.KeepAlive(kept)
}

// TestWhoeverAsksFindsADeadReplicasSlots free, also where no call runs any more that would
// renew its own among them.
func TestWhoeverAsksFindsADeadReplicasSlots(t *testing.T) {
	server := redistest.Start(t)
	s := &served{server}
	store := open(t, server.URL(), clockwork.NewFakeClock(), redisstore.TestingOnlyClock)
	limiter := ratelimit.NewShared(ratelimit.NewLocal(ratelimit.Options{}), store, ratelimit.SharedOptions{Replica: "r", Away: ratelimit.PolicyClosed})
	for _, set := range []string{"agw2:{registered:4:t}:slots", "agw2:{service:s}:slots"} {
		server.Do("ZADD", set, "1000000000", "dead.1", "1000000000", "dead.2") // until the thousandth second
	}
	for _, a := range []ratelimit.Admission{at("t", 2), {Service: ratelimit.NewService("s", 2)}} {
		for i, want := range []ratelimit.Outcome{ratelimit.ConcurrencyLimited, ratelimit.Admitted} {
			second := int64(999 + i)
			s.SetTime(time.Unix(second, 0))
			ticket, v := limiter.Admit(ratelimit.Charge{}, a, 0)
			if v.Outcome != want {
				t.Errorf("at %d s: %v, want %v", second, v.Outcome, want)
			}
			ticket.Release()
		}
	}
}

// TestALimitChangesAfterTheLastCall at the earliest: what a bucket had given until then it
// gave under the limit of before, since whenever the new one may be in force.
func TestALimitChangesAfterTheLastCall(t *testing.T) {
	server := redistest.Start(t)
	s := &served{server}
	store := open(t, server.URL(), clockwork.NewFakeClock(), redisstore.TestingOnlyClock)
	limiter := ratelimit.NewShared(ratelimit.NewLocal(ratelimit.Options{}), store, ratelimit.SharedOptions{Replica: "r", Away: ratelimit.PolicyClosed})
	key := func(interval time.Duration) *ratelimit.Ref {
		return ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, "k", ratelimit.Limit{Interval: int64(interval), Burst: 10})
	}
	before := key(time.Second)
	s.SetTime(time.Unix(1000, 0))
	limiter.Take(before, 0)
	s.SetTime(time.Unix(1005, 0))
	for range 10 {
		if c := limiter.Take(before, int64(5*time.Second)); c.Refused() {
			t.Fatal(c.Verdict())
		}
	}
	// In force for ten seconds, as whoever has just read it says.
	if c := limiter.Take(key(10*time.Second).From(-int64(5*time.Second)), int64(5*time.Second)); c.Verdict().Wait != 10*time.Second {
		t.Errorf("told to wait %v, want 10 s", c.Verdict().Wait)
	}
}

// TestAClockThatIsSetBack holds nobody up for longer than his bucket takes to fill, and
// gives nobody a token.
func TestAClockThatIsSetBack(t *testing.T) {
	server := redistest.Start(t)
	s := &served{server}
	store := open(t, server.URL(), clockwork.NewFakeClock(), redisstore.TestingOnlyClock)
	limiter := ratelimit.NewShared(ratelimit.NewLocal(ratelimit.Options{}), store, ratelimit.SharedOptions{Replica: "r", Away: ratelimit.PolicyClosed})
	local := int64(0)
	for _, step := range []struct {
		at   time.Duration
		want string // of three calls
	}{
		{2 * time.Hour, "110"}, {time.Hour, "000"}, {time.Hour + time.Second, "100"}, {time.Hour + 3*time.Second, "110"}, {2 * time.Hour, "110"}, {2*time.Hour + time.Second, "100"},
	} {
		s.SetTime(time.Unix(0, 0).Add(step.at))
		got := ""
		for range 3 {
			local += int64(time.Hour) // nothing is remembered here
			c := limiter.Take(ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, "k", ratelimit.Limit{Interval: int64(time.Second), Burst: 2}), local)
			got += map[bool]string{true: "0", false: "1"}[c.Refused()]
		}
		if got != step.want {
			t.Errorf("at %v: %s, want %s", step.at, got, step.want)
		}
	}
}

// scaled returns how often a drill runs: a twentieth without DRILLS=full.
func scaled(full int) int {
	if os.Getenv("DRILLS") == "full" {
		return full
	}
	return max(1, full/20)
}

// late is a store that is asked once something else has happened.
type late struct {
	ratelimit.Store
	before func()
}

func (l late) Ask(j ratelimit.Job) (ratelimit.Answer, error) {
	l.before()
	return l.Store.Ask(j)
}

// TestACallThatEndsWhileItIsRenewed has its slot be free all the same, though it was given
// back before the renewal came to the store; and none was lost.
func TestACallThatEndsWhileItIsRenewed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, ratelimit.PolicyClosed)
	stays, _ := f.admit(0, "t", 2)
	ends, v := f.admit(0, "t", 2)
	if v.Outcome != ratelimit.Admitted {
		t.Fatal(v)
	}
	lost, err := f.limiters[0].Renew(late{f.stores[0], func() {
		ends.Release()
		f.ask(t, 0, "t") // what is told before this is run by now
	}})
	if err != nil || lost != 0 {
		t.Errorf("%d were lost, %v", lost, err)
	}
	f.ask(t, 0, "t")
	if n := f.leases("t"); n != "1" {
		t.Errorf("%s leases of the one that runs", n)
	}
	stays.Release()
}
