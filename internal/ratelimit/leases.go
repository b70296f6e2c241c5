package ratelimit

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// LeaseTime is how long slots are kept of a replica that says nothing of them.
	LeaseTime = 10 * time.Second
	// RenewEvery is how often a replica does.
	RenewEvery = 3 * time.Second

	renewedAtOnce = 500 // leases in one job
)

// lease is one call's slots in the store.
type lease struct {
	leases  *leases
	id      string
	sets    []string // of which it is a member
	service string   // the set of its service, which may not be one of them
}

// leases are those of the calls of this replica that run.
type leases struct {
	store   Store
	replica string
	divided bool
	next    atomic.Uint64

	mu      sync.Mutex
	sets    map[string]map[string]*lease // by set and id
	away    map[string]map[string]*lease // of services that never had a cap: nobody counts them
	counted map[string]bool              // services that have or had one
}

func newLeases(store Store, replica string, divided bool) leases {
	return leases{
		store: store, replica: replica, divided: divided,
		sets: map[string]map[string]*lease{}, away: map[string]map[string]*lease{}, counted: map[string]bool{},
	}
}

// newID names a lease as no other, of any replica, at any time.
func (l *leases) newID() string {
	return l.replica + "." + strconv.FormatUint(l.next.Add(1), 36)
}

// counts reports whether the calls of a service are counted among all replicas: from
// the first cap on. Those that run then are told of at once.
func (l *leases) counts(service string, most int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if most > 0 && !l.counted[service] {
		l.counted[service] = true
		for _, c := range l.away[service] {
			l.joinLocked(c)
		}
		delete(l.away, service)
	}
	return l.counted[service]
}

// joinLocked has a lease be one of its service's.
func (l *leases) joinLocked(c *lease) {
	c.sets = append(c.sets, c.service)
	put(l.sets, c.service, c)
	l.store.Tell(Job{Script: renewScript, Keys: []string{c.service}, Args: []any{LeaseTime.Microseconds(), c.id}})
}

func put(in map[string]map[string]*lease, set string, c *lease) {
	if in[set] == nil {
		in[set] = map[string]*lease{}
	}
	in[set][c.id] = c
}

func remove(in map[string]map[string]*lease, set string, c *lease) {
	if delete(in[set], c.id); len(in[set]) == 0 {
		delete(in, set)
	}
}

// begin keeps a lease, which is a member of sets, until it ends.
func (l *leases) begin(id, service string, sets []string) *lease {
	c := &lease{leases: l, id: id, sets: sets, service: service}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range sets {
		put(l.sets, name, c)
	}
	switch {
	case slices.Contains(sets, service):
	case l.counted[service]: // since it was asked for
		l.joinLocked(c)
	default:
		put(l.away, service, c)
	}
	return c
}

// end gives the slots back, soon and for certain. It comes once.
func (c *lease) end() {
	l := c.leases
	l.mu.Lock()
	for _, name := range c.sets {
		remove(l.sets, name, c)
	}
	remove(l.away, c.service, c)
	l.mu.Unlock()
	l.drop(c.id, c.sets)
}

// drop has the store forget a lease, also one that it may never have had.
func (l *leases) drop(id string, sets []string) {
	if l.divided {
		for i := range sets {
			l.store.Tell(Job{Script: releaseScript, Keys: sets[i : i+1], Args: []any{id}})
		}
		return
	}
	if len(sets) > 0 {
		l.store.Tell(Job{Script: releaseScript, Keys: sets, Args: []any{id}})
	}
}

// renewals are the jobs that renew them all.
func (l *leases) renewals() (jobs []Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, ids := range l.sets {
		args := []any{LeaseTime.Microseconds()}
		for id := range ids {
			if args = append(args, id); len(args) > renewedAtOnce {
				jobs = append(jobs, Job{Script: renewScript, Keys: []string{name}, Args: args})
				args = slices.Clone(args[:1])
			}
		}
		if len(args) > 1 {
			jobs = append(jobs, Job{Script: renewScript, Keys: []string{name}, Args: args})
		}
	}
	return jobs
}
