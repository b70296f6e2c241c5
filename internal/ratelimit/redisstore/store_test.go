package redisstore_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/redis/go-redis/v9"

	"agentgw/internal/drilltest"
	"agentgw/internal/ratelimit"
	"agentgw/internal/ratelimit/redisstore"
	"agentgw/internal/redistest"
)

// How long a decision may wait: where Redis is to hang, and where it is not, and a machine
// that is busy must not look as if it did.
const (
	short = 200 * time.Millisecond
	long  = 20 * time.Second
)

// real is one replica in real time.
type real struct {
	store   *redisstore.Store
	limiter *ratelimit.Shared
	timeout time.Duration
	mu      sync.Mutex
	modes   []error
}

func newReal(t testing.TB, url string, timeout time.Duration, policy ratelimit.Policy) *real {
	t.Helper()
	r := &real{timeout: timeout}
	r.mu.Lock() // until it is whole: the store may call back at once
	defer r.mu.Unlock()
	store, err := redisstore.Open(redisstore.Options{
		URL: url, Clock: clockwork.NewRealClock(), Timeout: timeout,
		Mode: func(why error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if why != nil || r.modes != nil { // but for the first answer
				r.modes = append(r.modes, why)
			}
		},
		Back: func(by ratelimit.Store) error {
			r.mu.Lock()
			limiter := r.limiter
			r.mu.Unlock()
			_, err := limiter.Renew(by)
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	r.store = store
	r.limiter = ratelimit.NewShared(ratelimit.NewLocal(ratelimit.Options{}), store, ratelimit.SharedOptions{Replica: fmt.Sprint("real", subjects.Add(1)), Away: policy})
	return r
}

func (r *real) admit(tenant string, slots int64) (ratelimit.Ticket, ratelimit.Outcome) {
	ticket, v := r.limiter.Admit(ratelimit.Charge{}, at(tenant, slots), 0)
	return ticket, v.Outcome
}

// warm waits until the store decides.
func (r *real) warm(t testing.TB) {
	t.Helper()
	eventually(t, "the store decides", func() bool {
		_, err := r.store.Ask(ratelimit.Probe())
		return err == nil
	})
}

// failures has decisions fail until the store counts as away, and returns why they did.
func (r *real) failures(t testing.TB) map[redisstore.Reason]int64 {
	t.Helper()
	for i := range 10 {
		_, _ = r.store.Ask(ratelimit.Probe()) // so that it was asked at all
		if r.store.Away() {
			break
		}
		if _, outcome := r.admit(fmt.Sprint("new", i), 0); outcome != ratelimit.Unavailable {
			t.Errorf("%v", outcome)
		}
	}
	if !r.store.Away() {
		t.Error("after ten failures the store is still asked")
	}
	all := r.store.Failures()
	for reason, n := range all {
		if n == 0 {
			delete(all, reason)
		}
	}
	return all
}

func (r *real) back(t testing.TB) {
	t.Helper()
	eventually(t, "the store decides again", func() bool {
		ticket, outcome := r.admit("t", 0)
		ticket.Release()
		return outcome == ratelimit.Admitted && !r.store.Away()
	})
	told := func() []error {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Clone(r.modes)
	}
	eventually(t, "that is told", func() bool { return len(told()) >= 2 })
	if modes := told(); r.timeout == long && len(modes) != 2 || modes[0] == nil || modes[1] != nil {
		t.Errorf("told of %v", modes)
	}
}

// eventually waits for an effect of something that happens elsewhere.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for range 3000 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

// TestFailuresHaveAReason: whatever is wrong with Redis, decisions fail in the way that
// was asked for, say why, are made again by it as soon as it is well, and never any other
// way.
func TestFailuresHaveAReason(t *testing.T) {
	for _, c := range []struct {
		name      string
		ill, well func(*redistest.Server)
		want      []redisstore.Reason
	}{
		{"stopped", func(s *redistest.Server) { s.Stop() }, func(s *redistest.Server) { s.Again() }, []redisstore.Reason{redisstore.Network}},
		{"hangs", func(s *redistest.Server) { s.Pause() }, func(s *redistest.Server) { s.Resume() }, []redisstore.Reason{redisstore.Timeout}},
		{"a replica", func(s *redistest.Server) { s.Do("REPLICAOF", "127.0.0.1", "1") }, func(s *redistest.Server) { s.Do("REPLICAOF", "NO", "ONE") }, []redisstore.Reason{redisstore.ReadOnly}},
		{"out of memory", func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "1") }, func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "0") }, []redisstore.Reason{redisstore.Memory}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			wait := long
			if c.want[0] == redisstore.Timeout {
				wait = short
			}
			r := newReal(t, server.URL(), wait, ratelimit.PolicyClosed)
			r.warm(t)
			c.ill(server)
			for reason := range r.failures(t) {
				if !slices.Contains(append(c.want, redisstore.Away, redisstore.Network), reason) {
					t.Errorf("failed for %s, want %v", reason, c.want)
				}
			}
			if r.store.Failures()[c.want[0]] == 0 {
				t.Errorf("failed for %v, want %s", r.store.Failures(), c.want[0])
			}
			c.well(server)
			began := time.Now()
			r.back(t)
			took := time.Since(began)
			drilltest.Row(t, "Redis: "+c.name, "calls until it counts as away, then mended", fmt.Sprintf("failed for %q, decides again after %v", c.want, took.Round(time.Millisecond)),
				"10 s", took <= 10*time.Second)
		})
	}
	locked := newReal(t, redistest.Start(t, "--requirepass", "x").URL(), long, ratelimit.PolicyClosed)
	if locked.failures(t); locked.store.Failures()[redisstore.Denied] == 0 {
		t.Errorf("without the password: failed for %v", locked.store.Failures())
	}
}

