package gateway

import (
	"net/http"
	"sync"

	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
)

// siblings are the slots that the calls of one batch hold. A batch refuses none of its
// calls for want of a slot that another of them has: that one ends, and the call comes
// next. What others hold is another matter: there a call of a batch stands as it would
// by itself, and is refused or waits in the queue, of which a batch takes one place.
type siblings struct {
	// Held while one of them is decided, so that another that is refused for what it
	// took can know that.
	mu       sync.Mutex
	tenants  map[string]int // calls that hold a slot of a tenant's, or wait for it, by its partition key
	services map[string]int // the same calls, by service
	all      int
	ended    chan struct{} // closed when the next of them gives its slots back
}

// enter is the limiter's Enter for a call that may be one of a batch, and then waits
// for others of it.
func (g *Gateway) enter(call *Call, charge ratelimit.Charge, a ratelimit.Admission, at *attempt) (ratelimit.Ticket, *ratelimit.Place, ratelimit.Verdict, *Error) {
	if call.part == nil {
		ticket, place, v := g.limiter.Enter(charge, a, call.queue(), g.nanos.Nanos())
		return ticket, place, v, nil
	}
	began := g.clock.Now()
	for {
		ticket, place, v, ended := call.part.enter(a, call.queue(), func(queue int64) (ratelimit.Ticket, *ratelimit.Place, ratelimit.Verdict) {
			return g.limiter.Enter(charge, a, queue, g.nanos.Nanos())
		})
		if ended == nil {
			g.withKey(call, &v)
			return ticket, place, v, nil
		}
		select {
		case <-ended:
			at.queued = g.clock.Now().Sub(began)
		case <-call.In.Context().Done():
			at.ending(receipts.ClientCancelled)
			return ticket, nil, v, &Error{Code: ConcurrencyLimited, Limit: v.Limit.String(), Message: "the caller hung up while the call waited for others of its batch", Err: http.ErrAbortHandler}
		}
		if g.running.isDraining() {
			return ticket, nil, v, draining()
		}
	}
}

// withKey has the wait of a refusal cover the time until the key has a token: its batch has
// paid with one, and whoever makes the call again needs another.
func (g *Gateway) withKey(call *Call, v *ratelimit.Verdict) {
	if v.Outcome != ratelimit.RateLimited && v.Outcome != ratelimit.ConcurrencyLimited {
		return
	}
	if key, _ := g.limiter.Peek(call.account.key, g.nanos.Nanos()); key.Quota > 0 && key.Remaining == 0 {
		v.Wait = max(v.Wait, key.Next)
	}
}

// enter has ask decide p, with a place in the queue where there is nothing of its own
// batch to wait for; else it returns what is closed when there was.
func (p *part) enter(a ratelimit.Admission, queue int64, ask func(queue int64) (ratelimit.Ticket, *ratelimit.Place, ratelimit.Verdict)) (ratelimit.Ticket, *ratelimit.Place, ratelimit.Verdict, <-chan struct{}) {
	s, tenant, service := &p.batch.siblings, a.Tenant.Partition(), a.Service.Name()
	s.mu.Lock()
	defer s.mu.Unlock()
	ticket, place, v := ask(0)
	if v.Outcome == ratelimit.ConcurrencyLimited {
		if s.holdLocked(&v, tenant, service) {
			return ticket, place, v, s.ended
		}
		if queue > 0 {
			ticket, place, v = ask(queue)
		}
	}
	if v.Outcome == ratelimit.Admitted || v.Outcome == ratelimit.Queued {
		p.tenant, p.service, p.holds = tenant, service, true
		s.tenants[tenant]++
		s.services[service]++
		s.all++
	}
	return ticket, place, v, nil
}

// holdLocked reports whether some of them hold slots of what refused a call.
func (s *siblings) holdLocked(v *ratelimit.Verdict, tenant, service string) bool {
	for kind := range v.Violated() {
		switch {
		case kind == ratelimit.KindTenantSlots && s.tenants[tenant] > 0,
			kind == ratelimit.KindServiceSlots && s.services[service] > 0,
			kind == ratelimit.KindProcessSlots && s.all > 0:
			return true
		}
	}
	return false
}

// leave is that p has given its slots back, if it had any. It may come again.
func (p *part) leave() {
	s := &p.batch.siblings
	s.mu.Lock()
	defer s.mu.Unlock()
	if !p.holds {
		return
	}
	p.holds = false
	s.tenants[p.tenant]--
	s.services[p.service]--
	s.all--
	close(s.ended)
	s.ended = make(chan struct{})
}

// release gives the slots of a call back, and tells the others of its batch.
func (call *Call) release(t ratelimit.Ticket) {
	t.Release()
	if call.part != nil {
		call.part.leave()
	}
}
