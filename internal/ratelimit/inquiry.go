package ratelimit

import "time"

// how is what of a call is to be decided: see queries/decide.lua.
type how int64

const (
	takeAll    how = iota + 1 // all that it needs
	takeTokens                // all but slots, which it has to wait for
	takeNone                  // nothing: the replica has no slot for it
	takeSlots                 // slots alone, as the rest is taken
	takePaid                  // all but slots, which it has
	takeEither                // all, or else all but slots, which it then waits for
)

// outcomes as queries/decide.lua has them
const (
	outcomeAdmitted = iota
	outcomeByKey
	outcomeByRate
	outcomeBySlots
	outcomeByKeyForSlots
	outcomeQueued
)

// inquiry is one call as the store is asked about it.
type inquiry struct {
	key     Charge // pending, or taken by the store; the zero Charge for none
	call    *Admission
	how     how
	lease   string
	service string   // the set of the service's slots
	sets    []string // of slots that the call is to be a member of
	starved *Verdict // the caps of the replica itself that refuse; nil: none does
	noFree  bool     // that of the key's free refusals is not to be asked
	waited  int64    // for how long, if it is slots alone, in nanoseconds
}

const bare = 6 // keys that there always are

// job is the question for the store.
func (q *inquiry) job(now int64) Job {
	a := q.call
	keys := make([]string, bare, bare+len(a.Uses))
	args := make([]int64, 0, 21+4*len(a.Uses))
	args = append(args, int64(q.how), LeaseTime.Microseconds(), oneIf(q.starved != nil))
	args = q.key.args(args, keys, !q.noFree, now)
	args = limitArgs(args, &keys[2], a.payer(), now)
	args = limitArgs(args, &keys[3], a.Bucket, now)
	tenant, service := int64(-1), int64(-1)
	for _, set := range q.sets {
		if set == q.service {
			keys[5], service = set, a.Service.slots
		} else {
			keys[4], tenant = set, a.holder().slots
		}
	}
	args = append(args, tenant, service, oneIf(a.TunnelBytes > 0), int64(len(a.Uses)))
	for i := range a.Uses {
		u := &a.Uses[i]
		u.Count, u.Max, u.counted = min(MaxQuota+1, u.Count), min(MaxQuota, u.Max), false
		keys = append(keys, windowName(u.Rule, u.Partition))
		args = append(args, micros(u.Rule.id.length), u.Count, u.Max, oneIf(u.Rule.observe))
	}
	if q.how == takeSlots {
		args = append(args, max(0, q.waited)/1000)
	}
	return Job{Script: decideScript, Keys: keys, Numbers: args, Texts: []string{q.lease}}
}

// oneIf is how a script is told what holds.
func oneIf(holds bool) int64 {
	if holds {
		return 1
	}
	return 0
}

// args are those of a key: what it owes, its limit, and that of its free refusals.
func (c Charge) args(args []int64, keys []string, withFree bool, now int64) []int64 {
	owes, mark, changes := int64(0), int64(0), int64(0)
	switch {
	case c.Deferred():
		owes = 1
	case c.ref != nil && c.entry == nil:
		owes, mark, changes = 2, c.spent.refunded, int64(c.spent.changes)
	default:
		c.ref = nil
	}
	args = limitArgs(append(args, owes, mark, changes), &keys[0], c.ref, now)
	free := Limit{}
	if c.ref != nil && withFree {
		keys[1], free = freeName(c.ref), inMicros(c.ref.limit.times(freeRefusals))
	}
	return append(args, free.Interval/1000, free.Burst)
}

// limitArgs are a limit in microseconds, and for how long it has been in force.
func limitArgs(args []int64, key *string, r *Ref, now int64) []int64 {
	if r == nil || r.limit.Unlimited() {
		return append(args, 0, 0, -1)
	}
	*key = bucketName(r)
	age := int64(-1)
	if r.since != whenAsked {
		age = max(0, now-r.since) / 1000
	}
	return append(args, micros(r.limit.Interval), r.limit.Burst, age)
}

// micros is a time in microseconds, rounded up: a limit is never faster than it was
// asked for.
func micros(nanos int64) int64 { return (nanos-1)/1000 + 1 }

// inMicros is a limit as the store keeps it.
func inMicros(l Limit) Limit {
	if l.Unlimited() {
		return l
	}
	return Limit{Interval: micros(l.Interval) * 1000, Burst: l.Burst}
}

// level is how one bucket stood after the decision.
type level struct {
	ahead   int64 // tat - now, in nanoseconds
	wait    int64 // in nanoseconds
	mark    int64 // of the charge, in the store's own measure
	changes uint32
	number  int64 // of the answer that said so
}

// ruling is what the store said.
type ruling struct {
	outcome             int64
	key, payer, bucket  level
	ofTenant, ofService int64 // slots in use
	uses                []int64
}

