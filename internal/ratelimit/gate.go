package ratelimit

import (
	"slices"
	"time"
)

// How calls wait for slots that other replicas have.
//
// A set of slots, a tenant's or a service's, is one in the store. Who waits stands in the
// line of his own replica (line.go), in its order. In the set itself stands, beside the
// leases, one place for each replica of which some call waits for that set: since when the
// first of them does. The store is asked in this way:
//
//   - A call that comes and may wait either gets all, or, if slots are all that it lacks, pays
//     its tokens and has its replica stand in the sets that are full, in that one step
//     ("either" in queries/decide.lua). So nothing can come free unseen in between.
//   - Who asks for a slot gets it if more are free than replicas stand in the set for longer:
//     a call that has just come counts as the youngest. While slots are as few as
//     those who wait, nobody overtakes.
//   - Whoever gives a slot back (queries/release.lua) rings at the replica that waits longest, by
//     pub/sub. That one has the first of its line ask for the slot, with how long it has
//     waited (Place.Claim): a round trip and a message after the release the slot is in
//     use again. If it gets none it goes back to where it stood.
//   - After every change in a line its replica says anew who waits longest, or that
//     nobody does any more (queries/wait.lua). If there is a slot free, that rings on. So does whoever
//     is refused for the sake of who waits longer.
//   - Each replica says so every StandEvery in any case, and learns whether it is its
//     turn. This finds what was not heard, and what dead replicas left behind. A place that is
//     not renewed holds for a second, by the store's time.
//
// A place is soft state: it decides who is next, and never how many run. Whatever is lost of it, or
// said late, costs somebody his turn or some of StandEvery; the leases alone hold the cap.
//
// In the line of a replica each set has a gate, of the tenant's in its party and of the
// service's in its pool. A gate is shut once the store has refused: then nobody passes it,
// except that for each ring the first may ask once more. It opens when nobody of another replica
// waits: then what this one's calls give back is theirs at once, as with one
// process. All this lies under the line's lock. The store is asked without it, by who waits, so that
// there is no goroutine for it; meanwhile the call is none of those that wait, but of
// those that ask, for whom the replica's place is kept.
//
// Not promised: an order between replicas where slots come free faster than it takes to hand one
// over, which may be taken by who comes while more are free than replicas wait. Between tenants
// that wait for a service at several replicas, those are served that wait longest, and by
// weight within each. The cap of the process is each replica's own, and so is how many may wait.

// StandEvery is how often a replica says of its calls that they wait: see Shared.Stand.
const StandEvery = 250 * time.Millisecond

// bellPrefix is what the channels begin with that queries/waits.lua rings on.
const bellPrefix = "agw2:bell:"

// Bell is the channel on which a replica is told of slots that its calls may have: see
// Shared.Ring.
func Bell(replica string) string { return bellPrefix + replica }

// gate is what a line knows of a set of slots that others share. The zero gate is open.
type gate struct {
	set   string // its name in the store; "" while nobody waits, or nobody shares
	shut  bool   // the store refused who asked last
	rings int64  // how many may ask all the same
	first *Place // who was said to wait longest; nil: nobody
}

// ring lets one more ask.
func (g *gate) ring() {
	if g.shut {
		g.rings++
	} else {
		g.rings = 1 // in case it is about to be shut, of what was before
	}
}

func (g *gate) pass() { g.rings = max(0, g.rings-1) }

// refuse shuts the gate, but for who was rung at since: of more than one, most are old.
func (g *gate) refuse() { g.shut, g.rings = true, min(g.rings, 1) }

func (g *gate) open() { g.shut, g.rings = false, 0 }

// passableLocked reports whether the first of a lane may ask for slots: as no gate is in
// its way, or as something came free of what it lacked.
func (p *party) passableLocked(a *lane) bool {
	lacks := a.first.lacks
	return lacks.tenant && p.gate.rings > 0 || lacks.service && a.pool.gate.rings > 0 || !p.gate.shut && !a.pool.gate.shut
}

// askLocked is for who has slots of this replica, and is about to ask for those of all.
func (q *line) askLocked(p *Place) {
	if q.shared == nil {
		return
	}
	if p.lacks.tenant {
		p.party.gate.pass()
	}
	if p.lacks.service {
		p.pool.gate.pass()
	}
	p.party.asking = append(p.party.asking, p)
}

// answered is for who has asked, and got slots or waits no more, and for who waits no
// more without having asked.
func (q *line) answered(p *Place, now int64) {
	if q.shared == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.answeredLocked(p)
	p.local.serveLocked(now)
}

