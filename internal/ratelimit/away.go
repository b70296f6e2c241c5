package ratelimit

// share is r under the share of one replica: the same fraction of its limit, with the
// same time in which it fills up, so that what was spent of it stays as much of a part.
func (s *Shared) share(r *Ref) *Ref {
	if r == nil {
		return nil
	}
	n := s.replicas.Load()
	made := &Ref{table: r.table, kind: r.kind, partition: r.partition, slots: shareOf(r.slots, n), since: whenAsked, weight: r.weight}
	if !r.limit.Unlimited() {
		made.limit = Limit{Interval: min(maxWindow, r.limit.Interval*n), Burst: shareOf(r.limit.Burst, n)}
	}
	return made
}

// shareOf is one of n parts of a limit, at least 1. 0 is no limit, and below is nothing.
func shareOf(most, n int64) int64 {
	if most <= 0 {
		return most
	}
	return max(1, most/n)
}

// settleAway makes a charge while the store is away.
func (s *Shared) settleAway(c Charge, err error, now int64) Charge {
	s.options.Failed(err)
	s.alone.count(s.options.Away)
	switch s.options.Away {
	case PolicyOpen:
		return Charge{}
	case PolicyClosed:
		return Charge{ref: c.ref, wait: unknown}
	}
	return s.Local.Take(s.share(c.ref), now)
}

// enterAway decides a call while the store is away.
func (s *Shared) enterAway(c Charge, a Admission, queue int64, err error, now int64) (t Ticket, p *Place, v Verdict) {
	s.options.Failed(err)
	c, here, v := s.here(c, &a, now)
	if v.Outcome != Admitted {
		return t, nil, v
	}
	t, p, v = s.Local.Enter(c, here, queue, now)
	a.tellUses(here.Uses)
	switch v.Outcome {
	case Admitted:
		q := s.inquiry(Charge{}, &a)
		t.lend(s.leases.begin(q.lease, q.service, q.sets))
	case Queued:
		p.pledge = &pledge{shared: s, call: a, here: true}
	}
	return t, p, v
}

// runsAway reports whether a call that has paid and has slots of this replica runs on these
// while the store is away; and if not, what it is told.
func (s *Shared) runsAway(a *Admission, own Verdict, now int64) (v Verdict, runs bool) {
	switch s.awayAt(a.Service) {
	case PolicyOpen:
		return own, true
	case PolicyClosed:
		return Verdict{Outcome: Unavailable}, false
	}
	n := s.replicas.Load()
	if a.Tenant != nil {
		e := s.lockTenant(a.holder(), now)
		used, most := e.inUseLocked(a.holder()), shareOf(a.holder().slots, n)
		if most > 0 && used > most {
			v.refuse(ConcurrencyLimited, KindTenantSlots, slotWait(e.slots.hold, most))
		}
		e.unlockTenant()
	}
	service := s.pool(a.Service)
	if most := shareOf(a.Service.slots, n); most > 0 && service.inUse.Load() > most {
		v.refuse(ConcurrencyLimited, KindServiceSlots, slotWait(service.hold.Load(), most))
	}
	if v.Outcome != Admitted {
		return v, false
	}
	return own, true
}

// payAway is enterAway for who has slots already.
func (s *Shared) payAway(c Charge, a Admission, err error, now int64) Verdict {
	s.options.Failed(err)
	c, here, v := s.here(c, &a, now)
	if v.Outcome == Admitted {
		v = s.Local.Pay(c, here, now)
		a.tellUses(here.Uses)
	}
	return v
}

// awayAt is what holds for a service while the store is away.
func (s *Shared) awayAt(of *Service) Policy {
	if of.away == PolicyDefault {
		return s.options.Away
	}
	return of.away
}

// here is a call as this replica alone decides it, as the policies of service and rules
// say; a verdict that does not admit is the whole answer.
func (s *Shared) here(c Charge, a *Admission, now int64) (Charge, Admission, Verdict) {
	policy := s.awayAt(a.Service)
	uses := make([]Use, 0, len(a.Uses))
	for _, u := range a.Uses {
		switch u.Rule.away {
		case PolicyClosed:
			policy = PolicyClosed
		case PolicyShare:
			u.Max = shareOf(u.Max, s.replicas.Load())
			uses = append(uses, u)
		}
	}
	s.alone.count(policy)
	if policy == PolicyClosed {
		c.refund(now)
		return c, *a, Verdict{Outcome: Unavailable}
	}
	for i := range a.Uses {
		if by := a.Uses[i].Rule.away; by == PolicyDefault || by == PolicyOpen {
			s.alone.pass(a.Uses[i].Rule)
		}
	}
	alone := Admission{
		Service: NewService(a.Service.name, 0), Process: a.Process, Under: s.line.caps.Load(), Uses: uses, TunnelBytes: a.TunnelBytes,
	}
	if policy == PolicyOpen {
		if a.Tenant != nil {
			alone.Tenant = NewTenant(a.Tenant.table, a.Tenant.partition, Limit{}, 0)
		}
		return Charge{}, alone, Verdict{}
	}
	if c.Deferred() {
		if c = s.Local.Take(s.share(c.ref), now); c.Refused() {
			return c, alone, c.Verdict()
		}
	}
	alone.Tenant, alone.Caller, alone.Bucket = s.share(a.Tenant), s.share(a.Caller), s.share(a.Bucket)
	alone.Service.slots = shareOf(a.Service.slots, s.replicas.Load())
	if a.Tenant != nil {
		alone.Tenant.slots = shareOf(a.holder().slots, s.replicas.Load())
	}
	return c, alone, Verdict{}
}

// tellUses has those of the rules that were asked say how they stand.
func (a *Admission) tellUses(asked []Use) {
	for _, u := range asked {
		for i := range a.Uses {
			if a.Uses[i].Rule == u.Rule && a.Uses[i].Partition == u.Partition {
				a.Uses[i] = u
			}
		}
	}
}
