package ratelimit

import (
	"math"
	"time"
)

// freeRefusals is how many times a key's rate and burst of concurrency refusals
// cost the key nothing.
const freeRefusals = 10

// Admission is what one call needs to run, besides the key's token.
type Admission struct {
	// Tenant is whom the call is charged to; nil for a call that has no tenant.
	Tenant *Ref
	// Caller is the bucket of a caller who has neither a key nor a tenant, or nil.
	Caller *Ref
	// Bucket is that of the key, or of the caller, at this service, or nil; see
	// ServiceBucket.
	Bucket *Ref
	// Service is what is called.
	Service *Service
	// Uses are the rules that the call meets, each at most once. Admit says in
	// them how they stand.
	Uses []Use
	// TunnelBytes is how long the call has to wait for bytes that it needs and its
	// caller has used up, which refuses it as a bucket does; 0: it needs none, or there
	// are some. They are counted elsewhere, as they flow, and Admit takes none.
	TunnelBytes time.Duration
	// Process is the cap of calls in flight of the whole process; 0 is none.
	Process int64
	// Under is what the caps of tenant, service and process are of. Where others
	// are in force, it is those that hold, and so does their weight of the tenant.
	Under *Caps

	capped *Ref // the tenant under the cap in force, if it is not Tenant
}

// Admit takes a token of the tenant, or of the caller, one of the (key, service) bucket, what the
// call counts for in each rule, and a slot of tenant, service and process, or takes
// nothing. Every limit is asked, also
// after one has refused, so that the verdict names them all. If a bucket and a
// cap both refuse, it is a rate refusal.
//
// The key's token was taken before, as c. When Admit refuses for want of a slot,
// that is given back, unless the key's free refusals are used up: then the
// refusal is the key's own, of rate. When a bucket refuses, it stays spent, and
// the wait covers the time until the key has another, which a retry needs.
//
// The tenant's lock is held over the decision, and the caller's and the (key, service)
// bucket's within it, always in this order: a key's calls may be for several tenants that
// then meet at that bucket. The counts of rules are locked last, and given up
// first, as calls of every tenant meet there. Service and process are counted without a lock, as
// every call of the process would queue for it; a slot is taken from the service
// first, from the process last, and given back if the process has none. In that
// instant another call may miss the service's slot, but only while the process
// is full and would refuse it anyway.
//
//go:noinline
func (l *Local) Admit(c Charge, a Admission, now int64) (t Ticket, v Verdict) {
	t, _ = l.enter(&v, &c, &a, 0, now)
	return t, v
}

// Enter is Admit for a call that may wait for its slots, unless queue calls of its
// tenant already do. If slots are all that it lacks, the outcome is Queued, its
// tokens are taken, once and for all, and it has a place in the queue, which comes
// with that outcome and no other. Whether it may wait or not, a call never overtakes
// one that waits and could use the same slot.
//
//go:noinline
func (l *Local) Enter(c Charge, a Admission, queue, now int64) (t Ticket, p *Place, v Verdict) {
	t, p = l.enter(&v, &c, &a, queue, now)
	return t, p, v
}

// Pay takes the tokens that Admit would, and what the rules count, or nothing of
// either, and no slot: for what somebody asks for who has his slots already, such as a
// message over a connection. It does not wait, and no cap refuses it.
func (l *Local) Pay(c Charge, a Admission, now int64) (v Verdict) {
	if l.refuseBlocked(&v, &a) {
		return v
	}
	a.Tenant.fetch()
	a.Caller.fetch()
	a.Bucket.fetch()
	l.findRules(a.Uses)
	l.decide(&v, &a, l.pool(a.Service), holds, nil, now)
	if v.Outcome != Admitted && c.entry != nil {
		c.settleIn(&v, now)
	}
	return v
}

// enter is both. They stay functions of their own, as what they are given and return
// is then copied once; within a caller it would be twice, in larger pieces than it was
// just written in. A processor waits for that, and meanwhile fetches no memory: a
// third of a call's time, with more keys than its cache holds.
func (l *Local) enter(v *Verdict, c *Charge, a *Admission, queue, now int64) (t Ticket, p *Place) {
	if l.refuseBlocked(v, a) {
		return t, nil
	}
	a.Tenant.fetch()
	a.Caller.fetch()
	a.Bucket.fetch()
	if l.outdated(a) {
		l.renew(a)
	}
	service := l.pool(a.Service)
	l.findRules(a.Uses)
	l.hold(service, a.Service.slots)
	l.hold(&l.process, a.Process)
	if l.line.waiting.Load() == 0 {
		t = l.decide(v, a, service, takes, nil, now)
	} else {
		v.Outcome = again
	}
	if v.Outcome == again || v.Outcome == ConcurrencyLimited && queue > 0 {
		t, p, *v = l.enterLine(*c, a, service, queue, now)
	}
	if v.Outcome != Admitted && v.Outcome != Queued && c.entry != nil {
		c.settleIn(v, now)
	}
	return t, p
}

