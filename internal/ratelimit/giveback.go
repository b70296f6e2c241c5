package ratelimit

import (
	"errors"
	"time"
)

// taken is what a call has taken and is to give back.
type taken struct {
	refused bool       // it is refused for want of a slot, which its key may do for free
	of      [3]*Charge // of key, tenant and key at service; nil for none
	uses    []Use
}

// job is the one that gives it back: see queries/refund.lua.
func (t *taken) job() Job {
	keys := make([]string, bare, bare+len(t.uses))
	args := []int64{oneIf(t.refused), 0, 0}
	if t.of[0] != nil {
		r := t.of[0].ref
		free := inMicros(r.limit.times(freeRefusals))
		keys[1], args[1], args[2] = freeName(r), free.Interval/1000, free.Burst
	}
	for i, x := range t.of {
		if x == nil {
			args = append(args, 0, 0, 0)
			continue
		}
		keys[[]int{0, 2, 3}[i]] = bucketName(x.ref)
		args = append(args, 1, x.spent.refunded, int64(x.spent.changes))
	}
	args = append(args, int64(len(t.uses)))
	for i := range t.uses {
		u, n := &t.uses[i], int64(0)
		if u.counted {
			n = u.Count
		}
		keys = append(keys, windowName(u.Rule, u.Partition))
		args = append(args, micros(u.Rule.id.length), n, u.at)
	}
	return Job{Script: refundScript, Keys: keys, Numbers: args}
}

// parts are what of it lies under each tag, and the jobs that give that back.
func (t *taken) parts() (list []*taken, jobs []Job) {
	for i, x := range t.of {
		if x != nil {
			p := &taken{refused: t.refused}
			p.of[i] = x
			list = append(list, p)
		}
	}
	for i := range t.uses {
		list = append(list, &taken{uses: t.uses[i : i+1]})
	}
	for _, p := range list {
		jobs = append(jobs, oneTag(p.job()))
	}
	return list, jobs
}

// giveBack gives it back, and returns what queries/refund.lua does: in one step if the
// store can, and else each part by itself. The answer may take as long as within, or, if
// that is 0, as a decision may.
func (s *Shared) giveBack(t *taken, within time.Duration) (Answer, error) {
	if !s.options.Divided {
		return s.store.Ask(oneTag(t.job()))
	}
	parts, jobs := t.parts()
	for i := range jobs {
		jobs[i].Within = within
	}
	answers, errs := s.askAll(jobs)
	all := Answer{Values: make([]int64, 10+2*len(t.uses))}
	rules := 0
	for i, p := range parts {
		if errs[i] != nil {
			s.tellBack(p)
			continue
		}
		v := answers[i].Values
		all.Number = max(all.Number, answers[i].Number)
		all.Values[0] = max(all.Values[0], v[0])
		for j, x := range p.of {
			if x != nil {
				copy(all.Values[1+3*j:], v[1+3*j:4+3*j])
			}
		}
		if p.uses != nil {
			copy(all.Values[10+2*rules:], v[10:12])
			rules++
		}
	}
	return all, errors.Join(errs...)
}

// tellBack has it be given back by and by. A token comes back once, however often that is
// told; what a rule has counted would come back twice, and stays counted rather, until its
// window is over.
func (s *Shared) tellBack(t *taken) {
	parts, jobs := t.parts()
	for i, p := range parts {
		jobs[i].Once = p.uses != nil
		s.store.Tell(jobs[i])
	}
}
