package ratelimit

import (
	"sync"
	"sync/atomic"
)

// line is the calls that wait for slots. After every change it holds none that
// could run: whoever gives slots back, leaves, changes a cap or comes serves it
// first.
//
// Its lock is the first of all, and makes what happens to those that wait happen
// one after the other. While nobody waits it costs a look at a number that hardly
// ever changes, and no lock. That nobody is overlooked is a matter of order: who is
// about to wait raises the number and then looks for slots once more; who gives
// slots back, or takes some without the lock, does so and then looks at the number.
// Whichever came first, one of the two sees the other.
type line struct {
	waiting atomic.Int64 // also counts who is about to

	mu      sync.Mutex
	parties map[tenantName]*party
	came    uint64 // how many ever waited
	pass    int64  // of the tenant that was served last, before it was
	caps    *Caps  // as the limiter was last told; nil: never
	process int64  // the cap of the process that holds for those that wait

	// What nextLocked looks at, here to be made once.
	claims []claim
	firsts []*Place
	pools  []division
	of     []*pool
}

// party is the calls of one tenant that wait.
type party struct {
	name    tenantName
	own     *Ref // under the cap that holds for them
	lanes   []*lane
	waiting int64
	pass    int64 // its tenant's, while it waits
}

// lane is those of them that wait for one service, in the order in which they came.
type lane struct {
	service     *Service // under the cap that holds for them
	pool        *pool
	first, last *Place
}

// Caps are the caps in force, for calls that wait: they came under caps of their
// own, but may wait for longer than those hold.
type Caps struct {
	Process int64 // 0: none
	// Tenant and Service return their argument's namesake under the cap that it
	// now has, or nil if there is none any more: then the cap it had holds on.
	// They are called with the limiter locked, and must not call it.
	Tenant  func(*Ref) *Ref
	Service func(*Service) *Service
}

