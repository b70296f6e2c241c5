package ratelimit

// again has p, which has slots of this replica and got none of all, wait where it stood.
func (l *Local) again(p *Place, lacks lacking, now int64) {
	q := &l.line
	q.mu.Lock()
	defer q.mu.Unlock()
	t := p.ticket
	p.ticket = Ticket{}
	t.held.giveBack(t.turn, t.watch)
	p.state, p.ready, p.lacks = waiting, make(chan struct{}), lacks
	q.waiting.Add(1)
	p.party.waiting++
	p.lane.insert(p)
	q.refusedLocked(p)
	q.answeredLocked(p)
	l.serveLocked(now)
}

// await has a call wait that has slots of this replica, which it gives back, and got none
// of all; unless so many of its tenant wait already.
func (l *Local) await(a *Admission, t Ticket, lacks lacking, queue, now int64) *Place {
	q := &l.line
	q.mu.Lock()
	defer q.mu.Unlock()
	t.held.giveBack(t.turn, t.watch)
	p := &Place{local: l, admission: *a, pool: l.pool(a.Service), state: waiting, ready: make(chan struct{}), lacks: lacks, arrived: now}
	ahead := l.putLocked(p)
	if ahead >= queue {
		q.removeLocked(p)
		q.restateLocked(p)
		l.serveLocked(now)
		return nil
	}
	q.refusedLocked(p)
	q.restateLocked(p)
	l.serveLocked(now)
	return p
}

// lacksToo has a call that waits lack what the store says besides, as its replica stands
// there for that too. Where another of its tenant is before it, which lacks something else,
// it is not for this one to ask next, and the replica is not to stand in the way of others.
func (s *Shared) lacksToo(p *Place, lacks lacking, sets []string) {
	q := &s.line
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.state == waiting {
		p.lacks.tenant, p.lacks.service = p.lacks.tenant || lacks.tenant, p.lacks.service || lacks.service
		q.restateLocked(p)
	}
	for _, set := range sets {
		if p.state != waiting || q.gates[set] == nil {
			s.store.Tell(s.standingLocked(set))
		}
	}
}

// rungLocked has the first that waits for a set ask, as a slot may be had. One that has
// something else in its way is to stand there no more, as others could use the slot.
func (l *Local) rungLocked(g *gate, now int64) {
	g.ring()
	l.serveLocked(now)
	for g.rings > 0 && g.first != nil && g.first.state == waiting {
		p := g.first
		tenant := l.lockTenant(p.party.own, now)
		fullTenant := full(tenant.inUseLocked(p.party.own), p.party.own.slots)
		tenant.unlockTenant()
		fullService := p.pool.full(p.lane.service.slots)
		if g == &p.party.gate {
			if fullTenant { // for a moment: its own replica is about to give one back
				return
			}
			p.lacks.tenant, p.lacks.service = false, p.lacks.service || fullService
		} else {
			if fullService {
				return
			}
			p.lacks.service, p.lacks.tenant = false, p.lacks.tenant || fullTenant
		}
		l.line.restateLocked(p)
	}
}

// Ring is told what was published on the Bell of this replica: the name of a set of which
// a slot may be had. It may be told anything, and more than once.
func (s *Shared) Ring(set string) {
	q := &s.line
	q.mu.Lock()
	defer q.mu.Unlock()
	if g := q.gates[set]; g != nil {
		s.rungLocked(g, s.now())
	}
}

// standing is what the store is told of who waits longest here for a set of at most so
// many.
func (s *Shared) standing(set string, most int64, first *Place) Job {
	age := int64(-1)
	if first != nil {
		age = max(0, s.now()-first.arrived) / 1000
	}
	return Job{Script: waitScript, Keys: []string{set}, Numbers: []int64{most, age}, Texts: []string{s.options.Replica}}
}

// restand says anew who waits for sets, where the store was made to believe another by a
// call that does not wait after all.
func (s *Shared) restand(sets []string) {
	q := &s.line
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, set := range sets {
		s.store.Tell(s.standingLocked(set))
	}
}

// standingLocked is what the store is to be told of who waits here for a set.
func (s *Shared) standingLocked(set string) Job {
	g := s.line.gates[set]
	if g == nil {
		return s.standing(set, 0, nil)
	}
	if g == &g.first.party.gate {
		return s.standing(set, g.first.party.own.slots, g.first)
	}
	return s.standing(set, g.first.lane.service.slots, g.first)
}

// Stand tells the store of all calls that wait here that they still do, and has those ask
// whose turn it is: call it every StandEvery. Where the store does not answer, who waits is
// served by what this replica may give. While nobody waits it does nothing.
func (s *Shared) Stand() {
	q := &s.line
	if q.waiting.Load() == 0 {
		return
	}
	q.mu.Lock()
	sets := make([]string, 0, len(q.gates))
	jobs := make([]Job, 0, len(q.gates))
	for set := range q.gates {
		sets, jobs = append(sets, set), append(jobs, s.standingLocked(set))
	}
	q.mu.Unlock()
	answers, errs := s.askAll(jobs)
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, set := range sets {
		g := q.gates[set]
		switch {
		case g == nil: // nobody waits any more, which was told before this
			s.store.Tell(s.standing(set, 0, nil))
		case errs[i] != nil:
			g.open()
		case answers[i].Values[0] == 1:
			if answers[i].Values[1] == 0 {
				g.open()
			}
			s.rungLocked(g, s.now())
		}
	}
	s.serveLocked(s.now())
}
