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
// quarters of a slot, and none or one. Of those below their share the one whose
// pass is smallest is next, which goes on by 1/weight with each slot that a tenant
// gets (stride scheduling: Waldspurger and Weihl, 1995). A tenant that begins to
// wait does so where the last was served, and has saved up nothing (as in start-time
// fair queueing: Goyal, Vin and Cheng, 1996). So what cannot be divided at once is
// in turn.
//
// Nor does it pay for what it was served before. Where passes alone decide, none lies
// more than its own stride beyond the smallest. But they go on with every slot, also
// where the share decided or nobody else wanted it, and one pass serves all pools: so
// at each decision a pass that lies further ahead than some turns is taken back to
// that, and whatever a tenant was served before delays it by no more than those.
//
// Why not the smallest in-use/weight, as schedulers of clusters have it: with few
// slots it takes no heed of weight. Of 3 slots for the weights 1, 1, 2 it gives each
// tenant one for good, since the third tenant's half is more than the none of another
// whose call ended. And the smallest (in-use+1)/weight starves the light: of 5 slots
// a tenant of weight 10 keeps all, as 5/10 is less than 1/1.
//
// A call that takes a slot of its service and one of the process is held to the
// process first: only among those that are below their share of that, or of those
// that are not if there are none, does the service's count.

// stride is how far the pass of a tenant of weight 1 goes on.
const stride = 1 << 20

// turnsAhead is how many turns of its own a pass may lie ahead. One would do where
// passes alone decide. Where the share does too, passes keep count of what it gave to
// whom too often: fewer turns than these lose count, and shares of few slots stray from
// the weights by more than a fiftieth.
const turnsAhead = 16

// claim is the first call of a tenant that could run now.
type claim struct {
	process, service stake
	weight           int64 // at least 1
	pass             int64
	since            uint64 // smaller: waits for longer
}

// stake is how many slots of a pool the tenant holds. The pool is its number among
// those given to next, or uncapped.
type stake struct {
	pool  int
	holds int64
}

const uncapped = -1

// division is what one pool has to divide among those that claim a slot of it.
type division struct {
	free          int64 // at least 1
	slots, weight int64 // all that claimants hold, and their weights; see next
}

// next returns which of the claims, of which there is at least one, is to be
// granted, and takes back passes that lie too far ahead. Of pools only free is read.
func next(claims []claim, pools []division) int {
	for _, c := range claims {
		for _, s := range [...]stake{c.process, c.service} {
			if s.pool != uncapped {
				pools[s.pool].slots += s.holds
				pools[s.pool].weight += c.weight
			}
		}
	}
	best := 0
	for i := range claims {
		if before(&claims[i], &claims[best], pools) < 0 {
			best = i
		}
	}
	for i := range claims {
		claims[i].pass = min(claims[i].pass, claims[best].pass+turnsAhead*stride/claims[i].weight)
	}
	return best
}

func before(a, b *claim, pools []division) int {
	return cmp.Or(
		cmp.Compare(a.excess(a.process, pools), b.excess(b.process, pools)),
		cmp.Compare(a.excess(a.service, pools), b.excess(b.service, pools)),
		cmp.Compare(a.pass, b.pass),
		cmp.Compare(a.since, b.since),
	)
}

// manySlots bounds what a division counts with, so that its products stay in an int64.
const manySlots = 1 << 40

// excess is 0 if the tenant holds less than its share of a pool, else 1.
func (c *claim) excess(s stake, pools []division) int {
	if s.pool == uncapped {
		return 0
	}
	d := pools[s.pool]
	if s.holds*d.weight < (min(d.free, manySlots)+d.slots)*c.weight {
		return 0
	}
	return 1
}
