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
	waiting atomic.Int64         // also counts who is about to
	caps    atomic.Pointer[Caps] // in force; nil: never told. Stored under mu

	mu      sync.Mutex
	parties map[tenantName]*party
	came    uint64           // how many ever waited
	process int64            // the cap of the process that holds for those that wait
	shared  *Shared          // with whom slots are shared; nil: with nobody
	gates   map[string]*gate // of the sets that somebody waits for, by their names in the store

	// What nextLocked looks at, here to be made once, and how many times it did.
	looks  uint64
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
	asking  []*Place // that have slots of this replica, and are about to ask for those of all
	gate    gate
	full    uint64 // the look that last found it at its own cap
}

// lane is those of them that wait for one service, in the order in which they came.
type lane struct {
	service     *Service // under the cap that holds for them
	pool        *pool
	first, last *Place
}

// enterLine decides a call that may have to wait, or that others wait before. It gets
// slots in the same way as they do, but after all of them, and tokens then. Were it to
// take slots by itself, it might be some that came back a moment ago, which somebody
// who waits for them has not seen yet.
//
// If it gets none, what the last look found is its refusal. To look again would be a
// second opinion, and where two differ there is no end to it. Who gives slots back
// between the two waits for this lock, and so comes after.
func (l *Local) enterLine(c Charge, a *Admission, service *pool, queue, now int64) (t Ticket, p *Place, v Verdict) {
	q := &l.line
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.outdated(a) {
		l.renew(a)
		l.hold(service, a.Service.slots)
		l.hold(&l.process, a.Process)
	}
	p = &Place{local: l, admission: *a, pool: service, key: c, state: arriving, arrived: now}
	stands := waits
	if ahead := l.putLocked(p); ahead >= queue {
		stands = lacks
	}
	l.serveLocked(now)
	if p.state == granted {
		if l.decide(&v, a, service, holds, nil, now); v.Outcome == Admitted {
			return p.ticket, nil, v
		}
		p.ticket.held.giveBack(p.ticket.turn, p.ticket.watch)
		l.serveLocked(now)
		return t, nil, v
	}
	l.decide(&v, a, service, stands, p, now)
	if v.Outcome != Queued {
		q.removeLocked(p)
		return t, nil, v
	}
	p.state, p.ready = waiting, make(chan struct{})
	p.lacks = v.lacks()
	q.restateLocked(p)
	return t, p, v
}

// putLocked puts p at the end of the line, where the caps that it brings hold for all
// of its tenant, and returns how many of those are there already.
func (l *Local) putLocked(p *Place) (ahead int64) {
	q, own := &l.line, p.admission.holder()
	q.waiting.Add(1)
	q.process = p.admission.Process
	name := tenantName{own.table, own.partition}
	with := q.parties[name]
	if with == nil {
		with = &party{name: name}
		q.parties[name] = with
	}
	ahead = with.waiting
	with.own = own
	with.waiting++
	lane := with.lane(p.pool)
	lane.service = p.admission.Service
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

// insert puts p back where it stood.
func (a *lane) insert(p *Place) {
	behind := a.first
	for behind != nil && behind.since < p.since {
		behind = behind.after
	}
	if behind == nil {
		a.push(p)
		return
	}
	p.before, p.after = behind.before, behind
	if behind.before == nil {
		a.first = p
	} else {
		behind.before.after = p
	}
	behind.before = p
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
	p.party.waiting--
	q.tidyLocked(p.party)
	q.waiting.Add(-1)
}

// tidyLocked forgets a party of which nobody is left, nor said to be.
func (q *line) tidyLocked(p *party) {
	if p.waiting == 0 && len(p.asking) == 0 && p.gate.first == nil && q.parties[p.name] == p {
		delete(q.parties, p.name)
	}
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
		// meanwhile. That sees somebody now, and comes here: so it fails no more
		// often than there were calls under way when the first came to wait.
		l.grantLocked(p, now)
	}
}

// nextLocked returns whose turn it is of those that could run, or nil. It looks once
// at each pool, so that a slot which comes back meanwhile is not seen by some and
// overlooked by others whose turn it would be.
func (l *Local) nextLocked(now int64) (arrives *Place) {
	q := &l.line
	q.looks++
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
	best := q.firsts[next(q.claims, q.pools)]
	for i := range q.of {
		q.of[i].pass += q.pools[i].advance
	}
	return best
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
	service := uncapped
	for _, a := range p.lanes {
		if a.first == nil || first != nil && first.since < a.first.since {
			continue
		}
		if number, full := l.line.lookLocked(a.pool, a.service.slots); !full && p.passableLocked(a) {
			first, service = a.first, number
		}
	}
	if first == nil {
		return c, nil
	}
	tenant := l.lockTenant(p.own, now)
	defer tenant.unlockTenant()
	used := tenant.inUseLocked(p.own)
	if full(used, p.own.slots) {
		p.full = l.line.looks
		return c, nil
	}
	s, at := tenant.slots, tenant.slots.at(first.lane.pool)
	c.weight, c.since = p.own.share(), first.since
	c.turn = (s.hold + turnTime) / c.weight
	c.stakes[ofProcess] = tenant.stakeLocked(process, &l.process, s.all, used, c.weight, now)
	c.stakes[ofService] = tenant.stakeLocked(service, first.lane.pool, at, int64(at.n), c.weight, now)
	return c, first
}

// lacking is which slots a call did not get.
type lacking struct{ tenant, service, process bool }

// lackedLocked returns what was in the way of p when nextLocked last looked, and found
// nobody who could run. If the process was full it looked no further: then the rest is
// as it is now, when its tenant uses so many.
func (l *Local) lackedLocked(p *Place, used int64) (is lacking) {
	q := &l.line
	is.tenant = p.party.gate.shut || p.party.full == q.looks || full(used, p.party.own.slots)
	_, is.service = q.lookLocked(p.pool, p.lane.service.slots)
	is.service = is.service || p.pool.gate.shut
	_, is.process = q.lookLocked(&l.process, q.process)
	return is
}

// grantLocked has p hold the slots that it waits for, if they are there.
func (l *Local) grantLocked(p *Place, now int64) {
	a, party := &p.admission, p.party
	a.Service, a.Process, a.capped = p.lane.service, l.line.process, party.own
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
		weight := party.own.share()
		if a.Process > 0 {
			tenant.servedLocked(&l.process, tenant.slots.all, weight, now)
		}
		if a.Service.slots > 0 {
			tenant.servedLocked(p.pool, tenant.slots.at(p.pool), weight, now)
		}
		l.sampleTokensLocked(&v, a, tenant, now)
		p.ticket = l.occupyLocked(a, tenant, party.own, p.pool, now)
		tenant.unlockTenant()
		l.sampleCaps(&v, a, used+1, party.own.slots, p.pool)
		p.verdict = v
		close(p.ready)
		l.line.askLocked(p)
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
