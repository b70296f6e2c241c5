package ratelimit

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"
)

// TestADay of calls, in fake time (a tenth of one, but for DRILLS=full): what is in flight is what tickets are open for,
// the table keeps its bound, and no goroutine is left behind.
func TestADay(t *testing.T) {
	const size, step = 200, second
	var clock hands
	l := NewLocal(Options{TableSize: size, Idle: time.Minute, Clock: &clock})
	before := runtime.NumGoroutine()
	r := rand.New(rand.NewPCG(1, 2))
	var open []Ticket
	for now := int64(0); now < int64(scaled(240))*int64(time.Hour)/10; now += step {
		clock = hands(now)
		who := fmt.Sprint(r.IntN(1000))
		ticket, v := l.call(call{key: who, keyLimit: Limit{second / 20, 5}, admission: admission{
			Tenant: "of-" + who, TenantLimit: Limit{second / 20, 5}, TenantSlots: 3, Service: "s",
			ServiceBucket: ServiceBucket(who, "s"), ServiceLimit: Limit{second / 10, 2}, ServiceSlots: 1000, Process: 1000,
		}}, now)
		if v.Outcome == Admitted {
			open = append(open, ticket)
		}
		if n := len(open) - 1; n > r.IntN(300) { // never the newest, whose buckets owe
			i := r.IntN(n)
			open[i].Release()
			open = slices.Delete(open, i, i+1)
		}
		l.Sweep(now)
		if now%(600*second) == 0 {
			st := l.Stats()
			table := st.Tables[Registered]
			l.wantInFlight(t, int64(len(open)))
			if table.Entries > size+table.Pinned || table.UnexpiredEvictions != 0 || table.Overflowed != 0 {
				t.Fatalf("%+v", table)
			}
		}
	}
	for _, ticket := range open {
		ticket.Release()
	}
	l.wantInFlight(t, 0)
	st := l.Stats()
	if st.Tables[Registered].Pinned != 0 || st.DoubleReleases != 0 || st.LeakedTickets != 0 {
		t.Errorf("%+v", st)
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
}

// hands is a clock that shows what it is set to.
type hands int64

func (h *hands) Nanos() int64 { return int64(*h) }

// TestCallsAllocateNothing once their entries are made.
func TestCallsAllocateNothing(t *testing.T) {
	p := populate(10)
	now := int64(0)
	if n := testing.AllocsPerRun(1000, func() { now += 10; p.call(3, now) }); n != 0 {
		t.Errorf("an admitted call allocates %v times", n)
	}
	dry := NewRef(Registered, KindKey, "dry", Limit{1 << 40, 1})
	p.l.Take(dry, now)
	if n := testing.AllocsPerRun(1000, func() { p.l.Take(dry, now) }); n != 0 {
		t.Errorf("a refused one allocates %v times", n)
	}
}

// TestCacheLines: what every call touches of an entry is one line, and so is a Ref;
// and an entry, and a tenant's with its slots, fill whole ones: two that are used
// by two processors share none.
func TestCacheLines(t *testing.T) {
	const line = 64
	if end := unsafe.Offsetof(entry{}.bucket) + unsafe.Sizeof(bucket{}); end > line {
		t.Errorf("the first group of an entry ends at %d", end)
	}
	if size := unsafe.Sizeof(Ref{}); size != line {
		t.Errorf("a Ref has %d bytes", size)
	}
	tenant := unsafe.Sizeof(entry{}) + unsafe.Sizeof(slots{}) + unsafe.Sizeof(held{})
	if size := unsafe.Sizeof(entry{}); size%line != 0 || tenant%line != 0 {
		t.Errorf("an entry has %d bytes, a tenant's %d", size, tenant)
	}
}