func (q *line) answeredLocked(p *Place) {
	p.party.asking = slices.DeleteFunc(p.party.asking, func(a *Place) bool { return a == p })
	q.restateLocked(p)
}

// restateLocked says anew who waits longest for what p has waited for, if that is
// another than was said. A gate that nobody waits at is open.
func (q *line) restateLocked(p *Place) {
	if q.shared == nil {
		return
	}
	if p.party.own != &unlimited {
		q.restateGateLocked(&p.party.gate, slotsName(p.party.own), p.party.own.slots, p.party.eldestLocked())
	}
	q.tidyLocked(p.party)
	q.restateGateLocked(&p.pool.gate, serviceName(p.lane.service), p.lane.service.slots, q.eldestLocked(p.pool))
}

func (q *line) restateGateLocked(g *gate, set string, most int64, first *Place) {
	if first == nil {
		g.open()
	}
	if first == g.first {
		return
	}
	g.first = first
	if first == nil {
		delete(q.gates, set)
	} else {
		g.set, q.gates[set] = set, g
	}
	q.shared.store.Tell(q.shared.standing(set, most, first))
}

// eldestLocked returns who waits longest for a tenant's slots.
func (p *party) eldestLocked() (first *Place) {
	for _, a := range p.asking {
		if a.lacks.tenant {
			first = first.elder(a)
		}
	}
	for _, a := range p.lanes {
		if b := a.first; b != nil && b.state == waiting && b.lacks.tenant {
			first = first.elder(b)
		}
	}
	return first
}

// eldestLocked returns who waits longest for a pool's slots.
func (q *line) eldestLocked(of *pool) (first *Place) {
	for _, p := range q.parties {
		for _, a := range p.asking {
			if a.pool == of && a.lacks.service {
				first = first.elder(a)
			}
		}
		for _, a := range p.lanes {
			if b := a.first; a.pool == of && b != nil && b.state == waiting && b.lacks.service {
				first = first.elder(b)
			}
		}
	}
	return first
}

// elder is the one of two that came first; p may be nil.
func (p *Place) elder(q *Place) *Place {
	if p == nil || q.since < p.since {
		return q
	}
	return p
}

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

// await has a call wait that has slots of this replica, which it gives back, and got none of all, unless
// so many of its tenant wait already.
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

// lacksToo has a call that waits lack what the store says besides, as it stands there
// for that too.
func (s *Shared) lacksToo(p *Place, lacks lacking, sets []string) {
	q := &s.line
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.state == waiting {
		p.lacks.tenant, p.lacks.service = p.lacks.tenant || lacks.tenant, p.lacks.service || lacks.service
		q.restateLocked(p)
		return
	}
	for _, set := range sets {
		s.store.Tell(s.standingLocked(set))
	}
}

// refusedLocked shuts the gates of what p lacks.
func (q *line) refusedLocked(p *Place) {
	if p.lacks.tenant {
		p.party.gate.refuse()
	}
	if p.lacks.service {
		p.pool.gate.refuse()
	}
}

// room is for who got slots where so many are in use now: if there are more, another may ask.
func (q *line) room(p *Place, ofTenant, ofService int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if g := &p.party.gate; g.shut && !full(ofTenant, p.party.own.slots) {
		g.ring()
	}
	if g := &p.pool.gate; g.shut && !full(ofService, p.lane.service.slots) {
		g.ring()
	}
}

// rung has the first that waits for a set ask for a slot, as one may be had; and if that has something else
// in its way, stand there no more.
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

// standing is what the store is told of who waits longest here for a set of at most so many.
func (s *Shared) standing(set string, most int64, first *Place) Job {
	age := int64(-1)
	if first != nil {
		age = max(0, s.now()-first.arrived) / 1000
	}
	return Job{Script: waitScript, Keys: []string{set}, Numbers: []int64{most, age}, Texts: []string{s.options.Replica}}
}

// restand says anew who waits for sets, where that may be another than the store has been made to
// believe by a call that does not wait after all.
func (s *Shared) restand(sets []string) {
	q := &s.line
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, set := range sets {
		s.store.Tell(s.standingLocked(set))
	}
}

// standingLocked is what the store is told of who waits longest here for a set.
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
// whose turn it is: call it every StandEvery. Where the store does not answer, who waits is served by what this
// replica may give. While nobody waits it does nothing.
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