// Follow has every call that waits, now or later, be held to c until the next
// Follow. A raised cap admits them at once. Before the first they are held to the
// caps of the tenant's call, and the service's, that came last.
func (l *Local) Follow(c Caps) {
	l.line.mu.Lock()
	defer l.line.mu.Unlock()
	l.hold(&l.process, c.Process)
	l.line.caps, l.line.process = &c, c.Process
	for _, p := range l.line.parties {
		p.own = c.tenant(p.own)
		for _, a := range p.lanes {
			a.service = c.service(a.service)
			l.hold(a.pool, a.service.slots)
		}
	}
	l.serveLocked(l.now())
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

// enterLine decides a call that may have to wait, or that others wait before. It gets
// slots in the same way as they do, but after all of them, and tokens then. Were it to
// take slots by itself, it might be some that came back a moment ago, which somebody
// who waits for them has not seen yet.
func (l *Local) enterLine(c Charge, a *Admission, service *pool, queue, now int64) (t Ticket, p *Place, v Verdict) {
	q := &l.line
	q.mu.Lock()
	defer q.mu.Unlock()
	p = &Place{local: l, admission: *a, pool: service, key: c, state: arriving}
	seat := p
	if ahead := l.putLocked(p, now); ahead >= queue {
		seat = nil
	}
	for v.Outcome = again; v.Outcome == again; {
		v = Verdict{}
		l.serveLocked(now)
		if p.state == granted {
			if l.decide(&v, a, service, holds, nil, now); v.Outcome != Admitted {
				p.ticket.held.giveBack(p.ticket.turn, p.ticket.watch)
				l.serveLocked(now)
				return t, nil, v
			}
			return p.ticket, nil, v
		}
		l.decide(&v, a, service, lacks, seat, now)
	}
	if v.Outcome != Queued {
		q.removeLocked(p)
		return t, nil, v
	}
	p.state, p.ready = waiting, make(chan struct{})
	l.serveLocked(now) // by the caps in force it may have its slots already
	return t, p, v
}

// putLocked puts p at the end of the line, under the caps in force, and returns how
// many of its tenant are there already.
func (l *Local) putLocked(p *Place, now int64) (ahead int64) {
	q, own, service := &l.line, p.admission.tenant(), p.admission.Service
	q.waiting.Add(1)
	q.process = p.admission.Process
	if c := q.caps; c != nil {
		own, service, q.process = c.tenant(own), c.service(service), c.Process
		l.hold(p.pool, service.slots)
		l.hold(&l.process, q.process)
	}
	name := tenantName{own.table, own.partition}
	with := q.parties[name]
	if with == nil {
		tenant := l.lockTenant(own, now)
		with = &party{name: name, pass: max(tenant.slots.pass, q.pass)}
		tenant.unlockTenant()
		q.parties[name] = with
	}
	ahead = with.waiting
	with.own = own
	with.waiting++
	lane := with.lane(p.pool)
	lane.service = service
	q.came++
	p.party, p.lane, p.since = with, lane, q.came
	lane.push(p)
	return ahead
}

// lane returns that of a service, made if need be.
func (p *party) lane(of *pool) *lane {
	for _, a := range p.lanes {
		if a.pool == of {
			return a
		}
	}
	p.lanes = append(p.lanes, &lane{pool: of})
	return p.lanes[len(p.lanes)-1]
}

func (a *lane) push(p *Place) {
	p.before = a.last
	if a.last == nil {
		a.first = p
	} else {
		a.last.after = p
	}
	a.last = p
}

func (a *lane) remove(p *Place) {
	if p.before == nil {
		a.first = p.after
	} else {
		p.before.after = p.after
	}
	if p.after == nil {
		a.last = p.before
	} else {
		p.after.before = p.before
	}
	p.before, p.after = nil, nil
}

// removeLocked takes p out of the line.
func (q *line) removeLocked(p *Place) {
	p.lane.remove(p)
	if p.party.waiting--; p.party.waiting == 0 {
		delete(q.parties, p.party.name)
	}
	q.waiting.Add(-1)
}

// serve gives slots to those that wait, after some came back.
func (l *Local) serve(now int64) {
	l.line.mu.Lock()
	defer l.line.mu.Unlock()
	l.serveLocked(now)
}

// serveLocked gives slots to those that wait until none of them could use one.
func (l *Local) serveLocked(now int64) {
	for {
		p := l.nextLocked(now)
		if p == nil {
			return
		}
		// It may fail where a call that knew of nobody who waits took the slot
		// meanwhile. That looks again, and comes here.
		l.grantLocked(p, now)
	}
}

// nextLocked returns whose turn it is of those that could run, or nil. It looks once
// at each pool, so that a slot which comes back meanwhile is not seen by some and
// overlooked by others whose turn it would be.
func (l *Local) nextLocked(now int64) (arrives *Place) {
	q := &l.line
	q.claims, q.firsts, q.pools, q.of = q.claims[:0], q.firsts[:0], q.pools[:0], q.of[:0]
	all, full := q.lookLocked(&l.process, q.process)
	if full {
		return nil
	}
	for _, p := range q.parties {
		c, first := l.claimLocked(p, all, now)
		switch {
		case first == nil:
		case first.state == arriving:
			arrives = first
		default:
			q.claims, q.firsts = append(q.claims, c), append(q.firsts, first)
		}
	}
	if len(q.firsts) == 0 {
		return arrives
	}
	return q.firsts[next(q.claims, q.pools)]
}

// lookLocked returns the number of a pool among those looked at, and whether it is
// full.
func (q *line) lookLocked(p *pool, most int64) (number int, full bool) {
	if most == 0 {
		return uncapped, false
	}
	for i := range q.of {
		if q.of[i] == p {
			return i, q.pools[i].free <= 0
		}
	}
	q.of, q.pools = append(q.of, p), append(q.pools, division{free: most - p.inUse.Load()})
	return len(q.of) - 1, q.pools[len(q.of)-1].free <= 0
}

// claimLocked returns the first of a tenant's calls that could run, if any: one
// that waits for a service that is full holds up none that waits for another.
func (l *Local) claimLocked(p *party, process int, now int64) (c claim, first *Place) {
	for _, a := range p.lanes {
		if a.first == nil || first != nil && first.since < a.first.since {
			continue
		}
		if number, full := l.line.lookLocked(a.pool, a.service.slots); !full {
			first, c.service.pool = a.first, number
		}
	}
	if first == nil {
		return c, nil
	}
	tenant := l.lockTenant(p.own, now)
	defer tenant.unlockTenant()
	used := tenant.inUseLocked(p.own)
	if full(used, p.own.slots) {
		return c, nil
	}
	c.process, c.service.holds = stake{process, used}, tenant.slots.at(first.lane.pool)
	c.weight, c.pass, c.since = p.own.share(), p.pass, first.since
	return c, first
}

// grantLocked has p hold the slots that it waits for, if they are there.
func (l *Local) grantLocked(p *Place, now int64) {
	a, party := &p.admission, p.party
	a.Service, a.Process = p.lane.service, l.line.process
	var v Verdict
	tenant := l.lockTenant(party.own, now)
	used := tenant.inUseLocked(party.own)
	l.takeSlots(&v, a, tenant.slots, used, party.own.slots, p.pool)
	if v.Outcome != Admitted {
		tenant.unlockTenant()
		return
	}
	if p.state == arriving { // at its turn, with nobody to share with
		p.ticket = l.occupyLocked(a, tenant, party.own, p.pool, now)
		tenant.unlockTenant()
	} else {
		l.line.pass = party.pass
		party.pass += stride / party.own.share()
		tenant.slots.pass = party.pass
		l.sampleTokensLocked(&v, a, tenant, now)
		p.ticket = l.occupyLocked(a, tenant, party.own, p.pool, now)
		tenant.unlockTenant()
		l.sampleCaps(&v, a, used+1, party.own.slots, p.pool)
		p.verdict = v
		close(p.ready)
	}
	l.line.removeLocked(p)
	p.state = granted
}

// waits is how many calls of a tenant wait.
func (l *Local) waits(table Table, partition string) int64 {
	if l.line.waiting.Load() == 0 {
		return 0
	}
	l.line.mu.Lock()
	defer l.line.mu.Unlock()
	if p := l.line.parties[tenantName{table, partition}]; p != nil {
		return p.waiting
	}
	return 0
}
