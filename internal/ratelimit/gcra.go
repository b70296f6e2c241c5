package ratelimit

import "math/bits"

// bucket is one limit's state. The zero bucket is full. It is not safe for
// concurrent use; whoever holds the entry's lock may use it.
type bucket struct {
	limit Limit
	// tat is when the bucket is full again; at or before now, it is.
	tat int64
	// seen is the latest time that anybody asked at, and the earliest that any
	// decision goes by; see now.
	seen int64
	// refunded is the sum of all that was given back, in nanoseconds.
	refunded int64
	// changes counts changes of limit: the nanoseconds of a charge made before
	// a change are not those of today; see move. When refunded begins anew, that
	// counts too.
	changes uint32
	// closed: its entry is no longer in the table. Whoever finds a remembered
	// entry's bucket closed looks the entry up again, so that one partition key
	// never has two states.
	closed bool
	// shared: its entry is an overflow entry. Here, as closed is, because every call
	// asks, and nothing else of an entry but its bucket.
	shared bool
}

// spent is what a refund has to know of a charge.
type spent struct {
	at       int64 // time that the charge was decided by
	tat      int64 // of the bucket, after the charge
	refunded int64 // of the bucket, at the charge
	changes  uint32
}

// decision is the answer of one bucket to one question.
type decision struct {
	at   int64 // what it was decided by
	tat  int64 // of the bucket, if the tokens are taken
	wait int64 // 0: they may be taken now
	// never: no wait helps, since the cost is more than the bucket ever holds.
	never bool
}

// decide answers whether cost tokens may be taken from a bucket at now, and
// after what wait if not now. It is the whole of the algorithm, and changes
// nothing. A cost of 0 is always admitted and leaves tat's meaning as it is.
// cost must not be negative: callers in this package pass constants, so a
// negative one, which would mint, is a bug and panics.
func decide(l Limit, tat, now, cost int64) decision {
	if cost < 0 {
		panic("ratelimit: negative cost")
	}
	if cost > l.Burst {
		return decision{at: now, tat: tat, never: true}
	}
	if cost == 0 {
		return decision{at: now, tat: tat}
	}
	next := max(tat, now) + l.Interval*cost
	if wait := next - now - l.window(); wait > 0 {
		return decision{at: now, tat: next, wait: wait}
	}
	return decision{at: now, tat: next}
}

// now is the time that a call of time at is decided by: its own, or the latest that any
// call before it was, if that is later. A call reads the clock before it has its turn at
// the bucket, and others that read it later may have theirs first. What those have taken
// was refilled by their time, and to hold it against the time of this one would refuse a
// call that nothing is in the way of. And as time only moves on, two clocks a second apart
// mint nothing at any turn.
func (b *bucket) now(at int64) int64 { return max(at, b.seen) }

// spend takes the token, or the tokens, that decide allowed.
func (b *bucket) spend(d decision) spent {
	b.tat = d.tat
	return spent{at: d.at, tat: d.tat, refunded: b.refunded, changes: b.changes}
}

// wait is how long until one token can be taken; 0 when one can be now.
func (b *bucket) wait(now int64) int64 {
	return decide(b.limit, b.tat, b.now(now), 1).wait
}

// ahead is how long until the bucket is full; negative, how long it has been.
func (b *bucket) ahead(now int64) int64 { return b.tat - b.now(now) }

// mark says which charge of a bucket s is, and in what order they were made: it is
// where the bucket was full again after the charge, but for refunds. A charge moves it
// ahead, a refund leaves it where it is, and a change of limit is counted; so no two
// charges look alike, and the later has the greater.
func (s spent) mark() int64 { return s.tat + s.refunded }

// worth is how many nanoseconds of a charge of that many a refund at now gives back;
// later is how much was given back of charges that were made after it.
//
// The charge moved tat ahead by its cost. Moving it back by as much is wrong when
// time has refilled part of it since, or all: that would be credited twice. Only
// what of the charge still lies ahead of now may be taken back. What a bucket owes is
// a row, which time pays from its front, and a charge stands in it where it was put,
// less the refunds since of what stands before it. Those of what stands behind it, of
// later charges, have not moved it; to deduct them too would withhold the tokens of
// who waits while others come and go.
//
// It keeps what the bucket owes at no less than a history without the refunded calls
// would owe: time that paid for them paid for nobody else. And what it withholds of
// all refunds together is no more than that time.
func (b *bucket) worth(cost, mark, later, now int64) int64 {
	return min(cost, max(0, b.end(mark, later)-b.now(now)))
}

// end is when the bucket will have paid for the charge of that mark.
func (b *bucket) end(mark, later int64) int64 { return mark - b.refunded + later }

// refund gives amount back. That it is no more than the charge is worth, and happens
// once, is the caller's part: see entry.refundLocked.
func (b *bucket) refund(amount int64) {
	b.tat -= amount
	b.refunded += amount
	if b.refunded > maxRefunded {
		b.refunded = 0
		b.changes++
	}
}

// maxRefunded keeps marks from overflowing. After 73 years' worth of tokens the count
// begins anew, and what was charged before is worth nothing.
const maxRefunded = 1 << 61

// adopt makes the bucket follow limit l, which has been in force since then: it
// filled up at the old rate until then, and at the new one after. The balance of
// that time carries over in tokens, cut to the new burst, and nothing is minted:
// a drained bucket stays drained, and has its next token one new interval later.
// (Keeping tat as it is would ignore a raised rate until the old debt is paid;
// clamping it to the new window would turn a raised burst into a refill; and to
// count from the first call on would let whoever kept still for a while go by the
// old rate.) Only a bucket that nobody touched for its whole window, and which is
// therefore full by any account, is full under the new limit too, as if it were
// made anew. l must limit something: a limit that is switched off leaves its
// bucket alone until it is on again.
func (b *bucket) adopt(l Limit, since, now int64) {
	if b.limit == l {
		return
	}
	old := b.limit
	b.limit = l
	if old.Unlimited() {
		return // a fresh bucket
	}
	b.changes++
	at := b.turn(since, now)
	if b.tat <= at && at-b.seen >= old.window() {
		return
	}
	b.tat = at + l.window() - min(l.window(), scale(old.left(b.tat, at), l.Interval, old.Interval))
}

// turn is the instant at which the bucket goes over to a limit in force since then.
func (b *bucket) turn(since, now int64) int64 { return max(b.seen, min(since, now)) }

// left is what the bucket holds at now, in nanoseconds: between 0 and window.
func (l Limit) left(tat, now int64) int64 {
	return min(l.window(), max(0, l.window()-max(0, tat-now)))
}

// fullAt reports whether the bucket is full at now, and so the same as a fresh one.
func (b *bucket) fullAt(now int64) bool { return b.tat <= now }

// scale is floor(a*b/c) for non-negative a, b and positive c, cut to int64. The
// product needs 128 bits: a window times an interval passes 64.
func scale(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return 1<<63 - 1
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, 1<<63-1))
}
