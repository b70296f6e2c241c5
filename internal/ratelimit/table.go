package ratelimit

import (
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Table says in which of the tables a partition key lives. Each has its own
// bound, so that strangers cannot crowd out the registered.
type Table uint8

const (
	Registered  Table = iota // registered keys and their tenants
	Callers                  // OIDC callers, whom an issuer vouches for
	Addresses                // client addresses
	OpenCallers              // callers of open services, who are whom they say they are
	tables      = int(OpenCallers) + 1
)

func (t Table) String() string {
	return [...]string{"registered", "callers", "addresses", "open_callers"}[t]
}

const (
	looks      = 8  // entries looked at from the tail to make room for one
	sweepBatch = 64 // entries that one sweep looks at in one shard
	manyShards = 32 // of a table that is large enough
	largeTable = 8192
	lingerers  = 64 // places per shard of a large table, or an eighth of its seats
)

// table keeps the entries of one Table. It holds at most size entries that no
// call is in flight for (seats), and any number of those pinned by calls. Those
// whose last call ends while all seats are taken stay until their bucket is full.
type table struct {
	name     Table
	size     int64
	seats    atomic.Int64
	seed     maphash.Seed
	shards   []*shard
	overflow [kinds]*overflow

	warn     func(table string)
	warnedAt atomic.Int64

	evicted, swept, overflowed, owing atomic.Int64
}

// shard is a part of a table under a lock of its own.
type shard struct {
	table *table
	mu    sync.Mutex
	// idle holds the entries without a call in flight, and only those: the tail
	// is therefore always a candidate, however many calls run. It never evicts
	// by itself, since it does not know what may be forgotten.
	idle *simplelru.LRU[id, *entry]
	busy map[id]*entry
	// linger holds entries of busy whose last call has ended, or had. A tenant
	// with one call after the other would otherwise go into the list and out of
	// it with each, at several times the cost of all the rest of the call. They
	// have seats like those in idle, and go when idle has none that can. Small
	// tables have none, so that their order of eviction is exact.
	linger []*entry
	next   int // the place in linger to be taken next
	swept  int // the place in linger to be swept next
}

func newTable(name Table, size int, warn func(string)) *table {
	t := &table{name: name, size: int64(size), seed: maphash.MakeSeed(), warn: warn}
	t.warnedAt.Store(math.MinInt64)
	n, places := 1, 0
	if size >= largeTable {
		n, places = manyShards, max(lingerers, size/manyShards/8)
	}
	for range n {
		idle, err := simplelru.NewLRU[id, *entry](math.MaxInt, nil)
		if err != nil {
			panic(err) // only for a size that is not positive
		}
		t.shards = append(t.shards, &shard{table: t, idle: idle, busy: make(map[id]*entry), linger: make([]*entry, places)})
	}
	for k := range t.overflow {
		t.overflow[k] = newOverflow(Kind(k))
	}
	return t
}

func (t *table) shardOf(k id) *shard {
	if len(t.shards) == 1 {
		return t.shards[0]
	}
	return t.shards[maphash.String(t.seed, k.partition)%uint64(len(t.shards))]
}

// peek returns the entry of k, or nil, and changes no order.
func (t *table) peek(k id) *entry {
	s := t.shardOf(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.idle.Peek(k); ok {
		return e
	}
	return s.busy[k]
}

// lock returns the entry of r, made if need be, with its lock held.
func (t *table) lock(r *Ref, now int64) *entry {
	e := r.entry.Load()
	if e == nil {
		e = t.find(r, now)
	}
	for {
		e.mu.Lock()
		// A look-up that found the table full may be late: see find.
		if !e.bucket.closed && (!e.bucket.shared || t.peek(r.id()) == nil) {
			break
		}
		e.mu.Unlock()
		e = t.find(r, now)
	}
	if r.entry.Load() != e && e.home != nil {
		r.entry.Store(e)
	}
	return e
}

// find returns the entry of r, makes it, or returns an overflow entry.
//
// A partition key must not be charged here and there at once. So its new entry is
// in the table, locked, before what it owes is read, for which the overflow entry
// is locked; and who has locked that looks once more whether there is now an
// entry. Whichever lock came first, one of the two knows of the other.
func (t *table) find(r *Ref, now int64) *entry {
	s := t.shardOf(r.id())
	s.mu.Lock()
	e := s.lookupLocked(r.id(), now)
	s.mu.Unlock()
	if e != nil {
		return e
	}
	over := t.overflow[r.kind]
	if over.guests.count(r.partition) > 0 {
		return over.entry(r.limit, now)
	}
	e, made := s.seat(r.id(), now)
	if e == nil {
		t.overflowed.Add(1)
		t.warnOnce(now)
		return over.entry(r.limit, now)
	}
	if made {
		defer e.mu.Unlock()
		owed := over.owed(r.limit)
		if over.guests.count(r.partition) > 0 {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.dropLocked(e, now)
			return e // closed: it will be looked up again
		}
		e.oweLocked(owed, now)
		e.bucket.seen = e.bucket.now(now)
	}
	return e
}

// seat returns the entry of k; or makes it, with its lock held; or, if there is no
// room, nil.
func (s *shard) seat(k id, now int64) (e *entry, made bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.lookupLocked(k, now); e != nil {
		return e, false
	}
	if !s.roomLocked(now) {
		return nil, false
	}
	e = newEntry(k)
	e.mu.Lock()
	e.home, e.seated = s, now
	s.idle.Add(k, e)
	return e, true
}

func (t *table) warnOnce(now int64) {
	last := t.warnedAt.Load()
	if last != math.MinInt64 && now-last < int64(time.Minute) || !t.warnedAt.CompareAndSwap(last, now) {
		return
	}
	if t.warn != nil {
		t.warn(t.name.String())
	}
}

func (s *shard) lookupLocked(k id, now int64) *entry {
	if e, ok := s.idle.Get(k); ok {
		e.seated = max(e.seated, now)
		return e
	}
	return s.busy[k]
}

// pinned returns the entries that have calls in flight, and some that had.
func (s *shard) pinned() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.busy))
}
