package ratelimit

import (
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
)

// TestRefusedIsUsed: a tenant of which only the slots are limited is kept for as
// long after a call that was refused for want of one as if it had a bucket.
func TestRefusedIsUsed(t *testing.T) {
	l := NewLocal(Options{TableSize: largeTable, Idle: time.Minute})
	l.admitAndRelease("t", 0)
	l.admit(admission{Tenant: "other", Service: "s", ServiceSlots: 1}, 0)
	if _, v := l.admit(admission{Tenant: "t", Service: "s", ServiceSlots: 1}, 50*second); v.Outcome != ConcurrencyLimited {
		t.Fatal(v.Outcome)
	}
	here := func() bool { return l.tables[Registered].peek(id{KindTenant, "t"}) != nil }
	if l.Sweep(110*second - 1); !here() {
		t.Error("gone within a minute of its last call")
	}
	if l.Sweep(110 * second); here() {
		t.Error("kept for longer")
	}
}

// TestALongCallIsUseToItsEnd: its tenant is idle from then on, whether its entry
// lingers or goes to the list at once.
func TestALongCallIsUseToItsEnd(t *testing.T) {
	for _, size := range []int{largeTable, 10} {
		clock := clockwork.NewFakeClock()
		nanos := NewClock(clock)
		l := NewLocal(Options{TableSize: size, Idle: time.Minute, Clock: nanos})
		ticket, _ := l.admit(admission{Tenant: "t", Service: "s"}, 0)
		clock.Advance(100 * time.Second)
		ticket.Release()
		here := func() bool { return l.tables[Registered].peek(id{KindTenant, "t"}) != nil }
		if l.Sweep(160*second - 1); !here() {
			t.Errorf("table of %d: gone within a minute of the end of its call", size)
		}
		if l.Sweep(160 * second); here() {
			t.Errorf("table of %d: kept for longer", size)
		}
	}
}

// TestStaleCallKeepsAnEntryYoung: a call whose clock is behind does not age an
// entry that others have used since.
func TestStaleCallKeepsAnEntryYoung(t *testing.T) {
	l := NewLocal(Options{TableSize: 2})
	quick := Limit{1, 1}
	l.take(Registered, KindKey, "a", quick, 100)
	l.take(Registered, KindKey, "a", quick, 50) // looked up anew, by a clock behind
	if e := l.tables[Registered].peek(id{KindKey, "a"}); e.seated != 100 || e.bucket.seen != 100 {
		t.Errorf("seated at %d, seen at %d", e.seated, e.bucket.seen)
	}
	// Passed over at the tail, it is not made older either.
	s := l.tables[Registered].shards[0]
	s.toFrontLocked(l.tables[Registered].peek(id{KindKey, "a"}), 20)
	if e := l.tables[Registered].peek(id{KindKey, "a"}); e.seated != 100 {
		t.Errorf("passed over: seated at %d", e.seated)
	}
	// Nor when a call ends that a clock behind admitted.
	l.admitAndRelease("t", 100)
	l.admitAndRelease("t", 50)
	if e := l.tables[Registered].peek(id{KindTenant, "t"}); e.seated != 100 {
		t.Errorf("after its last call: seated at %d", e.seated)
	}
}

// TestStaleCallsMintNothingAtBirth: who gets an entry of its own by a clock behind
// the one that the shared entry was used by gains nothing by a refund or a change
// of limit, which go by the latest time that was seen.
func TestStaleCallsMintNothingAtBirth(t *testing.T) {
	l := crowded()
	limit := Limit{10 * second, 5}
	for range 5 {
		l.take(Registered, KindKey, "k", limit, 40*second)
	}
	withRoom(l)
	// By a clock behind at 10 s, nothing is to be had for 10 s, as at 40 s, the latest.
	if _, v := l.take(Registered, KindKey, "k", limit, 10*second); int64(v.Wait) != 10*second {
		t.Fatalf("wait %v", v.Wait)
	}
	if l.tables[Registered].peek(id{KindKey, "k"}) == nil {
		t.Fatal("no entry of its own")
	}
	// A change of limit at the stale time must not count 10 s to 40 s again.
	wider := Limit{second, 5}
	l.take(Registered, KindKey, "k", wider, 10*second)
	if r := l.peek(Registered, KindKey, "k", wider, 41*second); r.Remaining != 1 {
		t.Errorf("%d left one new interval after the latest time", r.Remaining)
	}
}

// TestAnOlderTimeFindsNobodysTokensGone: a call reads the clock and then has its turn,
// which others that read it later may have had first. A token that is there by their time
// is there for it too, whoever's bucket it is, and who is refused is told the wait from
// then on.
func TestAnOlderTimeFindsNobodysTokensGone(t *testing.T) {
	limit, service := Limit{10 * second, 2}, NewService("s", 0)
	key := NewRef(Registered, KindKey, "k", limit)
	for name, a := range map[string]Admission{
		"tenant":              {Tenant: NewTenant(Registered, "t", limit, 0)},
		"caller":              {Caller: NewRef(Registered, KindCaller, "c", limit)},
		"a key, at a service": {Bucket: NewRef(Registered, KindService, ServiceBucket("k", "s"), limit)},
	} {
		l := NewLocal(Options{})
		a.Service = service
		for i, at := range []int64{100 * second, 50 * second} {
			ticket, v := l.Admit(Charge{}, a, at)
			left := int64(-1)
			for r := range v.Readings() {
				left = r.Remaining
			}
			if v.Outcome != Admitted || left != int64(1-i) {
				t.Errorf("%s, at %d: %v, %d left", name, at, v.Outcome, left)
			}
			ticket.Release()
		}
		if _, v := l.Admit(Charge{}, a, 50*second); v.Outcome != RateLimited || v.Wait != 10*time.Second {
			t.Errorf("%s, of three: %+v", name, v)
		}
	}
	l := NewLocal(Options{})
	for i, at := range []int64{100 * second, 50 * second, 60 * second, 70 * second} {
		c := l.Take(key, at)
		if v := c.Verdict(); c.Refused() != (i >= 2) || c.Refused() && v.Wait != 10*time.Second {
			t.Errorf("key, call %d at %d: %+v", i, at, v)
		}
	}
	// A refusal of the tenant's is told with the wait for the key's next token.
	l = NewLocal(Options{})
	key = NewRef(Registered, KindKey, "k", limit)
	l.Take(key, 100*second)
	c := l.Take(key, 50*second)
	a := Admission{Tenant: NewTenant(Registered, "t", Limit{second, 1}, 0), Service: service}
	l.Admit(Charge{}, a, 100*second)
	if _, v := l.Admit(c, a, 50*second); v.Outcome != RateLimited || v.Wait != 10*time.Second {
		t.Errorf("refused by the tenant: %+v", v)
	}
}
