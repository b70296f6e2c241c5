package ratelimit

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
)

func TestReleaseIsOnce(t *testing.T) {
	l := NewLocal(Options{})
	a := admission{Tenant: "t", TenantSlots: 2, Service: "s"}
	first, _ := l.admit(a, 0)
	second, _ := l.admit(a, 0)
	const goroutines, releases = 8, 50
	var wg sync.WaitGroup
	for range goroutines {
		copied := first
		wg.Go(func() {
			for range releases {
				copied.Release()
			}
		})
	}
	wg.Wait()
	want := func(inFlight, doubled int64) {
		t.Helper()
		st := l.Stats()
		tenant := l.peekSlots(Registered, "t", 2)
		if st.DoubleReleases != doubled || 2-tenant.Remaining != inFlight {
			t.Errorf("%+v, tenant %+v; want %d in flight, %d double releases", st, tenant, inFlight, doubled)
		}
		l.wantInFlight(t, inFlight)
	}
	want(1, goroutines*releases-1)

	// What it held is used again for the next call: the old copies are not its ticket.
	third, v := l.admit(a, 0)
	if v.Outcome != Admitted || third.held != first.held {
		t.Fatalf("%v; its slots were not used again", v.Outcome)
	}
	first.Release()
	want(2, goroutines*releases)
	second.Release()
	third.Release()
	want(0, goroutines*releases)
	Ticket{}.Release()
	want(0, goroutines*releases)
}

// TestLostTicket: one that nobody can release any more is counted, told, and its
// slot comes back.
func TestLostTicket(t *testing.T) {
	told := make(chan string, 1)
	l := NewLocal(Options{Leaked: func(partition string) { told <- partition }})
	a := admission{Tenant: "t", TenantSlots: 1, Service: "s", ServiceSlots: 1}
	if ticket, _ := l.admit(a, 0); ticket.held == nil {
		t.Fatal("refused")
	}
	for lost := ""; lost == ""; {
		runtime.GC()
		select {
		case lost = <-told:
			if lost != "t" {
				t.Errorf("told of %q", lost)
			}
		default:
			runtime.Gosched()
		}
	}
	ticket, v := l.admit(a, 0)
	if st := l.Stats(); v.Outcome != Admitted || st.LeakedTickets != 1 || st.DoubleReleases != 0 {
		t.Errorf("%v, %+v", v.Outcome, st)
	}
	l.wantInFlight(t, 1)
	// A ticket in use, or released, is not lost.
	for range 3 {
		runtime.GC()
	}
	ticket.Release()
	ticket = Ticket{}
	for range 3 {
		runtime.GC()
	}
	if st := l.Stats(); st.LeakedTickets != 1 || st.DoubleReleases != 0 {
		t.Errorf("%+v", st)
	}
	l.wantInFlight(t, 0)
}

// TestSlotWait: between 1 and 10 s, from how long slots are held and how many
// there are.
func TestSlotWait(t *testing.T) {
	clock := clockwork.NewFakeClockAt(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	nanos := NewClock(clock)
	for _, tt := range []struct {
		held  time.Duration
		slots int64
		want  time.Duration
	}{
		{10 * time.Millisecond, 1, time.Second},
		{4 * time.Second, 1, 4 * time.Second},
		{4 * time.Second, 2, 2 * time.Second},
		{time.Hour, 2, 10 * time.Second},
	} {
		for _, whose := range []Kind{KindTenantSlots, KindServiceSlots, KindProcessSlots} {
			l := NewLocal(Options{Clock: nanos})
			a := admission{Tenant: "t", Service: "s"}
			*map[Kind]*int64{KindTenantSlots: &a.TenantSlots, KindServiceSlots: &a.ServiceSlots, KindProcessSlots: &a.Process}[whose] = tt.slots
			for range 100 { // until the average is that
				ticket, _ := l.admit(a, nanos.Nanos())
				clock.Advance(tt.held)
				ticket.Release()
			}
			for range tt.slots {
				l.admit(a, nanos.Nanos())
			}
			wantWait := func(how string, v Verdict) {
				t.Helper()
				if v.Limit != whose || v.Wait > tt.want || v.Wait < tt.want-tt.want/1000 {
					t.Errorf("%v %d, held %v each of %d: %v, wait %v, want %v", how, whose, tt.held, tt.slots, v.Limit, v.Wait, tt.want)
				}
			}
			if whose != KindTenantSlots { // whose calls they were is no matter
				a.Tenant = "u"
			}
			if whose == KindProcessSlots {
				a.Service = "other"
			}
			_, v := l.admit(a, nanos.Nanos())
			wantWait("refused at once", v)
			_, p, _ := l.Enter(Charge{}, a.byRef(), 1, nanos.Nanos())
			_, v = p.End(nanos.Nanos())
			wantWait("after a wait", v)
		}
	}
}

func TestClock(t *testing.T) {
	fake := clockwork.NewFakeClockAt(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	c := NewClock(fake)
	for _, tt := range []struct {
		step time.Duration
		want int64
	}{{0, 0}, {time.Nanosecond, 1}, {time.Hour, 3600*second + 1}, {-2 * time.Hour, 0}, {2 * time.Hour, 3600*second + 1}} {
		fake.Advance(tt.step)
		if got := c.Nanos(); got != tt.want {
			t.Errorf("after %v: %d, want %d", tt.step, got, tt.want)
		}
	}
}

// TestLoweredCapLeavesNothing, not less than nothing, while more run than it
// allows: neither a look nor a verdict tells a negative number.
func TestLoweredCapLeavesNothing(t *testing.T) {
	l := NewLocal(Options{})
	for range 3 {
		l.admit(admission{Tenant: "t", TenantSlots: 5, Service: "s", ServiceSlots: 5}, 0)
	}
	if r := l.peekSlots(Registered, "t", 2); r.Remaining != 0 || r.Quota != 2 {
		t.Errorf("a look shows %+v", r)
	}
	_, v := l.admit(admission{Tenant: "t", TenantSlots: 2, Service: "s", ServiceSlots: 1}, 0)
	seen := 0
	for r := range v.Readings() {
		seen++
		if r.Remaining != 0 {
			t.Errorf("the refusal tells %+v", r)
		}
	}
	if v.Outcome != ConcurrencyLimited || seen != 2 {
		t.Errorf("%v with %d readings", v.Outcome, seen)
	}
}
