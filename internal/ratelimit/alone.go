package ratelimit

import (
	"maps"
	"sync"
)

// Alone is what a replica has decided by itself, as the store did not, since it began.
type Alone struct {
	Shares int64 // decided by its share of the limits
	Opens  int64 // let pass, as far as shared limits go
	Closes int64 // refused
	// Unasked is how many calls each rule was not asked of that lets pass then, by its name.
	Unasked map[string]int64
}

// Alone reads what this replica has decided by itself.
func (s *Shared) Alone() Alone {
	s.alone.mu.Lock()
	defer s.alone.mu.Unlock()
	all := s.alone.of
	all.Unasked = maps.Clone(all.Unasked)
	return all
}

// decidedAlone counts it. A lock is no matter where a store that was to be asked is away.
type decidedAlone struct {
	mu sync.Mutex
	of Alone
}

func (d *decidedAlone) count(by Policy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch by {
	case PolicyOpen:
		d.of.Opens++
	case PolicyClosed:
		d.of.Closes++
	default:
		d.of.Shares++
	}
}

func (d *decidedAlone) pass(r *Rule) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of.Unasked == nil {
		d.of.Unasked = map[string]int64{}
	}
	d.of.Unasked[r.id.name]++
}