// TestNobodyWaitsForAStoreThatHangs: of a crowd that comes when Redis hangs each waits
// for the timeout at most, and whoever comes later for nothing; what they had asked for does
// nothing when Redis goes on; and there are as many goroutines as before.
func TestNobodyWaitsForAStoreThatHangs(t *testing.T) {
	server := redistest.Start(t)
	r := newReal(t, server.URL(), short, ratelimit.PolicyOpen)
	r.warm(t)
	before := runtime.NumGoroutine()
	server.Pause()
	var longest time.Duration
	var mu sync.Mutex
	var crowd sync.WaitGroup
	for range 200 {
		crowd.Go(func() {
			began := time.Now()
			ticket, outcome := r.admit("t", 1000)
			took := time.Since(began)
			if outcome != ratelimit.Admitted {
				t.Errorf("%v", outcome)
			}
			ticket.Release()
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, took)
		})
	}
	crowd.Wait()
	if longest > 10*short { // a loaded machine is slow to wake them
		t.Errorf("one waited %v", longest)
	}
	if !r.store.Away() {
		t.Error("it is still asked")
	}
	began := time.Now()
	for range 1000 {
		ticket, _ := r.admit("t", 1000)
		ticket.Release()
	}
	each := time.Since(began) / 1000
	if each > 5*time.Millisecond {
		t.Errorf("later ones wait %v", each)
	}
	server.Resume()
	r.back(t)
	eventually(t, "no lease is left", func() bool {
		n := server.Do("ZCARD", "agw2:{registered:4:t}:slots")
		return n == ":0"
	})
	eventually(t, "the goroutines are gone", func() bool { return runtime.NumGoroutine() <= before+2 })
	drilltest.Row(t, "a crowd while Redis hangs", "200 who came then, 1000 later; a decision may wait 200 ms",
		fmt.Sprintf("the first waited %v at most, later ones %v each", longest.Round(time.Millisecond), each.Round(time.Microsecond)),
		"250 ms, 100 µs", longest <= short+50*time.Millisecond && each <= 100*time.Microsecond)
}

// TestWhatComesLateDoesNothing: counts that were asked for before Redis hung, and that it
// finds when it goes on, are not counted: whoever asked has gone on without.
func TestWhatComesLateDoesNothing(t *testing.T) {
	server := redistest.Start(t)
	r := newReal(t, server.URL(), short, ratelimit.PolicyClosed)
	r.warm(t)
	rule := ratelimit.NewRule("r", "requests", 87600*time.Hour, false)
	meet := func() ratelimit.Outcome {
		_, v := r.limiter.Admit(ratelimit.Charge{}, ratelimit.Admission{
			Service: ratelimit.NewService("s", 0), Uses: []ratelimit.Use{{Rule: rule, Partition: "p", Count: 1, Max: 1000}},
		}, 0)
		return v.Outcome
	}
	for range 20 {
		meet() // so that Redis' clock is known
	}
	counted := func() (used int64) {
		eventually(t, "it tells", func() bool {
			away := r.store.Failures()
			used, _ = r.limiter.Counted(rule, "p", 0)
			return maps.Equal(away, r.store.Failures())
		})
		return used
	}
	before := counted()
	server.Pause()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if meet() == ratelimit.Admitted {
				t.Error("admitted by a store that hangs")
			}
		})
	}
	all.Wait()
	server.Resume()
	r.back(t)
	if after := counted(); after != before || before == 0 {
		t.Errorf("%d counted, and then %d", before, after)
	}
}

