package ratelimit

import (
	"fmt"
	"testing"
	"time"
)

// TestLastRefusalIsBoundedWithTheTable: it goes when the tenant's entry goes,
// keeps none alive, and takes no room of its own.
func TestLastRefusalIsBoundedWithTheTable(t *testing.T) {
	l := NewLocal(Options{TableSize: 4, Idle: time.Minute})
	tenant := func(i int) *Ref {
		return NewTenant(Registered, fmt.Sprint("tenant:", i), Limit{Interval: second, Burst: 5}, 2)
	}
	for i := range 100 {
		l.Refused(tenant(i), "concurrency_limited", "service", int64(i))
	}
	known := 0
	for i := range 100 {
		if l.Look(tenant(i), 100).LastRefusal.Code != "" {
			known++
		}
	}
	if st := tableStats(l); known != 4 || st.Entries != 4 || st.Overflowed != 0 {
		t.Errorf("%d are known of; %+v", known, st)
	}
	l.Sweep(100 + 60*second)
	if st := tableStats(l); st.Entries != 0 {
		t.Errorf("after idling: %+v", st)
	}
	if got := l.Look(tenant(99), 100+60*second).LastRefusal; got != (Refusal{}) {
		t.Errorf("and it is still known: %+v", got)
	}
}

// TestLastRefusalIsTheNewest, in whatever order two of them are noted.
func TestLastRefusalIsTheNewest(t *testing.T) {
	l := NewLocal(Options{})
	tenant := NewTenant(Registered, "tenant:t", Limit{}, 0)
	l.Refused(tenant, "tenant_blocked", "", 20)
	l.Refused(tenant, "rate_limited", "a-rule", 10)
	if got, want := l.Look(tenant, 30).LastRefusal, (Refusal{20, "tenant_blocked", "", "tenant:t"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	l.Refused(tenant, "rate_limited", "a-rule", 21)
	var seen []Entry
	l.Each(Registered, KindTenant, 30, func(e Entry) bool { seen = append(seen, e); return true })
	if want := (Refusal{21, "rate_limited", "a-rule", "tenant:t"}); len(seen) != 1 || seen[0].LastRefusal != want {
		t.Errorf("%+v, want %+v", seen, want)
	}
}

// TestNotingARefusalDecidesNothing: no token, no slot, no time passes by it, and
// a key's refunds go on.
func TestNotingARefusalDecidesNothing(t *testing.T) {
	l := NewLocal(Options{})
	tenant := NewTenant(Registered, "tenant:t", Limit{Interval: second, Burst: 3}, 1)
	ask := Admission{Tenant: tenant, Service: NewService("s", 0)}
	for i := range 3 {
		l.Refused(tenant, "rate_limited", "tenant", int64(i))
		ticket, v := l.Admit(Charge{}, ask, 0)
		if v.Outcome != Admitted {
			t.Fatalf("call %d: %v", i, v.Outcome)
		}
		if got := l.Look(tenant, 0); got.InFlight != 1 || got.Remaining != int64(2-i) {
			t.Errorf("call %d: %+v", i, got)
		}
		if _, v := l.Admit(Charge{}, ask, 0); v.Outcome == Admitted {
			t.Error("over the cap")
		}
		ticket.Release()
	}
	if _, v := l.Admit(Charge{}, ask, second-1); v.Outcome != RateLimited {
		t.Errorf("a fourth is %v", v.Outcome)
	}
}

// TestLookAtAGuest: who found the table full has no entry, and what is known of
// it is told under its own name all the same: what it may still have, what runs,
// and its own refusal, not that of another guest.
func TestLookAtAGuest(t *testing.T) {
	l := NewLocal(Options{TableSize: 1})
	limit := Limit{Interval: 100 * second, Burst: 5}
	ref := func(name string) *Ref { return NewTenant(Registered, name, limit, 3) }
	admit := func(name string) {
		t.Helper()
		if _, v := l.Admit(Charge{}, Admission{Tenant: ref(name), Service: NewService("s", 0)}, 0); v.Outcome != Admitted {
			t.Fatalf("%s: %v", name, v.Outcome)
		}
	}
	ticket, _ := l.Admit(Charge{}, Admission{Tenant: ref("tenant:seated"), Service: NewService("s", 0)}, 0)
	ticket.Release() // it owes a token, and so keeps its seat
	if got := l.Look(ref("tenant:guest"), 0); got.Overflow || got.Remaining != 5 {
		t.Errorf("before it came: %+v", got)
	}
	admit("tenant:guest")
	admit("tenant:guest")
	admit("tenant:other")
	if got := l.Look(ref("tenant:guest"), 0); !got.Overflow || got.InFlight != 2 || got.Remaining != 2 || got.Cap != 3 || got.LastRefusal.Code != "" {
		t.Errorf("a guest: %+v", got)
	}
	l.Refused(ref("tenant:guest"), "rate_limited", "tenant", 7)
	if got, want := l.Look(ref("tenant:guest"), 7).LastRefusal, (Refusal{7, "rate_limited", "tenant", "tenant:guest"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := l.Look(ref("tenant:other"), 7); got.LastRefusal != (Refusal{}) || got.InFlight != 1 || !got.Overflow {
		t.Errorf("another guest: %+v", got)
	}
}

// TestLookGoesByTheLimitsInForce, not by those of the last call.
func TestLookGoesByTheLimitsInForce(t *testing.T) {
	l := NewLocal(Options{})
	was := NewTenant(Registered, "tenant:t", Limit{Interval: second, Burst: 10}, 8)
	for range 4 {
		l.Admit(Charge{}, Admission{Tenant: was, Service: NewService("s", 0)}, 0)
	}
	is := NewTenant(Registered, "tenant:t", Limit{Interval: second, Burst: 3}, 2)
	l.Block(Registered, "tenant:t")
	want := Entry{Table: Registered, Kind: KindTenant, Partition: "tenant:t", Limit: is.Limit(), Remaining: 3, InFlight: 4, Cap: 2, Blocked: true}
	if got := l.Look(is, 0); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
