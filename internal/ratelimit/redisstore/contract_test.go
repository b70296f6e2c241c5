package redisstore_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/jonboulle/clockwork"

	"agentgw/internal/ratelimit"
	"agentgw/internal/ratelimit/limitertest"
	"agentgw/internal/ratelimit/redisstore"
	"agentgw/internal/redistest"
)

// TestContractOfOneReplica: what replicas share in a store decides as the limiter of
// one process does, on a stand-in for Redis whose clock can be set. It is slower than the
// real one, which is asked the same: see TestContractOnRedis.
func TestContractOfOneReplica(t *testing.T) {
	if os.Getenv("DRILLS") != "full" {
		t.Skip("a real Redis is asked the same; DRILLS=full asks both")
	}
	mini := miniredis.RunT(t)
	clock := clockwork.NewFakeClock()
	store := open(t, "redis://"+mini.Addr(), clock, redisstore.TestingOnlyStruct)
	limitertest.RunOf(t, 50, func(tb limitertest.TB) limitertest.Subject { return subject(tb, mini, clock, store, false) })
}

// TestContractOnRedis: what replicas share decides as the limiter of one process does, on a real server, whose clock is set for the scripts
// alone.
func TestContractOnRedis(t *testing.T) {
	server := redistest.Start(t)
	clock := clockwork.NewFakeClock()
	store := open(t, server.URL(), clock, redisstore.TestingOnlyClock)
	limitertest.RunOf(t, 50, func(tb limitertest.TB) limitertest.Subject { return subject(tb, &served{server}, clock, store, false) })
}

// TestContractInParts: so it does where each tag is asked by itself.
func TestContractInParts(t *testing.T) {
	if os.Getenv("DRILLS") != "full" {
		t.Skip("a real Cluster is asked the same; DRILLS=full asks both")
	}
	server := redistest.Start(t)
	clock := clockwork.NewFakeClock()
	store := open(t, server.URL(), clock, redisstore.TestingOnlyClock)
	limitertest.RunOf(t, 50, func(tb limitertest.TB) limitertest.Subject { return subject(tb, &served{server}, clock, store, true) })
}

// clocked is a server whose clock can be set.
type clocked interface {
	FlushAll()
	FastForward(time.Duration)
	SetTime(time.Time)
}

type served struct{ *redistest.Server }

func (s *served) FlushAll()                 { s.Do("FLUSHALL") }
func (s *served) FastForward(time.Duration) {} // keys are kept
func (s *served) SetTime(to time.Time) {
	s.Do("SET", redisstore.ClockName, strconv.FormatInt(to.UnixMicro(), 10))
}

func open(t testing.TB, url string, clock clockwork.Clock, more ...func(*redisstore.Options)) *redisstore.Store {
	t.Helper()
	o := redisstore.Options{URL: url, Clock: clock, Timeout: 10 * time.Second, Mode: func(why error) {
		if why != nil {
			t.Log("away:", why)
		}
	}}
	for _, m := range more {
		m(&o)
	}
	store, err := redisstore.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// settle waits until all that was told is run.
func settle(t limitertest.TB, store *redisstore.Store) {
	jobs := []ratelimit.Job{ratelimit.Probe()}
	if store.Divided() {
		jobs = nil
		for _, name := range redisstore.ClockNames() {
			tag, _, _ := strings.Cut(name[1:], "}")
			jobs = append(jobs, ratelimit.ProbeOf(tag))
		}
	}
	for _, job := range jobs {
		if _, err := store.Ask(job); err != nil {
			t.Fatal(err)
		}
	}
}

type tick struct{ now *atomic.Int64 }

func (c tick) Nanos() int64 { return c.now.Load() }

var subjects atomic.Int64

func subject(t limitertest.TB, mini clocked, clock *clockwork.FakeClock, store *redisstore.Store, divided bool) limitertest.Subject {
	const epoch = 1_790_000_000_123 * int64(time.Millisecond)
	mini.SetTime(time.Unix(0, epoch))
	settle(t, store)
	endKept(t, store)
	mini.FlushAll()
	now := new(atomic.Int64)
	local := ratelimit.NewLocal(ratelimit.Options{Epoch: epoch, Clock: tick{now}, TableSize: 8192}) // of many shards, and small, as there are thousands
	shared := ratelimit.NewShared(local, store, ratelimit.SharedOptions{
		Replica: fmt.Sprint("r", subjects.Add(1)), Away: ratelimit.PolicyClosed, Divided: divided,
		Failed: func(err error) { t.Errorf("the store did not decide: %v", err) },
	})
	mini.SetTime(time.Unix(0, epoch))
	kept = &keeping{Shared: shared}
	return limitertest.Subject{
		Limiter: kept, Epoch: epoch, Resolution: time.Microsecond, Now: now.Load,
		Advance: func(d time.Duration) {
			settle(t, store)
			mini.FastForward(d)
			mini.SetTime(time.Unix(0, epoch+now.Add(int64(d))))
			clock.Advance(d)
			if _, err := shared.Renew(store); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// endKept ends the calls of the subject before. The garbage collector would, thousands at
// a time and at any, and what they tell the store would hold up what others do.
func endKept(t limitertest.TB, store *redisstore.Store) {
	if kept == nil {
		return
	}
	for i, ticket := range kept.kept {
		if ticket.Release(); i%1000 == 999 {
			settle(t, store)
		}
	}
	kept = nil
	settle(t, store)
}

var kept *keeping // of the last subject; they come one after the other

// keeping keeps the tickets that a test has no use for: what no ticket can reach any more
// the garbage collector gives back.
type keeping struct {
	*ratelimit.Shared
	mu   sync.Mutex
	kept []ratelimit.Ticket
}

func (k *keeping) Admit(c ratelimit.Charge, a ratelimit.Admission, now int64) (ratelimit.Ticket, ratelimit.Verdict) {
	t, _, v := k.Enter(c, a, 0, now)
	return t, v
}

func (k *keeping) Enter(c ratelimit.Charge, a ratelimit.Admission, queue, now int64) (ratelimit.Ticket, *ratelimit.Place, ratelimit.Verdict) {
	t, p, v := k.Shared.Enter(c, a, queue, now)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept = append(k.kept, t)
	return t, p, v
}
