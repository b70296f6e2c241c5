package ratelimit

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
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
		if st.DoubleReleases != doubled || 2-tenant.Remaining != inFlight || st.Process.InFlight != inFlight || st.Services[0].InFlight != inFlight {
			t.Errorf("%+v, tenant %+v; want %d in flight, %d double releases", st, tenant, inFlight, doubled)
		}
	}
	want(1, goroutines*releases-1)

	// The handle is used again for the next call: the old copies are not its ticket.
	third, v := l.admit(a, 0)
	if v.Outcome != Admitted || third.handle != first.handle {
		t.Fatalf("%v; the handle was not used again", v.Outcome)
	}
	first.Release()
	want(2, goroutines*releases)
	second.Release()
	third.Release()
	want(0, goroutines*releases)
	Ticket{}.Release()
	want(0, goroutines*releases)
}

// TestFrozenClock: as many as the burst, whatever the crowd.
func TestFrozenClock(t *testing.T) {
	l := NewLocal(Options{})
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range scaled(10_000) {
				if _, v := l.take(Registered, KindKey, "k", Limit{second, 100}, 5); v.Outcome == Admitted {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if admitted.Load() != 100 {
		t.Errorf("%d admitted, want 100", admitted.Load())
	}
}

// TestPeakNeverExceedsTheCap: a crowd of keys that act for three tenants each, at
// two services, with a cap on tenant, service and process. What was refused cost
// no token of key, tenant or service.
func TestPeakNeverExceedsTheCap(t *testing.T) {
	l := NewLocal(Options{MaxInFlight: 5})
	wide := Limit{1 << 30, 1 << 29}
	var perTenant [3]atomic.Int64
	var perService [2]atomic.Int64
	var process, admitted, refused, over atomic.Int64
	enter := func(n *atomic.Int64, most int64) {
		if n.Add(1) > most {
			over.Add(1)
		}
	}
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range scaled(40_000) {
				tenant, service, key := (g+i)%3, (g+i/3)%2, (7*g+i)%64
				c := call{key: fmt.Sprint(key), keyLimit: wide, admission: admission{
					Tenant: string(rune('a' + tenant)), TenantLimit: wide, TenantSlots: 3,
					Service: string(rune('s' + service)), ServiceSlots: 4, ServiceLimit: wide,
					ServiceBucket: ServiceBucket(fmt.Sprint(key), string(rune('s'+service))),
				}}
				ticket, v := l.call(c, 7)
				if v.Outcome != Admitted {
					if v.Outcome != ConcurrencyLimited {
						t.Errorf("%v by %v", v.Outcome, v.Limit)
					}
					refused.Add(1)
					continue
				}
				enter(&perTenant[tenant], 3)
				enter(&perService[service], 4)
				enter(&process, 5)
				runtime.Gosched()
				perTenant[tenant].Add(-1)
				perService[service].Add(-1)
				process.Add(-1)
				ticket.Release()
				admitted.Add(1)
			}
		})
	}
	wg.Wait()
	st := l.Stats()
	if st.Process.InFlight != 0 || st.Services[0].InFlight != 0 || st.Services[1].InFlight != 0 || st.Tables[Registered].Pinned != 0 {
		t.Errorf("slots left: %+v", st)
	}
	for _, kind := range []Kind{KindKey, KindTenant, KindService} {
		spent := int64(0)
		l.Each(Registered, kind, 7, func(e Entry) bool { spent += e.Limit.Burst - e.Remaining; return true })
		if spent != admitted.Load() {
			t.Errorf("%v: %d tokens spent on %d admitted calls", kind, spent, admitted.Load())
		}
	}
	if over.Load() != 0 || refused.Load() == 0 {
		t.Errorf("over a cap %d times; %d admitted, %d refused", over.Load(), admitted.Load(), refused.Load())
	}
}

// TestSharedSlotIsOne: many tenants, which share no lock, at the only slot of a
// service or of the process. It finds a refusal that is decided by two looks at
// the count, between which the slot comes free: a call then runs without one.
func TestSharedSlotIsOne(t *testing.T) {
	for _, which := range []string{"service", "process"} {
		l, a := NewLocal(Options{}), admission{Service: "s", ServiceSlots: 1}
		if which == "process" {
			l, a = NewLocal(Options{MaxInFlight: 1}), admission{Service: "s"}
		}
		var running, over atomic.Int64
		var wg sync.WaitGroup
		for g := range 8 {
			a := a.byRef()
			a.Tenant = NewTenant(Registered, fmt.Sprint(g), Limit{}, 0)
			wg.Go(func() {
				for range 40_000 {
					ticket, v := l.Admit(a, 0)
					if v.Outcome != Admitted {
						continue
					}
					if running.Add(1) > 1 {
						over.Add(1)
					}
					running.Add(-1)
					ticket.Release()
				}
			})
		}
		wg.Wait()
		if st := l.Stats(); over.Load() != 0 || st.Process.InFlight != 0 || st.Services[0].InFlight != 0 {
			t.Errorf("%s: %d times more than one, %+v", which, over.Load(), st)
		}
	}
}

// TestLostTicket: one that nobody can release any more is counted, told, and its
// slot comes back.
func TestLostTicket(t *testing.T) {
	told := make(chan string, 1)
	l := NewLocal(Options{Leaked: func(partition string) { told <- partition }})
	a := admission{Tenant: "t", TenantSlots: 1, Service: "s", ServiceSlots: 1}
	if ticket, _ := l.admit(a, 0); ticket.handle == nil {
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
	if st := l.Stats(); v.Outcome != Admitted || st.LeakedTickets != 1 || st.Process.InFlight != 1 || st.DoubleReleases != 0 {
		t.Errorf("%v, %+v", v.Outcome, st)
	}
	// A ticket in use, or released, is not lost.
	for range 3 {
		runtime.GC()
	}
	ticket.Release()
	ticket = Ticket{}
	for range 3 {
		runtime.GC()
	}
	if st := l.Stats(); st.LeakedTickets != 1 || st.Process.InFlight != 0 || st.DoubleReleases != 0 {
		t.Errorf("%+v", st)
	}
}

func TestReleaseAfterPanic(t *testing.T) {
	l := NewLocal(Options{})
	a := admission{Tenant: "t", TenantSlots: 1, Service: "s"}
	for range 1000 {
		func() {
			defer func() { recover() }()
			ticket, v := l.admit(a, 0)
			if v.Outcome != Admitted {
				t.Fatal(v.Outcome)
			}
			defer ticket.Release()
			panic("in the handler")
		}()
	}
	if n := l.Stats().Process.InFlight; n != 0 {
		t.Errorf("%d in flight", n)
	}
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
		l := NewLocal(Options{Clock: nanos})
		a := admission{Tenant: "t", TenantSlots: tt.slots, Service: "s"}
		for range 100 { // until the average is that
			ticket, _ := l.admit(a, nanos.Nanos())
			clock.Advance(tt.held)
			ticket.Release()
		}
		for range tt.slots {
			l.admit(a, nanos.Nanos())
		}
		_, v := l.admit(a, nanos.Nanos())
		if v.Outcome != ConcurrencyLimited || v.Wait > tt.want || v.Wait < tt.want-tt.want/1000 {
			t.Errorf("held %v each of %d: wait %v, want %v", tt.held, tt.slots, v.Wait, tt.want)
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
