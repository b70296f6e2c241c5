package limitertest

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"agentgw/internal/ratelimit"
)

// history is the naive account of a bucket: the times of the calls that it let
// through. It knows no theoretical arrival time.
type history struct {
	limit ratelimit.Limit
	times []int64 // sorted
}

// conforms reports whether every window [s, e] holds at most burst + (e-s)/T.
// Windows that begin and end at an admission are the worst, so only those count.
func (h *history) conforms() bool {
	for i, s := range h.times {
		for j := i; j < len(h.times); j++ {
			if int64(j-i+1) > h.limit.Burst+(h.times[j]-s)/h.limit.Interval {
				return false
			}
		}
	}
	return true
}

func (h *history) add(at int64) {
	i, _ := slices.BinarySearch(h.times, at)
	h.times = slices.Insert(h.times, i, at)
}

// admits reports whether one more call at the given time would conform.
func (h *history) admits(at int64) bool {
	more := history{h.limit, slices.Clone(h.times)}
	more.add(at)
	return more.conforms()
}

func drawLimit(t *rapid.T) ratelimit.Limit {
	return ratelimit.Limit{Interval: 10 * ms * rapid.Int64Range(1, 20).Draw(t, "interval"), Burst: rapid.Int64Range(1, 6).Draw(t, "burst")}
}

func advance(t *rapid.T, s Subject, most int64) {
	s.Advance(10 * time.Millisecond * time.Duration(rapid.Int64Range(0, most).Draw(t, "dt")))
}

// neverMoreThanTheLimit, and never less: a bucket admits exactly what keeps every
// window within the limit.
func neverMoreThanTheLimit(t *testing.T, make Maker) {
	long(t)
	rapid.Check(t, func(t *rapid.T) {
		s := make(t)
		h := history{limit: drawLimit(t)}
		k := key("k", h.limit)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			advance(t, s, 30)
			now, may := s.Now(), h.admits(s.Now())
			if got := s.take(k); got != may {
				t.Fatalf("%+v: after %v at %d: admitted %v", h.limit, h.times, now, got)
			}
			if may {
				h.add(now)
			}
		}
	})
}
