package ratelimit

import "time"

// pledge is what a place in the queue means to the store: the tokens that it took there,
// and the slots that it is to get there once it has those of this replica. See gate for
// how it comes to those that other replicas have.
type pledge struct {
	shared             *Shared
	call               Admission
	key, payer, bucket Charge
	here               bool // the store was away, and this replica decided
	done               bool
}

// enterLine decides a call that may wait, or that others wait before: first by the
// slots of this replica, which are no more than those of all, then by the store.
func (s *Shared) enterLine(c Charge, a Admission, queue, now int64) (Ticket, *Place, Verdict) {
	slots := Admission{Service: a.Service, Process: a.Process, Under: s.line.caps.Load()}
	if a.Tenant != nil {
		slots.Tenant = NewTenant(a.Tenant.table, a.Tenant.partition, Limit{}, a.holder().slots).Weighing(int(a.holder().share()))
	}
	t, p, own := s.Local.Enter(Charge{}, slots, queue, now)
	q := s.inquiry(c, &a)
	switch {
	case own.Outcome == Queued:
		q.how, q.starved = takeTokens, &own
	case own.Outcome == ConcurrencyLimited:
		q.how, q.starved = takeNone, &own
	case queue > 0:
		q.how = takeEither
	}
	r, v, err := s.ask(&q, now)
	if err != nil {
		t.Release()
		if p != nil {
			p.Leave(now)
		}
		s.leases.drop(q.lease, q.sets)
		return s.enterAway(c, a, queue, err, now)
	}
	switch {
	case v.Outcome == Admitted:
		t.lend(s.leases.begin(q.lease, q.service, q.sets))
	case v.Outcome == Queued:
		made := s.pledge(c, a, &r, now)
		if p == nil {
			p, t = s.await(&slots, t, v.lacks(), queue, now), Ticket{}
		}
		if p == nil {
			s.restand(q.sets)
			v.Outcome = ConcurrencyLimited
			s.sampleProcess(&v, &a)
			return t, nil, made.refund(v, true, now)
		}
		s.lacksToo(p, v.lacks(), q.sets)
		p.pledge = made
	default:
		if c.entry != nil && v.Outcome != Unavailable {
			c.settleIn(&v, now)
		}
		t.Release()
		t = Ticket{}
		if p != nil {
			p.Leave(now)
			p = nil
		}
	}
	if r.outcome != outcomeByKey { // which was refused before it came to this
		s.sampleProcess(&v, &a)
	}
	return t, p, v
}

// pledge is that of a call which has paid.
func (s *Shared) pledge(c Charge, a Admission, r *ruling, now int64) *pledge {
	p := &pledge{shared: s, call: a, key: c}
	if c.Deferred() {
		p.key = r.key.charge(c.ref, now)
	}
	if by := a.payer(); by != nil && !by.limit.Unlimited() {
		p.payer = r.payer.charge(by, now)
	}
	if a.Bucket != nil && !a.Bucket.limit.Unlimited() {
		p.bucket = r.bucket.charge(a.Bucket, now)
	}
	return p
}

// end is what the store says of a place that ends, of which the replica itself says own.
func (c *pledge) end(p *Place, t Ticket, own Verdict, now int64) (Ticket, Verdict) {
	if c.done {
		return t, own
	}
	c.done = true
	if c.here {
		if own.Outcome == Admitted {
			q := c.inquiry(p, now)
			t.lend(c.shared.leases.begin(q.lease, q.service, q.sets))
		}
		return t, own
	}
	if own.Outcome == Admitted {
		v, runs := c.ask(p, t, own, now)
		if runs {
			return t, v
		}
		t.Release()
		own = v
	}
	return Ticket{}, c.refund(own, true, now)
}

// claim is end for who waits on if others have the slots.
func (c *pledge) claim(p *Place, now int64) (Ticket, Verdict) {
	l := p.local
	l.line.mu.Lock()
	ready, t, own := p.state == granted, p.ticket, p.verdict
	l.line.mu.Unlock()
	if !ready {
		return Ticket{}, Verdict{Outcome: Queued}
	}
	if c.here || c.done {
		return p.End(now)
	}
	v, runs := c.ask(p, t, own, now)
	if v.Outcome == Unavailable {
		c.done = true
		p.end(now)
		t.Release()
		l.line.answered(p, now)
		return Ticket{}, c.refund(v, true, now)
	}
	if !runs {
		l.again(p, v.lacks(), now)
		v.Outcome = Queued
		return Ticket{}, v
	}
	c.done = true
	p.end(now)
	l.line.answered(p, now)
	return t, v
}

