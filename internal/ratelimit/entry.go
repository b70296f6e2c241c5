package ratelimit

import (
	"math"
	"sync"
	"sync/atomic"
)

// id names an entry within its table. The kind is part of it: a key and a tenant
// may bear the same name.
type id struct {
	kind      Kind
	partition string
}

// entry is what is kept for one partition key: a bucket, and for a tenant the
// calls in flight as well. The first group is what every call touches, and fills
// one line of the processor's cache.
//
// mu guards the first and the last group. Locks are taken in this order: that of the
// line of those that wait, the limiter's own, a
// tenant's entry, that of a caller who has none, a (key, service) entry, rules' counts in the order of their
// numbers, a shard; a key's entry is locked alone. Under rules' counts no other
// lock is taken: they are what most calls meet at.
// A goroutine that holds a shard's lock may only try an entry's. The lock of an
// overflow comes before those of its entries.
type entry struct {
	mu      sync.Mutex
	drained atomic.Pointer[drained] // changed under mu, read without
	bucket  bucket

	id   id
	home *shard // nil: nobody's own
	// seated is when the entry last went to the front of its shard's list.
	// Guarded by the shard's lock.
	seated int64

	slots *slots // of a tenant, else nil
	rare  *rare  // nil until it is needed
	// lingers: in its shard's linger. Changed under the shard's lock as well.
	lingers bool
	most    int32 // of a tenant: the cap at the last admission, for operators
}

// newEntry returns an empty entry for k. What a tenant's calls touch is made in
// one piece, so that it comes from one place in memory.
func newEntry(k id) *entry {
	if k.kind != KindTenant {
		return &entry{id: k}
	}
	t := new(struct {
		entry entry
		slots slots
		first held
	})
	t.entry.id, t.entry.slots, t.slots.free = k, &t.slots, &t.first
	t.first.tenant = &t.entry
	return &t.entry
}

// rare is what few entries need.
type rare struct {
	// given holds the refunds of this bucket that still matter.
	given given
	// free is the bucket of concurrency refusals that cost a key nothing.
	free bucket
	// host is where an overflow entry belongs.
	host *overflow
	// passes are those of a tenant, one for each pool where it has waited.
	passes []pass
	// refused is the last refusal of the tenant, for operators.
	refused Refusal
	// told is the number of the answer of a store that the bucket was last told by.
	told int64
}

func (e *entry) rareLocked() *rare {
	if e.rare == nil {
		e.rare = &rare{}
	}
	return e.rare
}

// takeLocked takes one token if there is one; the wait is 0 if it did. If it did
// not, spent says how the bucket stood.
func (e *entry) takeLocked(l Limit, since, now int64) (spent, int64) {
	d := e.askLocked(l, since, now)
	if d.wait > 0 {
		if e.drained.Load() == nil {
			e.drained.Store(&drained{l, d.at, e.bucket.tat, math.MaxInt64})
		}
		return spent{at: d.at, tat: e.bucket.tat}, d.wait
	}
	return e.spendLocked(d), 0
}

// askLocked asks for one token under limit l, in force since then, and takes none.
func (e *entry) askLocked(l Limit, since, now int64) decision {
	if e.bucket.limit != l {
		e.adoptLocked(l, since, now)
	}
	e.bucket.seen = e.bucket.now(now)
	return decide(l, e.bucket.tat, e.bucket.seen, 1)
}

// adoptLocked has the bucket follow limit l, in force since then, and remembers where
// that moves what is owed.
func (e *entry) adoptLocked(l Limit, since, now int64) {
	was := e.bucket
	e.bucket.adopt(l, since, now)
	if at := was.turn(since, now); was.tat > at {
		e.rareLocked().given.move(&was, &e.bucket, at)
	}
	e.changedLocked()
}

func (e *entry) spendLocked(d decision) spent {
	e.changedLocked()
	return e.bucket.spend(d)
}

// changedLocked is called whenever the bucket's level or limit changes.
func (e *entry) changedLocked() {
	if e.drained.Load() != nil {
		e.refillLocked()
	}
}

// refillLocked stands apart so that changedLocked, which is asked with every token
// and hardly ever has anything to do, is small enough to be part of its callers.
//
//go:noinline
func (e *entry) refillLocked() { e.drained.Store(nil) }

// refundLocked gives s back, as much of it as time has not given back already,
// unless it was given back before.
//
// A refund to an entry that went reaches nobody, and nobody misses it: the entry went
// because its bucket was full.
func (e *entry) refundLocked(s spent, now int64) {
	b := &e.bucket
	b.seen = b.now(now) // worth nothing once is worth nothing ever
	if b.fullAt(b.seen) {
		return
	}
	g := &e.rareLocked().given
	g.follow(b)
	c := g.today(s, b.limit)
	if c.amount == 0 || !g.hasRoom(b, now) {
		return
	}
	place, later, twice := find(g.list, c.mark)
	amount := b.worth(c.amount, c.mark, later, now)
	if twice || amount == 0 {
		return
	}
	e.changedLocked()
	g.add(place, c.mark, amount)
	b.refund(amount)
}

// inFlightLocked is how many calls of a tenant run.
func (e *entry) inFlightLocked() int64 {
	if e.slots == nil {
		return 0
	}
	return int64(e.slots.all.n)
}

// host is where e belongs if it is an overflow entry, else nil. It never changes.
func (e *entry) host() *overflow {
	if !e.bucket.shared {
		return nil
	}
	return e.rare.host
}

// inUseLocked is how many of them count against the cap of own.
func (e *entry) inUseLocked(own *Ref) int64 {
	if over := e.host(); over != nil {
		return over.guests.held[own.partition]
	}
	return int64(e.slots.all.n)
}

// closeLocked has whoever still finds e look it up again.
func (e *entry) closeLocked() {
	e.bucket.closed = true
	e.changedLocked()
	if e.slots != nil {
		e.slots.forget()
	}
}

// freshLocked reports whether the entry decides as one made anew would, now and
// ever after: nothing owed, nothing held.
func (e *entry) freshLocked(now int64) bool {
	return e.inFlightLocked() == 0 && e.bucket.fullAt(now) && (e.rare == nil || e.rare.free.fullAt(now))
}
