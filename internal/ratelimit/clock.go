package ratelimit

import (
	"time"

	"github.com/jonboulle/clockwork"
)

// Clock tells the time as nanoseconds since a fixed origin, on a clock that does
// not step. It is safe for concurrent use and never negative.
type Clock interface{ Nanos() int64 }

// NewClock returns a Clock on c whose origin is c's time now. With the real
// clock it is monotonic: time.Time carries Go's monotonic reading, and Since
// subtracts that.
func NewClock(c clockwork.Clock) Clock {
	return &sinceOrigin{clock: c, origin: c.Now()}
}

type sinceOrigin struct {
	clock  clockwork.Clock
	origin time.Time
}

// Nanos is cut at 0 because a fake clock can be set back before its origin.
func (s *sinceOrigin) Nanos() int64 { return max(0, int64(s.clock.Since(s.origin))) }
