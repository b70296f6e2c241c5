package ratelimit

import (
	"fmt"
	"math"
	"time"
)

// maxWindow bounds burst*interval, so that a time plus a window, and the sum of
// two windows, stay far from the end of int64 (292 years of nanoseconds).
const maxWindow = 1 << 60

// Limit is a rate with a burst. The zero Limit limits nothing. Make one with
// NewLimit or Every, which check what the arithmetic relies on.
type Limit struct {
	// Interval is the time in nanoseconds that one token takes to come back,
	// rounded up: never faster than what was asked for.
	Interval int64
	// Burst is the most tokens the bucket holds.
	Burst int64
}

// LimitError says which part of a limit cannot be used and why. Field is "rate",
// "burst" or "window"; callers put the name of their own setting in front.
type LimitError struct {
	Field string
	Why   string
}

func (e *LimitError) Error() string { return e.Field + " " + e.Why }

// NewLimit returns the limit of perSecond tokens a second with room for burst.
// A perSecond of 0 is no limit, whatever the burst. The error is a *LimitError.
func NewLimit(perSecond float64, burst int64) (Limit, error) {
	return newLimit(perSecond, time.Second, "second", burst)
}

// PerMinute is NewLimit for a rate a minute, which most rates a second cannot express.
func PerMinute(rate float64, burst int64) (Limit, error) {
	return newLimit(rate, time.Minute, "minute", burst)
}

func newLimit(rate float64, each time.Duration, unit string, burst int64) (Limit, error) {
	switch {
	case math.IsNaN(rate) || math.IsInf(rate, 0):
		return Limit{}, &LimitError{"rate", fmt.Sprintf("must be a finite number, not %v", rate)}
	case rate < 0:
		return Limit{}, &LimitError{"rate", fmt.Sprintf("must not be negative, is %v", rate)}
	case rate == 0:
		return Limit{}, nil
	case rate > float64(each):
		return Limit{}, &LimitError{"rate", fmt.Sprintf("must be at most one a nanosecond, is %v a %s", rate, unit)}
	}
	interval := math.Ceil(float64(each) / rate)
	if interval > maxWindow {
		return Limit{}, &LimitError{"rate", fmt.Sprintf("is too low to be kept: one token takes over 36 years at %v a %s", rate, unit)}
	}
	return checked(int64(interval), burst)
}

// Every returns the limit of count tokens per window, spread evenly over it,
// with room for burst. It is exact where a rate a second would be a fraction. A
// count of 0 is no limit. The error is a *LimitError.
func Every(window time.Duration, count, burst int64) (Limit, error) {
	switch {
	case window <= 0:
		return Limit{}, &LimitError{"window", fmt.Sprintf("must be positive, is %v", window)}
	case count < 0:
		return Limit{}, &LimitError{"rate", fmt.Sprintf("must not be negative, is %d", count)}
	case count == 0:
		return Limit{}, nil
	case count > int64(window):
		return Limit{}, &LimitError{"rate", fmt.Sprintf("must be at most one a nanosecond, is %d in %v", count, window)}
	}
	return checked((int64(window)-1)/count+1, burst)
}

func checked(interval, burst int64) (Limit, error) {
	if burst < 1 {
		return Limit{}, &LimitError{"burst", fmt.Sprintf("must be at least 1, is %d", burst)}
	}
	if burst > maxWindow/interval {
		return Limit{}, &LimitError{"burst", fmt.Sprintf("of %d takes over 36 years to come back", burst)}
	}
	return Limit{Interval: interval, Burst: burst}, nil
}

// Unlimited reports whether l limits nothing.
func (l Limit) Unlimited() bool { return l.Interval == 0 }

// Window is the time in which an empty bucket fills up.
func (l Limit) Window() time.Duration { return time.Duration(l.window()) }

func (l Limit) window() int64 { return l.Burst * l.Interval }

// times returns a limit of n times the rate and n times the burst, the interval
// rounded up.
func (l Limit) times(n int64) Limit {
	if l.Unlimited() {
		return l
	}
	return Limit{Interval: (l.Interval-1)/n + 1, Burst: l.Burst * n}
}
