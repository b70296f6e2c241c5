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
	// flight, and a rule of one window; 0 is 100,000.
	TableSize int
	// Idle is the age at which an unused entry may go; 0 is 10 minutes. One
	// whose bucket takes longer to fill stays until it is full.
	Idle time.Duration
	// Clock times how long slots are held, for the estimate of when one comes
	// free and for the shares of tenants that wait, and must have the origin of the
	// times passed in. Without one every estimate is 1 s; calls that may wait
	// need it.
	Clock Clock
	// Epoch is the Unix time, in nanoseconds, of the origin of the times passed
	// in: what the windows of rules are aligned to.
	Epoch int64
	// Warn is called, at most once a minute and table, when a table is full and
	// a new partition key shares its overflow entry. Each rule has a table of its
	// own, "rule" and its name. It must not call back.
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
	line    line
	// nobody stands in for the tenant of calls that have none.
	nobody  *entry
	blocked atomic.Pointer[map[tenantName]bool]

	mu       sync.Mutex // guards services, rules, and writers of blocked; before any entry's
	services map[string]*pool
	rules    map[ruleID]*windows

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
		line:     line{parties: make(map[tenantName]*party)},
		nobody:   newEntry(id{kind: KindTenant}),
		services: make(map[string]*pool),
		rules:    make(map[ruleID]*windows),
	}
	for t := range l.tables {
		l.tables[t] = newTable(Table(t), o.TableSize, o.Warn)
	}
	return l
}

// Peek reads how full the bucket of r is, as a call at now would find it, and of
// a tenant how many slots are left. It costs nothing, makes no entry and keeps
// none alive. Of a limit that is off the reading is zero.
func (l *Local) Peek(r *Ref, now int64) (bucket, slots Reading) {
	b, inUse := l.tables[r.table].standing(r, now)
	if !r.limit.Unlimited() {
		b.adopt(r.limit, r.since, now)
		bucket = sample{r.limit, b.ahead(now)}.reading(r.kind)
	}
	if r.slots > 0 {
		slots = sample{Limit{Burst: r.slots}, inUse}.reading(KindTenantSlots)
	}
	return bucket, slots
}

// standing copies the bucket that a call of r would find, and how many run.
func (t *table) standing(r *Ref, now int64) (b bucket, inUse int64) {
	e := t.peek(r.id())
	if e == nil {
		over := t.overflow[r.kind]
		return over.owed(r.limit).bucket, over.guests.count(r.partition)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bucket, e.inFlightLocked()
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
	l.sweepRules(now)
}

// Changed tells that the limit of some partition keys of kind was one and is now
// another. Call it before the Refs under the new limit come into use. Entries of
// one's own need it not, as they follow the limit of whoever asks. But who shares
// one, because the table is full, goes on to share another, which from here on
// owes at least what the first does.
func (l *Local) Changed(table Table, kind Kind, was, is Limit, now int64) {
	l.tables[table].overflow[kind].change(was, is, now)
}

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

// refuseBlocked refuses what a blocked tenant would pay for, and reports whether it did.
func (l *Local) refuseBlocked(v *Verdict, a *Admission) bool {
	if a.Tenant == nil || !l.Blocked(a.Tenant.table, a.Tenant.partition) {
		return false
	}
	v.Outcome, v.Limit, v.Never = Blocked, KindTenant, true
	v.violate(KindTenant)
	return true
}

// BlockedTenants lists the blocked tenants of a table, in no order.
func (l *Local) BlockedTenants(table Table) (list []string) {
	if m := l.blocked.Load(); m != nil {
		for t := range *m {
			if t.table == table {
				list = append(list, t.name)
			}
		}
	}
	return list
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

// now is the time by the clock; without one, the origin.
func (l *Local) now() int64 {
	if l.options.Clock == nil {
		return 0
	}
	return l.options.Clock.Nanos()
}
