package ratelimit

import "sync/atomic"

// pool is the calls in flight that many tenants share a cap of: a service's, or
// the process's. It has no lock, as all calls would queue for it.
//
// Nor does every call pay for a number that all processors write. While a pool
// has no cap only the tenants count its calls, under the locks that these hold
// anyway. When the first cap comes it begins to count, takes over what the
// tenants counted, and goes on for good: a cap that is set while calls run holds
// for those too.
type pool struct {
	name  string
	inUse atomic.Int64 // of the tenants whose tally is counted
	most  atomic.Int64 // the cap at the last admission, for operators
	hold  atomic.Int64
	pass  int64 // of those that wait for it: see next. The line's lock guards it, and the gate
	gate  gate
	// counts: tenants hand their calls over when they next begin one. whole:
	// all have.
	counts, whole atomic.Bool
}

// take takes one slot of most, which is not 0, and reports whether there was one.
func (p *pool) take(most int64) bool {
	for {
		n := p.inUse.Load()
		if n >= most {
			return false
		}
		if p.inUse.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (p *pool) full(most int64) bool { return full(p.inUse.Load(), most) }

func (p *pool) give(held int64) {
	// A lost update by a concurrent release costs a sample of an estimate.
	p.hold.Store(averaged(p.hold.Load(), held))
	p.inUse.Add(-1)
}

// pool returns the calls in flight of s.
func (l *Local) pool(s *Service) *pool {
	p := s.pool.Load()
	if p == nil {
		p = l.service(s.name)
		s.pool.Store(p)
	}
	return p
}

// service returns the calls in flight of a service. Services are named by the
// operator, not by callers, so they are few and stay.
func (l *Local) service(name string) *pool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.services[name]
	if p == nil {
		p = &pool{name: name}
		l.services[name] = p
	}
	return p
}

// hold makes p ready to be held against a cap of most; 0 is none.
func (l *Local) hold(p *pool, most int64) {
	if p.most.Load() != most {
		p.most.Store(most)
	}
	if most > 0 && !p.whole.Load() {
		l.count(p)
	}
}

// count makes p count its own calls. Whoever is admitted from here on sees that
// it does, at the latest once its tenant is pinned: see occupyLocked. So a tenant
// that is not found among the pinned has nothing to hand over.
func (l *Local) count(p *pool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.whole.Load() {
		return
	}
	p.counts.Store(true)
	l.eachPinned(func(s *slots) {
		if p == &l.process {
			s.all.handOver(p)
			return
		}
		for v := &s.service; v != nil; v = v.next {
			if v.of == p {
				v.handOver(p)
			}
		}
	})
	p.whole.Store(true)
}

// eachPinned calls f, under its entry's lock, for the slots of every tenant that
// has calls in flight before it is called and until it returns.
func (l *Local) eachPinned(f func(*slots)) {
	visit := func(e *entry) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.slots != nil {
			f(e.slots)
		}
	}
	visit(l.nobody)
	for _, t := range l.tables {
		for _, e := range t.overflow[KindTenant].entries() {
			visit(e)
		}
		for _, s := range t.shards {
			for _, e := range s.pinned() {
				visit(e)
			}
		}
	}
}