// TestScriptsAreLoadedOnce after they are lost, whoever comes, and no decision fails for
// that.
func TestScriptsAreLoadedOnce(t *testing.T) {
	server := redistest.Start(t)
	r := newReal(t, server.URL(), long, ratelimit.PolicyClosed)
	r.warm(t)
	for range 3 {
		before := r.store.Reloads()
		server.Do("SCRIPT", "FLUSH")
		var crowd sync.WaitGroup
		for range 100 {
			crowd.Go(func() {
				if ticket, outcome := r.admit("t", 0); outcome != ratelimit.Admitted {
					t.Errorf("%v: %v", outcome, r.store.Failures())
				} else {
					ticket.Release()
				}
			})
		}
		crowd.Wait()
		if n := r.store.Reloads() - before; n < 1 || n > 2 { // the second for one batch that was under way
			t.Errorf("loaded %d times", n)
		}
	}
}

// TestAStrangeKeyFailsAlone: a key that holds something else fails the decisions that
// need it, and no others.
func TestAStrangeKeyFailsAlone(t *testing.T) {
	server := redistest.Start(t)
	r := newReal(t, server.URL(), long, ratelimit.PolicyClosed)
	server.Do("SET", "agw2:{registered:4:strange}:slots", "x")
	for range 20 {
		if _, outcome := r.admit("strange", 1); outcome != ratelimit.Unavailable {
			t.Fatal(outcome)
		}
	}
	if _, outcome := r.admit("t", 0); outcome != ratelimit.Admitted {
		t.Fatal(outcome)
	}
	var crowd sync.WaitGroup // of which many go in one command
	for i := range 200 {
		crowd.Go(func() {
			tenant, want := "strange", ratelimit.Unavailable
			if i%2 == 0 {
				tenant, want = "t", ratelimit.Admitted
			}
			ticket, outcome := r.admit(tenant, 1000)
			if outcome != want {
				t.Errorf("%s: %v", tenant, outcome)
			}
			ticket.Release()
		})
	}
	crowd.Wait()
	// Each had its slot given back too, in case it had one after all.
	eventually(t, "120 decisions and as many releases are counted", func() bool { return r.store.Failures()[redisstore.Script] == 240 })
	if r.store.Away() {
		t.Error("for one key it counts as away")
	}
}

// TestAReleaseThatRedisMissed is told again when it is back.
func TestAReleaseThatRedisMissed(t *testing.T) {
	server := redistest.Start(t)
	r := newReal(t, server.URL(), long, ratelimit.PolicyClosed)
	ticket, outcome := r.admit("t", 1)
	if outcome != ratelimit.Admitted {
		t.Fatal(outcome)
	}
	const set = "agw2:{registered:4:t}:slots"
	server.Do("REPLICAOF", "127.0.0.1", "1") // it takes no writes
	ticket.Release()
	eventually(t, "it was told in vain", func() bool { return r.store.Failures()[redisstore.ReadOnly] > 0 })
	server.Do("REPLICAOF", "NO", "ONE")
	server.Do("PERSIST", set) // nothing but the release ends it
	if n := server.Do("ZCARD", set); n != ":1" && n != ":0" {
		t.Errorf("%s leases", n)
	}
	// It is told again with what comes next.
	eventually(t, "the slot is back", func() bool {
		_, outcome := r.admit("other", 1)
		return outcome != ratelimit.Unavailable && server.Do("ZCARD", set) == ":0"
	})
}

