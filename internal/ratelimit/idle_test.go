package ratelimit

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// TestLinger: in a large table an entry between two calls is not in the list, and
// is swept, evicted, counted and pinned as if it were.
func TestLinger(t *testing.T) {
	l := NewLocal(Options{TableSize: largeTable, Idle: time.Minute})
	table := l.tables[Registered]
	seats := func() {
		t.Helper()
		want := int64(0)
		for _, s := range table.shards {
			want += int64(s.idle.Len())
			for _, e := range s.linger {
				if e != nil {
					want++
				}
			}
		}
		if got := table.seats.Load(); got != want {
			t.Fatalf("%d seats taken, counted %d", got, want)
		}
	}
	const tenants = 2 * manyShards * lingerers
	admit := func(i int, now int64) Ticket {
		ticket, v := l.admit(admission{Tenant: fmt.Sprint(i), TenantLimit: Limit{1000, 5}, TenantSlots: 3, Service: "s"}, now)
		if v.Outcome != Admitted {
			t.Fatal(v.Outcome, v.Limit)
		}
		return ticket
	}
	for i := range tenants {
		admit(i, 0).Release()
	}
	seats()
	var open []Ticket
	for i := range tenants { // from places, and from the list
		open = append(open, admit(i, second))
	}
	if st := tableStats(l); st.Pinned != tenants || st.Entries != tenants {
		t.Errorf("all run: %+v", st)
	}
	seats()
	for i := range tenants { // newcomers take the places of those that run
		admit(tenants+i, second).Release()
	}
	seats()
	for _, ticket := range open {
		ticket.Release()
	}
	seats()
	if st := tableStats(l); st.Pinned != 0 || st.Entries != 2*tenants {
		t.Errorf("none runs: %+v", st)
	}
	l.Sweep(second + int64(time.Minute) - 1)
	if st := tableStats(l); st.Swept != 0 {
		t.Errorf("swept too early: %+v", st)
	}
	// Room is made of those that linger, too.
	for i := range 3 * largeTable {
		l.take(Registered, KindKey, fmt.Sprint("new-", i), Limit{1, 1}, 2*second+int64(i))
		if st := &table.seats; st.Load() > largeTable {
			t.Fatalf("%d seats", st.Load())
		}
	}
	seats()
	if st := tableStats(l); st.Entries != largeTable || st.UnexpiredEvictions != 0 || st.Overflowed != 0 {
		t.Errorf("%+v", st)
	}
	admit(0, 3*second).Release()
	for range 100 {
		l.Sweep(3*second + 2*int64(time.Minute))
	}
	if st := tableStats(l); st.Entries != 0 {
		t.Errorf("after a long idle time: %+v", st)
	}
	seats()
}

// TestLingererThatOwesStays, however long it idles.
func TestLingererThatOwesStays(t *testing.T) {
	l := NewLocal(Options{TableSize: largeTable, Idle: time.Minute})
	a := admission{Tenant: "t", TenantLimit: Limit{3600 * second, 1}, Service: "s"}
	ticket, _ := l.admit(a, 0)
	ticket.Release()
	for now := second; now < 1800*second; now += 10 * second {
		l.Sweep(now)
	}
	if _, v := l.admit(a, 1800*second); v.Outcome != RateLimited {
		t.Errorf("%v: the bucket came back full", v.Outcome)
	}
}

// TestTheLastCallMakesRoom: an entry whose call ends while all seats are taken
// takes that of one which can go, at once.
func TestTheLastCallMakesRoom(t *testing.T) {
	l := NewLocal(Options{TableSize: 2})
	ticket, _ := l.admit(admission{Tenant: "t", Service: "s"}, 0)
	l.take(Registered, KindKey, "a", Limit{1, 1}, 0)
	l.take(Registered, KindKey, "b", Limit{1, 1}, 0)
	ticket.Release()
	if st := tableStats(l); st.Entries != 3 {
		t.Errorf("%+v: at the time that the limiter knows, both owe", st)
	}
	ticket, _ = l.admit(admission{Tenant: "t", Service: "s"}, 10)
	ticket.Release()
	if st := tableStats(l); st.Entries != 2 || st.Pinned != 0 {
		t.Errorf("%+v: the table is left above its size", st)
	}
}

// TestLingererMakesRoom when all in the list owe.
func TestLingererMakesRoom(t *testing.T) {
	l := NewLocal(Options{TableSize: largeTable})
	ticket, _ := l.admit(admission{Tenant: "t", Service: "s"}, 0)
	ticket.Release()
	table := l.tables[Registered]
	home := table.peek(id{KindTenant, "t"}).home
	for i := 0; table.seats.Load() < largeTable; i++ {
		l.take(Registered, KindKey, fmt.Sprint(i), Limit{1 << 40, 1}, 1)
	}
	newcomer := ""
	for i := 0; newcomer == ""; i++ {
		if k := (id{KindKey, fmt.Sprint("new-", i)}); table.shardOf(k) == home {
			newcomer = k.partition
		}
	}
	if l.take(Registered, KindKey, newcomer, Limit{1, 1}, 2); table.peek(id{KindKey, newcomer}) == nil || table.peek(id{KindTenant, "t"}) != nil {
		t.Errorf("the newcomer shares an entry while one that rests keeps its own: %+v", tableStats(l))
	}
}

