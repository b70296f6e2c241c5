package compared

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
)

func throttledPeer() peer {
	quotaOf := func(q quota) throttled.RateQuota {
		return throttled.RateQuota{MaxRate: throttled.PerDuration(q.count, q.period), MaxBurst: q.burst - 1}
	}
	of := func(q quota, keys int, overtaken bool) subject {
		s, err := newThrottled(quotaOf(q), keys, overtaken)
		if err != nil {
			panic(err)
		}
		return s
	}
	raw := func(q func() throttled.RateQuota) func() (subject, error) {
		return func() (subject, error) { return newThrottled(q(), 65536, false) }
	}
	return peer{
		name: "throttled", module: "github.com/throttled/throttled/v2",
		how:       "`GCRARateLimiterCtx` over `memstore`, whose clock is set by `SetTimeNow`; a change of limit is another limiter over the same store",
		wallClock: true,
		make:      func(q quota) subject { return of(q, 65536, false) },
		bounded:   func(q quota, keys int) subject { return of(q, keys, false) },
		overtaken: func(q quota) subject { return of(q, 65536, true) },
		nonsense: map[string]nonsense{
			rateZero: {written: "PerSec(0)", make: raw(func() throttled.RateQuota { return throttled.RateQuota{MaxRate: throttled.PerSec(0), MaxBurst: 9} })},
			rateLess: {written: "PerSec(-1)", make: raw(func() throttled.RateQuota { return throttled.RateQuota{MaxRate: throttled.PerSec(-1), MaxBurst: 9} })},
			burstNil: {written: "MaxBurst: -1", make: raw(func() throttled.RateQuota { return throttled.RateQuota{MaxRate: throttled.PerSec(1), MaxBurst: -1} })},
			burstBig: {written: "{PerDay(1), MaxBurst: 109_999}", make: raw(func() throttled.RateQuota {
				return throttled.RateQuota{MaxRate: throttled.PerDay(1), MaxBurst: 109_999}
			})},
		},
		documented: map[string]string{
			decided: "Known: [throttled#90](https://github.com/throttled/throttled/pull/90) made the number of attempts a setting",
			evicted: "Documented: `memstore.New` evicts the least recently used",
		},
	}
}

func newThrottled(q throttled.RateQuota, keys int, overtaken bool) (subject, error) {
	var since atomic.Int64
	memory, err := memstore.New(keys)
	if err != nil {
		return subject{}, err
	}
	memory.SetTimeNow(func() time.Time { return origin.Add(time.Duration(since.Load())) })
	store := throttled.WrapStoreWithContext(memory)
	if overtaken {
		store = &overtaking{GCRAStoreCtx: store, quota: q}
	}
	limiter, err := throttled.NewGCRARateLimiterCtx(store, q)
	if err != nil {
		return subject{}, err
	}
	takeN := func(key string, n int) answer {
		limited, r, err := limiter.RateLimitCtx(context.Background(), key, n)
		return answer{admitted: !limited && err == nil, err: err, wait: func() (time.Duration, bool) {
			return r.RetryAfter, r.RetryAfter < 0
		}}
	}
	return subject{
		set:   func(t time.Duration) { since.Store(int64(t)) },
		take:  func(key string) answer { return takeN(key, 1) },
		takeN: takeN,
		change: func(q quota) {
			limiter, err = throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerDuration(q.count, q.period), MaxBurst: q.burst - 1})
			if err != nil {
				panic(err)
			}
		},
	}, nil
}

// overtaking is a store at which, between the look and the swap of a call, another
// call of the same key is always served.
type overtaking struct {
	throttled.GCRAStoreCtx
	quota throttled.RateQuota
}

func (o *overtaking) GetWithTime(ctx context.Context, key string) (int64, time.Time, error) {
	tat, now, err := o.GCRAStoreCtx.GetWithTime(ctx, key)
	other, _ := throttled.NewGCRARateLimiterCtx(o.GCRAStoreCtx, o.quota)
	other.RateLimitCtx(ctx, key, 1)
	return tat, now, err
}