// TestNothingIsKeptForGood: every key that a call makes has an end, and a count that was
// left without one has it again when it is next touched.
func TestNothingIsKeptForGood(t *testing.T) {
	server := redistest.Start(t)
	r := newReal(t, server.URL(), long, ratelimit.PolicyClosed)
	limit := ratelimit.Limit{Interval: int64(time.Second), Burst: 5}
	rule := ratelimit.NewRule("r", "requests", time.Minute, false)
	call := func() ratelimit.Use {
		a := at("t", 5)
		a.Tenant = ratelimit.NewTenant(ratelimit.Registered, "t", limit, 5)
		a.Bucket = ratelimit.NewRef(ratelimit.Registered, ratelimit.KindService, ratelimit.ServiceBucket("k", "s"), limit)
		a.Service = ratelimit.NewService("s", 5)
		a.Uses = []ratelimit.Use{{Rule: rule, Partition: "p", Count: 1, Max: 100}}
		c := r.limiter.Defer(ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, "k", limit), 0)
		if _, v := r.limiter.Admit(c, a, 0); v.Outcome != ratelimit.Admitted {
			t.Fatal(v)
		}
		return a.Uses[0]
	}
	call()
	if _, err := r.limiter.Renew(r.store); err != nil {
		t.Fatal(err)
	}
	names, counts := strings.Fields(server.Do("KEYS", "agw2:*")), 0
	for _, name := range names {
		if !strings.HasPrefix(name, "agw2:") {
			continue
		}
		counts++
		if left := server.Do("PTTL", name); left == ":-1" || left == ":-2" {
			t.Errorf("%s is kept for good: %s", name, left)
		}
		if strings.Contains(name, "{rule:") {
			server.Do("PERSIST", name)
			call()
			if left := server.Do("PTTL", name); left == ":-1" {
				t.Errorf("%s has no end after it was touched", name)
			}
		}
	}
	if counts < 6 {
		t.Errorf("%d keys: %q", counts, names)
	}
}

// TestABucketInUseIsNotForgotten: most writes change nothing of when Redis removes a bucket, and
// none leaves it to be removed before it is full.
func TestABucketInUseIsNotForgotten(t *testing.T) {
	server := redistest.Start(t)
	r := newReal(t, server.URL(), long, ratelimit.PolicyClosed)
	limit := ratelimit.Limit{Interval: int64(time.Hour), Burst: 100}
	key := ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, "k", limit)
	const name = "agw2:{registered:1:k}"
	address, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	look := redis.NewClient(address)
	defer look.Close()
	record := func() []byte {
		b, err := look.Get(t.Context(), name).Bytes()
		if err != nil || len(b) != 56 {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		return b
	}
	take := func() {
		if c := r.limiter.Take(key, 0); c.Refused() {
			t.Fatal(c.Verdict())
		}
	}
	take()
	first := record()
	if left := look.PTTL(t.Context(), name).Val(); left < 100*time.Hour+time.Second {
		t.Errorf("it is removed after %v", left)
	}
	take()
	if second := record(); !bytes.Equal(first[16:], second[16:]) || bytes.Equal(first[:8], second[:8]) {
		t.Errorf("%x became %x", first, second)
	}
	// As if it had been written the last time long ago.
	now := look.Time(t.Context()).Val().Add(50 * time.Hour)
	old := binary.LittleEndian.AppendUint64(record()[:48], math.Float64bits(float64(now.UnixMicro())))
	look.Set(t.Context(), name, old, 50*time.Hour)
	take()
	if left := look.PTTL(t.Context(), name).Val(); left < 100*time.Hour+time.Second {
		t.Errorf("in use, it is removed after %v", left)
	}
	if third := record(); bytes.Equal(third[:8], old[:8]) {
		t.Error("nothing was taken")
	}
}

// TestAnUnusableURL is told without what it says.
func TestAnUnusableURL(t *testing.T) {
	_, err := redisstore.Open(redisstore.Options{URL: "http://:s3cr3t@r:1", Clock: clockwork.NewRealClock()})
	if err == nil || strings.Contains(err.Error(), "s3cr3t") {
		t.Error(err)
	}
	var of *redisstore.Error
	r := newReal(t, "redis://:s3cr3t@127.0.0.1:1", long, ratelimit.PolicyClosed)
	if _, err := r.store.Ask(ratelimit.Probe()); !errors.As(err, &of) || strings.Contains(err.Error(), "s3cr3t") {
		t.Error(err)
	}
}

// says waits until the store tells that it is away for a reason that has a text in it.
func (r *real) says(t testing.TB, text string) {
	t.Helper()
	eventually(t, "it tells that it is away: "+text, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.ContainsFunc(r.modes, func(why error) bool { return why != nil && strings.Contains(why.Error(), text) })
	})
}
