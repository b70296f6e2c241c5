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
	limitertest.Run(t, func(_ limitertest.TB, o limitertest.Options) limitertest.Subject {
		now := new(atomic.Int64)
		return limitertest.Subject{
			Limiter: ratelimit.NewLocal(ratelimit.Options{MaxInFlight: o.MaxInFlight}),
			Now:     now.Load,
			Advance: func(d time.Duration) { now.Add(int64(d)) },
		}
	})
}
