package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/ratelimit"
	"agentgw/internal/ratelimit/redisstore"
	"agentgw/internal/redistest"
)

// hourApart are two replicas whose own clocks are an hour apart, of a Redis whose clock stands
// at begins; all of them go on by what passes.
func hourApart(t *testing.T, begins time.Time) (pass func(time.Duration), list []*ratelimit.Shared) {
	t.Helper()
	s, now := &served{redistest.Start(t)}, begins
	s.SetTime(now)
	var clocks []*clockwork.FakeClock
	for i := range 2 {
		clock := clockwork.NewFakeClockAt(begins.Add(time.Duration(i) * time.Hour))
		clocks = append(clocks, clock)
		store := open(t, s.URL(), clock, redisstore.TestingOnlyClock)
		list = append(list, ratelimit.NewShared(ratelimit.NewLocal(ratelimit.Options{Epoch: clock.Now().UnixNano()}), store,
			ratelimit.SharedOptions{Replica: fmt.Sprint(i), Away: ratelimit.PolicyClosed}))
	}
	return func(d time.Duration) {
		now = now.Add(d)
		s.SetTime(now)
		for _, c := range clocks {
			c.Advance(d)
		}
	}, list
}

// TestOneWindowForAllReplicas: replicas whose clocks are an hour apart count in one window of
// a minute, which begins and ends by Redis' clock, to the microsecond; of three rules of which
// one refuses the others count nothing.
func TestOneWindowForAllReplicas(t *testing.T) {
	t.Parallel()
	const minute = 29_833_333
	pass, list := hourApart(t, time.Unix(60*minute, 0))
	var rules []*ratelimit.Rule
	for i := range 3 {
		rules = append(rules, ratelimit.NewRule(fmt.Sprint("r", i), "requests", time.Minute, false))
	}
	call := func(replica int, most ...int64) ratelimit.Outcome {
		a := ratelimit.Admission{Service: ratelimit.NewService("s", 0)}
		for i, r := range rules {
			a.Uses = append(a.Uses, ratelimit.Use{Rule: r, Partition: "p", Count: 1, Max: most[i]})
		}
		_, v := list[replica].Admit(ratelimit.Charge{}, a, 0)
		return v.Outcome
	}
	counted := func(want ...int64) {
		t.Helper()
		for i, r := range rules {
			for replica, l := range list {
				if used, _ := l.Counted(r, "p", 0); used != want[i] {
					t.Errorf("replica %d has %d of rule %d, want %d", replica, used, i, want[i])
				}
			}
		}
	}
	for i := range 4 {
		if got := call(i%2, 4, 100, 100); got != ratelimit.Admitted {
			t.Errorf("call %d: %v", i, got)
		}
	}
	pass(time.Minute - time.Microsecond) // to its last
	for replica := range list {
		if got := call(replica, 4, 100, 100); got != ratelimit.RateLimited {
			t.Errorf("replica %d: %v", replica, got)
		}
	}
	counted(4, 4, 4)
	pass(time.Microsecond)
	counted(0, 0, 0)
	if got := call(1, 4, 100, 100); got != ratelimit.Admitted {
		t.Errorf("in the next window: %v", got)
	}
	counted(1, 1, 1)
}

// TestAWindowWithoutAnEnd heals: a count that somebody has taken the end from has one again
// with the next that is counted, in the step that counts it; and one that counts has it at once.
func TestAWindowWithoutAnEnd(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := newReal(t, server.URL(), long, ratelimit.PolicyClosed)
	rule := ratelimit.NewRule("r", "requests", time.Hour, false)
	for name, count := range map[string]func(){
		"{rule:": func() {
			a := ratelimit.Admission{Service: ratelimit.NewService("s", 0), Uses: []ratelimit.Use{{Rule: rule, Partition: "p", Count: 1, Max: 100}}}
			if _, v := r.limiter.Admit(ratelimit.Charge{}, a, 0); v.Outcome != ratelimit.Admitted {
				t.Error(v)
			}
		},
		"{bytes:": func() {
			if _, err := r.limiter.Lend("p", time.Hour, 1000, 10, true); err != nil {
				t.Error(err)
			}
		},
	} {
		count()
		var key string
		for _, k := range strings.Fields(server.Do("KEYS", "agw2:"+name+"*")) {
			if strings.HasPrefix(k, "agw2:") {
				key = k
			}
		}
		ends := func() bool { left := server.Do("PTTL", key); return left != ":-1" && left != ":-2" }
		if key == "" || !ends() {
			t.Errorf("%s: %q has no end", name, key)
		}
		if server.Do("PERSIST", key); ends() {
			t.Errorf("%s: it cannot be tried", name)
		}
		if count(); !ends() {
			t.Errorf("%s: it has no end after it was counted in", name)
		}
	}
}

// TestBytesOfAllReplicas: what is lent by Redis is a quarter of what is left, at most what is
// lent at once, and what is wanted in any case while anything is left; the window begins with
// the first byte and ends by Redis' clock; and what is repaid is of its own window alone.
func TestBytesOfAllReplicas(t *testing.T) {
	t.Parallel()
	pass, list := hourApart(t, time.Unix(1_790_000_007, 500_000_000))
	const most = 100_000
	lend := func(replica int, want int64, cut bool, lent, used int64, left time.Duration) ratelimit.Loan {
		t.Helper()
		got, err := list[replica].Lend("c", time.Minute, most, want, cut)
		if err != nil || got.Lent != lent || got.Used != used || got.Left != left {
			t.Errorf("%+v %v, want %d lent, %d used, %v left", got, err, lent, used, left)
		}
		return got
	}
	lend(0, 0, true, 0, 0, 0)
	first := lend(0, 10, true, 25_000, 25_000, time.Minute)
	pass(time.Second)
	lend(1, 10, true, 18_750, 43_750, 59*time.Second)
	list[1].Repay("c", time.Minute, first, 3_750)
	lend(1, 0, true, 0, 40_000, 59*time.Second) // who told, is told by then
	lend(1, 59_000, true, 59_000, 99_000, 59*time.Second)
	lend(0, 5_000, true, 5_000, 104_000, 59*time.Second) // whole, as something was left
	lend(1, 1, true, 0, 104_000, 59*time.Second)
	lend(1, 1, false, ratelimit.LentAtOnce, 104_000+ratelimit.LentAtOnce, 59*time.Second) // of one that finishes
	pass(59*time.Second - time.Microsecond)
	lend(0, 1, true, 0, 104_000+ratelimit.LentAtOnce, time.Microsecond)
	pass(time.Microsecond)
	lend(0, 0, true, 0, 0, 0)
	lend(1, 10, true, 25_000, 25_000, time.Minute)
	list[0].Repay("c", time.Minute, first, 20_000)
	lend(0, 0, true, 0, 25_000, time.Minute)
	if got, err := list[0].Lend("other", time.Minute, most, 0, true); err != nil || got.Used != 0 {
		t.Errorf("another caller: %+v %v", got, err)
	}
}
