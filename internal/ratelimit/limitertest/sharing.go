package limitertest

import (
	"slices"
	"testing"
	"time"

	"agentgw/internal/ratelimit"
)

// rival is a tenant that always has calls waiting, each of which has its slot for so
// long.
type rival struct {
	call    ratelimit.Admission
	hold    int64
	waiting []*ratelimit.Place
	had     int64 // slot time
	served  int
}

// market is slots that rivals compete for.
type market struct {
	s      Subject
	rivals []*rival
	run    []bargain
}

// bargain is a slot that somebody has.
type bargain struct {
	ticket ratelimit.Ticket
	ends   int64
}

// newMarket is one whose slots are all taken by others, and come free now.
func newMarket(t TB, s Subject, slots int, service *ratelimit.Service) *market {
	t.Helper()
	m := &market{s: s}
	for range slots {
		ticket := s.occupy(t, ratelimit.Admission{Tenant: tenant("first", ratelimit.Limit{}, 0), Service: service})
		m.run = append(m.run, bargain{ticket, s.Now()})
	}
	return m
}

// come has one more rival.
func (m *market) come(t TB, name string, weight int, service *ratelimit.Service, hold int64) *rival {
	t.Helper()
	call := ratelimit.Admission{Tenant: tenant(name, ratelimit.Limit{}, 0).Weighing(weight), Service: service}
	r := &rival{call: call, hold: hold}
	m.rivals = append(m.rivals, r)
	m.fill(t)
	return r
}

// fill has a few calls of each rival wait.
func (m *market) fill(t TB) {
	t.Helper()
	for _, r := range m.rivals {
		for len(r.waiting) < 3 {
			r.waiting = append(r.waiting, m.s.queue(t, r.call))
		}
	}
}

// trade has so many slots come free, one after the other, and whoever gets them call.
func (m *market) trade(t TB, turns int) {
	t.Helper()
	for range turns {
		m.fill(t)
		first := slices.IndexFunc(m.run, func(b bargain) bool {
			return !slices.ContainsFunc(m.run, func(o bargain) bool { return o.ends < b.ends })
		})
		b := m.run[first]
		m.run = slices.Delete(m.run, first, first+1)
		m.s.Advance(time.Duration(b.ends - m.s.Now()))
		b.ticket.Release()
		for _, r := range m.rivals {
			for ready(r.waiting[0]) {
				ticket, v := r.waiting[0].End(m.s.Now())
				if v.Outcome != ratelimit.Admitted {
					t.Fatal(v.Outcome)
				}
				r.waiting = r.waiting[1:]
				r.served++
				r.had += r.hold
				m.run = append(m.run, bargain{ticket, m.s.Now() + r.hold})
			}
		}
	}
}

// leave ends it: all slots come back, and nobody waits.
func (m *market) leave(t TB) {
	t.Helper()
	for _, r := range m.rivals {
		for _, p := range r.waiting {
			p.Leave(m.s.Now())
		}
		r.waiting = nil
	}
	for _, b := range m.run {
		m.s.Advance(time.Duration(b.ends - m.s.Now()))
		b.ticket.Release()
	}
}

// slotsAreSharedByTime, not by turns: of a pool that tenants of weight 1 and 2 compete
// for they have a third and two thirds of the time of the slots, also if the calls of
// one last ten times as long.
func slotsAreSharedByTime(t *testing.T, make Maker) {
	if scaled(4000) < 400 {
		t.Skip("shares need hundreds of turns, which take too long here without DRILLS=full")
	}
	for _, which := range []string{"process", "service"} {
		for _, slots := range []int{1, 2, 4, 7} {
			for _, holds := range [][2]int64{{10, 10}, {100, 10}, {10, 100}} {
				s, service := make(t), ratelimit.NewService("s", 0)
				if which == "process" {
					s = s.under(int64(slots))
				} else {
					service = ratelimit.NewService("s", int64(slots))
				}
				// What a tenant had elsewhere is no matter here: neither of before, nor,
				// of a service, what it has there now.
				away := ratelimit.Admission{Tenant: tenant("light", ratelimit.Limit{}, 0), Service: ratelimit.NewService("elsewhere", 0)}
				elsewhere := s.occupy(t, away)
				s.Advance(time.Hour)
				elsewhere.Release()
				m := newMarket(t, s, slots, service)
				if which == "service" {
					s.occupy(t, away) // to the end
				}
				light, heavy := m.come(t, "light", 1, service, holds[0]*ms), m.come(t, "heavy", 2, service, holds[1]*ms)
				m.trade(t, scaled(4000*slots))
				share := float64(light.had) / float64(light.had+heavy.had)
				if share < 1./3-0.03 || share > 1./3+0.03 {
					t.Errorf("%d slots of a %s, calls of %v ms: the light one had %.3f of the time, in %d turns to %d", slots, which, holds, share, light.served, heavy.served)
				}
			}
		}
	}
}

