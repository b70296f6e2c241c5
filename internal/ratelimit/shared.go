package ratelimit

import (
	"errors"
	"sync/atomic"
	"time"
)

// SharedOptions are those of a Shared.
type SharedOptions struct {
	// Replica names the process: no other, at any time, may have the same.
	Replica string
	// Away is what holds while the store is away, for what has no policy of its own.
	Away Policy
	// Divided has a job have keys of one tag only (what stands in braces), as those of
	// different tags may lie on different servers.
	Divided bool
	// Failed is told of every decision that the store did not make, and of every
	// decision that it made again after such.
	Failed func(err error)
}

// Shared is a limiter whose buckets, slots and rules are shared with other replicas, in
// a store. The store decides each call in one step, by its own time; what there is of
// a process alone stays with a Local: the cap of the process, the queue, who is blocked,
// and an account of the calls that run here. It is safe for concurrent use.
//
// While the store is away the Local decides, as the policy of the limit says, from how
// the buckets stood when the store last told.
//
// # What it does not promise
//
// A store that loses what it was told last, as one does that fails over, has forgotten
// those tokens and slots; slots are told again within RenewEvery. Rates are kept in
// microseconds, rounded up: none is faster than a million a second.
type Shared struct {
	*Local
	store    Store
	options  SharedOptions
	leases   leases
	replicas atomic.Int64 // that lived when the store last told
	alone    decidedAlone
}

// NewShared returns a limiter that shares with all that use the same store.
func NewShared(l *Local, store Store, o SharedOptions) *Shared {
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	s := &Shared{Local: l, store: store, options: o, leases: newLeases(store, o.Replica, o.Divided)}
	s.replicas.Store(1)
	l.line.shared, l.line.gates = s, map[string]*gate{}
	return s
}

// Take takes one token from the bucket of r, which every replica takes from. A refusal
// is remembered for a second at most, and costs the store nothing meanwhile.
func (s *Shared) Take(r *Ref, now int64) Charge {
	c := s.Defer(r, now)
	if c.Deferred() {
		c = s.Settle(c, now)
	}
	return c
}

// Defer is Take, put off until Enter, so that both are one question: unless it is
// refused already, nothing is known of it. Whoever does not come to Enter with it MUST
// give it to Settle.
func (s *Shared) Defer(r *Ref, now int64) Charge {
	if r.limit.Unlimited() {
		return Charge{}
	}
	if at, tat, wait := r.drained(now); wait > 0 {
		return Charge{ref: r, spent: spent{at: at, tat: tat}, wait: wait}
	}
	return Charge{ref: r}
}

// Settle makes a charge that was put off.
func (s *Shared) Settle(c Charge, now int64) Charge {
	if !c.Deferred() {
		return c
	}
	q := inquiry{key: c, call: &Admission{Service: &nowhere}, how: takeAll}
	answer, err := s.store.Ask(oneTag(q.job(now)))
	if err != nil {
		return s.settleAway(c, err, now)
	}
	r := readRuling(answer)
	s.note(c.ref, r.key, now)
	taken := r.key.charge(c.ref, now)
	if r.outcome == outcomeByKey {
		taken.wait = r.key.wait
	}
	return taken
}

// nowhere is where a call goes that takes a token and nothing else.
var nowhere Service

// Admit is Enter for a call that does not wait.
func (s *Shared) Admit(c Charge, a Admission, now int64) (Ticket, Verdict) {
	t, _, v := s.Enter(c, a, 0, now)
	return t, v
}

// Enter decides a call as Local.Enter does, and with it the charge of its key, if that
// was put off. If it may wait for its slots, whichever replica has them, it has a place in
// the queue of this one, which so many calls of its tenant may have; see gate.
func (s *Shared) Enter(c Charge, a Admission, queue, now int64) (t Ticket, p *Place, v Verdict) {
	if s.refuseBlocked(&v, &a) {
		s.Settle(c, now)
		return t, nil, v
	}
	if s.outdated(&a) {
		s.renew(&a)
	}
	if queue > 0 || s.line.waiting.Load() > 0 {
		return s.enterLine(c, a, queue, now)
	}
	s.hold(s.pool(a.Service), a.Service.slots)
	s.hold(&s.process, a.Process)
	q := s.inquiry(c, &a)
	q.starved = s.starved(&a, now)
	if q.starved != nil {
		q.how = takeNone
	}
	r, v, err := s.ask(&q, now)
	if (err != nil || v.Outcome != Admitted) && a.Process > 0 && q.starved == nil {
		s.process.inUse.Add(-1)
	}
	if err != nil {
		s.leases.drop(q.lease, q.sets)
		return s.enterAway(c, a, queue, err, now)
	}
	if v.Outcome == Admitted {
		t = s.occupy(&a, now)
		t.lend(s.leases.begin(q.lease, q.service, q.sets))
	} else if c.entry != nil {
		c.settleIn(&v, now)
	}
	if r.outcome != outcomeByKey { // which was refused before it came to this
		s.sampleProcess(&v, &a)
	}
	return t, nil, v
}

