package redisstore_test

import (
	"fmt"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/drilltest"
	"agentgw/internal/ratelimit"
	"agentgw/internal/redistest"
)

// TestRepliesAreTheirOwn: on a way to Redis that is now fast, now slower than anybody
// waits, also while a connection is made, and that breaks, each who asks gets his own answer or none: an
// answer that came too late is nobody's (CVE-2025-29923).
func TestRepliesAreTheirOwn(t *testing.T) {
	const workers, wait = 64, 40 * time.Millisecond
	link := redistest.Between(t, redistest.Start(t))
	r := newReal(t, link.URL(), wait, ratelimit.PolicyClosed)
	r.warm(t)
	rule := ratelimit.NewRule("r", "requests", 87600*time.Hour, false)
	// Each counts a prime, of which a multiple is his own too: a count whose answer is too
	// late is made all the same, and then once more.
	own := primesAbove(1_000_000, workers)
	for w := range workers {
		eventually(t, "each has counted his own number", func() bool {
			if used, _ := r.limiter.Counted(rule, fmt.Sprint(w), 0); used > 0 {
				return true
			}
			r.limiter.Admit(ratelimit.Charge{}, ratelimit.Admission{Service: ratelimit.NewService("s", 0),
				Uses: []ratelimit.Use{{Rule: rule, Partition: fmt.Sprint(w), Count: own[w], Max: 1 << 40}}}, 0)
			return false
		})
	}
	most := int64(scaled(100_000))
	var answered, others, unanswered atomic.Int64
	var ended atomic.Bool
	var weather, all sync.WaitGroup
	weather.Go(func() {
		for i := 0; !ended.Load(); i++ {
			link.Slow([]time.Duration{0, wait * 9 / 10, 0, wait * 3 / 2, 0}[i%5])
			time.Sleep(wait) // the way's own time, which nothing is asked of
			if i%5 == 3 {
				link.Drop()
			}
		}
		link.Slow(0)
	})
	for w := range workers {
		all.Go(func() {
			for answered.Load() < most && others.Load() == 0 {
				switch used, _ := r.limiter.Counted(rule, fmt.Sprint(w), 0); {
				case used == 0:
					unanswered.Add(1)
					time.Sleep(time.Millisecond) // while it is away nobody waits, and this would spin
				case used%own[w] == 0:
					answered.Add(1)
				default:
					others.Add(1)
					t.Errorf("worker %d: %d, no multiple of %d", w, used, own[w])
				}
			}
		})
	}
	all.Wait()
	ended.Store(true)
	weather.Wait()
	if unanswered.Load() == 0 {
		t.Error("no answer was ever too late")
	}
	drilltest.Row(t, "replies on a bad way to Redis", "64 asking, latency around the timeout, connections that break",
		fmt.Sprintf("%d of %d answers were another's, %d came not in time", others.Load(), answered.Load()+others.Load(), unanswered.Load()), "0", others.Load() == 0)
}

func primesAbove(n int64, many int) (list []int64) {
	for ; len(list) < many; n++ {
		if big.NewInt(n).ProbablyPrime(0) { // exact below 2^64
			list = append(list, n)
		}
	}
	return list
}
