package ratelimit

import "time"

// Take takes one token from the bucket of r. Balances carry over from whatever
// limit it had before. An unlimited bucket admits and keeps nothing. A refusal
// takes nothing.
func (l *Local) Take(r *Ref, now int64) (c Charge, v Verdict) {
	if r.limit.Unlimited() || r.refusedAtSight(&v, now) {
		return c, v
	}
	e := l.tables[r.table].lock(r, now)
	var wait int64
	c, wait = e.takeLocked(r.limit, now)
	v.sample(r.id.kind, r.limit, e.bucket.tat-now)
	e.mu.Unlock()
	if wait > 0 {
		v.refuse(RateLimited, r.id.kind, time.Duration(wait))
	}
	return c, v
}

// drained is a bucket as it was when it last refused. Until a token is taken or
// given back, or the limit changes, it still is, and whoever comes may be refused
// without waiting for a lock: a flood on one key costs next to nothing.
type drained struct {
	limit Limit
	tat   int64
}

// refusedAtSight refuses a call for which the bucket is known to be drained.
func (r *Ref) refusedAtSight(v *Verdict, now int64) bool {
	e := r.entry.Load()
	if e == nil {
		return false
	}
	d := e.drained.Load()
	if d == nil || d.limit != r.limit {
		return false
	}
	wait := decide(d.limit, d.tat, now, 1).wait
	if wait == 0 {
		return false
	}
	v.sample(r.id.kind, r.limit, d.tat-now)
	v.refuse(RateLimited, r.id.kind, time.Duration(wait))
	return true
}