// Pay takes tokens and what rules count, as Local.Pay does.
func (s *Shared) Pay(c Charge, a Admission, now int64) (v Verdict) {
	if s.refuseBlocked(&v, &a) {
		return v
	}
	q := s.inquiry(c, &a)
	q.how = takePaid
	_, v, err := s.ask(&q, now)
	if err != nil {
		return s.payAway(c, a, err, now)
	}
	if v.Outcome != Admitted && c.entry != nil {
		c.settleIn(&v, now)
	}
	s.sampleProcess(&v, &a)
	return v
}

// Spend has rules alone count a request, as Local.Spend does.
func (s *Shared) Spend(c Charge, uses []Use, now int64) Verdict {
	return s.Pay(c, Admission{Service: &nowhere, Uses: uses}, now)
}

// starved takes a slot of the process, if that has a cap and the replica is not full
// already, and else returns its caps that refuse. A replica never has more slots than
// there are; but some may be kept for who waited for them, and asks for them next.
func (s *Shared) starved(a *Admission, now int64) *Verdict {
	var v Verdict
	service := s.pool(a.Service)
	if a.Tenant != nil {
		e := s.lockTenant(a.Tenant, now)
		if most := a.holder().slots; full(e.inUseLocked(a.holder()), most) {
			v.refuse(ConcurrencyLimited, KindTenantSlots, slotWait(e.slots.hold, most))
		}
		e.unlockTenant()
	}
	if most := a.Service.slots; full(service.inUse.Load(), most) {
		v.refuse(ConcurrencyLimited, KindServiceSlots, slotWait(service.hold.Load(), most))
	}
	if most := a.Process; most > 0 && (v.Outcome != Admitted && s.process.full(most) || v.Outcome == Admitted && !s.process.take(most)) {
		v.refuse(ConcurrencyLimited, KindProcessSlots, slotWait(s.process.hold.Load(), most))
	}
	if v.Outcome == Admitted {
		return nil
	}
	return &v
}

// inquiry is that of a call, which is to have all that it needs.
func (s *Shared) inquiry(c Charge, a *Admission) inquiry {
	q := inquiry{key: c, call: a, how: takeAll, lease: s.leases.newID(), service: serviceName(a.Service)}
	if a.Tenant != nil {
		q.sets = append(q.sets, slotsName(a.Tenant))
	}
	if s.leases.counts(q.service, a.Service.slots) {
		q.sets = append(q.sets, q.service)
	}
	return q
}

// ask has the store decide.
func (s *Shared) ask(q *inquiry, now int64) (ruling, Verdict, error) {
	r, err := s.rule(q, now)
	if err != nil {
		return ruling{}, Verdict{}, err
	}
	if q.key.ref != nil && q.key.entry == nil {
		wait := r.key.wait
		if r.outcome == outcomeByKeyForSlots { // that is another bucket's
			wait = 0
		}
		s.note(q.key.ref, level{ahead: r.key.ahead, wait: wait, number: r.key.number}, now)
	}
	if r.outcome != outcomeByKey {
		s.note(q.call.payer(), r.payer, now)
		s.note(q.call.Bucket, r.bucket, now)
	}
	return r, q.verdict(&r, s.holds(q.call)), nil
}

// rule has the store decide, in one step if it can.
func (s *Shared) rule(q *inquiry, now int64) (ruling, error) {
	if s.options.Divided {
		return s.divide(q, now)
	}
	answer, err := s.store.Ask(oneTag(q.job(now)))
	if err != nil {
		return ruling{}, err
	}
	return readRuling(answer), nil
}

// holds is for how long slots were held here lately: the tenant's, the service's, the
// process's.
func (s *Shared) holds(a *Admission) (list [3]int64) {
	if a.Tenant != nil {
		if e := s.tables[a.Tenant.table].peek(a.Tenant.id()); e != nil {
			e.mu.Lock()
			list[0] = e.slots.hold
			e.mu.Unlock()
		}
	}
	list[1], list[2] = s.pool(a.Service).hold.Load(), s.process.hold.Load()
	return list
}

func (s *Shared) sampleProcess(v *Verdict, a *Admission) {
	if a.Process > 0 {
		v.sampleSlots(KindProcessSlots, s.process.inUse.Load(), a.Process)
	}
}

// remembered is for how long a refusal is believed without asking again: others may
// give tokens back.
const remembered = int64(time.Second)