// aPoolHasTurnsOfItsOwn: what a tenant was served after a wait at one service does not
// delay it at another.
func aPoolHasTurnsOfItsOwn(t *testing.T, make Maker) {
	s := make(t)
	one, two := ratelimit.NewService("one", 1), ratelimit.NewService("two", 1)
	m := newMarket(t, s, 1, one)
	busy, other := m.come(t, "busy", 1, one, 100*ms), m.come(t, "other", 1, one, 10*ms)
	m.trade(t, 12) // of which busy's was the last but for ten
	holds := s.occupy(t, ratelimit.Admission{Tenant: tenant("first", ratelimit.Limit{}, 0), Service: two})
	var places []*ratelimit.Place
	for _, r := range []*rival{busy, other} {
		places = append(places, s.queue(t, ratelimit.Admission{Tenant: r.call.Tenant, Service: two}))
	}
	holds.Release()
	wantReady(t, "who came first", "10", places...)
}

// nobodyPaysForWhatNobodyWanted: a tenant that had a slot to itself for long, without
// a wait or as its calls waited for each other, takes turns with another that comes, who
// saved up next to nothing either. If it had waited before, and then called for long
// without a wait, it pays for that by a few turns of its own.
func nobodyPaysForWhatNobodyWanted(t *testing.T, make Maker) {
	long(t)
	for _, c := range []struct {
		how         string
		weight      int
		waits       int
		alone       int
		least, most int // of ten turns that the first has
	}{
		{"alone", 1, 0, 1000, 4, 6}, {"waiting", 1, 1000, 0, 3, 6}, {"waiting, then alone", 1, 10, 1000, 2, 4},
		{"waiting, then alone, and heavy", 4, 10, 1000, 6, 8},
	} {
		s, service := make(t).under(1), ratelimit.NewService("s", 0)
		m := newMarket(t, s, 1, service)
		long := m.come(t, "long", c.weight, service, 10*ms)
		m.trade(t, c.waits)
		m.leave(t)
		for range c.alone {
			ticket := s.occupy(t, long.call)
			s.Advance(time.Duration(long.hold))
			ticket.Release()
		}
		m = newMarket(t, s, 1, service)
		m.rivals = append(m.rivals, long)
		late := m.come(t, "late", 1, service, 10*ms)
		if m.trade(t, 2); late.served == 0 {
			t.Errorf("%s: who came late had nothing of two turns", c.how)
		}
		if m.trade(t, 8); 10-late.served < c.least || 10-late.served > c.most {
			t.Errorf("%s: of ten turns who came late had %d", c.how, late.served)
		}
	}
}

// whoComesSavedUpNothing: a third tenant, beside two that compete for a slot since long
// ago, has a turn at once and then one of three.
func whoComesSavedUpNothing(t *testing.T, make Maker) {
	long(t)
	s, service := make(t).under(1), ratelimit.NewService("s", 0)
	m := newMarket(t, s, 1, service)
	m.come(t, "a", 1, service, 10*ms)
	m.come(t, "b", 1, service, 10*ms)
	m.trade(t, 1000)
	late := m.come(t, "late", 1, service, 10*ms)
	if m.trade(t, 3); late.served == 0 {
		t.Error("who came late had nothing of three turns")
	}
	if m.trade(t, 9); late.served < 3 || late.served > 5 {
		t.Errorf("who came late had %d of twelve turns", late.served)
	}
}

// aFullTenantSavesUpNothing: one whose calls wait for its own cap alone, while another
// has the pool, has no more than its share when its cap is raised.
func aFullTenantSavesUpNothing(t *testing.T, make Maker) {
	long(t)
	s, service := make(t), ratelimit.NewService("s", 0)
	caps := func(own int64) *ratelimit.Caps {
		return &ratelimit.Caps{
			Process: 3,
			Tenant: func(r *ratelimit.Ref) *ratelimit.Ref {
				if r.Partition() == "full" {
					return tenant("full", ratelimit.Limit{}, own)
				}
				return nil
			},
			Service: func(*ratelimit.Service) *ratelimit.Service { return nil },
		}
	}
	s.Follow(caps(1))
	m := newMarket(t, s, 3, service)
	full, other := m.come(t, "full", 1, service, 10*ms), m.come(t, "other", 1, service, 10*ms)
	m.trade(t, 600)
	if full.served < 190 || full.served > 210 {
		t.Fatalf("%d turns of 600 under a cap of one of three slots", full.served)
	}
	s.Follow(caps(0))
	full.had, other.had = 0, 0
	m.trade(t, 30)
	if d := full.had - other.had; d < -60*ms || d > 60*ms {
		t.Errorf("after its cap was raised it had %d ms, the other %d", full.had/ms, other.had/ms)
	}
}
