package ratelimit

import (
	"slices"
	"time"
)

// How calls wait for slots that other replicas have.
//
// A set of slots, a tenant's or a service's, is one in the store. Who waits stands in the
// line of his own replica (line.go), in its order. In the set itself stands, behind the
// leases, one place for each replica of which some call waits for that set: since when the
// first of them does.
//
//   - A call that comes and may wait gets all, or, if slots are all that it lacks, pays its
//     tokens and has its replica stand in the sets that are full, in that one step ("either"
//     in queries/decide.lua). So nothing comes free unseen in between.
//   - Who asks for a slot gets it if more are free than replicas stand in the set for longer.
//     A call that has just come counts as the youngest. So while slots are as few as those
//     who wait, nobody overtakes.
//   - Whoever gives a slot back (queries/release.lua) rings at the replica that waits longest,
//     by pub/sub. That one has the first of its line ask for it, with for how long it has
//     waited (Place.Claim). If it gets none it goes back to where it stood.
//   - After every change in a line its replica says anew who waits longest, or that nobody
//     does any more (queries/wait.lua). If there is a slot, that rings on, and so does
//     whoever is refused for the sake of one who waits longer.
//   - Every StandEvery each replica says so in any case, and learns whether it is its turn.
//     This finds what was not heard, and what dead replicas left: a place that is not
//     renewed is believed for a second, by the store's time.
//
// A place decides who is next, and never how many run: the leases alone hold the cap. What
// is lost of it, or said late, costs somebody a turn, or some of StandEvery.
//
// In the line of a replica each set has a gate, a tenant's in its party and a service's in
// its pool. It is shut once the store has refused: then nobody passes, except that for each
// ring the first may ask once more. It opens when nobody of another replica waits: then what
// this replica's calls give back is theirs at once, as with one process. All this lies under
// the line's lock. The store is asked without it, and by who waits, so that there is no
// goroutine for that; meanwhile the call is one of those that ask, for whom the place of
// the replica is kept.
//
// Not promised: an order between replicas where slots come free faster than they are handed
// on, so that more are free than replicas wait. Tenants that wait for one service are served
// by weight within a replica, and between replicas in the order in which they came. The cap
// of the process is each replica's own, and so is how many may wait.

// StandEvery is how often a replica says of its calls that they wait: see Shared.Stand.
const StandEvery = 250 * time.Millisecond

// bellPrefix is what the channels begin with that queries/waits.lua rings on.
const bellPrefix = "agw2:bell:"

// Bell is the channel on which a replica is told of slots that its calls may have: see
// Shared.Ring.
func Bell(replica string) string { return bellPrefix + replica }

// gate is what a line knows of a set of slots that others share. The zero gate is open.
type gate struct {
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
	if g, first := &p.party.gate, p.party.eldestLocked(); p.party.own != &unlimited && g.states(first) {
		q.stateLocked(g, slotsName(p.party.own), p.party.own.slots)
	}
	q.tidyLocked(p.party)
	if g, first := &p.pool.gate, q.eldestLocked(p.pool); g.states(first) {
		q.stateLocked(g, serviceName(p.lane.service), p.lane.service.slots)
	}
}

// states takes note of who waits longest, and reports whether that is to be said.
func (g *gate) states(first *Place) (is bool) {
	if first == nil {
		g.open()
	}
	is, g.first = g.first != first, first
	return is
}

// stateLocked tells the store who waits longest at the gate of a set.
func (q *line) stateLocked(g *gate, set string, most int64) {
	delete(q.gates, set)
	if g.first != nil {
		q.gates[set] = g
	}
	q.shared.store.Tell(q.shared.standing(set, most, g.first))
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
