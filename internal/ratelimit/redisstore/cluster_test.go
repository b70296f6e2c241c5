package redisstore_test

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/drilltest"
	"agentgw/internal/ratelimit"
	"agentgw/internal/ratelimit/limitertest"
	"agentgw/internal/ratelimit/redisstore"
	"agentgw/internal/redistest"
)

// servedBy is a Cluster whose nodes' clocks can be set, for scripts.
type servedBy struct {
	*redistest.Cluster
	clocks []string // a key of each node
}

func newServedBy(c *redistest.Cluster) *servedBy {
	s := &servedBy{Cluster: c}
	for i, names := 0, redisstore.ClockNames(); i < len(c.Nodes); i++ {
		for _, name := range names {
			if c.Of(name) == c.Nodes[i] {
				s.clocks = append(s.clocks, name)
			}
		}
	}
	return s
}

func (s *servedBy) FlushAll() {
	for _, n := range s.Nodes {
		n.Do("FLUSHALL")
	}
}
func (s *servedBy) FastForward(time.Duration) {} // keys are kept
func (s *servedBy) SetTime(to time.Time) {
	for i, n := range s.Nodes {
		n.Do("SET", s.clocks[i], strconv.FormatInt(to.UnixMicro(), 10))
	}
}

// TestContractOnACluster: what replicas share decides as the limiter of one process does,
// on three real servers that have a third of the keys each. What takes thousands of
// decisions is for DRILLS=full, and in short what TestContractOnRedis asks of one server.
func TestContractOnACluster(t *testing.T) {
	cluster := newServedBy(redistest.StartCluster(t))
	clock := clockwork.NewFakeClock()
	store := open(t, cluster.URL(), clock, redisstore.TestingOnlyClock)
	cluster.SetTime(time.Unix(0, 0))
	eventually(t, "the store decides", func() bool {
		_, err := store.Ask(ratelimit.Probe())
		return err == nil
	})
	limitertest.RunOf(t, 200, func(tb limitertest.TB) limitertest.Subject { return subject(tb, cluster, clock, store, true) })
}

// whole is a call that needs something under each of its tags, of which each lies anywhere. It
// is for one replica: what it names knows its place there.
type whole struct {
	key  *ratelimit.Ref
	call ratelimit.Admission
	rule *ratelimit.Rule
}

func newWhole(tenant string, tenantSlots, serviceSlots, most int64) whole {
	limit := ratelimit.Limit{Interval: int64(time.Hour), Burst: 1 << 20}
	w := whole{key: ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, "k", limit), rule: ratelimit.NewRule("r", "requests", 87600*time.Hour, false)}
	w.call = ratelimit.Admission{
		Tenant:  ratelimit.NewTenant(ratelimit.Registered, tenant, limit, tenantSlots),
		Bucket:  ratelimit.NewRef(ratelimit.Registered, ratelimit.KindService, ratelimit.ServiceBucket("k", "s"), limit),
		Service: ratelimit.NewService("s", serviceSlots),
		Uses:    []ratelimit.Use{{Rule: w.rule, Partition: tenant, Count: 1, Max: most}},
	}
	return w
}

// through makes the call through a replica.
func (w whole) through(l *ratelimit.Shared) (ratelimit.Ticket, ratelimit.Verdict) {
	a := w.call
	a.Uses = append([]ratelimit.Use{}, w.call.Uses...)
	return l.Admit(l.Defer(w.key, 0), a, 0)
}

