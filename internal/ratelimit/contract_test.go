package ratelimit_test

import (
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/ratelimit"
	"agentgw/internal/ratelimit/limitertest"
)

// TestContract: the limiter of one process keeps what every limiter owes.
func TestContract(t *testing.T) {
	limitertest.Run(t, func(limitertest.TB) limitertest.Subject {
		const epoch = 1_790_000_000_123 * int64(time.Millisecond)
		now := new(atomic.Int64)
		return limitertest.Subject{
			Limiter: ratelimit.NewLocal(ratelimit.Options{Epoch: epoch, Clock: clock{now}, TableSize: 8192}), // of many shards, and small, as there are thousands
			Epoch:   epoch,
			Now:     now.Load,
			Advance: func(d time.Duration) { now.Add(int64(d)) },
		}
	})
}

type clock struct{ now *atomic.Int64 }

func (c clock) Nanos() int64 { return c.now.Load() }
