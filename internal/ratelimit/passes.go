package ratelimit

// pass is how far a tenant is at a pool where it has waited: the slot time that it
// had there, by weight. Passes go on for ever, and so may begin anew: only how far one
// lies ahead of another means something. One that stood still for half of all numbers
// looks far ahead, and is worth some turns like any other that does: see next.
type pass struct {
	of  *pool
	at  int64 // when it was last served there after a wait
	had int64 // slot time at that moment
}

// ahead is how far the pass of a tenant that has had so much by now lies ahead of
// that of the pool.
func (p *pass) ahead(had, weight, pool int64) int64 { return p.at + (had-p.had)/weight - pool }

// serve notes that the tenant is served, at the pool's pass if its own lies behind.
func (p *pass) serve(had, weight, pool int64) {
	p.at = pool + max(0, p.ahead(had, weight, pool))
	p.had = had - turnTime
}

// passLocked returns the pass of a tenant at a pool, or nil if it has never waited
// there: then it begins where the pool is. What it had before counts for nothing.
func (e *entry) passLocked(of *pool) *pass {
	if e.rare == nil {
		return nil
	}
	for i := range e.rare.passes {
		if e.rare.passes[i].of == of {
			return &e.rare.passes[i]
		}
	}
	return nil
}

// stakeLocked is how a tenant that holds so many slots of a pool stands there. The
// locks of line and tenant are held.
func (e *entry) stakeLocked(number int, of *pool, t tally, holds, weight, now int64) stake {
	s := stake{pool: number, holds: holds}
	if p := e.passLocked(of); p != nil {
		s.ahead = p.ahead(t.had(now), weight, of.pass)
	}
	return s
}

// servedLocked notes that a tenant that waited is served at a pool. The locks of line
// and tenant are held.
func (e *entry) servedLocked(of *pool, t tally, weight, now int64) {
	p := e.passLocked(of)
	if p == nil {
		rare := e.rareLocked()
		rare.passes = append(rare.passes, pass{of: of, at: of.pass, had: t.had(now)})
		p = &rare.passes[len(rare.passes)-1]
	}
	p.serve(t.had(now), weight, of.pass)
}