// TestFortyHoldersOfSix: of forty callers at three replicas, who need something of every
// server, never more than six run; what the others took is back when they are answered; and
// every slot is when all is over.
func TestFortyHoldersOfSix(t *testing.T) {
	t.Parallel()
	f := newClusterFleet(t, 3, ratelimit.PolicyClosed)
	var calls []whole
	for range f.limiters {
		calls = append(calls, newWhole("t", 6, 0, 1<<20))
	}
	w := calls[0]
	var running, peak, admitted, refused atomic.Int64
	var answered, all sync.WaitGroup
	answered.Add(40)
	for i := range 40 { // who hold what they get until all are answered
		all.Go(func() {
			ticket, v := calls[i%3].through(f.limiters[i%3])
			if answered.Done(); v.Outcome == ratelimit.Admitted {
				admitted.Add(1)
			}
			answered.Wait()
			ticket.Release()
			f.ask(t, i%3, "t")
		})
	}
	all.Wait()
	if n := admitted.Load(); n != 6 {
		t.Errorf("%d of 40 who came at once were admitted", n)
	}
	for i := range 40 {
		all.Go(func() {
			for range 20 { // fewer refusals than a bucket remembers refunds, which is 1024
				ticket, v := calls[i%3].through(f.limiters[i%3])
				switch v.Outcome {
				case ratelimit.Admitted:
					n := running.Add(1)
					for most := peak.Load(); n > most && !peak.CompareAndSwap(most, n); most = peak.Load() {
					}
					admitted.Add(1)
					f.ask(t, i%3, "t") // it lasts
					running.Add(-1)
					ticket.Release()
				case ratelimit.ConcurrencyLimited:
					refused.Add(1)
				default:
					t.Errorf("%v by %v", v.Outcome, v.Limit)
				}
			}
		})
	}
	all.Wait()
	if peak.Load() > 6 || refused.Load() == 0 || f.failed.Load() != 0 {
		t.Errorf("peak %d, %d admitted, %d refused, %d failed", peak.Load(), admitted.Load(), refused.Load(), f.failed.Load())
	}
	for i := range f.stores {
		f.ask(t, i, "t")
	}
	if n := f.leases("t"); n != "0" {
		t.Errorf("%s leases when all is over", n)
	}
	// Only who ran has paid and was counted; a refusal for want of a slot takes nothing.
	if n, _ := f.limiters[0].Counted(w.rule, "t", 0); n != admitted.Load() {
		t.Errorf("the rule has counted %d of %d", n, admitted.Load())
	}
	for name, r := range map[string]*ratelimit.Ref{"key": w.key, "tenant": w.call.Tenant, "key at service": w.call.Bucket} {
		if b, _ := f.limiters[0].Peek(r, 0); b.Quota-b.Remaining < admitted.Load() || b.Quota-b.Remaining > admitted.Load()+1 {
			t.Errorf("%s: %d tokens are gone, %d ran", name, b.Quota-b.Remaining, admitted.Load())
		}
	}
	drilltest.Row(t, "slots on a Cluster", "40 callers for 6 slots, at 3 replicas and 3 servers",
		fmt.Sprintf("peak %d, %d ran, %d refused", peak.Load(), admitted.Load(), refused.Load()), "peak 6", peak.Load() <= 6)
}

// TestRoundTripsInACluster: a call that is admitted takes two, whatever it needs; one that
// its key refuses one; one that something else does a third, in which it gives all back.
func TestRoundTripsInACluster(t *testing.T) {
	t.Parallel()
	f := newClusterFleet(t, 2, ratelimit.PolicyClosed)
	l := f.limiters[0]
	counted := &counting{Store: f.stores[0], t: t}
	s := ratelimit.NewShared(l.Local, counted, ratelimit.SharedOptions{Replica: "r", Divided: true})
	w := newWhole("t", 1, 9, 3)
	dry := w
	dry.key = ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, "dry", ratelimit.Limit{Interval: int64(time.Hour), Burst: 1})
	if c := f.limiters[1].Take(ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, "dry", dry.key.Limit()), 0); c.Refused() {
		t.Fatal(c)
	}
	free := w
	free.key = ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, "free", ratelimit.Limit{})
	free.call.Tenant, free.call.Bucket, free.call.Uses = ratelimit.NewTenant(ratelimit.Registered, "u", ratelimit.Limit{}, 3), nil, nil
	free.call.Service = ratelimit.NewService("free", 0)
	other := newWhole("v", 1, 9, 3)
	held, v := newWhole("v", 1, 9, 3).through(f.limiters[1])
	if v.Outcome != ratelimit.Admitted {
		t.Fatal(v)
	}
	kept := []ratelimit.Ticket{held}
	for _, c := range []struct {
		name  string
		call  whole
		want  ratelimit.Outcome
		trips []int64 // scripts in each
	}{
		{"a slot of the tenant and nothing else", free, ratelimit.Admitted, []int64{1}},
		{"all that there is", w, ratelimit.Admitted, []int64{1, 4}},
		{"refused a slot that its own replica's calls have", w, ratelimit.ConcurrencyLimited, []int64{1, 4, 1}}, // nothing was taken but the key's token
		{"refused a slot that another's have", other, ratelimit.ConcurrencyLimited, []int64{1, 4, 3}},           // back go that of the key at the service, and what the rule has counted
		{"refused by its key", dry, ratelimit.RateLimited, []int64{1}},
	} {
		counted.begin(c.trips)
		ticket, v := c.call.through(s)
		kept = append(kept, ticket)
		if left := counted.left(); v.Outcome != c.want || len(left) != 0 {
			t.Errorf("%s: %v by %v; of the round trips %v there were not %v", c.name, v.Outcome, v.Limit, c.trips, left)
		}
	}
	for _, ticket := range kept {
		ticket.Release()
	}
}

