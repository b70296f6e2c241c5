package compared

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// origin is the instant 0 of those that want a date.
var origin = time.Unix(1_800_000_000, 0)

func timeRate() peer {
	return peer{
		name: "x/time/rate", module: "golang.org/x/time",
		how:  "a `Limiter` per key, `AllowN(t, n)`; the wait is that of `ReserveN(t, n)`, which `CancelAt(t)` then gives back",
		make: func(q quota) subject { return newTimeRate(rateOf(q), q.burst) },
		nonsense: map[string]nonsense{
			rateZero: {written: "NewLimiter(0, 10)", make: func() (subject, error) { return newTimeRate(0, 10), nil }},
			rateLess: {written: "NewLimiter(-1, 10)", make: func() (subject, error) { return newTimeRate(-1, 10), nil }},
			rateNaN:  {written: "NewLimiter(NaN, 10)", make: func() (subject, error) { return newTimeRate(rate.Limit(math.NaN()), 10), nil }},
			burstNil: {written: "NewLimiter(1, 0)", make: func() (subject, error) { return newTimeRate(1, 0), nil }},
			burstBig: {written: "NewLimiter(Every(24h), 110_000)", make: func() (subject, error) { return newTimeRate(rate.Every(24*time.Hour), 110_000), nil }},
		},
		documented: map[string]string{
			stale:       "Known as [golang/go#71360](https://github.com/golang/go/issues/71360)",
			refundLater: "Known as [golang/go#56924](https://github.com/golang/go/issues/56924)",
		},
	}
}

func rateOf(q quota) rate.Limit {
	if q.count == 1 {
		return rate.Every(q.period)
	}
	return rate.Limit(float64(q.count) / q.period.Seconds())
}

func newTimeRate(r rate.Limit, burst int) subject {
	var since atomic.Int64
	var limiters sync.Map
	now := func() time.Time { return origin.Add(time.Duration(since.Load())) }
	limiter := func(key string) *rate.Limiter {
		l, _ := limiters.LoadOrStore(key, rate.NewLimiter(r, burst))
		return l.(*rate.Limiter)
	}
	takeN := func(key string, n int) answer {
		l, t := limiter(key), now()
		return answer{admitted: l.AllowN(t, n), wait: func() (time.Duration, bool) {
			r := l.ReserveN(t, n)
			defer r.CancelAt(t)
			return r.DelayFrom(t), !r.OK()
		}}
	}
	return subject{
		set:   func(t time.Duration) { since.Store(int64(t)) },
		take:  func(key string) answer { return takeN(key, 1) },
		takeN: takeN,
		reserve: func(key string) func() {
			r := limiter(key).ReserveN(now(), 1)
			return func() { r.CancelAt(now()) }
		},
		change: func(q quota) {
			r, burst = rateOf(q), q.burst
			limiters.Range(func(_, l any) bool {
				l.(*rate.Limiter).SetLimitAt(now(), r)
				l.(*rate.Limiter).SetBurstAt(now(), burst)
				return true
			})
		},
	}
}
