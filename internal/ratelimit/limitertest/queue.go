package limitertest

import (
	"testing"

	"agentgw/internal/ratelimit"
)

const many = 1 << 30 // more than ever wait

// enter makes a call, without a key's bucket, that may wait.
func (s Subject) enter(a ratelimit.Admission) (ratelimit.Ticket, *ratelimit.Place, ratelimit.Verdict) {
	return s.enterBy(ratelimit.Charge{}, a, many)
}

func (s Subject) enterBy(c ratelimit.Charge, a ratelimit.Admission, queue int64) (ratelimit.Ticket, *ratelimit.Place, ratelimit.Verdict) {
	a.Process = s.process
	return s.Enter(c, a, queue, s.Now())
}

// occupy makes a call that must be admitted at once.
func (s Subject) occupy(t TB, a ratelimit.Admission) ratelimit.Ticket {
	t.Helper()
	ticket, v := s.admit(a)
	if v.Outcome != ratelimit.Admitted {
		t.Fatalf("%v by %v", v.Outcome, v.Limit)
	}
	return ticket
}

// queue makes a call that must wait.
func (s Subject) queue(t TB, a ratelimit.Admission) *ratelimit.Place {
	t.Helper()
	_, p, v := s.enter(a)
	if v.Outcome != ratelimit.Queued || ready(p) {
		t.Fatalf("%v by %v, want it to wait", v.Outcome, v.Limit)
	}
	return p
}

func ready(p *ratelimit.Place) bool {
	select {
	case <-p.Ready():
		return true
	default:
		return false
	}
}

// wantReady holds which places have their slots against a list of 0 and 1.
func wantReady(t TB, what, want string, places ...*ratelimit.Place) {
	t.Helper()
	got := ""
	for _, p := range places {
		got += map[bool]string{true: "1", false: "0"}[ready(p)]
	}
	if got != want {
		t.Errorf("%s: %s have their slots, want %s", what, got, want)
	}
}

// firstComeFirstServed within a tenant, except that one who waits for a service that
// is full holds up none who waits for another.
func firstComeFirstServed(t *testing.T, make Maker) {
	s := make(t)
	tenant := tenant("t", ratelimit.Limit{}, 2)
	full, wide := ratelimit.NewService("full", 1), ratelimit.NewService("wide", 0)
	atFull, atWide := ratelimit.Admission{Tenant: tenant, Service: full}, ratelimit.Admission{Tenant: tenant, Service: wide}
	one, two := s.occupy(t, atFull), s.occupy(t, atWide)
	var waiting []*ratelimit.Place
	for _, a := range []ratelimit.Admission{atFull, atWide, atFull, atWide, atWide} {
		waiting = append(waiting, s.queue(t, a))
	}
	two.Release()
	wantReady(t, "a place of the tenant's, none of the full service's", "01000", waiting...)
	one.Release()
	wantReady(t, "one of either", "11000", waiting...)
	for i, want := range []string{"11010", "11011"} {
		p := waiting[[]int{1, 3}[i]]
		ticket, v := p.End(s.Now())
		if v.Outcome != ratelimit.Admitted {
			t.Fatal(v.Outcome)
		}
		ticket.Release()
		wantReady(t, "the service is still full", want, waiting...)
	}
	ticket, _ := waiting[0].End(s.Now())
	ticket.Release()
	wantReady(t, "all", "11111", waiting...)
}

// nobodyOvertakes who waits and could use the same slot; who could not is no
// hindrance.
func nobodyOvertakes(t *testing.T, make Maker) {
	for _, which := range []string{"tenant", "service", "process"} {
		s, mine, other := make(t), tenant("mine", ratelimit.Limit{}, 0), tenant("other", ratelimit.Limit{}, 0)
		here, elsewhere := ratelimit.NewService("here", 0), ratelimit.NewService("elsewhere", 0)
		switch which {
		case "tenant":
			mine = tenant("mine", ratelimit.Limit{}, 1)
		case "service":
			here = ratelimit.NewService("here", 1)
		case "process":
			s = s.under(1)
		}
		a := ratelimit.Admission{Tenant: mine, Service: here}
		holds := s.occupy(t, a)
		p := s.queue(t, a)
		rivals := map[string][]ratelimit.Admission{
			"tenant":  {a, {Tenant: mine, Service: elsewhere}},
			"service": {a, {Tenant: other, Service: here}},
			"process": {a, {Tenant: other, Service: elsewhere}},
		}[which]
		for range 2 {
			for _, r := range rivals {
				if _, v := s.admit(r); v.Outcome != ratelimit.ConcurrencyLimited || v.Limit.String() != which {
					t.Errorf("%s: %v by %v, while another waits", which, v.Outcome, v.Limit)
				}
			}
			holds.Release() // the first time; then it is the other's
		}
		wantReady(t, which, "1", p)
		free := map[string]ratelimit.Admission{
			"tenant": {Tenant: other, Service: here}, "service": {Tenant: mine, Service: elsewhere},
		}
		if r, some := free[which]; some {
			s.queue(t, a)
			s.occupy(t, r)
		}
		ticket, v := p.End(s.Now())
		if v.Outcome != ratelimit.Admitted {
			t.Error(which, v.Outcome)
		}
		ticket.Release()
	}
}
