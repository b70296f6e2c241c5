package ratelimit

// Place is the place of one call in the queue. The call has taken its tokens when
// it came, and takes none again. Whoever has a Place MUST call End or Leave, and
// may call both: the first decides. Both are safe for concurrent use with all that
// happens to the queue, but not with each other.
type Place struct {
	local     *Local
	admission Admission
	pool      *pool
	key       Charge // taken before
	payer     Charge // of the token of the tenant, or of a caller who has none, and
	bucket    Charge // that at the service
	ready     chan struct{}
	pledge    *pledge // to what a store has; nil: there is none

	// The rest is guarded by the line's lock.
	state         placeState
	party         *party
	lane          *lane
	since         uint64
	arrived       int64   // when it came
	lacks         lacking // what it got none of when it was last decided
	before, after *Place  // in the lane
	ticket        Ticket  // once granted
	verdict       Verdict
}

type placeState uint8

const (
	arriving placeState = iota // it is not decided yet whether it waits
	waiting
	granted // the slots are the call's
	ended   // by End or Leave
)

// Ready is closed once the call has its slots. They are not yet in anybody's
// hands: End hands them out.
func (p *Place) Ready() <-chan struct{} { return p.ready }

// End ends the wait. If the slots came first, also in this very instant, they are
// the ticket's, and the verdict is Admitted. Else it is what Admit says of a call
// that it refuses for want of a slot: every token is given back, the key's too,
// unless its free refusals are used up. After Leave, or a first End, the ticket is
// the zero Ticket and the verdict that of before.
func (p *Place) End(now int64) (Ticket, Verdict) {
	defer p.local.line.answered(p, now)
	t, v := p.end(now)
	if p.pledge != nil {
		return p.pledge.end(p, t, v, now)
	}
	return t, v
}

// Claim is for a call that is Ready, and may wait on: it is End, unless calls of other replicas
// have the slots after all. Then the outcome is Queued, and Ready is another channel. So
// it is if the call was not Ready.
func (p *Place) Claim(now int64) (Ticket, Verdict) {
	if p.pledge == nil {
		return p.End(now)
	}
	return p.pledge.claim(p, now)
}

func (p *Place) end(now int64) (Ticket, Verdict) {
	l := p.local
	l.line.mu.Lock()
	defer l.line.mu.Unlock()
	if p.state == waiting && !l.standsLocked(p, now) {
		l.line.removeLocked(p)
		p.state = ended
		p.refund(now)
		l.readLocked(p, now)
		if p.key.entry != nil {
			p.key.settleIn(&p.verdict, now)
		}
	}
	p.state = ended
	t := p.ticket
	p.ticket = Ticket{}
	return t, p.verdict
}

// Leave ends the wait of a call that is wanted no longer, as when its caller hung
// up: whatever it has taken is given back, tokens and slots, and it counts as no
// refusal. After End it does nothing. Defer it before anything that can panic.
func (p *Place) Leave(now int64) {
	defer p.local.line.answered(p, now)
	p.leave(now)
	if p.pledge != nil {
		p.pledge.leave(now)
	}
}

func (p *Place) leave(now int64) {
	l := p.local
	l.line.mu.Lock()
	was := p.state
	if was == waiting {
		l.line.removeLocked(p)
	}
	p.state = ended
	t := p.ticket
	p.ticket = Ticket{}
	l.line.mu.Unlock()
	if was == ended {
		return
	}
	t.Release()
	p.refund(now)
	p.key.refund(now)
}

// refund gives back what the call took when it came.
func (p *Place) refund(now int64) {
	p.payer.refund(now)
	p.bucket.refund(now)
	p.local.uncount(p.admission.Uses, now)
}

// standsLocked reports whether p has its slots after all, once whoever could have
// some does; and else has its verdict name the caps that are full.
func (l *Local) standsLocked(p *Place, now int64) bool {
	l.serveLocked(now)
	if p.state == granted {
		return true
	}
	own := p.party.own
	p.admission.Service, p.admission.Process = p.lane.service, l.line.process
	p.verdict = Verdict{}
	tenant := l.lockTenant(own, now)
	l.refuseFull(&p.verdict, &p.admission, tenant.slots, own.slots, p.pool, l.lackedLocked(p, tenant.inUseLocked(own)))
	tenant.unlockTenant()
	return false
}

// readLocked has the verdict of a refusal tell how the limits stand.
func (l *Local) readLocked(p *Place, now int64) {
	own := p.party.own
	tenant := l.lockTenant(own, now)
	used := tenant.inUseLocked(own)
	l.sampleTokensLocked(&p.verdict, &p.admission, tenant, now)
	tenant.unlockTenant()
	l.sampleCaps(&p.verdict, &p.admission, used, own.slots, p.pool)
}

// pay notes what p has taken of a bucket. Of a call that is admitted at once nobody
// needs to know, and p is nil.
func (p *Place) pay(r *Ref, from *entry, s spent) {
	switch {
	case p == nil:
	case r.kind == KindService:
		p.bucket = Charge{ref: r, entry: from, spent: s}
	default:
		p.payer = Charge{ref: r, entry: from, spent: s}
	}
}

// sampleTokensLocked has a verdict tell what is left in the buckets that the call has
// taken from, and in the windows of its rules. The tenant's lock is held.
func (l *Local) sampleTokensLocked(v *Verdict, a *Admission, tenant *entry, now int64) {
	if own := a.tenant(); !own.limit.Unlimited() {
		tenant.sampleLocked(v, own, now)
	}
	for _, r := range [...]*Ref{a.Caller, a.Bucket} {
		if r != nil && !r.limit.Unlimited() {
			bucket := l.tables[r.table].lock(r, now)
			bucket.sampleLocked(v, r, now)
			bucket.mu.Unlock()
		}
	}
	l.readRules(a.Uses, now)
}

// sampleLocked tells of the bucket as it is, which may be under another limit by now
// than that of r, and changes nothing.
func (e *entry) sampleLocked(v *Verdict, r *Ref, now int64) {
	b := e.bucket
	if b.limit.Unlimited() { // it was forgotten, being full
		b.limit = r.limit
	}
	v.sample(r.kind, b.limit, b.ahead(now))
}
