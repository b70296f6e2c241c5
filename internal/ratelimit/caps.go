package ratelimit

// Caps are all caps in force. They are not those of the call, as its rates are, but
// the limiter's, for every call that comes and every one that waits: two calls that
// were judged by different ones could each be sure that the other has the slot.
type Caps struct {
	Process int64 // 0: none
	// Tenant and Service return their argument's namesake under the cap that it
	// now has, or nil if there is none any more: then the cap it had holds on.
	// They may be called with the limiter locked, and must not call it.
	Tenant  func(*Ref) *Ref
	Service func(*Service) *Service
}

// Follow has every call, also who waits, be held to c from now on. A raised cap admits
// those that wait at once; a lowered one lets the running calls finish and admits none
// until below, whenever the call came. Before the first Follow a call is held to the
// caps that it brings, and those that wait to what the last of them brought.
func (l *Local) Follow(c *Caps) {
	l.line.mu.Lock()
	defer l.line.mu.Unlock()
	l.hold(&l.process, c.Process)
	l.line.process = c.Process
	l.line.caps.Store(c)
	for _, p := range l.line.parties {
		p.own = c.tenant(p.own)
		p.gate.open() // others may be free now
		for _, a := range p.lanes {
			a.service = c.service(a.service)
			a.pool.gate.open()
			l.hold(a.pool, a.service.slots)
		}
	}
	l.serveLocked(l.now())
}

// outdated reports whether a brings other caps than those in force.
func (l *Local) outdated(a *Admission) bool {
	c := l.line.caps.Load()
	return c != a.Under && c != nil
}

// renew has a bring the caps in force.
func (l *Local) renew(a *Admission) {
	c := l.line.caps.Load()
	a.Under, a.capped, a.Service, a.Process = c, c.tenant(a.holder()), c.service(a.Service), c.Process
}

func (c *Caps) tenant(r *Ref) *Ref {
	if r == &unlimited {
		return r
	}
	if now := c.Tenant(r); now != nil {
		return now
	}
	return r
}

func (c *Caps) service(s *Service) *Service {
	if now := c.Service(s); now != nil {
		return now
	}
	return s
}