// counting lets nothing of a round trip be answered before all of it is asked, and so
// sees whether it is.
type counting struct {
	ratelimit.Store
	t    testing.TB
	mu   sync.Mutex
	want []int64 // questions of each round trip to come
	n    int64   // asked of the first
	open chan struct{}
}

func (c *counting) begin(want []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.want, c.n, c.open = want, 0, make(chan struct{})
}

func (c *counting) left() []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.want
}

func (c *counting) Ask(j ratelimit.Job) (ratelimit.Answer, error) {
	c.mu.Lock()
	if len(c.want) == 0 {
		c.mu.Unlock()
		c.t.Errorf("%s is asked in one round trip more", j.Script.Name)
		return c.Store.Ask(j)
	}
	trip := c.open
	if c.n++; c.n == c.want[0] {
		close(trip)
		c.want, c.n, c.open = c.want[1:], 0, make(chan struct{})
	}
	c.mu.Unlock()
	select {
	case <-trip:
	case <-time.After(time.Minute):
		c.t.Errorf("%s is asked, and nothing else with it", j.Script.Name)
	}
	return c.Store.Ask(j)
}

// TestASlotThatMoves from one server of a Cluster to another and on, under load: no cap is
// passed, no call fails, nothing is counted twice or lost, and who runs all the while keeps
// what he has.
func TestASlotThatMoves(t *testing.T) {
	t.Parallel()
	f := newClusterFleet(t, 3, ratelimit.PolicyClosed)
	const set = "agw2:{registered:4:t}:slots"
	var calls []whole
	var stay []ratelimit.Ticket
	for i := range f.limiters {
		calls = append(calls, newWhole("t", 6, 0, 1<<20))
		ticket, v := calls[i].through(f.limiters[i])
		if v.Outcome != ratelimit.Admitted {
			t.Fatal(v)
		}
		stay = append(stay, ticket)
	}
	var running, peak, admitted, refused atomic.Int64
	running.Store(3)
	admitted.Store(3)
	var over atomic.Bool
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			for !over.Load() {
				ticket, v := calls[i%3].through(f.limiters[i%3])
				switch v.Outcome {
				case ratelimit.Admitted:
					n := running.Add(1)
					for most := peak.Load(); n > most && !peak.CompareAndSwap(most, n); most = peak.Load() {
					}
					admitted.Add(1)
					f.ask(t, i%3, "t")
					running.Add(-1)
					ticket.Release()
				case ratelimit.ConcurrencyLimited:
					refused.Add(1)
				default:
					t.Errorf("%v by %v: %v", v.Outcome, v.Limit, f.stores[i%3].Failures())
					over.Store(true)
				}
			}
		})
	}
	moves := scaled(120)
	for move := range moves {
		for _, key := range []string{set, "agw2:{registered:1:k}"} {
			before := admitted.Load() + refused.Load()
			f.cluster.Migrate(key, func() { // calls go on between each key's move
				eventually(t, "calls go on", func() bool { return over.Load() || admitted.Load()+refused.Load() > before })
				before = admitted.Load() + refused.Load()
			})
		}
		if move%3 == 0 {
			for i, l := range f.limiters {
				if lost, err := l.Renew(f.stores[i]); err != nil || lost != 0 && !over.Load() {
					t.Errorf("%d slots were lost, %v", lost, err)
				}
			}
		}
	}
	over.Store(true)
	all.Wait()
	if peak.Load() > 6 || f.failed.Load() != 0 || refused.Load() == 0 {
		t.Errorf("peak %d, %d failed, %d refused", peak.Load(), f.failed.Load(), refused.Load())
	}
	if n, _ := f.limiters[0].Counted(calls[0].rule, "t", 0); n != admitted.Load() {
		t.Errorf("the rule has counted %d of %d", n, admitted.Load())
	}
	for i := range f.stores {
		f.ask(t, i, "t")
	}
	if n := f.leases("t"); n != "3" {
		t.Errorf("%s leases of the 3 that run", n)
	}
	for i, ticket := range stay {
		ticket.Release()
		f.ask(t, i, "t")
	}
	if n := f.leases("t"); n != "0" {
		t.Errorf("%s leases when all is over", n)
	}
	drilltest.Row(t, "a Cluster's slot is moved", fmt.Sprintf("%d moves while 12 call", 2*moves),
		fmt.Sprintf("peak %d, %d ran, %d refused, %d failed", peak.Load(), admitted.Load(), refused.Load(), f.failed.Load()), "peak 6, 0 failed", peak.Load() <= 6 && f.failed.Load() == 0)
}