// TestPinnedTailBlocksNothing: entries with calls in flight are neither evicted
// nor in the way, do not count, and the table shrinks when they end.
func TestPinnedTailBlocksNothing(t *testing.T) {
	const size = 100
	l := NewLocal(Options{TableSize: size})
	limit := Limit{1000, 2}
	var tickets []Ticket
	for i := range 5 * size {
		ticket, v := l.admit(admission{Tenant: fmt.Sprint("pinned-", i), TenantLimit: limit, TenantSlots: 1, Service: "s"}, 0)
		if v.Outcome != Admitted {
			t.Fatal(v.Outcome, v.Limit)
		}
		tickets = append(tickets, ticket)
	}
	if st := tableStats(l); st.Pinned != 5*size || st.Entries != 5*size || st.Overflowed != 0 {
		t.Fatalf("%+v", st)
	}
	now := int64(0)
	for i := range 10_000 {
		now += 100_000
		if _, v := l.take(Registered, KindKey, fmt.Sprint("new-", i), limit, now); v.Outcome != Admitted {
			t.Fatal(v.Outcome)
		}
		if i%50 != 0 {
			continue
		}
		if st := tableStats(l); st.Entries > size+st.Pinned || st.Overflowed != 0 {
			t.Fatalf("%+v", st)
		}
	}
	l.Sweep(now + int64(24*time.Hour))
	for i := range tickets {
		_, v := l.admit(admission{Tenant: fmt.Sprint("pinned-", i), TenantLimit: limit, TenantSlots: 1, Service: "s"}, now)
		if v.Outcome != ConcurrencyLimited {
			t.Fatalf("the cap of %d is forgotten: %v", i, v.Outcome)
		}
	}
	for _, ticket := range tickets {
		ticket.Release()
	}
	// They were refilled long ago, but the limiter without a clock knows no
	// later time than their admission: they go with the next that come.
	for i := range 5 * size {
		l.take(Registered, KindKey, fmt.Sprint("after-", i), limit, now+int64(i)*100_000)
	}
	if st := tableStats(l); st.Entries != size || st.Pinned != 0 || st.UnexpiredEvictions != 0 {
		t.Errorf("%+v", st)
	}
}

// TestLongCallKeepsItsEntry through idle eviction and a crowd of others; also in a
// table so large that an entry lingers between two calls.
func TestLongCallKeepsItsEntry(t *testing.T) {
	for _, size := range []int{50, largeTable} {
		l := NewLocal(Options{TableSize: size, Idle: 10 * time.Minute})
		a := admission{Tenant: "t", TenantLimit: Limit{second, 2}, TenantSlots: 1, Service: "s"}
		l.admitAndRelease("t", 0)
		ticket, _ := l.admit(a, 0)
		for now := int64(0); now <= int64(11*time.Minute); now += second {
			l.take(Registered, KindKey, fmt.Sprint(now), Limit{1, 1}, now)
			l.Sweep(now)
		}
		if _, v := l.admit(a, int64(11*time.Minute)); v.Outcome != ConcurrencyLimited {
			t.Errorf("size %d: %v, want the cap enforced", size, v.Outcome)
		}
		ticket.Release()
		again, v := l.admit(a, int64(11*time.Minute))
		if v.Outcome != Admitted {
			t.Errorf("size %d: %v by %v", size, v.Outcome, v.Limit)
		}
		again.Release()
	}
}

// TestSweep: what is idle and full goes, at the age set and not before; what owes
// stays until it does not.
func TestSweep(t *testing.T) {
	l := NewLocal(Options{TableSize: 1000, Idle: time.Minute})
	l.take(Registered, KindKey, "full", Limit{second, 1}, 0)
	l.take(Registered, KindKey, "owing", Limit{300 * second, 1}, 0)
	entries := func(at, want int64) {
		t.Helper()
		l.Sweep(at)
		if st := tableStats(l); st.Entries != want || st.UnexpiredEvictions != 0 {
			t.Errorf("at %ds: %+v, want %d entries", at/second, st, want)
		}
	}
	entries(60*second-1, 2)
	entries(60*second, 1)
	entries(120*second, 1)
	if _, v := l.take(Registered, KindKey, "owing", Limit{300 * second, 1}, 120*second); v.Outcome != RateLimited {
		t.Error("a drained bucket came back full")
	}
	entries(299*second, 1)
	entries(360*second, 0)
	// One used through a Ref is not idle, although its place in the list is old.
	ref := NewRef(Registered, KindKey, "ref", Limit{1, 1})
	l.Take(ref, 360*second)
	l.Take(ref, 400*second)
	entries(420*second, 1)
	entries(480*second, 0)
	// Bounded work: not everything at once.
	for i := range 10 * sweepBatch {
		l.take(Registered, KindKey, fmt.Sprint(i), Limit{1, 1}, 500*second)
	}
	entries(1000*second, 9*sweepBatch)
}

// TestRoomIsMadeInAFewLooks: a newcomer to a full table, of which half has calls in
// flight and the other half owes, costs no more than a few looks at its tail.
func TestRoomIsMadeInAFewLooks(t *testing.T) {
	const half = 3000 // below largeTable, so that all is in one list
	l := NewLocal(Options{TableSize: half})
	var open []Ticket
	for i := range half {
		ticket, _ := l.admit(admission{Tenant: fmt.Sprint("pinned-", i), Service: "s"}, 0)
		open = append(open, ticket)
		l.take(Registered, KindKey, fmt.Sprint("owing-", i), Limit{1 << 40, 1}, 1)
	}
	s := l.tables[Registered].shards[0]
	for now := int64(2); now < 100; now++ {
		l.take(Registered, KindKey, fmt.Sprint("new-", now), Limit{1 << 40, 1}, now)
		touched := 0
		for _, e := range s.idle.Values() {
			if e.seated == now {
				touched++
			}
		}
		if touched == 0 || touched > looks {
			t.Fatalf("%d entries of %d were looked at, want at most %d", touched, s.idle.Len(), looks)
		}
	}
	if st := tableStats(l); st.Pinned != half || st.Entries != 2*half || st.Overflowed != 98 {
		t.Errorf("%+v", st)
	}
	runtime.KeepAlive(open) // a lost ticket gives its slot back
}
