package limitertest

import (
	"testing"

	"agentgw/internal/ratelimit"
)

// scene is one tenant at one service, with all three caps.
type scene struct{ tenant, service, process int64 }

// with is the scene with another cap, of tenant, service or process.
func (c scene) with(which string, n int64) scene {
	*map[string]*int64{"tenant": &c.tenant, "service": &c.service, "process": &c.process}[which] = n
	return c
}

// caps are those of the scene, for whoever asks.
func (c scene) caps() *ratelimit.Caps {
	return &ratelimit.Caps{
		Process: c.process,
		Tenant: func(r *ratelimit.Ref) *ratelimit.Ref {
			return tenant(r.Partition(), ratelimit.Limit{Interval: 1, Burst: 1}, c.tenant)
		},
		Service: func(s *ratelimit.Service) *ratelimit.Service { return ratelimit.NewService(s.Name(), c.service) },
	}
}

// call is one of a tenant of its own rate, under the caps of the scene.
func (c scene) call(name string, under *ratelimit.Caps) ratelimit.Admission {
	return ratelimit.Admission{
		Tenant:  tenant(name, ratelimit.Limit{Interval: 3600 * second, Burst: 100}, c.tenant),
		Service: ratelimit.NewService("s", c.service), Process: c.process, Under: under,
	}
}

var aCapOfEach = []string{"tenant", "service", "process"}

// quota is the cap of a kind of slots that a verdict tells of; 0 is none.
func quota(v ratelimit.Verdict, which string) (n int64) {
	for r := range v.Readings() {
		if r.Gauge && r.Kind.String() == which {
			n = r.Quota
		}
	}
	return n
}

// aLoweredCapHoldsForAll: calls that came under a wider cap, or before there was one,
// are held to the one in force, whether others wait or nobody does, and while some wait
// they come after them. What they are charged stays what they came with.
func aLoweredCapHoldsForAll(t *testing.T, make Maker) {
	for _, which := range aCapOfEach {
		for _, was := range []int64{10, 0} {
			for _, waits := range []bool{false, true} {
				s := make(t)
				wide := scene{}.with(which, was)
				before := wide.caps()
				s.Follow(before)
				stale := wide.call("t", before)
				var running []ratelimit.Ticket
				for range 5 {
					running = append(running, s.running(t, stale))
				}
				narrow := scene{}.with(which, 2)
				s.Follow(narrow.caps())
				var places []*ratelimit.Place
				if waits {
					places = append(places, s.waiting(t, narrow.call("t", nil)))
				}
				left := s.left(stale.Tenant)
				if ticket, _, v := s.Enter(ratelimit.Charge{}, stale, 0, s.Now()); v.Outcome != ratelimit.ConcurrencyLimited ||
					v.Limit.String() != which || quota(v, which) != 2 || ticket != (ratelimit.Ticket{}) {
					t.Errorf("%s from %d to 2, with 5 running: %v by %v, told of a cap of %d", which, was, v.Outcome, v.Limit, quota(v, which))
				}
				places = append(places, s.waiting(t, stale))
				if now := s.left(stale.Tenant); now != left-1 {
					t.Errorf("%s: %d tokens of %d, by its own rate", which, now, left)
				}
				all := "00"[:len(places)]
				for _, ticket := range running[:3] {
					ticket.Release()
					wantReady(t, which+": not below yet", all, places...)
				}
				running[3].Release()
				wantReady(t, which+": below by one", "10"[:len(places)], places...)
				running[4].Release()
				wantReady(t, which+": by two", "11"[:len(places)], places...)
			}
		}
	}
}

// aRaisedCapHoldsForAll, who came before it was raised too; and a call that comes
// under one that is not in force yet is held to what is.
func aRaisedCapHoldsForAll(t *testing.T, make Maker) {
	for _, which := range aCapOfEach {
		s := make(t)
		narrow, wide := scene{}.with(which, 1), scene{}.with(which, 2)
		before, after := narrow.caps(), wide.caps()
		s.Follow(before)
		s.running(t, narrow.call("t", before))
		p := s.waiting(t, wide.call("t", after))
		s.Follow(after)
		wantReady(t, which, "1", p)
		p.Leave(s.Now())
		_, _, v := s.Enter(ratelimit.Charge{}, narrow.call("t", before), 0, s.Now())
		if v.Outcome != ratelimit.Admitted || quota(v, which) != 2 {
			t.Errorf("%s: %v under the cap of before, told of %d", which, v.Outcome, quota(v, which))
		}
	}
}

// running makes a call, as it is, that must be admitted at once.
func (s Subject) running(t TB, a ratelimit.Admission) ratelimit.Ticket {
	t.Helper()
	ticket, _, v := s.Enter(ratelimit.Charge{}, a, 0, s.Now())
	if v.Outcome != ratelimit.Admitted {
		t.Fatalf("%v by %v", v.Outcome, v.Limit)
	}
	return ticket
}

// waiting makes a call, as it is, that must wait.
func (s Subject) waiting(t TB, a ratelimit.Admission) *ratelimit.Place {
	t.Helper()
	_, p, v := s.Enter(ratelimit.Charge{}, a, many, s.Now())
	if v.Outcome != ratelimit.Queued || ready(p) {
		t.Fatalf("%v by %v, want it to wait", v.Outcome, v.Limit)
	}
	return p
}
