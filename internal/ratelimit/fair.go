package ratelimit

import "cmp"

// Who gets the next slot that several tenants wait for.
//
// A tenant's share of a pool is, by weight, what all that claim a slot of it hold
// there and could hold: what others hold, who want no more, is not divided. The
// slot goes to one that holds less than its share, so that whoever wants that much
// has it: weighted max-min fairness, at every moment. There is always one, as
// somebody could hold more than all do.
//
// A share need not be whole: under a cap of 3 for four tenants each has three
// quarters of a slot, and none or one. Of those below their share the one whose pass
// is smallest is next: the time for which it has had slots of the pool, by weight.
// This is start-time fair queueing as it was made for processors (Goyal, Guo and Vin,
// 1996; the virtual run time of Linux' CFS): nobody says beforehand how long a call
// will take, so that it is charged as it runs, and one whose calls last ten times as
// long gets a tenth of the turns. Deficit and surplus round robin (Shreedhar and
// Varghese, 1995) need to know that before, or turns in a fixed order. Kubernetes'
// priority and fairness charges an estimate and corrects it at the end, because it
// goes by nothing but passes, and those that start at one instant must not all be the
// same tenant's; here the share sees to that.
//
// A pool has a pass too: the least of those that last competed for it. Nobody stands
// behind it: a tenant that begins to wait, or could not run for a while, has saved
// up nothing. And nobody stands further ahead of it than some turns of its own, each
// as long as its calls are on average: for what it had of a pool while nobody else
// wanted it it does not pay, but by so much. It stays while a tenant has no rival, as
// that may be on its way: one that calls again when its call has ended is missing only
// for a moment. Each pool has its own, and what a tenant has of one does not delay it
// at another.
//
// Why not the smallest in-use/weight, as schedulers of clusters have it: with few
// slots it takes no heed of weight. Of 3 slots for the weights 1, 1, 2 it gives each
// tenant one for good, since the third tenant's half is more than the none of another
// whose call ended. And the smallest (in-use+1)/weight starves the light: of 5 slots
// a tenant of weight 10 keeps all, as 5/10 is less than 1/1.
//
// A call may take a slot of its service and one of the process. If the process has
// fewer than there are claims, it is what they compete for, and only among those that
// are below their share of it, or of those that are not if there are none, does the
// service's count. Else each has its slot of the process, and competes with those at
// its service.

// turnsAhead is how many turns of its own a tenant's pass may lie ahead. One that
// calls again only when its call has ended stands one ahead, or several where calls
// are not all as long as their average.
const turnsAhead = 4

// turnTime is what a turn counts for besides the time that it lasts: so they take
// turns even in time that stands still.
const turnTime = 1_000

// claim is the first call of a tenant that could run now.
type claim struct {
	stakes [2]stake // of process and of service
	weight int64    // at least 1
	turn   int64    // what a turn of its own adds to its pass, on average
	since  uint64   // smaller: waits for longer
}

const (
	ofProcess = iota
	ofService
)

// stake is how a tenant stands at a pool. The pool is its number among those given
// to next, or uncapped.
type stake struct {
	pool  int
	holds int64 // slots
	ahead int64 // its pass, less the pool's
}

const uncapped = -1

// division is what one pool has to divide among those that claim a slot of it.
type division struct {
	free          int64 // at least 1
	slots, weight int64 // all that claimants hold, and their weights; see next
	advance       int64 // by how much the pool's pass goes on; see next
}

// next returns which of the claims, of which there is at least one, is to be
// granted, and how far the passes of pools go on. Of pools only free is read.
func next(claims []claim, pools []division) int {
	oldest := 0
	for i, c := range claims {
		for _, s := range c.stakes {
			if s.pool != uncapped {
				pools[s.pool].slots += s.holds
				pools[s.pool].weight += c.weight
			}
		}
		if c.since < claims[oldest].since {
			oldest = i
		}
	}
	which := ofProcess
	if p := claims[oldest].stakes[ofProcess].pool; p == uncapped || pools[p].free >= int64(len(claims)) {
		which = ofService
	}
	pool := claims[oldest].stakes[which].pool
	if pool == uncapped {
		return oldest
	}
	pools[pool].advance = advance(claims, which, pool)
	best := oldest
	for i := range claims {
		if claims[i].stakes[which].pool == pool && before(&claims[i], &claims[best], which, pools) < 0 {
			best = i
		}
	}
	return best
}

// advance returns how far the pass of a pool goes on, at which the claims compete.
func advance(claims []claim, which, pool int) int64 {
	least, far := int64(1<<63-1), int64(0)
	for _, c := range claims {
		if s := c.stakes[which]; s.pool == pool {
			least, far = min(least, s.ahead), max(far, s.ahead-turnsAhead*c.turn)
		}
	}
	return max(least, far)
}

func before(a, b *claim, which int, pools []division) int {
	order := 0
	if which == ofProcess {
		order = cmp.Compare(a.excess(ofProcess, pools), b.excess(ofProcess, pools))
	}
	from := pools[a.stakes[which].pool].advance
	return cmp.Or(
		order,
		cmp.Compare(a.excess(ofService, pools), b.excess(ofService, pools)),
		cmp.Compare(max(from, a.stakes[which].ahead), max(from, b.stakes[which].ahead)),
		cmp.Compare(a.since, b.since),
	)
}

// manySlots bounds what a division counts with, so that its products stay in an int64.
const manySlots = 1 << 40

// excess is 0 if the tenant holds less than its share of a pool, else 1.
func (c *claim) excess(which int, pools []division) int {
	s := c.stakes[which]
	if s.pool == uncapped {
		return 0
	}
	d := pools[s.pool]
	if s.holds*d.weight < (min(d.free, manySlots)+d.slots)*c.weight {
		return 0
	}
	return 1
}
