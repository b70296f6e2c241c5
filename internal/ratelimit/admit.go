package ratelimit

import (
	"strconv"
	"time"
)

// freeRefusals is how many times a key's rate and burst of concurrency refusals
// cost the key nothing.
const freeRefusals = 10

// Admission is what one call needs to run.
type Admission struct {
	// Charge is the key's token, taken before. It is given back when slots refuse.
	Charge Charge
	// Table is where the tenant and the (key, service) bucket live.
	Table Table
	// Tenant is the tenant's partition key; empty for a call that has no tenant.
	Tenant      string
	TenantLimit Limit
	TenantSlots int64 // the tenant's cap; 0 is no cap
	// Service names the service, as an operator wrote it.
	Service string
	// ServiceBucket is the partition key of the (key, service) bucket; see the
	// function of that name. Unused if ServiceLimit is unlimited.
	ServiceBucket string
	ServiceLimit  Limit
	ServiceSlots  int64 // the service's cap; 0 is no cap

	// TenantRef and ServiceRef, if set, stand for Tenant with its table and for
	// ServiceBucket, and spare their look-ups.
	TenantRef, ServiceRef *Ref
}

// ServiceBucket is the partition key of the bucket of one key at one service. No
// two pairs share one, whatever bytes the names hold.
func ServiceBucket(key, service string) string {
	return strconv.Itoa(len(key)) + ":" + key + "/" + service
}

// Admit takes a token of the tenant, one of the (key, service) bucket, and a slot
// of tenant, service and process, or takes nothing. Every limit is asked, also
// after one has refused, so that the verdict names them all. If a bucket and a
// cap both refuse, it is a rate refusal.
//
// When it refuses for want of a slot, the key's token is given back, unless the
// key's free refusals are used up: then the refusal is the key's own, of rate.
// When a bucket refuses, the key's token stays spent, and the wait covers the
// time until the key has another, which a retry needs.
//
// The tenant's lock is held over the decision, and the (key, service) bucket's
// within it, always in this order: a key's calls may be for several tenants that
// then meet at that bucket. Service and process are counted without a lock, as
// every call of the process would queue for it; a slot is taken from the service
// first, from the process last, and given back if the process has none. In that
// instant another call may miss the service's slot, but only while the process
// is full and would refuse it anyway.
func (l *Local) Admit(a Admission, now int64) (t Ticket, v Verdict) {
	if a.TenantRef != nil {
		a.Table, a.Tenant = a.TenantRef.table, a.TenantRef.id.partition
	}
	if a.ServiceRef != nil {
		a.ServiceBucket = a.ServiceRef.id.partition
	}
	if l.Blocked(a.Table, a.Tenant) {
		v = Verdict{Outcome: Blocked, Limit: KindTenant, Never: true, Partition: a.Tenant}
		v.violate(KindTenant)
		return t, v
	}
	tenant := l.nobody
	if a.Tenant != "" {
		tenant = l.tables[a.Table].lock(id{KindTenant, a.Tenant}, a.TenantRef, now)
	} else {
		tenant.mu.Lock()
	}
	var bucket *entry
	if !a.ServiceLimit.Unlimited() {
		bucket = l.tables[a.Table].lock(id{KindService, a.ServiceBucket}, a.ServiceRef, now)
	}
	t = l.decideLocked(&v, &a, tenant, bucket, now)
	if v.Outcome != Admitted {
		l.settleKey(a.Charge, &v, now)
	}
	return t, v
}

// decideLocked decides with the locks of tenant and bucket (which may be nil)
// held, and gives both up.
func (l *Local) decideLocked(v *Verdict, a *Admission, tenant, bucket *entry, now int64) (t Ticket) {
	defer tenant.mu.Unlock()
	fromTenant := tenant.askLocked(v, a.TenantLimit, a.Tenant, now)
	var fromBucket decision
	if bucket != nil {
		fromBucket = bucket.askLocked(v, a.ServiceLimit, a.ServiceBucket, now)
	}
	service := l.pool(a)
	l.takeSlots(v, a, tenant, service)

	if v.Outcome == Admitted && !a.TenantLimit.Unlimited() {
		tenant.bucket.spend(fromTenant, now, 1)
	}
	if !a.TenantLimit.Unlimited() {
		v.sampleBucket(KindTenant, &tenant.bucket, now)
	}
	if bucket != nil {
		if v.Outcome == Admitted {
			bucket.bucket.spend(fromBucket, now, 1)
		}
		v.sampleBucket(KindService, &bucket.bucket, now)
		// Before a shard is locked to pin the tenant: see entry for the order.
		bucket.mu.Unlock()
	}
	if v.Outcome == Admitted {
		t = l.occupyLocked(tenant, a, service, now)
	}
	if tenant != l.nobody {
		v.sampleSlots(KindTenantSlots, tenant.slots.inUse, a.TenantSlots)
	}
	v.sampleSlots(KindServiceSlots, service.inUse.Load(), a.ServiceSlots)
	v.sampleSlots(KindProcessSlots, l.process.inUse.Load(), l.process.most.Load())
	return t
}

