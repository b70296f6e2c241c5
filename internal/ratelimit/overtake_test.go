package ratelimit

import (
	"testing"
)

// stop is where a goroutine stands still until it may go on.
type stop struct{ reached, goOn chan struct{} }

func newStop() stop { return stop{make(chan struct{}), make(chan struct{})} }

func (s stop) here() { close(s.reached); <-s.goOn }

// stopping is a clock at which the given reading stands still.
type stopping struct {
	reading int
	at      stop
}

func (c *stopping) Nanos() int64 {
	if c.reading--; c.reading == 0 {
		c.at.here()
	}
	return 0
}

// TestNobodyOvertakesInBetween: a call has seen that nobody waits, and takes a slot that
// came back after all, before who came to wait meanwhile is served. It sees that one then.
func TestNobodyOvertakesInBetween(t *testing.T) {
	decides, gaveBack := newStop(), newStop()
	var armed bool
	clock := &stopping{at: gaveBack}
	l := NewLocal(Options{TableSize: 1, Clock: clock, Warn: func(string) {
		if armed {
			decides.here() // the call has looked whether anybody waits, and has no slot yet
		}
	}})
	of := func(name string) Admission {
		return Admission{Tenant: NewTenant(Registered, name, Limit{}, 0), Service: NewService("s", 0), Process: 1}
	}
	holds, _, _ := l.Enter(Charge{}, of("first"), 1, 0)
	l.take(Registered, KindKey, "fills the table", Limit{1 << 40, 1}, 0)
	armed = true
	outcome := make(chan Outcome)
	go func() {
		_, _, v := l.Enter(Charge{}, of("newcomer"), 1, 0)
		outcome <- v.Outcome
	}()
	<-decides.reached
	_, waits, v := l.Enter(Charge{}, of("first"), 1, 0)
	if v.Outcome != Queued {
		t.Fatal(v.Outcome)
	}
	clock.reading = 2 // a release reads it once, gives back, and then to serve those that wait
	released := make(chan struct{})
	go func() {
		holds.Release()
		close(released)
	}()
	<-gaveBack.reached
	close(decides.goOn)
	if got := <-outcome; got != Queued {
		t.Errorf("the newcomer: %v, before who waited", got)
	}
	close(gaveBack.goOn)
	<-released
	select {
	case <-waits.Ready():
	default:
		t.Error("who waited has no slot")
	}
	l.wantInFlight(t, 1)
}

// TestALoweredCapHoldsInBetween: a call has seen which caps are in force, and they are
// lowered, and another runs under them, before it takes its slot.
func TestALoweredCapHoldsInBetween(t *testing.T) {
	for _, which := range []string{"tenant", "service", "process"} {
		decides := newStop()
		l := NewLocal(Options{})
		caps := func(n int64, look func()) *Caps {
			c := &Caps{Tenant: func(*Ref) *Ref { return nil }, Service: func(*Service) *Service { return nil }}
			switch which {
			case "tenant":
				c.Tenant = func(r *Ref) *Ref { return NewTenant(Registered, r.partition, Limit{}, n) }
			case "service":
				c.Service = func(*Service) *Service { return NewService("s", n) }
			case "process":
				c.Process = n
			}
			service := c.Service
			c.Service = func(s *Service) *Service { look(); return service(s) }
			return c
		}
		call := Admission{Tenant: NewTenant(Registered, "t", Limit{}, 0), Service: NewService("s", 0)}
		l.Follow(caps(2, decides.here))
		outcome := make(chan Outcome)
		go func() {
			_, v := l.Admit(Charge{}, call, 0)
			outcome <- v.Outcome
		}()
		<-decides.reached
		l.Follow(caps(1, func() {}))
		if _, v := l.Admit(Charge{}, call, 0); v.Outcome != Admitted {
			t.Fatal(which, v.Outcome)
		}
		close(decides.goOn)
		if got := <-outcome; got != ConcurrencyLimited {
			t.Errorf("%s: %v beside another, under a cap of one", which, got)
		}
		l.wantInFlight(t, 1)
	}
}
