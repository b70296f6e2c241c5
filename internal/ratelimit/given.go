package ratelimit

import "slices"

// given is what is remembered of the refunds of one bucket, in the order in which
// their charges were made. It says of a charge whether it was given back before, and
// where among what the bucket owes it stands: see bucket.worth.
//
// It is walked from its newest end, so that one who came last and goes at once, as
// nearly all do that are refused for want of a slot, is found and noted in one step.
type given struct {
	list    []gift
	moves   []move // the last changes of limit, in their order
	changes uint32 // of the bucket, after those
	// lookAt is the size at which the list is looked through next, lookedAt when it
	// last was.
	lookAt   int
	lookedAt int64
}

// gift is the mark of a charge, and how much of it was given back; or could be.
type gift struct{ mark, amount int64 }

// maxGiven bounds given. A key's free concurrency refusals bound it long before,
// unless its burst is in the thousands; past it, refunds are withheld.
const maxGiven = 1 << 14

// find returns the place of a charge in a list, how much was given back of the
// charges made after it, and whether it was itself.
func find(list []gift, mark int64) (place int, later int64, twice bool) {
	place = len(list)
	for place > 0 && list[place-1].mark > mark {
		place--
		later += list[place].amount
	}
	return place, later, place > 0 && list[place-1].mark == mark
}

// follow drops what was given before a change of the bucket that nothing is known of:
// no charge of that time is worth anything any more.
func (g *given) follow(b *bucket) {
	if g.changes != b.changes {
		*g = given{list: g.list[:0], changes: b.changes}
	}
}

// hasRoom reports whether one more can be remembered, after dropping what a second
// refund would be worth nothing for: whenever the number has doubled, so that the
// cost per refund stays constant, and at the bound once an interval.
func (g *given) hasRoom(b *bucket, now int64) bool {
	n := g.size()
	if n >= max(16, g.lookAt) || n >= maxGiven && now-g.lookedAt >= b.limit.Interval {
		g.prune(b, now)
		n = g.size()
		g.lookAt, g.lookedAt = 2*n, now
	}
	return n < maxGiven
}

func (g *given) size() int {
	n := len(g.list)
	for i := range g.moves {
		n += len(g.moves[i].gifts)
	}
	return n
}

// prune drops what lies behind now. All that was charged before such a one lies
// further behind, so that nobody who is still owed something counts on it.
func (g *given) prune(b *bucket, now int64) {
	owed, later := len(g.list), int64(0)
	for ; owed > 0; owed-- {
		x := g.list[owed-1]
		later += x.amount // what was given of x has not moved x either
		if b.end(x.mark, later) <= now {
			break
		}
	}
	g.list = slices.Delete(g.list, 0, owed)
	g.forget(b, now)
}

func (g *given) add(place int, mark, amount int64) {
	g.list = slices.Insert(g.list, place, gift{mark, amount})
}