// inquiry is that of the slots for which a place has waited. Those that the replica has granted it has
// under the caps of that moment, as one of those that run on where they were lowered
// since; or under those of now, where they were raised.
func (c *pledge) inquiry(p *Place, now int64) inquiry {
	s, granted := c.shared, &p.admission
	if s.outdated(&c.call) {
		s.renew(&c.call)
	}
	if wider(granted.Service.slots, c.call.Service.slots) {
		c.call.Service = granted.Service
	}
	if granted.capped != nil && wider(granted.capped.slots, c.call.holder().slots) {
		c.call.capped = granted.capped
	}
	q := s.inquiry(Charge{}, &c.call)
	q.how, q.waited = takeSlots, now-p.arrived
	return q
}

// ask asks the store for the slots of a place that has those of this replica, and reports
// whether its call runs.
func (c *pledge) ask(p *Place, t Ticket, own Verdict, now int64) (v Verdict, runs bool) {
	s, q := c.shared, c.inquiry(p, now)
	r, v, err := s.ask(&q, now)
	if err != nil {
		s.options.Failed(err)
		if v, runs = s.runsAway(&c.call, own, now); !runs {
			s.leases.drop(q.lease, q.sets)
			return v, false
		}
	} else if r.outcome != outcomeAdmitted {
		return v, false
	}
	t.lend(s.leases.begin(q.lease, q.service, q.sets))
	if err == nil {
		s.line.room(p, r.ofTenant, r.ofService)
	}
	s.sampleProcess(&v, &c.call)
	return v, true
}

// wider reports whether a cap lets more pass than another. 0 is none.
func wider(cap, other int64) bool { return other != 0 && (cap == 0 || cap > other) }

// leave is for a place that is left.
func (c *pledge) leave(now int64) {
	if !c.done && !c.here {
		c.done = true
		c.refund(Verdict{}, false, now)
	}
}

// refund gives back what the call has taken. Of one that is refused it returns the
// verdict: that of its slots, with what it means for its key.
func (c *pledge) refund(own Verdict, refused bool, now int64) (v Verdict) {
	s := c.shared
	answer, err := s.giveBack(c.taken(refused && own.Outcome != Unavailable), 0)
	if err != nil { // what was taken stays so, until it is refilled
		s.options.Failed(err)
		return own
	}
	r := answer.Values
	for i, x := range c.charges() {
		if x.ref != nil && x.entry == nil {
			s.note(x.ref, level{ahead: r[3+3*i] * 1000, number: answer.Number}, now)
		}
	}
	for i := range c.call.Uses {
		u := &c.call.Uses[i]
		u.used, u.left, u.counted = r[10+2*i], r[11+2*i]*1000, false
	}
	if !refused {
		c.key.refund(now) // if it is of here
		return v
	}
	return c.refusal(own, r, now)
}

func (c *pledge) charges() [3]*Charge { return [3]*Charge{&c.key, &c.payer, &c.bucket} }

// taken is what the call has taken.
func (c *pledge) taken(refused bool) *taken {
	t := &taken{refused: refused, uses: c.call.Uses}
	for i, x := range c.charges() {
		if x.ref != nil && x.entry == nil {
			t.of[i] = x
		}
	}
	return t
}

// asStored is a limit that the store told, or that of r where it knows of none: then the
// bucket is full.
func asStored(r *Ref, told []int64) (Limit, int64) {
	if told[0] == 0 {
		return inMicros(r.limit), 0
	}
	return Limit{Interval: told[0] * 1000, Burst: told[1]}, told[2] * 1000
}

// refusal is the verdict of a call that got no slot, with how its limits stand now that
// it has been given back what it took.
func (c *pledge) refusal(own Verdict, r []int64, now int64) Verdict {
	v := own
	v.n = 0
	for i, x := range c.charges() {
		if x.ref != nil && i > 0 {
			limit, ahead := asStored(x.ref, r[1+3*i:])
			v.sample(x.ref.kind, limit, ahead)
		}
	}
	for i, kind := range own.kinds[:own.n] {
		if kind.Gauge() {
			v.sample(kind, own.samples[i].limit, own.samples[i].level)
		}
	}
	switch {
	case c.key.entry != nil:
		c.key.settleIn(&v, now)
	case c.key.ref != nil:
		l, ahead := asStored(c.key.ref, r[1:])
		if r[0] > 0 {
			v.Outcome, v.Limit, v.Wait = RateLimited, c.key.ref.kind, time.Duration(r[0]*1000)
			v.violate(c.key.ref.kind)
		}
		v.Wait = max(v.Wait, time.Duration(decide(l, ahead, 0, 1).wait))
		v.sample(c.key.ref.kind, l, ahead)
	}
	return v
}