// askLocked asks e's bucket for a token and takes none.
func (e *entry) askLocked(v *Verdict, limit Limit, partition string, now int64) decision {
	e.last = max(e.last, now)
	if limit.Unlimited() {
		return decision{}
	}
	e.bucket.adopt(limit, now)
	d := decide(limit, e.bucket.tat, now, 1)
	if d.wait > 0 {
		v.refuse(RateLimited, e.id.kind, partition, time.Duration(d.wait))
	}
	return d
}

// takeSlots takes a slot of service and process, if no bucket and no cap refuses,
// and else names every cap that does. The tenant's own slot is left to
// occupyLocked.
func (l *Local) takeSlots(v *Verdict, a *Admission, tenant *entry, service *pool) {
	most := l.process.most.Load()
	if tenant != l.nobody && tenant.slots.full(a.TenantSlots) {
		v.refuse(ConcurrencyLimited, KindTenantSlots, a.Tenant, slotWait(tenant.slots.hold, a.TenantSlots))
	}
	if service.most.Load() != a.ServiceSlots {
		service.most.Store(a.ServiceSlots)
	}
	// What take said counts, never a second look: the slot that it missed may be
	// free by then, and a call that nobody refuses must hold what it asked for.
	asked := v.Outcome == Admitted
	took := asked && service.take(a.ServiceSlots)
	if asked && !took || !asked && service.full(a.ServiceSlots) {
		v.refuse(ConcurrencyLimited, KindServiceSlots, a.Service, slotWait(service.hold.Load(), a.ServiceSlots))
	}
	if took && l.process.take(most) {
		return
	}
	if took {
		service.inUse.Add(-1)
	}
	if took || l.process.full(most) {
		v.refuse(ConcurrencyLimited, KindProcessSlots, "process", slotWait(l.process.hold.Load(), most))
	}
}

// occupyLocked counts the call in the tenant's slots.
func (l *Local) occupyLocked(tenant *entry, a *Admission, service *pool, now int64) Ticket {
	tenant.slots.inUse++
	tenant.slots.most = a.TenantSlots
	if tenant.slots.inUse == 1 {
		tenant.pinLocked()
	}
	guest := ""
	if tenant.home == nil && tenant != l.nobody {
		guest = a.Tenant
		tenant.welcomeLocked(guest)
	}
	return l.ticketLocked(tenant, service, guest, now)
}

// settleKey completes a refusal with what it means for the key's token.
func (l *Local) settleKey(c Charge, v *Verdict, now int64) {
	e := c.entry
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if v.Outcome == ConcurrencyLimited {
		if wait := e.payRefusalLocked(now); wait > 0 {
			v.Outcome, v.Limit, v.Partition, v.Wait = RateLimited, e.id.kind, e.id.partition, time.Duration(wait)
			v.violate(e.id.kind)
		} else {
			e.refundLocked(c.spent, now)
		}
	}
	v.Wait = max(v.Wait, time.Duration(e.bucket.wait(now)))
	v.sampleBucket(e.id.kind, &e.bucket, now)
}

// payRefusalLocked takes one of the key's free concurrency refusals; the wait is
// until the next when there is none.
func (e *entry) payRefusalLocked(now int64) (wait int64) {
	if e.free == nil {
		e.free = new(bucket)
	}
	limit := e.bucket.limit.times(freeRefusals)
	e.free.adopt(limit, now)
	d := decide(limit, e.free.tat, now, 1)
	if d.wait == 0 {
		e.free.spend(d, now, 1)
	}
	return d.wait
}
