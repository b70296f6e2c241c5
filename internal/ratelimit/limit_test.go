package ratelimit

import (
	"errors"
	"math"
	"math/big"
	"testing"
	"time"
)

func TestNewLimit(t *testing.T) {
	for _, tt := range []struct {
		rate  float64
		burst int64
		want  Limit
		field string // of the error
	}{
		{rate: 20, burst: 40, want: Limit{50_000_000, 40}},
		{rate: 3, burst: 1, want: Limit{333_333_334, 1}}, // rounded up: never faster than asked
		{rate: 0.1, burst: 6, want: Limit{10_000_000_000, 6}},
		{rate: 1e9, burst: 1, want: Limit{1, 1}},
		{rate: 0, burst: 5, want: Limit{}},
		{rate: 0, burst: 0, want: Limit{}},
		{rate: math.Copysign(0, -1), burst: 5, want: Limit{}},
		{rate: 1e9 + 1, burst: 1, field: "rate"},
		{rate: 1e12, burst: 1, field: "rate"},
		{rate: 1e308, burst: 1, field: "rate"},
		{rate: -1, burst: 1, field: "rate"},
		{rate: -math.SmallestNonzeroFloat64, burst: 1, field: "rate"},
		{rate: math.NaN(), burst: 1, field: "rate"},
		{rate: math.Inf(1), burst: 1, field: "rate"},
		{rate: math.Inf(-1), burst: 1, field: "rate"},
		{rate: math.SmallestNonzeroFloat64, burst: 1, field: "rate"},
		{rate: 1e-10, burst: 1, field: "rate"},
		{rate: 1, burst: 0, field: "burst"},
		{rate: 1, burst: -1, field: "burst"},
		{rate: 1, burst: math.MinInt64, field: "burst"},
		{rate: 1, burst: math.MaxInt64, field: "burst"},
		{rate: 1, burst: 1 << 40, field: "burst"},
		{rate: 1e9, burst: 1 << 60, want: Limit{1, 1 << 60}},
		{rate: 1e9, burst: 1<<60 + 1, field: "burst"},
	} {
		got, err := NewLimit(tt.rate, tt.burst)
		var bad *LimitError
		if errors.As(err, &bad) && bad.Field != tt.field || (err != nil) != (tt.field != "") || got != tt.want {
			t.Errorf("NewLimit(%v, %d) = %+v, %v; want %+v, error on %q", tt.rate, tt.burst, got, err, tt.want, tt.field)
		}
	}
}

func TestEvery(t *testing.T) {
	for _, tt := range []struct {
		window       time.Duration
		count, burst int64
		want         Limit
		field        string
	}{
		{time.Minute, 60, 60, Limit{int64(time.Second), 60}, ""},
		{time.Minute, 7, 7, Limit{8_571_428_572, 7}, ""},
		{time.Minute, 0, 7, Limit{}, ""},
		{2, 2, 1, Limit{1, 1}, ""},
		{0, 1, 1, Limit{}, "window"},
		{-time.Second, 1, 1, Limit{}, "window"},
		{time.Second, -1, 1, Limit{}, "rate"},
		{2, 3, 1, Limit{}, "rate"},
		{time.Minute, 1, 0, Limit{}, "burst"},
		{math.MaxInt64, 1, 1, Limit{}, "burst"},
	} {
		got, err := Every(tt.window, tt.count, tt.burst)
		var bad *LimitError
		if errors.As(err, &bad) && bad.Field != tt.field || (err != nil) != (tt.field != "") || got != tt.want {
			t.Errorf("Every(%v, %d, %d) = %+v, %v; want %+v, error on %q", tt.window, tt.count, tt.burst, got, err, tt.want, tt.field)
		}
	}
}

// TestPerMinute: rates a minute are kept to the nanosecond, where a second's are fractions.
func TestPerMinute(t *testing.T) {
	for _, tt := range []struct {
		rate  float64
		burst int64
		want  Limit
		field string
	}{
		{1, 1, Limit{60_000_000_000, 1}, ""},
		{0.5, 3, Limit{120_000_000_000, 3}, ""},
		{7, 7, Limit{8_571_428_572, 7}, ""},
		{60, 60, Limit{1_000_000_000, 60}, ""},
		{0, 5, Limit{}, ""},
		{-1, 1, Limit{}, "rate"},
		{math.NaN(), 1, Limit{}, "rate"},
		{6e10 + 1e6, 1, Limit{}, "rate"},
		{1e-12, 1, Limit{}, "rate"},
		{1, 0, Limit{}, "burst"},
	} {
		got, err := PerMinute(tt.rate, tt.burst)
		var bad *LimitError
		if errors.As(err, &bad) && bad.Field != tt.field || (err != nil) != (tt.field != "") || got != tt.want {
			t.Errorf("PerMinute(%v, %d) = %+v, %v; want %+v, error on %q", tt.rate, tt.burst, got, err, tt.want, tt.field)
		}
	}
}

// FuzzNewLimit: whatever is configured is an error, no limit at all only for a
// rate of 0, or a limit that is no faster than asked, can be drained, and cannot
// overflow.
func FuzzNewLimit(f *testing.F) {
	f.Add(20.0, int64(40))
	f.Add(1e-9, int64(1))
	f.Add(math.Inf(1), int64(-1))
	f.Add(999999999.9, int64(1<<59))
	f.Fuzz(func(t *testing.T, rate float64, burst int64) {
		l, err := NewLimit(rate, burst)
		if err != nil {
			if l != (Limit{}) {
				t.Fatalf("an error and a limit: %+v", l)
			}
			return
		}
		if l.Unlimited() {
			if rate != 0 {
				t.Fatalf("rate %v limits nothing", rate)
			}
			return
		}
		if l.Burst != burst || l.Interval < 1 || l.Window() < 1 || l.Window() > maxWindow {
			t.Fatalf("NewLimit(%v, %d) = %+v", rate, burst, l)
		}
		exact := new(big.Float).Quo(big.NewFloat(1e9), big.NewFloat(rate))
		// One unit in the last place of float64's own division is granted.
		if least, _ := exact.Float64(); float64(l.Interval) < math.Nextafter(least, 0) {
			t.Fatalf("interval %d is faster than %v a second", l.Interval, rate)
		}
		now := int64(1) << 61
		var b bucket
		b.adopt(l, now, now)
		d := decide(l, b.tat, now, burst)
		if d.never || d.wait != 0 {
			t.Fatalf("a full bucket refuses its burst: %+v", d)
		}
		b.spend(d)
		if w := b.wait(now); w != l.Interval {
			t.Fatalf("a drained bucket waits %d, want %d", w, l.Interval)
		}
	})
}
