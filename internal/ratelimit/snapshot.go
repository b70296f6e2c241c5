package ratelimit

import (
	"maps"
	"slices"
)

// Entry is one live entry as operators see it.
type Entry struct {
	Table     Table
	Kind      Kind
	Partition string
	Limit     Limit // the one last applied
	Remaining int64
	InFlight  int64
	Waiting   int64 // for slots; of a tenant with an entry of its own
	Cap       int64 // the one last applied; 0 is none
	Blocked   bool
	// Overflow: shared by the partition keys of this limit that found the table
	// full. Remaining is what they have together, InFlight what runs for all of
	// them, but Cap holds for each.
	Overflow bool
	// LastRefusal is the zero Refusal where none is known: there was none, or the
	// entry was forgotten since.
	LastRefusal Refusal
}

// TableStats is the state of one table.
type TableStats struct {
	Table   Table
	Size    int64 // the most it keeps besides the pinned
	Entries int64
	Pinned  int64 // those with calls in flight
	Evicted int64 // forgotten to make room, since the start
	Swept   int64 // forgotten after idling, since the start
	// Overflowed counts look-ups that ended at an overflow entry.
	Overflowed int64
	// UnexpiredEvictions counts entries that were forgotten while they still
	// owed: it stays 0, or the limiter is broken.
	UnexpiredEvictions int64
}

// PoolStats is the state of slots that tenants share.
type PoolStats struct {
	Name string
	// InFlight is how many are in use: by the pool's own count, which its cap is held
	// against, once it had one.
	InFlight int64
	// OfTenants is what tenants hold of it, added up. While calls come and go the two
	// may differ, as they are not read at one instant. When they do not, a difference
	// is slots that are lost, or that were given back twice.
	OfTenants int64
	Cap       int64
}

// RuleStats is the state of a rule, in all windows that it had under its name.
type RuleStats struct {
	Name       string
	Entries    int64 // partition keys that have counted in their window
	Size       int64 // the most that there can be
	Overflowed int64 // counts that were added to a shared one, since the start
}

// Stats is the state of the whole limiter.
type Stats struct {
	Tables         [tables]TableStats
	Rules          []RuleStats // by name
	Services       []PoolStats // by name
	Process        PoolStats
	Waiting        int64 // calls that wait for slots
	LeakedTickets  int64
	DoubleReleases int64
}

// Stats reads the state for metrics. It looks at every tenant that has calls in
// flight, and at no more than an eighth of a large table's other entries.
func (l *Local) Stats() Stats {
	st := Stats{
		Waiting:        l.line.waiting.Load(),
		LeakedTickets:  l.leaked.Load(),
		DoubleReleases: l.doubled.Load(),
	}
	for i, t := range l.tables {
		st.Tables[i] = t.stats()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	st.Rules = l.ruleStats()
	ofTenants := map[*pool]int64{}
	l.eachPinned(func(s *slots) {
		ofTenants[&l.process] += int64(s.all.n)
		for v := &s.service; v != nil; v = v.next {
			ofTenants[v.of] += int64(v.n)
		}
	})
	st.Process = l.process.stats("process", ofTenants[&l.process])
	for _, name := range slices.Sorted(maps.Keys(l.services)) {
		p := l.services[name]
		st.Services = append(st.Services, p.stats(name, ofTenants[p]))
	}
	return st
}

func (p *pool) stats(name string, ofTenants int64) PoolStats {
	st := PoolStats{Name: name, InFlight: ofTenants, OfTenants: ofTenants, Cap: p.most.Load()}
	if p.whole.Load() {
		st.InFlight = p.inUse.Load()
	}
	return st
}

// ruleStats reads every rule. The limiter's lock is held.
func (l *Local) ruleStats() (list []RuleStats) {
	byName := map[string]*RuleStats{}
	for id, w := range l.rules {
		st := byName[id.name]
		if st == nil {
			st = &RuleStats{Name: id.name, Size: int64(w.size)}
			byName[id.name] = st
		}
		w.mu.Lock()
		st.Entries += int64(len(w.counts))
		st.Overflowed += w.overflowed
		w.mu.Unlock()
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		list = append(list, *byName[name])
	}
	return list
}

func (t *table) stats() TableStats {
	st := TableStats{
		Table: t.name, Size: t.size,
		Evicted: t.evicted.Load(), Swept: t.swept.Load(),
		Overflowed: t.overflowed.Load(), UnexpiredEvictions: t.owing.Load(),
	}
	for _, s := range t.shards {
		s.mu.Lock()
		st.Pinned += int64(len(s.busy))
		st.Entries += int64(len(s.busy) + s.idle.Len())
		linger := slices.Clone(s.linger)
		s.mu.Unlock()
		for _, e := range linger {
			if e != nil && e.rests() {
				st.Pinned--
			}
		}
	}
	return st
}

// rests reports whether no call is in flight for e.
func (e *entry) rests() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.inFlightLocked() == 0
}

// Each calls f for every live entry of kind in table, until f returns false. It
// locks one shard at a time and copies, so the list is not of one instant; f may
// call the limiter. Overflow entries are shown once they are in use.
func (l *Local) Each(table Table, kind Kind, now int64, f func(Entry) bool) {
	t := l.tables[table]
	for _, s := range t.shards {
		for _, e := range s.entries(kind) {
			if !f(l.describe(t, e, now)) {
				return
			}
		}
	}
	for _, e := range t.overflow[kind].entries() {
		if over := l.describe(t, e, now); over.InFlight > 0 || over.Remaining < over.Limit.Burst {
			if !f(over) {
				return
			}
		}
	}
}

func (s *shard) entries(kind Kind) (list []*entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, e := range s.busy {
		if k.kind == kind {
			list = append(list, e)
		}
	}
	for _, e := range s.idle.Values() {
		if e.id.kind == kind {
			list = append(list, e)
		}
	}
	return list
}

func (l *Local) describe(t *table, e *entry, now int64) Entry {
	waiting := int64(0)
	if e.slots != nil && e.host() == nil {
		waiting = l.waits(t.name, e.id.partition)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	d := Entry{
		Table: t.name, Kind: e.id.kind, Partition: e.id.partition, Limit: e.bucket.limit,
		Remaining: sample{e.bucket.limit, e.bucket.ahead(now)}.reading(e.id.kind).Remaining,
		Blocked:   e.id.kind == KindTenant && l.Blocked(t.name, e.id.partition),
		Overflow:  e.host() != nil,
		Waiting:   waiting,
	}
	if e.slots != nil {
		d.InFlight, d.Cap = e.inFlightLocked(), int64(e.most)
	}
	if e.rare != nil {
		d.LastRefusal = e.rare.refused
	}
	return d
}