// standing is how a call that is decided stands to its slots.
type standing uint8

const (
	takes standing = iota // it takes them, if it is to run
	holds                 // it has them already, and lacks at most tokens
	lacks                 // others come first, or there are none
	waits                 // the same, and it may wait for them
)

// unlimited is what holds for calls without a tenant. It is in no table.
var unlimited = Ref{table: Table(tables)}

// decide asks every limit and takes what the call needs, or nothing. Of a call that may
// wait it also takes the tokens, and notes them in p, if slots are all that is lacking.
// Only a call that lacks slots has a p.
//
// Of a call that takes its slots it looks afterwards whether anybody waits, and whether
// its caps are still in force: who came to wait meanwhile is not to be overtaken, and a
// cap that was lowered meanwhile not to be passed. Then the outcome is again.
func (l *Local) decide(v *Verdict, a *Admission, service *pool, stands standing, p *Place, now int64) (t Ticket) {
	own, capped := a.tenant(), a.holder()
	tenant := l.lockTenant(own, now)
	var fromTenant decision
	if !own.limit.Unlimited() {
		fromTenant = tenant.askLocked(own.limit, own.since, now)
		if fromTenant.wait > 0 {
			v.refuse(RateLimited, KindTenant, time.Duration(fromTenant.wait))
		}
	} else {
		tenant.bucket.seen = tenant.bucket.now(now)
	}
	var caller, bucket question
	if a.Caller != nil {
		l.ask(&caller, v, a.Caller, now)
	}
	if a.Bucket != nil {
		l.ask(&bucket, v, a.Bucket, now)
	}
	if len(a.Uses) > 0 {
		l.askRules(v, a.Uses, now)
	}
	if a.TunnelBytes > 0 {
		v.refuse(RateLimited, KindTunnelBytes, a.TunnelBytes)
	}
	used := tenant.inUseLocked(own)
	switch stands {
	case takes:
		l.takeSlots(v, a, tenant.slots, used, capped.slots, service)
		if v.Outcome == Admitted && (l.line.waiting.Load() > 0 || l.outdated(a)) {
			l.untake(a, service)
			v.Outcome = again
		}
	case lacks, waits:
		l.refuseFull(v, a, tenant.slots, capped.slots, service, l.lackedLocked(p, used))
		if v.Outcome == ConcurrencyLimited && stands == waits {
			v.Outcome = Queued
		}
	}

	admitted := v.Outcome == Admitted
	pays := admitted || v.Outcome == Queued
	if len(a.Uses) > 0 {
		closeRules(a.Uses, pays)
	}
	if !own.limit.Unlimited() {
		if pays {
			p.pay(own, tenant, tenant.spendLocked(fromTenant))
		}
		v.sample(KindTenant, own.limit, tenant.bucket.ahead(now))
	}
	// Before a shard is locked to pin the tenant: see entry for the order.
	if caller.entry != nil {
		caller.settle(v, p, pays, now)
	}
	if bucket.entry != nil {
		bucket.settle(v, p, pays, now)
	}
	if admitted && stands == takes {
		used++
		t = l.occupyLocked(a, tenant, capped, service, now)
	}
	tenant.unlockTenant()
	l.sampleCaps(v, a, used, capped.slots, service)
	return t
}

// question is a bucket that was asked for a token and is locked until it is settled. The
// zero question is of no bucket.
type question struct {
	of    *Ref
	entry *entry
	says  decision
}

// ask asks the bucket of r, if it limits anything.
func (l *Local) ask(b *question, v *Verdict, r *Ref, now int64) {
	if r.limit.Unlimited() {
		return
	}
	b.of, b.entry = r, l.tables[r.table].lock(r, now)
	b.says = b.entry.askLocked(r.limit, r.since, now)
	if b.says.wait > 0 {
		v.refuse(RateLimited, r.kind, time.Duration(b.says.wait))
	}
}

// settle takes the token, if the call pays, tells of the bucket and lets go of it.
func (b *question) settle(v *Verdict, p *Place, pays bool, now int64) {
	if pays {
		p.pay(b.of, b.entry, b.entry.spendLocked(b.says))
	}
	v.sample(b.of.kind, b.of.limit, b.entry.bucket.ahead(now))
	b.entry.mu.Unlock()
}

// tenant is whose tokens the call needs, under the limit that holds for the call.
func (a *Admission) tenant() *Ref {
	if a.Tenant == nil {
		return &unlimited
	}
	return a.Tenant
}

// holder is the same tenant under the cap that holds for its slots.
func (a *Admission) holder() *Ref {
	if a.capped != nil {
		return a.capped
	}
	return a.tenant()
}

// lockTenant returns the entry of own with its lock held, and with it that of the
// slots of those that share it.
func (l *Local) lockTenant(own *Ref, now int64) *entry {
	if own == &unlimited {
		l.nobody.mu.Lock()
		return l.nobody
	}
	e := l.tables[own.table].lock(own, now)
	if over := e.host(); over != nil {
		over.guests.mu.Lock()
	}
	return e
}

