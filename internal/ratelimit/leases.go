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
	leases         *leases
	id             string
	sets           []string // of which it is a member
	service        string   // the set of its service, which may not be one of them
	before, behind *lease   // in the list of those that run
	ended          bool     // it is in it no more
}

// leases are those of the calls of this replica that run.
type leases struct {
	store   Store
	replica string
	divided bool
	next    atomic.Uint64

	mu      sync.Mutex
	running *lease   // the last that began; every call comes here twice
	counted sync.Map // services that have or had a cap, stored under mu: nobody counts the calls of others
}

func newLeases(store Store, replica string, divided bool) leases {
	return leases{store: store, replica: replica, divided: divided}
}

// newID names a lease as no other, of any replica, at any time.
func (l *leases) newID() string {
	return l.replica + "." + strconv.FormatUint(l.next.Add(1), 36)
}

// counts reports whether the calls of a service are counted among all replicas: from
// the first cap on. Those that run then are told of at once.
func (l *leases) counts(service string, most int64) bool {
	if is := l.isCounted(service); is || most <= 0 {
		return is
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, before := l.counted.LoadOrStore(service, true); !before {
		for c := l.running; c != nil; c = c.behind {
			if c.service == service {
				l.joinLocked(c)
			}
		}
	}
	return true
}

func (l *leases) isCounted(service string) bool {
	_, is := l.counted.Load(service)
	return is
}

// joinLocked has a lease be one of its service's.
func (l *leases) joinLocked(c *lease) {
	if slices.Contains(c.sets, c.service) {
		return
	}
	c.sets = append(c.sets, c.service)
	l.store.Tell(Job{Script: renewScript, Keys: []string{c.service}, Numbers: []int64{LeaseTime.Microseconds()}, Texts: []string{c.id}})
}

// begin keeps a lease, which is a member of sets, until it ends.
func (l *leases) begin(id, service string, sets []string) *lease {
	c := &lease{leases: l, id: id, sets: sets, service: service}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.behind = l.running; c.behind != nil {
		c.behind.before = c
	}
	l.running = c
	if l.isCounted(service) { // perhaps since it was asked for
		l.joinLocked(c)
	}
	return c
}

// end gives the slots back, soon and for certain. It comes once.
func (c *lease) end() {
	l := c.leases
	l.mu.Lock()
	c.ended = true
	if c.before != nil {
		c.before.behind = c.behind
	} else {
		l.running = c.behind
	}
	if c.behind != nil {
		c.behind.before = c.before
	}
	l.mu.Unlock()
	l.drop(c.id, c.sets)
}

// drop has the store forget a lease, also one that it may never have had.
func (l *leases) drop(id string, sets []string) {
	if l.divided {
		for i := range sets {
			l.store.Tell(Job{Script: releaseScript, Keys: sets[i : i+1], Texts: []string{id}})
		}
		return
	}
	if len(sets) > 0 {
		l.store.Tell(Job{Script: releaseScript, Keys: sets, Texts: []string{id}})
	}
}

// renewal is some leases of one set that are renewed together.
type renewal struct {
	set string
	of  []*lease
}

// renewals are those of all that run.
func (l *leases) renewals() (list []renewal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	members := map[string][]*lease{}
	for c := l.running; c != nil; c = c.behind {
		for _, set := range c.sets {
			members[set] = append(members[set], c)
		}
	}
	for set, all := range members {
		for some := range slices.Chunk(all, renewedAtOnce) {
			list = append(list, renewal{set, some})
		}
	}
	return list
}

func (r renewal) job() Job {
	ids := make([]string, len(r.of))
	for i, c := range r.of {
		ids[i] = c.id
	}
	return Job{Script: renewScript, Keys: []string{r.set}, Numbers: []int64{LeaseTime.Microseconds()}, Texts: ids}
}

// dropEnded is for when a renewal has been answered, or given up. What ended since it was put
// together may have been dropped before it ran, which made it anew: it is dropped again. It
// returns how many those are.
func (l *leases) dropEnded(r renewal) (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range r.of {
		if c.ended {
			l.drop(c.id, []string{r.set})
			n++
		}
	}
	return n
}
