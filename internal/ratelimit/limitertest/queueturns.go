package limitertest

import (
	"math/big"
	"slices"
	"time"
)

// stand is a tenant at a pool: a service's, or "", the process's.
type stand struct{ tenant, pool string }

// standPass is a pass when its tenant was last served, and what that had had then.
type standPass struct{ at, had int64 }

const (
	turnsAhead = 4                       // of its own, which a tenant's pass may lie ahead of the pool's
	turnTime   = int64(time.Microsecond) // what a turn counts for besides its time
)

// had is for how long all calls of a tenant in a pool have had their slots.
func (b *queueBook) had(s stand, now int64) (sum int64) {
	in := func(c *bookCall) bool { return c.tenant == s.tenant && (s.pool == "" || s.pool == c.service) }
	for _, c := range b.ended {
		if in(c) {
			sum += c.ended - c.began
		}
	}
	for _, c := range b.running {
		if in(c) {
			sum += now - c.began
		}
	}
	return sum
}

// ahead is how far a tenant's pass lies ahead of the pool's.
func (b *queueBook) ahead(s stand, now int64) int64 {
	p := b.passes[s]
	if p == nil {
		return 0
	}
	return p.at + (b.had(s, now)-p.had)/b.weights[s.tenant] - b.pools[s.pool]
}

// rivals returns what the first calls of tenants compete for, and which of them do: the
// process, if there are not enough slots for each of them, or else the service of the
// one that came first.
func (b *queueBook) rivals(first []*bookCall) (pool string, most int64, rivals []*bookCall) {
	if b.process > 0 && b.process-int64(len(b.running)) < int64(len(first)) {
		return "", b.process, first
	}
	pool = first[0].service
	return pool, b.service[pool], at(first, pool)
}

// at is those of the calls that are for a service.
func at(calls []*bookCall, service string) []*bookCall {
	return slices.DeleteFunc(slices.Clone(calls), func(c *bookCall) bool { return c.service != service })
}

// advance has the pass of a pool go on: to the least of those that compete, and so far
// that none lies more than some turns ahead of it.
func (b *queueBook) advance(pool string, rivals []*bookCall, now int64) {
	by, far := b.ahead(stand{rivals[0].tenant, pool}, now), int64(0)
	for _, c := range rivals {
		ahead := b.ahead(stand{c.tenant, pool}, now)
		by, far = min(by, ahead), max(far, ahead-turnsAhead*((b.hold[c.tenant]+turnTime)/b.weights[c.tenant]))
	}
	b.pools[pool] += max(by, far)
}

// served has a tenant's pass be no less than the pool's, and go on by a turn.
func (b *queueBook) served(s stand, now int64) {
	at := b.pools[s.pool] + max(0, b.ahead(s, now))
	b.passes[s] = &standPass{at, b.had(s, now) - turnTime}
}

func (b *queueBook) precedes(c, o *bookCall, pool string, first []*bookCall, now int64) bool {
	if pool == "" {
		if x, y := b.hasShareOfProcess(c, first), b.hasShareOfProcess(o, first); x != y {
			return y
		}
	}
	if x, y := b.hasShareOfService(c, first), b.hasShareOfService(o, first); x != y {
		return y
	}
	return max(0, b.ahead(stand{c.tenant, pool}, now)) < max(0, b.ahead(stand{o.tenant, pool}, now))
}

// hasShare reports whether a tenant holds, of what rivals hold and could hold of a
// pool together, no less than belongs to its weight.
func (b *queueBook) hasShare(c *bookCall, rivals []*bookCall, free int64, holds func(tenant string) int64) bool {
	whole, weights := free, int64(0)
	for _, r := range rivals {
		whole += holds(r.tenant)
		weights += b.weights[r.tenant]
	}
	share := new(big.Rat).Mul(big.NewRat(whole, 1), big.NewRat(b.weights[c.tenant], weights))
	return big.NewRat(holds(c.tenant), 1).Cmp(share) >= 0
}

func (b *queueBook) hasShareOfProcess(c *bookCall, rivals []*bookCall) bool {
	if b.process == 0 {
		return false
	}
	return b.hasShare(c, rivals, b.process-int64(len(b.running)), func(t string) int64 { return b.ofTenant(b.running, t) })
}

func (b *queueBook) hasShareOfService(c *bookCall, rivals []*bookCall) bool {
	most := b.service[c.service]
	if most == 0 {
		return false
	}
	return b.hasShare(c, at(rivals, c.service), most-b.atService(c.service, ""), func(t string) int64 { return b.atService(c.service, t) })
}
