package gateway

import (
	"iter"

	"agentgw/internal/ratelimit"
)

// dated is a limit and since when it has been in force, in the limiter's time.
type dated struct {
	ratelimit.Limit
	since int64
}

// limited is whom a limit is for: a partition key, or, of the buckets of all keys
// at a service, the service.
type limited struct {
	table ratelimit.Table
	kind  ratelimit.Kind
	name  string
}

// limits are those that there are.
func (v *view) limits() map[limited]dated {
	limits := map[limited]dated{{ratelimit.Addresses, ratelimit.KindAddress, ""}: v.failures}
	for r := range v.refs() {
		limits[of(r)] = dated{r.Limit(), r.Since()}
	}
	for name, s := range v.services {
		limits[limited{ratelimit.Registered, ratelimit.KindService, name}] = s.limit
		limits[limited{ratelimit.Callers, ratelimit.KindService, name}] = s.limit
		limits[limited{ratelimit.OpenCallers, ratelimit.KindService, name}] = s.limit
	}
	limits[limited{ratelimit.Callers, ratelimit.KindCaller, ""}] = v.callers
	limits[limited{ratelimit.OpenCallers, ratelimit.KindCaller, ""}] = v.callers
	limits[limited{ratelimit.Callers, ratelimit.KindKey, ""}] = dated{Limit: v.holders.key}
	limits[limited{ratelimit.Callers, ratelimit.KindTenant, ""}] = dated{Limit: v.holders.tenant}
	return limits
}

// date notes since when each limit has been in force: it is a new one if it was
// another before.
func (v *view) date(was map[limited]dated, now int64) {
	since := func(of limited, l ratelimit.Limit) int64 {
		if before, ok := was[of]; ok && before.Limit == l {
			return before.since
		}
		return now
	}
	v.failures.since = since(limited{ratelimit.Addresses, ratelimit.KindAddress, ""}, v.failures.Limit)
	v.callers.since = since(limited{ratelimit.OpenCallers, ratelimit.KindCaller, ""}, v.callers.Limit)
	for r := range v.refs() {
		r.From(since(of(r), r.Limit()))
	}
	for name, s := range v.services {
		s.limit.since = since(limited{ratelimit.Registered, ratelimit.KindService, name}, s.limit.Limit)
	}
}

func of(r *ratelimit.Ref) limited { return limited{ratelimit.Registered, r.Kind(), r.Partition()} }

// refs are those of keys and tenants, some more than once.
func (v *view) refs() iter.Seq[*ratelimit.Ref] {
	return func(yield func(*ratelimit.Ref) bool) {
		for _, r := range v.named {
			if !yield(r) {
				return
			}
		}
		for i := range v.accounts {
			a := &v.accounts[i]
			if !yield(a.key) || !yield(a.tenant) {
				return
			}
			for _, r := range a.principals {
				if !yield(r) {
					return
				}
			}
		}
	}
}
