package ratelimit

import "sync"

// id names an entry within its table. The kind is part of it: a key and a tenant
// may bear the same name.
type id struct {
	kind      Kind
	partition string
}

// entry is what is kept for one partition key: a bucket, and for a tenant the
// slots as well.
//
// mu guards everything below it. Locks are taken in this order: a tenant's entry,
// a (key, service) entry, a shard; a key's entry is locked alone. A goroutine
// that holds a shard's lock may only try an entry's.
type entry struct {
	id   id
	home *shard // nil: an overflow entry, which is nobody's and never goes

	// seated is when the entry last went to the front of its shard's list.
	// Guarded by the shard's lock.
	seated int64

	mu     sync.Mutex
	bucket bucket
	last   int64 // when anybody last asked for it
	// dead: no longer in the table. Whoever finds a remembered entry dead looks
	// it up again, so that one partition key never has two states.
	dead bool
	// lingers: in its shard's linger. Changed under the shard's lock as well.
	lingers bool
	// given holds the charges of this bucket that were refunded and that a
	// second refund would still be worth something for.
	given map[spent]struct{}
	// forgetAt is the size at which given is looked through next, forgotAt when
	// it last was.
	forgetAt int
	forgotAt int64
	// free is the bucket of concurrency refusals that cost a key nothing; nil
	// until the first.
	free *bucket
	// slots is set for tenants.
	slots slots
	// guests counts, in an overflow entry, the slots that each of its partition
	// keys holds: while it holds one, it must not get an entry of its own, or
	// it would have its cap twice.
	guests map[string]int
}

// Charge is one token taken from a bucket. It can be given back once, whatever
// the number of its copies. The zero Charge is of no bucket, and giving it back
// does nothing.
type Charge struct {
	entry *entry
	spent spent
}

// takeLocked takes one token if there is one; the wait is 0 if it did.
func (e *entry) takeLocked(l Limit, now int64) (Charge, int64) {
	e.last = max(e.last, now)
	e.bucket.adopt(l, now)
	d := decide(l, e.bucket.tat, now, 1)
	if d.wait > 0 {
		return Charge{}, d.wait
	}
	return Charge{entry: e, spent: e.bucket.spend(d, now, 1)}, 0
}

// maxGiven bounds given. A key's free concurrency refusals bound it long before,
// unless its burst is in the thousands; past it, refunds are withheld.
const maxGiven = 1 << 14

// refundLocked gives s back unless it was given back before. What identifies a
// charge is the bucket's state right after it: tat grows with every charge, and
// falls only by a refund, which changes the refunded sum, or by a change of
// limit, which is counted. So no two charges of one entry look alike.
//
// A refund to a dead entry reaches nobody, and nobody misses it: the entry went
// because its bucket was full.
func (e *entry) refundLocked(s spent, now int64) {
	e.bucket.seen = max(e.bucket.seen, now) // worth nothing once is worth nothing ever
	if e.bucket.worth(s, now) == 0 {
		return
	}
	if _, twice := e.given[s]; twice || !e.canRememberLocked(now) {
		return
	}
	e.bucket.refund(s, now)
	if e.given == nil {
		e.given = make(map[spent]struct{})
	}
	e.given[s] = struct{}{}
}

// canRememberLocked reports whether given has room, after dropping what a second
// refund would be worth nothing for: whenever the number has doubled, so that the
// cost per refund stays constant, and at the bound once an interval.
func (e *entry) canRememberLocked(now int64) bool {
	n := len(e.given)
	if n >= max(16, e.forgetAt) || n >= maxGiven && now-e.forgotAt >= e.bucket.limit.Interval {
		for s := range e.given {
			if e.bucket.worth(s, now) == 0 {
				delete(e.given, s)
			}
		}
		n = len(e.given)
		e.forgetAt, e.forgotAt = 2*n, now
	}
	return n < maxGiven
}

// freshLocked reports whether the entry decides as one made anew would, now and
// ever after: nothing owed, nothing held.
func (e *entry) freshLocked(now int64) bool {
	return e.slots.inUse == 0 && e.bucket.fullAt(now) && (e.free == nil || e.free.fullAt(now))
}
