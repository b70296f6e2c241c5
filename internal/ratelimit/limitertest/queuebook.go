package limitertest

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

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
	pass             map[string]*big.Rat // of tenants, when they were last served
	waits            map[string]*big.Rat // the same while they wait
	served           *big.Rat            // the pass of the one that was served last, before it was
}

type bookCall struct {
	tenant, service string
	granted         bool
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
func (b *queueBook) settle() {
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
		for _, c := range first[1:] { // in the order in which they came
			if b.precedes(c, next, first) {
				next = c
			}
		}
		b.served = b.waits[next.tenant]
		for _, c := range first { // what they had before delays them by 16 turns at most
			if most := b.turnsAfter(16, b.served, c.tenant); b.waits[c.tenant].Cmp(most) > 0 {
				b.waits[c.tenant] = most
			}
		}
		b.waits[next.tenant] = b.turnsAfter(1, b.served, next.tenant)
		b.pass[next.tenant] = b.waits[next.tenant]
		b.drop(next)
		next.granted = true
		b.running = append(b.running, next)
	}
}

func (b *queueBook) precedes(c, o *bookCall, rivals []*bookCall) bool {
	if x, y := b.hasShareOfProcess(c, rivals), b.hasShareOfProcess(o, rivals); x != y {
		return y
	}
	if x, y := b.hasShareOfService(c, rivals), b.hasShareOfService(o, rivals); x != y {
		return y
	}
	return b.waits[c.tenant].Cmp(b.waits[o.tenant]) < 0
}

// hasShare reports whether a tenant holds, of what rivals hold and could hold of a
// pool together, no less than belongs to its weight.
func (b *queueBook) hasShare(c *bookCall, rivals []*bookCall, free int64, holds func(tenant string) int64) bool {
	whole, weights := free, int64(0)
	for _, r := range rivals {
		whole += holds(r.tenant)
		weights += b.weights[r.tenant]
	}
	share := new(big.Rat).Mul(big.NewRat(whole, 1), big.NewRat(b.weights[c.tenant], weights))
	return big.NewRat(holds(c.tenant), 1).Cmp(share) >= 0
}

func (b *queueBook) hasShareOfProcess(c *bookCall, rivals []*bookCall) bool {
	if b.process == 0 {
		return false
	}
	return b.hasShare(c, rivals, b.process-int64(len(b.running)), func(t string) int64 { return b.ofTenant(b.running, t) })
}

func (b *queueBook) hasShareOfService(c *bookCall, rivals []*bookCall) bool {
	most := b.service[c.service]
	if most == 0 {
		return false
	}
	rivals = slices.DeleteFunc(slices.Clone(rivals), func(o *bookCall) bool { return o.service != c.service })
	return b.hasShare(c, rivals, most-b.atService(c.service, ""), func(t string) int64 { return b.atService(c.service, t) })
}

func (b *queueBook) turnsAfter(n int64, pass *big.Rat, tenant string) *big.Rat {
	return new(big.Rat).Add(pass, big.NewRat(n, b.weights[tenant]))
}

func (b *queueBook) drop(c *bookCall) {
	b.waiting = slices.DeleteFunc(b.waiting, func(o *bookCall) bool { return o == c })
}

// arrive is a call that comes, with its outcome.
func (b *queueBook) arrive(c *bookCall, queue int64) ratelimit.Outcome {
	switch {
	case b.couldRun(c):
		b.running = append(b.running, c)
		return ratelimit.Admitted
	case b.ofTenant(b.waiting, c.tenant) >= queue:
		return ratelimit.ConcurrencyLimited
	}
	if b.ofTenant(b.waiting, c.tenant) == 0 {
		b.waits[c.tenant] = b.served
		if own := b.pass[c.tenant]; own != nil && own.Cmp(b.served) > 0 {
			b.waits[c.tenant] = own
		}
	}
	b.waiting = append(b.waiting, c)
	return ratelimit.Queued
}

// view is what a call brings: the caps as they stood when it came.
type view struct {
	caps    *ratelimit.Caps
	tenant  func(name string) *ratelimit.Ref
	service func(name string) *ratelimit.Service
}

func newView(tenants, services, weights map[string]int64, process int64) (v view) {
	v.tenant = func(name string) *ratelimit.Ref {
		return tenant(name, ratelimit.Limit{}, tenants[name]).Weighing(int(weights[name]))
	}
	v.service = func(name string) *ratelimit.Service { return ratelimit.NewService(name, services[name]) }
	v.caps = &ratelimit.Caps{
		Process: process,
		Tenant:  func(r *ratelimit.Ref) *ratelimit.Ref { return v.tenant(r.Partition()) },
		Service: func(s *ratelimit.Service) *ratelimit.Service { return v.service(s.Name()) },
	}
	return v
}

