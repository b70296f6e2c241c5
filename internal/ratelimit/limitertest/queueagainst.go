package limitertest

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"agentgw/internal/ratelimit"
)

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
	long(t)
	rapid.Check(t, func(t *rapid.T) {
		s := make(t)
		most := func(label string) int64 { return rapid.Int64Range(0, 4).Draw(t, label) }
		pick := func(n int, label string) int { return rapid.IntRange(0, n-1).Draw(t, label) }
		tenants, services := []string{"a", "b", "c"}, []string{"x", "y"}
		b := &queueBook{
			weights: map[string]int64{}, tenants: map[string]int64{}, service: map[string]int64{}, process: most("process"),
			hold: map[string]int64{}, passes: map[stand]*standPass{}, pools: map[string]int64{},
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
			op := rapid.SampledFrom([]string{"arrive", "arrive", "arrive", "release", "release", "pass", "leave", "end", "caps"}).Draw(t, "op")
			switch {
			case op == "pass":
				advance(t, s, 10)
			case op == "arrive":
				c := &bookCall{tenant: tenants[pick(3, "tenant")], service: services[pick(2, "service")]}
				queue := most("queue")
				want := b.arrive(c, queue, s.Now())
				of := views[len(views)-1-pick(min(3, len(views)), "how stale")]
				ticket, p, v := s.Enter(ratelimit.Charge{}, of.admission(c), queue, s.Now())
				if v.Outcome != want {
					t.Fatalf("step %d: %s at %s: %v by %v, want %v", step, c.tenant, c.service, v.Outcome, v.Limit, want)
				}
				c.ticket, c.place = ticket, p
			case op == "release" && len(b.running) > 0:
				c := b.running[pick(len(b.running), "which")]
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
				b.release(c, s.Now())
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
			b.settle(s.Now())
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
