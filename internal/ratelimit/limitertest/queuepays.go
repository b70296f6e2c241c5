package limitertest

import (
	"testing"
	"time"

	"agentgw/internal/ratelimit"
)

// priced is a call with a limit of each kind, each with tokens to spare.
type priced struct {
	key  *ratelimit.Ref
	call ratelimit.Admission
	rule *ratelimit.Rule
}

func newPriced(slots int64) priced {
	wide := ratelimit.Limit{Interval: 7 * second, Burst: 9}
	p := priced{key: key("k", wide), rule: ratelimit.NewRule("r", "requests", time.Hour, false)}
	p.call = ratelimit.Admission{Tenant: tenant("t", wide, slots), Bucket: bucket("k", "s", wide), Service: ratelimit.NewService("s", 0)}
	return p
}

func (p priced) with() ratelimit.Admission {
	a := p.call
	a.Uses = []ratelimit.Use{{Rule: p.rule, Partition: "x", Count: 1, Max: 9}}
	return a
}

// left is what is left of key, tenant, (key, service) and rule, to the nanosecond.
func (p priced) left(s Subject) (all [4]ratelimit.Reading) {
	for i, r := range []*ratelimit.Ref{p.key, p.call.Tenant, p.call.Bucket} {
		all[i], _ = s.Peek(r, s.Now())
	}
	all[3].Remaining, all[3].Next = s.Counted(p.rule, "x", s.Now())
	return all
}

// tokensAreTakenOnce, when the call comes, and not again when it gets its slots.
func tokensAreTakenOnce(t *testing.T, make Maker) {
	s, p := make(t), newPriced(1)
	holds := s.occupy(t, ratelimit.Admission{Tenant: p.call.Tenant, Service: p.call.Service})
	before := p.left(s)
	_, place, v := s.enterBy(s.Take(p.key, s.Now()), p.with(), many)
	if v.Outcome != ratelimit.Queued || v.Limit != ratelimit.KindTenantSlots {
		t.Fatalf("%v by %v", v.Outcome, v.Limit)
	}
	taken := p.left(s)
	for i := range taken {
		if d := before[i].Remaining - taken[i].Remaining; d != 1 && i < 3 || i == 3 && d != -1 {
			t.Errorf("limit %d: %+v became %+v", i, before[i], taken[i])
		}
	}
	holds.Release()
	ticket, v := place.End(s.Now())
	if v.Outcome != ratelimit.Admitted || p.left(s) != taken {
		t.Errorf("%v; %+v became %+v", v.Outcome, taken, p.left(s))
	}
	readings := map[ratelimit.Kind]int64{}
	for r := range v.Readings() {
		readings[r.Kind] = r.Remaining
	}
	if readings[ratelimit.KindTenant] != 7 || readings[ratelimit.KindService] != 8 || readings[ratelimit.KindTenantSlots] != 0 {
		t.Errorf("told of %v", readings)
	}
	ticket.Release()
	place.Leave(s.Now()) // after End it gives nothing back
	if again, v := place.End(s.Now()); p.left(s) != taken || s.slotsLeft(p.call.Tenant) != 1 || again != (ratelimit.Ticket{}) || v.Outcome != ratelimit.Admitted {
		t.Errorf("%+v became %+v, %d slots", taken, p.left(s), s.slotsLeft(p.call.Tenant))
	}
}

