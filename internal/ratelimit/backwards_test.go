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
	// At 10 s, by a clock behind, nothing is to be had until 50 s, when one is.
	if _, v := l.take(Registered, KindKey, "k", limit, 10*second); int64(v.Wait) != 40*second {
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
