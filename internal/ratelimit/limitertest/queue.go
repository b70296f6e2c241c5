package limitertest

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// capsInForce: those that wait are held to the caps last told, also where they came
// under others. What is gone from the file keeps what it had, and strands nobody.
func capsInForce(t *testing.T, make Maker) {
	for _, which := range []string{"tenant", "service", "process"} {
		s := make(t)
		caps := func(n int64) *ratelimit.Caps {
			c := &ratelimit.Caps{
				Tenant:  func(*ratelimit.Ref) *ratelimit.Ref { return nil },
				Service: func(*ratelimit.Service) *ratelimit.Service { return nil },
			}
			switch which {
			case "tenant":
				c.Tenant = func(r *ratelimit.Ref) *ratelimit.Ref { return tenant(r.Partition(), ratelimit.Limit{}, n) }
			case "service":
				c.Service = func(s *ratelimit.Service) *ratelimit.Service { return ratelimit.NewService(s.Name(), n) }
			case "process":
				c.Process = n
			}
			return c
		}
		under := func(n int64) ratelimit.Admission {
			a := ratelimit.Admission{Tenant: tenant("t", ratelimit.Limit{}, 0), Service: ratelimit.NewService("s", 0)}
			switch which {
			case "tenant":
				a.Tenant = tenant("t", ratelimit.Limit{}, n)
			case "service":
				a.Service = ratelimit.NewService("s", n)
			case "process":
				s = s.under(n)
			}
			return a
		}
		s.Follow(caps(1))
		holds := s.occupy(t, under(1))
		var places []*ratelimit.Place
		for range 6 {
			places = append(places, s.queue(t, under(1)))
		}
		s.Follow(caps(3))
		wantReady(t, which+": raised from 1 to 3", "110000", places...)
		_, late, _ := s.enter(under(1)) // decided by what held before
		s.Follow(caps(2))
		holds.Release()
		wantReady(t, which+": lowered to 2, with 2 running", "110000", places...)
		first, _ := places[0].End(s.Now())
		first.Release()
		wantReady(t, which+": one less", "111000", places...)
		s.Follow(caps(0))
		wantReady(t, which+": none", "1111111", append(places, late)...)

		// A call that comes under a cap that was raised meanwhile is not stuck at it.
		s.Follow(caps(50))
		if _, _, v := s.enter(under(1)); v.Outcome != ratelimit.Admitted {
			t.Errorf("%s: %v under the cap of before", which, v.Outcome)
		}

		gone := caps(0)
		gone.Tenant, gone.Service = func(*ratelimit.Ref) *ratelimit.Ref { return nil }, func(*ratelimit.Service) *ratelimit.Service { return nil }
		if which == "process" {
			continue // which cannot go
		}
		s.Follow(caps(7))
		p := s.queue(t, under(7))
		s.Follow(gone)
		wantReady(t, which+": gone", "0", p)
		second, _ := places[1].End(s.Now())
		second.Release()
		wantReady(t, which+": gone, and a slot free", "1", p)
	}
}

// peakWithAQueue: a crowd that waits, leaves and gives up at the caps of tenants,
// services and process. No cap is ever exceeded, nobody is left, and nothing is.
func peakWithAQueue(t *testing.T, make Maker) {
	s := make(t).under(5)
	wide := ratelimit.Limit{Interval: 3600 * second, Burst: 1 << 20}
	var tenants []*ratelimit.Ref
	var services []*ratelimit.Service
	for i := range 3 {
		tenants = append(tenants, tenant(fmt.Sprint(i), wide, 3))
		services = append(services, ratelimit.NewService(fmt.Sprint(i), []int64{4, 2, 0}[i]))
	}
	var perTenant, perService [3]atomic.Int64
	var process, admitted, waited, left, over atomic.Int64
	run := func(tenant, service int, ticket ratelimit.Ticket) {
		for n, most := range map[*atomic.Int64]int64{&perTenant[tenant]: 3, &perService[service]: []int64{4, 2, many}[service], &process: 5} {
			if n.Add(1) > most {
				over.Add(1)
			}
		}
		admitted.Add(1)
		runtime.Gosched()
		perTenant[tenant].Add(-1)
		perService[service].Add(-1)
		process.Add(-1)
		ticket.Release()
	}
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range scaled(20_000) {
				tenant, service := (g+i)%3, (g+i/3)%3
				ticket, p, v := s.enterBy(ratelimit.Charge{}, ratelimit.Admission{Tenant: tenants[tenant], Service: services[service]}, 4)
				switch {
				case v.Outcome == ratelimit.Admitted:
					run(tenant, service, ticket)
				case v.Outcome == ratelimit.Queued && i%20 == 0:
					p.Leave(s.Now())
					left.Add(1)
				case v.Outcome == ratelimit.Queued && i%20 == 1:
					if ticket, v := p.End(s.Now()); v.Outcome == ratelimit.Admitted {
						run(tenant, service, ticket)
					}
				case v.Outcome == ratelimit.Queued:
					<-p.Ready()
					waited.Add(1)
					ticket, _ := p.End(s.Now())
					run(tenant, service, ticket)
				}
			}
		})
	}
	wg.Wait()
	spent := int64(0)
	for _, r := range tenants {
		spent += wide.Burst - s.left(r)
		if n := s.slotsLeft(r); n != 3 {
			t.Errorf("%d slots left when all is over", n)
		}
	}
	if over.Load() != 0 || waited.Load() == 0 || left.Load() == 0 || spent != admitted.Load() {
		t.Errorf("over a cap %d times; %d admitted for %d tokens, %d of them after a wait; %d left", over.Load(), admitted.Load(), spent, waited.Load(), left.Load())
	}
	for range 5 { // as many as the process has
		s.occupy(t, ratelimit.Admission{Tenant: tenant("last", ratelimit.Limit{}, 0), Service: services[2]})
	}
}
