package ratelimit

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Options of a Local. The zero Options are usable.
type Options struct {
	// TableSize is the most entries a table keeps besides those with calls in
	// flight; 0 is 100,000.
	TableSize int
	// Idle is the age at which an unused entry may go; 0 is 10 minutes. One
	// whose bucket takes longer to fill stays until it is full.
	Idle time.Duration
	// MaxInFlight caps the slots of the whole process; 0 is no cap.
	MaxInFlight int64
	// Clock times how long slots are held, for the estimate of when one comes
	// free, and must have the origin of the times passed in. Without one every
	// estimate is 1 s.
	Clock Clock
	// Warn is called, at most once a minute and table, when a table is full and
	// a new partition key shares its overflow entry. It must not call back.
	Warn func(table string)
	// Leaked is called when a ticket was lost without a release, with the
	// tenant's partition key, on a goroutine of the runtime.
	Leaked func(partition string)
}

// Local is the limiter of one process. Make it with NewLocal. It is safe for
// concurrent use.
type Local struct {
	options Options
	tables  [tables]*table
	process pool
	// nobody stands in for the tenant of calls that have none.
	nobody  *entry
	blocked atomic.Pointer[map[tenantName]bool]

	mu       sync.RWMutex // guards services, and writers of blocked
	services map[string]*pool

	leaked, doubled atomic.Int64
}

type tenantName struct {
	table Table
	name  string
}

// NewLocal returns an empty limiter.
func NewLocal(o Options) *Local {
	if o.TableSize <= 0 {
		o.TableSize = 100_000
	}
	if o.Idle <= 0 {
		o.Idle = 10 * time.Minute
	}
	l := &Local{
		options:  o,
		nobody:   &entry{id: id{kind: KindTenant}},
		services: make(map[string]*pool),
	}
	for t := range l.tables {
		l.tables[t] = newTable(Table(t), o.TableSize, o.Warn)
	}
	l.process.most.Store(o.MaxInFlight)
	return l
}

// Ref is a partition key that remembers where its entry is, so that a hot path
// pays for no look-up. It belongs to the Local that made it, is safe for
// concurrent use, and goes on working when the entry is evicted.
type Ref struct {
	table Table
	id    id
	entry atomic.Pointer[entry]
	pool  atomic.Pointer[pool] // of the service that it was last used with
}

// Ref returns a Ref for a partition key. It creates no entry.
func (l *Local) Ref(table Table, kind Kind, partition string) *Ref {
	return &Ref{table: table, id: id{kind, partition}}
}

// Take takes one token from the bucket of partition, under the given limit,
// which may differ from the last one: balances carry over. An unlimited limit
// admits and keeps nothing. A refusal takes nothing.
func (l *Local) Take(table Table, kind Kind, partition string, limit Limit, now int64) (c Charge, v Verdict) {
	if !limit.Unlimited() {
		l.tables[table].lock(id{kind, partition}, nil, now).take(&c, &v, partition, limit, now)
	}
	return c, v
}

// TakeRef is Take by a Ref.
func (l *Local) TakeRef(r *Ref, limit Limit, now int64) (c Charge, v Verdict) {
	if !limit.Unlimited() {
		l.tables[r.table].lock(r.id, r, now).take(&c, &v, r.id.partition, limit, now)
	}
	return c, v
}

// take takes from e, which is locked, and unlocks it. Charge and verdict are
// filled in place: copying them costs more than deciding.
func (e *entry) take(c *Charge, v *Verdict, partition string, limit Limit, now int64) {
	charge, wait := e.takeLocked(limit, now)
	v.sampleBucket(e.id.kind, &e.bucket, now)
	e.mu.Unlock()
	*c = charge
	if wait > 0 {
		v.refuse(RateLimited, e.id.kind, partition, time.Duration(wait))
	}
}

// Refund gives a token back: as much of it as time has not given back already.
// It does so once per charge; see bucket.worth for what it never does.
func (l *Local) Refund(c Charge, now int64) {
	if c.entry == nil {
		return
	}
	c.entry.mu.Lock()
	defer c.entry.mu.Unlock()
	c.entry.refundLocked(c.spent, now)
}

// Peek reads a bucket's level as a call at now would find it. It costs nothing,
// makes no entry and keeps none alive. Of an unlimited limit it reads zeros.
func (l *Local) Peek(table Table, kind Kind, partition string, limit Limit, now int64) Reading {
	b := bucket{limit: limit}
	if e := l.tables[table].peek(id{kind, partition}); e != nil && !limit.Unlimited() {
		e.mu.Lock()
		b = e.bucket
		e.mu.Unlock()
		b.adopt(limit, now)
	}
	return sample{kind: kind, limit: limit, level: b.tat - now}.reading()
}

// PeekSlots reads how many slots of a cap a tenant has left.
func (l *Local) PeekSlots(table Table, tenant string, most int64) Reading {
	s := sample{kind: KindTenantSlots, limit: Limit{Burst: most}}
	if e := l.tables[table].peek(id{KindTenant, tenant}); e != nil {
		e.mu.Lock()
		s.level = e.slots.inUse
		e.mu.Unlock()
	}
	return s.reading()
}

// Sweep forgets entries that were idle for Options.Idle and are full, a bounded
// number per call: call it every second or so.
func (l *Local) Sweep(now int64) {
	for _, t := range l.tables {
		for _, s := range t.shards {
			s.mu.Lock()
			s.sweepLocked(now, int64(l.options.Idle))
			s.mu.Unlock()
		}
	}
}

// SetMaxInFlight changes the cap of the whole process; 0 is no cap. Running
// calls finish.
func (l *Local) SetMaxInFlight(most int64) { l.process.most.Store(most) }

// Block refuses every later call of a tenant until Unblock. Running calls are
// the caller's to end. It survives eviction, not the process.
func (l *Local) Block(table Table, tenant string) { l.setBlocked(tenantName{table, tenant}, true) }

// Unblock ends a Block.
func (l *Local) Unblock(table Table, tenant string) { l.setBlocked(tenantName{table, tenant}, false) }

// Blocked reports whether a tenant is blocked.
func (l *Local) Blocked(table Table, tenant string) bool {
	m := l.blocked.Load()
	return m != nil && (*m)[tenantName{table, tenant}]
}

func (l *Local) setBlocked(name tenantName, on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := make(map[tenantName]bool)
	if old := l.blocked.Load(); old != nil {
		next = maps.Clone(*old)
	}
	delete(next, name)
	if on {
		next[name] = true
	}
	if len(next) == 0 {
		l.blocked.Store(nil)
		return
	}
	l.blocked.Store(&next)
}

// pool returns the slots of the service that a names.
func (l *Local) pool(a *Admission) *pool {
	if a.ServiceRef == nil {
		return l.service(a.Service)
	}
	p := a.ServiceRef.pool.Load()
	if p == nil || p.name != a.Service {
		p = l.service(a.Service)
		a.ServiceRef.pool.Store(p)
	}
	return p
}

// service returns the slots of a service. Services are named by the operator,
// not by callers, so they are few and stay.
func (l *Local) service(name string) *pool {
	l.mu.RLock()
	p := l.services[name]
	l.mu.RUnlock()
	if p != nil {
		return p
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p = l.services[name]; p == nil {
		p = &pool{name: name}
		l.services[name] = p
	}
	return p
}

// now is the time by the clock, never before a known time.
func (l *Local) now(known int64) int64 {
	if l.options.Clock == nil {
		return known
	}
	return max(known, l.options.Clock.Nanos())
}
