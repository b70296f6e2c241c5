package compared

import (
	"math"
	"sync/atomic"
	"time"

	"agentgw/internal/ratelimit"
)

func ours() peer {
	return peer{
		name: "AgentGate", how: "`ratelimit.Local`, a key's bucket, with the call's own timestamp; a token comes back when the tenant then has no slot",
		make: func(q quota) subject {
			return newOurs(must(ratelimit.Every(q.period, int64(q.count), int64(q.burst))), 0)
		},
		bounded: func(q quota, keys int) subject {
			return newOurs(must(ratelimit.Every(q.period, int64(q.count), int64(q.burst))), keys)
		},
		nonsense: map[string]nonsense{
			rateZero: {written: "NewLimit(0, 10)", meant: "no limit", unlimited: true, make: func() (subject, error) { return oursBy(ratelimit.NewLimit(0, 10)) }},
			rateLess: {written: "NewLimit(-1, 10)", make: func() (subject, error) { return oursBy(ratelimit.NewLimit(-1, 10)) }},
			rateNaN:  {written: "NewLimit(NaN, 10)", make: func() (subject, error) { return oursBy(ratelimit.NewLimit(math.NaN(), 10)) }},
			burstNil: {written: "NewLimit(1, 0)", make: func() (subject, error) { return oursBy(ratelimit.NewLimit(1, 0)) }},
			burstBig: {written: "Every(24h, 1, 110_000)", make: func() (subject, error) { return oursBy(ratelimit.Every(24*time.Hour, 1, 110_000)) }},
		},
	}
}

func must(l ratelimit.Limit, err error) ratelimit.Limit {
	if err != nil {
		panic(err)
	}
	return l
}

func oursBy(l ratelimit.Limit, err error) (subject, error) {
	if err != nil {
		return subject{}, err
	}
	return newOurs(l, 0), nil
}

func newOurs(limit ratelimit.Limit, tableSize int) subject {
	l := ratelimit.NewLocal(ratelimit.Options{TableSize: tableSize})
	var now atomic.Int64
	changed := int64(0)
	ref := func(key string) *ratelimit.Ref {
		return ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, key, limit).From(changed)
	}
	busy := ratelimit.Admission{Tenant: ratelimit.NewTenant(ratelimit.Callers, "busy", ratelimit.Limit{}, 1), Service: ratelimit.NewService("s", 0)}
	slot, _ := l.Admit(ratelimit.Charge{}, busy, 0)
	return subject{
		set: func(t time.Duration) { now.Store(int64(t)) },
		take: func(key string) answer {
			c := l.Take(ref(key), now.Load())
			return answer{admitted: !c.Refused(), wait: func() (time.Duration, bool) {
				v := c.Verdict()
				return v.Wait, v.Never
			}}
		},
		reserve: func(key string) func() {
			c := l.Take(ref(key), now.Load())
			return func() {
				if _, v := l.Admit(c, busy, now.Load()); v.Outcome != ratelimit.ConcurrencyLimited {
					slot.Release()
					panic("the only slot is taken, and yet: " + v.Outcome.String())
				}
			}
		},
		change: func(q quota) {
			limit, changed = must(ratelimit.Every(q.period, int64(q.count), int64(q.burst))), now.Load()
		},
	}
}
