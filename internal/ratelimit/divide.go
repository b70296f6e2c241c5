package ratelimit

import (
	"errors"
	"sync"
	"time"
)

// What a call needs lies under several tags: the key's, the tenant's with its slots, that
// of the key at the service, the service's slots, and each rule's. A store whose tags may
// lie on different servers cannot decide them in one step. There the same script runs once
// for each tag, with what the call needs of that one: first for the key, as in every other
// place, then for all others at once; and what some have given is given back if another
// refuses or fails. So a call that is to be refused may, for as long as a round trip
// takes, stand in the way of another; but no limit ever lets more pass.

// part is what of a call lies under one tag.
type part struct {
	inquiry
	rule int // which of the rules it is of; -1: none
	job  Job
	ruling
	err error
}

// divide decides a call tag by tag.
func (s *Shared) divide(q *inquiry, now int64) (all ruling, err error) {
	left := time.Duration(0)
	key := q.key
	if key.Deferred() {
		answer, err := s.store.Ask(oneTag((&inquiry{key: key, call: &Admission{Service: &nowhere}, how: takeAll, noFree: true}).job(now)))
		if err != nil {
			return all, err
		}
		left, all = answer.Left, readRuling(answer)
		if all.outcome == outcomeByKey {
			return all, nil
		}
		key = all.key.charge(key.ref, now)
	}
	parts := q.parts(now, false)
	rest, err := s.askParts(parts, left)
	if errors.Is(err, ErrScattered) {
		t, _ := s.given(q, parts)
		s.tellBack(t)
		q.lease = s.leases.newID() // what is told of the one before may come late
		parts = q.parts(now, true)
		rest, err = s.askParts(parts, left)
	}
	if left = rest; err != nil {
		t, _ := s.given(q, parts)
		if q.key.Deferred() {
			t.of[0] = &key
		}
		s.tellBack(t)
		return all, err
	}
	all.merge(q, parts)
	switch {
	case all.outcome == outcomeQueued && q.how == takeEither: // it waits for some of its slots without the others
		all.without(q, s.dropSlots(q, parts))
		return all, nil
	case all.outcome == outcomeAdmitted || all.outcome == outcomeQueued:
		return all, nil
	}
	// The key's part and all others are different fields of the ruling.
	var both sync.WaitGroup
	if all.outcome == outcomeBySlots && key.ref != nil && key.entry == nil && q.how != takeSlots {
		both.Go(func() { s.refuseKey(&all, key, left, now) })
	}
	s.restore(q, &all, parts, left)
	both.Wait()
	return all, nil
}

// parts are what lies under each tag but for the key's; or, scattered, what lies under each
// name.
func (q *inquiry) parts(now int64, scattered bool) (list []*part) {
	a := q.call
	how, starved := q.how, q.starved
	if a.TunnelBytes > 0 && how != takeSlots { // it is refused for that, and is to be told of the rest
		how, starved = takeNone, &Verdict{}
	}
	add := func(of Admission, rule int, sets ...string) {
		of.Service = a.Service
		p := &part{inquiry: inquiry{call: &of, how: how, lease: q.lease, service: q.service, sets: sets, starved: starved, waited: q.waited}, rule: rule}
		p.job = oneTag(p.inquiry.job(now))
		list = append(list, p)
	}
	var ofTenant, ofService []string
	for _, set := range q.sets {
		if set == q.service {
			ofService = append(ofService, set)
		} else {
			ofTenant = append(ofTenant, set)
		}
	}
	pays := a.payer() != nil && !a.payer().limit.Unlimited()
	if scattered && pays && ofTenant != nil {
		add(Admission{Tenant: a.Tenant, Caller: a.Caller}, -1)
		add(Admission{Tenant: NewTenant(a.Tenant.table, a.Tenant.partition, Limit{}, a.holder().slots)}, -1, ofTenant...)
	} else if pays || ofTenant != nil {
		add(Admission{Tenant: a.Tenant, Caller: a.Caller, capped: a.capped}, -1, ofTenant...)
	}
	if a.Bucket != nil && !a.Bucket.limit.Unlimited() {
		add(Admission{Bucket: a.Bucket}, -1)
	}
	if ofService != nil {
		add(Admission{}, -1, ofService...)
	}
	for i := range a.Uses {
		add(Admission{Uses: a.Uses[i : i+1 : i+1]}, i)
	}
	if q.key.ref != nil && q.key.entry == nil && !q.key.Deferred() { // it has paid before: how does its bucket stand?
		p := &part{inquiry: inquiry{key: q.key, call: &Admission{Service: &nowhere}, how: takePaid, noFree: true}, rule: -1}
		p.job = oneTag(p.inquiry.job(now))
		list = append(list, p)
	}
	return list
}

// askParts asks them all at once, and returns how long the next question may take.
func (s *Shared) askParts(parts []*part, left time.Duration) (time.Duration, error) {
	jobs := make([]Job, len(parts))
	for i, p := range parts {
		p.job.Within = left
		jobs[i] = p.job
	}
	answers, errs := s.askAll(jobs)
	var failed error
	for i, p := range parts {
		if p.err = errs[i]; p.err != nil {
			failed = p.err
			continue
		}
		p.ruling, left = readRuling(answers[i]), answers[i].Left
	}
	return left, failed
}

// askAll asks several jobs at once.
func (s *Shared) askAll(jobs []Job) ([]Answer, []error) {
	answers, errs := make([]Answer, len(jobs)), make([]error, len(jobs))
	var all sync.WaitGroup
	for i := 1; i < len(jobs); i++ {
		all.Go(func() { answers[i], errs[i] = s.store.Ask(jobs[i]) })
	}
	if len(jobs) > 0 {
		answers[0], errs[0] = s.store.Ask(jobs[0])
	}
	all.Wait()
	return answers, errs
}