// note has the account of this replica say of a bucket what the store says. A later
// answer is not undone by an earlier one.
func (s *Shared) note(r *Ref, l level, now int64) {
	if r == nil || r.limit.Unlimited() {
		return
	}
	e := s.tables[r.table].lock(r, now)
	defer e.mu.Unlock()
	if e.bucket.shared {
		return // by those that found the table full, of whom each has a bucket in the store
	}
	rare := e.rareLocked()
	if l.number <= rare.told {
		return
	}
	rare.told = l.number
	at := e.bucket.now(now)
	e.bucket.limit, e.bucket.tat, e.bucket.seen = r.limit, at+max(0, l.ahead), at
	e.changedLocked()
	if l.wait > 0 {
		e.drained.Store(&drained{r.limit, at, e.bucket.tat, at + remembered})
	}
}

// occupy counts a call that the store has admitted, whatever the replica's own caps
// say, and which has a slot of the process if that has a cap.
func (s *Shared) occupy(a *Admission, now int64) Ticket {
	service := s.pool(a.Service)
	tenant := s.lockTenant(a.tenant(), now)
	defer tenant.unlockTenant()
	if a.Service.slots > 0 {
		service.inUse.Add(1)
	}
	return s.occupyLocked(a, tenant, a.holder(), service, now)
}

// Peek reads how a bucket stands, and of a tenant how many slots are left, among all
// replicas; while the store is away, here.
func (s *Shared) Peek(r *Ref, now int64) (bucket, slots Reading) {
	key := ""
	args := limitArgs(nil, &key, r, now)
	answer, err := s.store.Ask(oneTag(Job{Script: lookScript, Keys: []string{key, slotsName(r)}, Numbers: args}))
	if err != nil {
		s.options.Failed(err)
		return s.Local.Peek(r, now)
	}
	if !r.limit.Unlimited() {
		bucket = sample{inMicros(r.limit), answer.Values[0] * 1000}.reading(r.kind)
	}
	if r.slots > 0 {
		slots = sample{Limit{Burst: r.slots}, answer.Values[1]}.reading(KindTenantSlots)
	}
	return bucket, slots
}

// Count counts more for a rule that was asked, among all replicas.
func (s *Shared) Count(u *Use, n, now int64) {
	switch {
	case u.windows != nil: // asked here, while the store was away
		s.Local.Count(u, n, now)
	case u.asked && n > 0:
		s.store.Tell(Job{Script: countScript, Keys: []string{windowName(u.Rule, u.Partition)}, Numbers: []int64{micros(u.Rule.id.length), n}})
	}
}

// Counted reads what a rule has counted among all replicas; while the store is away, here.
func (s *Shared) Counted(r *Rule, partition string, now int64) (used int64, left time.Duration) {
	answer, err := s.store.Ask(Job{Script: countScript, Keys: []string{windowName(r, partition)}, Numbers: []int64{micros(r.id.length), 0}})
	if err != nil {
		s.options.Failed(err)
		return s.Local.Counted(r, partition, now)
	}
	return answer.Values[0], time.Duration(answer.Values[1]) * time.Microsecond
}

// Renew tells the store of all calls that run here, which it keeps for LeaseTime, and
// that this replica lives: call it every RenewEvery. It does so whatever the store
// knows; after a loss of its data the truth comes back, also if that is more than a cap.
// It returns how many slots of calls that still run the store had lost. by is the store, in case it is to be
// asked in another way.
func (s *Shared) Renew(by Store) (lost int64, err error) {
	var failed error // of one part of the store, which is no reason to leave out others
	for _, r := range s.leases.renewals() {
		answer, err := by.Ask(r.job())
		ended := s.leases.dropEnded(r)
		switch {
		case err == nil:
			lost += max(0, answer.Values[0]-ended)
		case !errors.Is(err, ErrElsewhere):
			failed = err
		}
	}
	answer, err := by.Ask(Job{Script: replicasScript, Keys: []string{replicasName}, Numbers: []int64{LeaseTime.Microseconds()}, Texts: []string{s.options.Replica}})
	switch {
	case err == nil:
		s.replicas.Store(max(1, answer.Values[0]))
	case !errors.Is(err, ErrElsewhere):
		failed = err
	}
	return lost, failed
}

// Replicas is how many lived when the store last told.
func (s *Shared) Replicas() int64 { return s.replicas.Load() }

// Leave tells the store that this replica is one no longer.
func (s *Shared) Leave() {
	_, _ = s.store.Ask(Job{Script: replicasScript, Keys: []string{replicasName}, Numbers: []int64{0}, Texts: []string{s.options.Replica}}) // else it is forgotten after LeaseTime
}
