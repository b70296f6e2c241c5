package main

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"agentgw/internal/ratelimit"
	"agentgw/internal/ratelimit/redisstore"
)

// storeReport tells the operator's log, at most once in toldEvery, of what passes without
// limits while the store does not decide, and of decisions that it does not make although
// it counts as one that does. Its zero value has told nothing. It is for one goroutine.
type storeReport struct {
	told     time.Time
	failures map[redisstore.Reason]int64
	alone    ratelimit.Alone
}

// tell is to be called from time to time with what has been counted until now. away is why
// the limits are not shared, as the log knows; nil: they are.
func (r *storeReport) tell(log *slog.Logger, now time.Time, away error, failures map[redisstore.Reason]int64, alone ratelimit.Alone) {
	if !r.told.IsZero() && now.Sub(r.told) < toldEvery {
		return
	}
	before := *r
	*r = storeReport{before.told, failures, alone}
	reason, n := worstReason(failures, before.failures)
	why := any(away)
	if away == nil {
		why = reason
	}
	if passed := alone.Opens - before.alone.Opens; passed > 0 {
		r.told = now
		log.Warn("calls passed without limits, as on_store_failure is open", "calls", passed, "reason", why)
	}
	for _, name := range slices.Sorted(maps.Keys(alone.Unasked)) {
		if passed := alone.Unasked[name] - before.alone.Unasked[name]; passed > 0 {
			r.told = now
			log.Warn("calls passed without a rule, as its on_store_failure is open", "rule", name, "calls", passed, "reason", why)
		}
	}
	if away == nil && n > 0 {
		r.told = now
		log.Warn("the store has failed at single decisions, renewals or releases", "failures", n, "reason", reason)
	}
}

// worstReason is in words what the most new failures were for, and how many of all reasons there
// are. What was not asked is none.
func worstReason(now, before map[redisstore.Reason]int64) (words string, n int64) {
	var most int64
	for _, reason := range slices.Sorted(maps.Keys(now)) {
		more := now[reason] - before[reason]
		if reason == redisstore.Away {
			continue
		}
		if n += more; more > most {
			most, words = more, fmt.Sprintf("%s: %s", reason, reason.Words())
		}
	}
	return words, n
}