// leavingGivesAllBack: bit by bit at the moment of coming, whether the call waits, is
// refused in the end, or has its slots in the instant in which it leaves.
func leavingGivesAllBack(t *testing.T, make Maker) {
	for _, how := range []string{"leave", "end", "leave when granted"} {
		s, p := make(t), newPriced(1)
		p.call.Service = ratelimit.NewService("s", 1)
		s = s.under(1)
		s.Advance(100 * time.Second)
		holds := s.occupy(t, p.call) // has taken tokens: no bucket is full
		s.Advance(time.Second)
		before := p.left(s)
		_, place, v := s.enterBy(s.Take(p.key, s.Now()), p.with(), many)
		if v.Outcome != ratelimit.Queued {
			t.Fatal(how, v.Outcome)
		}
		switch how {
		case "end":
			_, v := place.End(s.Now())
			wantVerdict(t, how, v, ratelimit.ConcurrencyLimited, ratelimit.KindTenantSlots, time.Second,
				ratelimit.KindTenantSlots, ratelimit.KindServiceSlots, ratelimit.KindProcessSlots)
			told := map[ratelimit.Kind]ratelimit.Reading{}
			for r := range v.Readings() {
				told[r.Kind] = r
			}
			if told[ratelimit.KindKey] != before[0] || told[ratelimit.KindTenant] != before[1] || told[ratelimit.KindService] != before[2] ||
				told[ratelimit.KindTenantSlots].Quota != 1 || told[ratelimit.KindServiceSlots].Quota != 1 || told[ratelimit.KindProcessSlots].Quota != 1 {
				t.Errorf("told of %+v; it was %+v", told, before)
			}
			place.Leave(s.Now())
		case "leave when granted":
			holds.Release()
			wantReady(t, how, "1", place)
			place.Leave(s.Now())
			place.Leave(s.Now())
		default:
			place.Leave(s.Now())
			if ticket, _ := place.End(s.Now()); ticket != (ratelimit.Ticket{}) {
				t.Errorf("%s: a ticket after all", how)
			}
		}
		if after := p.left(s); after != before {
			t.Errorf("%s: %+v became %+v", how, before, after)
		}
		holds.Release()
		if n := s.slotsLeft(p.call.Tenant); n != 1 {
			t.Errorf("%s: %d slots left", how, n)
		}
		s.occupy(t, ratelimit.Admission{Tenant: tenant("other", ratelimit.Limit{}, 0), Service: p.call.Service}).Release()
	}
}

// waitingIsBounded: as many of a tenant wait as may, and the next is refused at once
// and for nothing. A refusal after a wait is a concurrency refusal like any other: ten
// times the key's burst of them are free, and then the key pays. Who leaves is none.
func waitingIsBounded(t *testing.T, make Maker) {
	s, k := make(t), key("k", ratelimit.Limit{Interval: 3600 * second, Burst: 1})
	a := ratelimit.Admission{Tenant: tenant("t", ratelimit.Limit{}, 1), Service: ratelimit.NewService("s", 0)}
	holds := s.occupy(t, a)
	var places []*ratelimit.Place
	for range 2 {
		places = append(places, s.queue(t, a))
	}
	c := s.Take(k, s.Now())
	if _, p, v := s.enterBy(c, a, 2); v.Outcome != ratelimit.ConcurrencyLimited || p != nil || s.left(k) != 1 {
		t.Errorf("the third: %v, %d tokens", v.Outcome, s.left(k))
	}
	// Another tenant has a queue of its own.
	b := ratelimit.Admission{Tenant: tenant("u", ratelimit.Limit{}, 1), Service: a.Service}
	s.occupy(t, b)
	if _, _, v := s.enterBy(ratelimit.Charge{}, b, 1); v.Outcome != ratelimit.Queued {
		t.Errorf("another tenant's: %v", v.Outcome)
	}
	places[0].Leave(s.Now())
	for i := range 30 {
		_, p, v := s.enterBy(s.Take(k, s.Now()), a, 2)
		if v.Outcome != ratelimit.Queued {
			t.Fatalf("%d: %v", i, v.Outcome)
		}
		p.Leave(s.Now())
	}
	for i := range 10 { // one was refused before
		want := ratelimit.ConcurrencyLimited
		if i == 9 {
			want = ratelimit.RateLimited
		}
		_, p, _ := s.enterBy(s.Take(k, s.Now()), a, 2)
		if _, v := p.End(s.Now()); v.Outcome != want || want == ratelimit.RateLimited && v.Limit != ratelimit.KindKey {
			t.Errorf("refusal %d: %v by %v", i+2, v.Outcome, v.Limit)
		}
	}
	if s.left(k) != 0 || s.left(a.Tenant) != 0 {
		t.Errorf("the key has %d tokens, and paid", s.left(k))
	}
	holds.Release()
	wantReady(t, "who stayed", "1", places[1])
}
