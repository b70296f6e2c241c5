package limitertest

import (
	"fmt"
	"slices"

	"agentgw/internal/ratelimit"
)

// queueBook is the naive account of slots and of those that wait for them: lists,
// looked through from the beginning, and fractions. It knows no locks, lanes or
// numbers that are kept in step.
type queueBook struct {
	weights map[string]int64
	tenants map[string]int64 // caps, by name; 0 is none
	service map[string]int64
	process int64

	running, waiting []*bookCall
	ended            []*bookCall
	hold             map[string]int64     // for how long a tenant's calls last, a moving average
	passes           map[stand]*standPass // of tenants that have waited
	pools            map[string]int64     // the passes of pools
}

type bookCall struct {
	tenant, service string
	granted         bool
	began, ended    int64
	place           *ratelimit.Place
	ticket          ratelimit.Ticket
}

func (b *queueBook) count(list []*bookCall, in func(*bookCall) bool) (n int64) {
	for _, c := range list {
		if in(c) {
			n++
		}
	}
	return n
}

func (b *queueBook) ofTenant(list []*bookCall, name string) int64 {
	return b.count(list, func(c *bookCall) bool { return c.tenant == name })
}

func (b *queueBook) atService(name, tenant string) int64 {
	return b.count(b.running, func(c *bookCall) bool { return c.service == name && (tenant == "" || c.tenant == tenant) })
}

// couldRun reports whether no cap is in the way of a call.
func (b *queueBook) couldRun(c *bookCall) bool {
	room := func(most, used int64) bool { return most == 0 || used < most }
	return room(b.tenants[c.tenant], b.ofTenant(b.running, c.tenant)) &&
		room(b.service[c.service], b.atService(c.service, "")) && room(b.process, int64(len(b.running)))
}

// settle has whoever waits and could run do so, one after the other.
func (b *queueBook) settle(now int64) {
	for {
		var first []*bookCall // of each tenant that could use a slot
		for _, c := range b.waiting {
			if b.couldRun(c) && !slices.ContainsFunc(first, func(o *bookCall) bool { return o.tenant == c.tenant }) {
				first = append(first, c)
			}
		}
		if len(first) == 0 {
			return
		}
		next := first[0]
		if pool, most, rivals := b.rivals(first); most > 0 {
			b.advance(pool, rivals, now)
			for _, c := range rivals[1:] { // in the order in which they came
				if b.precedes(c, next, pool, first, now) {
					next = c
				}
			}
		}
		if b.process > 0 {
			b.served(stand{next.tenant, ""}, now)
		}
		if b.service[next.service] > 0 {
			b.served(stand{next.tenant, next.service}, now)
		}
		b.drop(next)
		next.granted, next.began = true, now
		b.running = append(b.running, next)
	}
}

func (b *queueBook) drop(c *bookCall) {
	b.waiting = slices.DeleteFunc(b.waiting, func(o *bookCall) bool { return o == c })
}

// arrive is a call that comes, with its outcome.
func (b *queueBook) arrive(c *bookCall, queue, now int64) ratelimit.Outcome {
	switch {
	case b.couldRun(c):
		c.began = now
		b.running = append(b.running, c)
		return ratelimit.Admitted
	case b.ofTenant(b.waiting, c.tenant) >= queue:
		return ratelimit.ConcurrencyLimited
	}
	b.waiting = append(b.waiting, c)
	return ratelimit.Queued
}

// release is a call that ends.
func (b *queueBook) release(c *bookCall, now int64) {
	c.ended = now
	b.hold[c.tenant] += (now - c.began - b.hold[c.tenant]) / 8
	b.running = slices.DeleteFunc(b.running, func(o *bookCall) bool { return o == c })
	b.ended = append(b.ended, c)
}

// fullByName is which caps are in a call's way.
func (b *queueBook) fullByName(c *bookCall) map[ratelimit.Kind]bool {
	full := func(most, used int64) bool { return most > 0 && used >= most }
	return map[ratelimit.Kind]bool{
		ratelimit.KindTenantSlots:  full(b.tenants[c.tenant], b.ofTenant(b.running, c.tenant)),
		ratelimit.KindServiceSlots: full(b.service[c.service], b.atService(c.service, "")),
		ratelimit.KindProcessSlots: full(b.process, int64(len(b.running))),
	}
}

func (b *queueBook) String() string {
	list := func(calls []*bookCall) (text string) {
		for _, c := range calls {
			text += " " + c.tenant + c.service
		}
		return text
	}
	return fmt.Sprintf("caps %v %v %d, weights %v, running%s, waiting%s", b.tenants, b.service, b.process, b.weights, list(b.running), list(b.waiting))
}
