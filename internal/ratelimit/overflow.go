package ratelimit

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// overflow is where the partition keys of one kind go that find the table full:
// one entry for each limit that they have, shared by all that have it.
//
// Why not one for all: a bucket follows the limit of whoever asks last, so a key
// of a fast limit would refill it for those of a slow one, and empty it for them.
// Under one limit that shared bucket never lets more through than each of its
// partition keys alone might have had, which is why they can come and go.
//
// There are at most as many entries as operators have set limits, and of those that
// they changed only the ones under which something is still owed.
type overflow struct {
	kind Kind

	mu     sync.Mutex // guards shared. Before an entry's, of this kind
	shared map[Limit]*entry

	guests guests
}

// guests counts the slots that each partition key holds in overflow entries of
// its kind, whatever its limit then was. Its cap is its own also there; and while
// it holds one, it must not get an entry of its own, or it would have it twice.
// The lock comes right after that of a tenant's entry.
type guests struct {
	mu   sync.Mutex
	held map[string]int64
}

func newOverflow(k Kind) *overflow {
	return &overflow{kind: k, shared: make(map[Limit]*entry), guests: guests{held: make(map[string]int64)}}
}

// debts is what a partition key that has no entry owes: to its bucket, and to
// that of its free concurrency refusals.
type debts struct{ bucket, free bucket }

// entry returns the entry for limit, and makes it if need be.
func (o *overflow) entry(limit Limit, now int64) *entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.entryLocked(limit, now)
}

func (o *overflow) entryLocked(limit Limit, now int64) *entry {
	e := o.shared[limit]
	if e == nil {
		o.forgetLocked(now)
		e = newEntry(id{kind: o.kind, partition: "overflow"})
		e.rareLocked().host = o
		e.bucket.shared = true
		o.shared[limit] = e
	}
	return e
}

// forgetLocked drops what owes and holds nothing, which is as if made anew.
func (o *overflow) forgetLocked(now int64) {
	for limit, e := range o.shared {
		e.mu.Lock()
		if e.freshLocked(now) {
			e.closeLocked()
			delete(o.shared, limit)
		}
		e.mu.Unlock()
	}
}

// owed is what a partition key under limit owes that gets an entry of its own
// now. What it took from a shared bucket while the table was full must not be
// forgotten, and nobody knows who took what; so it inherits what the bucket owes.
// That is no worse than what it would have met had the table stayed full.
func (o *overflow) owed(limit Limit) debts {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e := o.shared[limit]; e != nil {
		return e.debts()
	}
	return debts{}
}

// peek returns the entry for limit, or nil.
func (o *overflow) peek(limit Limit) *entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.shared[limit]
}

// change carries the debts of partition keys over whose limit was one and is now
// another. Whose they are cannot be told: they come on top of what those who have
// the new limit already find.
func (o *overflow) change(was, is Limit, now int64) {
	if was == is || was.Unlimited() || is.Unlimited() {
		return
	}
	owed := o.owed(was)
	if owed.bucket.fullAt(now) && owed.free.fullAt(now) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.entryLocked(is, now)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bucket.inherit(owed.bucket, is, now)
	e.rareLocked().free.inherit(owed.free, is.times(freeRefusals), now)
}

// inherit makes b owe what from does, carried over to limit, unless it owes more.
func (b *bucket) inherit(from bucket, limit Limit, now int64) {
	if from.fullAt(now) {
		return
	}
	from.adopt(limit, now, now)
	b.limit, b.tat, b.seen = limit, max(b.tat, from.tat), max(b.seen, from.seen)
	b.changes++ // a refund of what was charged before must not pay this debt
}

// entries lists those there are, the fastest limit first.
func (o *overflow) entries() (list []*entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range slices.SortedFunc(maps.Keys(o.shared), func(a, b Limit) int {
		return cmp.Or(cmp.Compare(a.Interval, b.Interval), cmp.Compare(a.Burst, b.Burst))
	}) {
		list = append(list, o.shared[l])
	}
	return list
}

// count is how many slots partition holds.
func (g *guests) count(partition string) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held[partition]
}

func (g *guests) leave(partition string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held[partition]--; g.held[partition] == 0 {
		delete(g.held, partition)
	}
}

func (e *entry) debts() debts {
	e.mu.Lock()
	defer e.mu.Unlock()
	d := debts{bucket: e.bucket.bare()}
	if e.rare != nil {
		d.free = e.rare.free.bare()
	}
	return d
}

// bare is b without what only its own charges have a use for.
func (b *bucket) bare() bucket { return bucket{limit: b.limit, tat: b.tat, seen: b.seen} }

// oweLocked has an entry that is made begin with debts.
func (e *entry) oweLocked(d debts, now int64) {
	e.bucket = d.bucket
	if !d.free.fullAt(now) {
		e.rareLocked().free = d.free
	}
}
