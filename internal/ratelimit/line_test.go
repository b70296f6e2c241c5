package ratelimit

import (
	"fmt"
	"testing"
)

// TestWhoSharesAnEntryWaitsByItself: in a full table each partition key has a cap and
// a line of its own, and nobody is overlooked.
func TestWhoSharesAnEntryWaitsByItself(t *testing.T) {
	l := NewLocal(Options{TableSize: 1})
	l.take(Registered, KindKey, "fills the table", Limit{1 << 40, 1}, 0)
	service := NewService("s", 0)
	of := func(name string) Admission {
		return Admission{Tenant: NewTenant(Registered, name, Limit{second, 100}, 1), Service: service, Process: 3}
	}
	var running []Ticket
	var waiting []*Place
	for i := range 3 {
		ticket, _, v := l.Enter(Charge{}, of(fmt.Sprint(i)), 5, 0)
		if v.Outcome != Admitted {
			t.Fatal(i, v.Outcome)
		}
		running = append(running, ticket)
	}
	for i := range 4 { // the first three at their own caps too, the last at the process's alone
		_, p, v := l.Enter(Charge{}, of(fmt.Sprint(i)), 5, 0)
		if v.Outcome != Queued {
			t.Fatal(i, v.Outcome)
		}
		waiting = append(waiting, p)
	}
	served := func() (list string) {
		for i, p := range waiting {
			select {
			case <-p.Ready():
				list += fmt.Sprint(i)
			default:
			}
		}
		return list
	}
	running[1].Release()
	if got := served(); got != "1" && got != "3" {
		t.Errorf("one slot of 1's: %q were served", got)
	}
	running[0].Release()
	running[2].Release()
	if got := served(); len(got) != 3 {
		t.Errorf("three slots: %q were served", got)
	}
	left := 4
	for left > 0 {
		for i, p := range waiting {
			if p == nil {
				continue
			}
			select {
			case <-p.Ready():
				ticket, v := p.End(0)
				if v.Outcome != Admitted {
					t.Fatal(i, v.Outcome)
				}
				ticket.Release()
				waiting[i], left = nil, left-1
			default:
			}
		}
	}
	if st := l.Stats(); st.Waiting != 0 || len(l.line.parties) != 0 {
		t.Errorf("%+v, %d parties", st, len(l.line.parties))
	}
	l.wantInFlight(t, 0)
}

// TestNobodysCallsWaitToo: those that have no tenant, for a service and beside those
// that have one.
func TestNobodysCallsWaitToo(t *testing.T) {
	l := NewLocal(Options{})
	a := Admission{Service: NewService("s", 1)}
	holds, _, _ := l.Enter(Charge{}, a, 1, 0)
	_, p, v := l.Enter(Charge{}, a, 1, 0)
	b := a
	b.Tenant = NewTenant(Registered, "t", Limit{}, 0)
	_, q, w := l.Enter(Charge{}, b, 1, 0)
	if v.Outcome != Queued || w.Outcome != Queued {
		t.Fatal(v.Outcome, w.Outcome)
	}
	if _, _, v := l.Enter(Charge{}, a, 1, 0); v.Outcome != ConcurrencyLimited {
		t.Errorf("a second one of nobody's: %v", v.Outcome)
	}
	l.Follow(&Caps{Tenant: func(*Ref) *Ref { return nil }, Service: func(*Service) *Service { return nil }})
	holds.Release()
	for _, place := range []*Place{p, q} {
		<-place.Ready()
		ticket, _ := place.End(0)
		ticket.Release()
	}
	if st := l.Stats(); st.Waiting != 0 {
		t.Errorf("%+v", st)
	}
	l.wantInFlight(t, 0)
}