func readRuling(a Answer) (r ruling) {
	v := a.Values
	r.outcome = v[0]
	levels := []*level{&r.key, &r.payer, &r.bucket}
	if r.outcome == outcomeByKey {
		levels = levels[:1]
	}
	for i, l := range levels {
		f := v[1+4*i:]
		*l = level{ahead: f[0] * 1000, wait: f[1] * 1000, mark: f[2], changes: uint32(f[3]), number: a.Number}
	}
	if r.outcome != outcomeByKey {
		r.ofTenant, r.ofService, r.uses = v[13], v[14], v[15:]
	}
	return r
}

// charge is what the store took of r.
func (l level) charge(r *Ref, now int64) Charge {
	return Charge{ref: r, spent: spent{at: now, tat: now + l.ahead, refunded: l.mark, changes: l.changes}}
}

// verdict puts a ruling into the form that every limiter's has. hold is for how long
// slots were held lately: of tenant, service and process.
func (q *inquiry) verdict(r *ruling, hold [3]int64) (v Verdict) {
	a, pending := q.call, q.key.Deferred()
	if r.outcome == outcomeByKey {
		v.sample(q.key.ref.kind, inMicros(q.key.ref.limit), r.key.ahead)
		v.refuse(RateLimited, q.key.ref.kind, time.Duration(r.key.wait))
		return v
	}
	if pending && (r.outcome == outcomeAdmitted || r.outcome == outcomeQueued) {
		v.sample(q.key.ref.kind, inMicros(q.key.ref.limit), r.key.ahead)
	}
	v.bucket(a.payer(), r.payer)
	v.bucket(a.Bucket, r.bucket)
	q.readUses(&v, r)
	if a.TunnelBytes > 0 {
		v.refuse(RateLimited, KindTunnelBytes, a.TunnelBytes)
	}
	q.slots(&v, r, hold)
	switch r.outcome {
	case outcomeQueued:
		v.Outcome = Queued
	case outcomeByKeyForSlots:
		v.Outcome, v.Limit, v.Wait = RateLimited, q.key.ref.kind, time.Duration(r.key.wait)
		v.violate(q.key.ref.kind)
	}
	if v.Outcome != Admitted && v.Outcome != Queued && q.key.ref != nil && q.key.entry == nil {
		l := inMicros(q.key.ref.limit)
		v.Wait = max(v.Wait, time.Duration(decide(l, r.key.ahead, 0, 1).wait))
		v.sample(q.key.ref.kind, l, r.key.ahead)
	}
	return v
}

// payer is whose token the call takes: its tenant's, or that of a caller who has none.
func (a *Admission) payer() *Ref {
	if a.Tenant == nil {
		return a.Caller
	}
	return a.Tenant
}

func (v *Verdict) bucket(r *Ref, l level) {
	if r == nil || r.limit.Unlimited() {
		return
	}
	if l.wait > 0 {
		v.refuse(RateLimited, r.kind, time.Duration(l.wait))
	}
	v.sample(r.kind, inMicros(r.limit), l.ahead)
}

// slots names the caps that refuse, and tells how many slots are in use.
func (q *inquiry) slots(v *Verdict, r *ruling, hold [3]int64) {
	a := q.call
	has := func(k Kind) bool { return q.starved != nil && q.starved.violated&(1<<k) != 0 }
	lacks := r.outcome != outcomeAdmitted && q.how != takePaid
	most := a.holder().slots
	if a.Tenant != nil && (has(KindTenantSlots) || lacks && full(r.ofTenant, most)) {
		v.refuse(ConcurrencyLimited, KindTenantSlots, slotWait(hold[0], most))
	}
	if has(KindServiceSlots) || lacks && full(r.ofService, a.Service.slots) {
		v.refuse(ConcurrencyLimited, KindServiceSlots, slotWait(hold[1], a.Service.slots))
	}
	if has(KindProcessSlots) {
		v.refuse(ConcurrencyLimited, KindProcessSlots, slotWait(hold[2], a.Process))
	}
	if a.Tenant != nil {
		v.sampleSlots(KindTenantSlots, r.ofTenant, most)
	}
	v.sampleSlots(KindServiceSlots, r.ofService, a.Service.slots)
}

// readUses has the rules say how they stand.
func (q *inquiry) readUses(v *Verdict, r *ruling) {
	pays := r.outcome == outcomeAdmitted || r.outcome == outcomeQueued
	for i := range q.call.Uses {
		u, f := &q.call.Uses[i], r.uses[4*i:]
		u.asked, u.used, u.left, u.refused, u.at = true, f[0], f[1]*1000, f[2] == 1, f[3]
		if u.refused && !u.Rule.observe {
			v.refuseByRule(u.Rule.id.name, time.Duration(u.left), !fits(0, u.Count, u.Max))
		}
		u.counted = pays && q.how != takeSlots && !u.refused && u.Count > 0
	}
}