func (v view) admission(c *bookCall) ratelimit.Admission {
	return ratelimit.Admission{Tenant: v.tenant(c.tenant), Service: v.service(c.service), Process: v.caps.Process, Under: v.caps}
}

// queueAgainstANaiveBook drives calls of several tenants and services that come, some
// with caps that hold no longer, wait, leave, give up and end, under caps that change,
// and compares after each step who runs. So nobody is ever left waiting who could run, and nobody runs past a cap.
func queueAgainstANaiveBook(t *testing.T, make Maker) {
	rapid.Check(t, func(t *rapid.T) {
		s := make(t)
		most := func(label string) int64 { return rapid.Int64Range(0, 4).Draw(t, label) }
		pick := func(n int, label string) int { return rapid.IntRange(0, n-1).Draw(t, label) }
		tenants, services := []string{"a", "b", "c"}, []string{"x", "y"}
		b := &queueBook{
			weights: map[string]int64{}, tenants: map[string]int64{}, service: map[string]int64{}, process: most("process"),
			pass: map[string]*big.Rat{}, waits: map[string]*big.Rat{}, served: new(big.Rat),
		}
		for _, name := range tenants {
			b.weights[name], b.tenants[name] = rapid.SampledFrom([]int64{1, 2, 4}).Draw(t, "weight"), most("cap")
		}
		for _, name := range services {
			b.service[name] = most("cap")
		}
		var views []view
		follow := func() {
			now := newView(maps.Clone(b.tenants), maps.Clone(b.service), b.weights, b.process)
			s.Follow(now.caps)
			views = append(views, now)
		}
		follow()
		for step := range rapid.IntRange(1, 80).Draw(t, "steps") {
			op := rapid.SampledFrom([]string{"arrive", "arrive", "arrive", "release", "release", "leave", "end", "caps"}).Draw(t, "op")
			switch {
			case op == "arrive":
				c := &bookCall{tenant: tenants[pick(3, "tenant")], service: services[pick(2, "service")]}
				queue := most("queue")
				want := b.arrive(c, queue)
				of := views[len(views)-1-pick(min(3, len(views)), "how stale")]
				ticket, p, v := s.Enter(ratelimit.Charge{}, of.admission(c), queue, s.Now())
				if v.Outcome != want {
					t.Fatalf("step %d: %s at %s: %v by %v, want %v", step, c.tenant, c.service, v.Outcome, v.Limit, want)
				}
				c.ticket, c.place = ticket, p
			case op == "release" && len(b.running) > 0:
				i := pick(len(b.running), "which")
				c := b.running[i]
				if c.granted && rapid.Bool().Draw(t, "leaves") { // and never says that it has its slots
					c.place.Leave(s.Now())
				} else {
					if c.granted {
						var v ratelimit.Verdict
						if c.ticket, v = c.place.End(s.Now()); v.Outcome != ratelimit.Admitted {
							t.Fatalf("step %d: granted, and then %v", step, v.Outcome)
						}
					}
					c.ticket.Release()
				}
				b.running = slices.Delete(b.running, i, i+1)
			case op == "leave" && len(b.waiting) > 0:
				c := b.waiting[pick(len(b.waiting), "which")]
				c.place.Leave(s.Now())
				b.drop(c)
			case op == "end" && len(b.waiting) > 0:
				c := b.waiting[pick(len(b.waiting), "which")]
				if _, v := c.place.End(s.Now()); v.Outcome != ratelimit.ConcurrencyLimited || !b.fullByName(c)[v.Limit] {
					t.Fatalf("step %d: gives up: %v by %v, full are %v", step, v.Outcome, v.Limit, b.fullByName(c))
				}
				b.drop(c)
			case op == "caps":
				switch pick(3, "whose") {
				case 0:
					b.tenants[tenants[pick(3, "tenant")]] = most("cap")
				case 1:
					b.service[services[pick(2, "service")]] = most("cap")
				default:
					b.process = most("cap")
				}
				follow()
			}
			b.settle()
			for _, c := range b.running {
				if c.place != nil && !ready(c.place) {
					t.Fatalf("step %d, %s: %s waits at %s and could run: %s", step, op, c.tenant, c.service, b)
				}
			}
			for _, c := range b.waiting {
				if ready(c.place) {
					t.Fatalf("step %d, %s: %s runs at %s out of turn: %s", step, op, c.tenant, c.service, b)
				}
			}
		}
	})
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