// merge puts together what the parts say.
func (r *ruling) merge(q *inquiry, parts []*part) {
	byRate, bySlots, waits := q.call.TunnelBytes > 0 && q.how != takeSlots, q.starved != nil, q.how == takeTokens
	r.uses = make([]int64, 4*len(q.call.Uses))
	for _, p := range parts {
		byRate = byRate || p.outcome == outcomeByRate
		bySlots = bySlots || p.outcome == outcomeBySlots
		waits = waits || p.outcome == outcomeQueued
		switch a := p.inquiry.call; {
		case p.rule >= 0:
			copy(r.uses[4*p.rule:], p.uses)
		case p.inquiry.key.ref != nil:
			r.key = p.ruling.key
		case a.Bucket != nil:
			r.bucket = p.bucket
		case a.Tenant == nil && a.Caller == nil:
			r.ofService = p.ofService
		default:
			if by := a.payer(); by != nil && !by.limit.Unlimited() {
				r.payer = p.payer
			}
			if len(p.sets) > 0 {
				r.ofTenant = p.ofTenant
			}
		}
	}
	switch {
	case byRate:
		r.outcome = outcomeByRate
	case waits:
		r.outcome = outcomeQueued
	case bySlots && q.how != takePaid:
		r.outcome = outcomeBySlots
	default:
		r.outcome = outcomeAdmitted
	}
}

// taken are what a part of the call has given.
func (p *part) taken(into *taken, sets []string) []string {
	if p.err != nil || p.outcome != outcomeAdmitted && p.outcome != outcomeQueued {
		return sets
	}
	if p.how != takePaid && p.outcome == outcomeAdmitted {
		sets = append(sets, p.sets...)
	}
	if p.how == takeSlots {
		return sets
	}
	charge := func(r *Ref, l level) *Charge {
		if r == nil || r.limit.Unlimited() {
			return nil
		}
		c := l.charge(r, 0)
		return &c
	}
	if c := charge(p.call.payer(), p.payer); c != nil {
		into.of[1] = c
	}
	if c := charge(p.call.Bucket, p.bucket); c != nil {
		into.of[2] = c
	}
	if p.rule >= 0 && p.uses[2] == 0 && p.call.Uses[0].Count > 0 {
		u := p.call.Uses[0]
		u.at, u.counted = p.uses[3], true
		into.uses = append(into.uses, u)
	}
	return sets
}

// given is all that the parts have given.
func (s *Shared) given(q *inquiry, parts []*part) (t *taken, sets []string) {
	t = &taken{}
	for _, p := range parts {
		sets = p.taken(t, sets)
		if p.err == nil && p.outcome == outcomeQueued && q.how == takeEither {
			s.restand(p.sets)
		}
	}
	s.leases.drop(q.lease, sets)
	return t, sets
}

// dropSlots gives back the slots that the parts have given, and returns of which sets.
func (s *Shared) dropSlots(q *inquiry, parts []*part) (sets []string) {
	for _, p := range parts {
		sets = p.taken(&taken{}, sets)
	}
	s.leases.drop(q.lease, sets)
	return sets
}

// without has a ruling be what it is without the slots of some sets.
func (r *ruling) without(q *inquiry, sets []string) {
	for _, set := range sets {
		if set == q.service {
			r.ofService--
		} else {
			r.ofTenant--
		}
	}
}

// restore gives back what some gave of a call that others refuse, and has the ruling say
// how they stand after that.
func (s *Shared) restore(q *inquiry, r *ruling, parts []*part, left time.Duration) {
	t, sets := s.given(q, parts)
	r.without(q, sets)
	if t.of == ([3]*Charge{}) && t.uses == nil {
		return
	}
	answer, err := s.giveBack(t, left)
	if err != nil {
		s.options.Failed(err)
		return
	}
	v := answer.Values
	for i, l := range []*level{nil, &r.payer, &r.bucket} {
		if i > 0 && t.of[i] != nil {
			l.ahead, l.number = v[3+3*i]*1000, answer.Number
		}
	}
	for i := range t.uses {
		for j := range q.call.Uses {
			if u := &q.call.Uses[j]; u.Rule == t.uses[i].Rule && u.Partition == t.uses[i].Partition {
				r.uses[4*j], r.uses[4*j+1] = v[10+2*i], v[11+2*i]
			}
		}
	}
}

// refuseKey has the key be refused for want of a slot, which it may be for free.
func (s *Shared) refuseKey(r *ruling, key Charge, left time.Duration, now int64) {
	job := oneTag((&inquiry{key: key, call: &Admission{Service: &nowhere}, how: takeAll, starved: &Verdict{}}).job(now))
	job.Within = left
	answer, err := s.store.Ask(job)
	if err != nil {
		if !errors.Is(err, ErrScattered) { // where what is free cannot be counted now, and the refusal is
			s.options.Failed(err)
		}
		s.tellBack(&taken{of: [3]*Charge{&key}})
		return
	}
	ofKey := readRuling(answer)
	r.key, r.outcome = ofKey.key, ofKey.outcome
}

// oneTag has what a job does not need be called as what it needs is: a cluster looks at all
// names, and so does a server whose user may have those of this program alone.
func oneTag(j Job) Job {
	used := nameless
	for _, name := range j.Keys {
		if name != "" {
			used = name
			break
		}
	}
	for i := range j.Keys {
		if j.Keys[i] == "" {
			j.Keys[i] = used
		}
	}
	return j
}
