package ratelimit

import "time"

// Charge is one token taken from a bucket, or the refusal of one, or one that is yet to
// be taken: see Shared.Defer. The zero Charge
// is of a limit that is off. It is a small value: what it means to a caller is in
// its Verdict, and worked out only for who asks.
type Charge struct {
	ref   *Ref
	entry *entry // nil unless a token was taken
	spent spent  // of one that a store took, refunded is its mark there
	wait  int64  // unknown: the store cannot tell, and nothing else is to
}

const unknown = -1

// Take takes one token from the bucket of r. Balances carry over from whatever
// limit it had before. An unlimited bucket admits and keeps nothing. A refusal
// takes nothing.
func (l *Local) Take(r *Ref, now int64) Charge {
	if r.limit.Unlimited() {
		return Charge{}
	}
	if at, tat, wait := r.drained(now); wait > 0 {
		return Charge{ref: r, spent: spent{at: at, tat: tat}, wait: wait}
	}
	e := l.tables[r.table].lock(r, now)
	s, wait := e.takeLocked(r.limit, r.since, now)
	e.mu.Unlock()
	if wait > 0 {
		e = nil
	}
	return Charge{ref: r, entry: e, spent: s, wait: wait}
}

// Defer is Take: nothing is gained by putting off what is decided at once.
func (l *Local) Defer(r *Ref, now int64) Charge { return l.Take(r, now) }

// Settle returns c, which is decided.
func (l *Local) Settle(c Charge, _ int64) Charge { return c }

// drained is a bucket as it was when it last refused. Until a token is taken or
// given back, or the limit changes, it still is, and whoever comes may be refused
// without waiting for a lock: a flood on one key costs next to nothing.
type drained struct {
	limit Limit
	at    int64 // when it refused; no call is decided by an earlier time
	tat   int64
	until int64 // for how long that is believed; others may give tokens back meanwhile
}

// drained returns the wait of a call whose bucket is known to be drained, else 0, and
// what it was decided by.
func (r *Ref) drained(now int64) (at, tat, wait int64) {
	e := r.entry.Load()
	if e == nil {
		return 0, 0, 0
	}
	d := e.drained.Load()
	if d == nil || d.limit != r.limit || now >= d.until {
		return 0, 0, 0
	}
	says := decide(d.limit, d.tat, max(now, d.at), 1)
	return says.at, d.tat, says.wait
}

// Refused reports whether no token was to be had.
func (c Charge) Refused() bool { return c.wait != 0 }

// Deferred reports whether it is yet to be decided, as those of Local never are.
func (c Charge) Deferred() bool { return c.ref != nil && !c.taken() && c.wait == 0 }

// taken reports whether a token was taken, here or in a store.
func (c Charge) taken() bool { return c.entry != nil || c.wait == 0 && c.spent.tat != 0 }

// refund gives the token back, if one was taken.
func (c Charge) refund(now int64) {
	if c.entry == nil {
		return
	}
	c.entry.mu.Lock()
	defer c.entry.mu.Unlock()
	c.entry.refundLocked(c.spent, now)
}

// Verdict is what the bucket decided, and its level then.
func (c Charge) Verdict() (v Verdict) {
	if c.wait == unknown {
		v.Outcome = Unavailable
		return v
	}
	if c.ref == nil || c.Deferred() {
		return v
	}
	v.sample(c.ref.kind, c.ref.limit, c.spent.tat-c.spent.at)
	if c.wait > 0 {
		v.refuse(RateLimited, c.ref.kind, time.Duration(c.wait))
	}
	return v
}