func (e *entry) unlockTenant() {
	if over := e.host(); over != nil {
		over.guests.mu.Unlock()
	}
	e.mu.Unlock()
}

// sampleCaps notes how many slots are in use.
func (l *Local) sampleCaps(v *Verdict, a *Admission, used, own int64, service *pool) {
	v.sampleSlots(KindTenantSlots, used, own)
	if a.Service.slots > 0 {
		v.sampleSlots(KindServiceSlots, service.inUse.Load(), a.Service.slots)
	}
	if a.Process > 0 {
		v.sampleSlots(KindProcessSlots, l.process.inUse.Load(), a.Process)
	}
}

// takeSlots takes a slot of service and process, where they have a cap, if no
// bucket and no cap refuses, and else names every cap that does. The tenant's own
// slot is left to occupyLocked.
//
// What take says counts, never a second look: the slot that it missed may be free
// by then, and a call that nobody refuses must hold what it asked for.
func (l *Local) takeSlots(v *Verdict, a *Admission, tenant *slots, used, own int64, service *pool) {
	if full(used, own) {
		v.refuse(ConcurrencyLimited, KindTenantSlots, slotWait(tenant.hold, own))
	}
	asked, most := v.Outcome == Admitted, a.Service.slots
	took := asked && most > 0 && service.take(most)
	if most > 0 && !took && (asked || service.full(most)) {
		v.refuse(ConcurrencyLimited, KindServiceSlots, slotWait(service.hold.Load(), most))
	}
	if a.Process == 0 || v.Outcome == Admitted && l.process.take(a.Process) {
		return
	}
	if v.Outcome == Admitted || l.process.full(a.Process) {
		v.refuse(ConcurrencyLimited, KindProcessSlots, slotWait(l.process.hold.Load(), a.Process))
	}
	if took {
		service.inUse.Add(-1)
	}
}

// untake gives back what takeSlots took.
func (l *Local) untake(a *Admission, service *pool) {
	if a.Service.slots > 0 {
		service.inUse.Add(-1)
	}
	if a.Process > 0 {
		l.process.inUse.Add(-1)
	}
}

// refuseFull names every cap that was in the way of a call.
func (l *Local) refuseFull(v *Verdict, a *Admission, tenant *slots, own int64, service *pool, lacked lacking) {
	if lacked.tenant {
		v.refuse(ConcurrencyLimited, KindTenantSlots, slotWait(tenant.hold, own))
	}
	if lacked.service {
		v.refuse(ConcurrencyLimited, KindServiceSlots, slotWait(service.hold.Load(), a.Service.slots))
	}
	if lacked.process {
		v.refuse(ConcurrencyLimited, KindProcessSlots, slotWait(l.process.hold.Load(), a.Process))
	}
}

// occupyLocked counts a call in the tenant's slots that has taken those of service
// and process if they have a cap.
func (l *Local) occupyLocked(a *Admission, tenant *entry, own *Ref, service *pool, now int64) Ticket {
	s := tenant.slots
	if most := int32(min(math.MaxInt32, own.slots)); tenant.most != most {
		tenant.most = most
	}
	if s.all.n == 0 {
		tenant.pinLocked()
	}
	// Only now that the tenant is pinned is it sure that whoever makes a pool
	// count looks at these slots after this.
	s.all.enter(&l.process, a.Process > 0, now)
	at := s.visit(service)
	at.enter(service, a.Service.slots > 0, now)
	var guest *Ref
	if over := tenant.host(); over != nil {
		guest = own
		over.guests.held[own.partition]++
	}
	return l.ticketLocked(tenant, at, guest, now)
}

// settleIn completes the verdict of a refusal with what it means for the token.
func (c Charge) settleIn(v *Verdict, now int64) {
	e := c.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	if v.Outcome == ConcurrencyLimited {
		if wait := e.payRefusalLocked(now); wait > 0 {
			v.Outcome, v.Limit, v.Wait = RateLimited, e.id.kind, time.Duration(wait)
			v.violate(e.id.kind)
		} else {
			e.refundLocked(c.spent, now)
		}
	}
	v.Wait = max(v.Wait, time.Duration(e.bucket.wait(now)))
	v.sample(e.id.kind, e.bucket.limit, e.bucket.ahead(now))
}

// payRefusalLocked takes one of the key's free concurrency refusals; the wait is
// until the next when there is none.
func (e *entry) payRefusalLocked(now int64) (wait int64) {
	free := &e.rareLocked().free
	limit := e.bucket.limit.times(freeRefusals)
	now = e.bucket.now(now)
	free.adopt(limit, now, now)
	d := decide(limit, free.tat, now, 1)
	if d.wait == 0 {
		free.spend(d)
	}
	return d.wait
}
