package tunnel_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"agentgw/internal/tunnel"
)

const (
	s = int64(time.Second)
	h = int64(time.Hour)
)

var ten = tunnel.Limit{Bytes: 10, Window: time.Hour}

func cutting(l tunnel.Limit) tunnel.Limit {
	l.Cut = true
	return l
}

// TestSpend: time, bytes, and what came of it, a step a line.
func TestSpend(t *testing.T) {
	type step struct {
		at, n    int64
		ok, last bool
		used     int64
		ends     time.Duration
	}
	for _, c := range []struct {
		name  string
		limit tunnel.Limit
		steps []step
	}{
		{"finish", ten, []step{
			{5 * s, 4, true, false, 4, time.Hour},
			{6 * s, 5, true, false, 9, time.Hour - time.Second},
			{7 * s, 1, true, true, 10, time.Hour - 2*time.Second},
			{8 * s, 7, true, false, 17, time.Hour - 3*time.Second}, // runs on; the limit was reached before
			{5*s + h - 1, 1, true, false, 18, 1},
			{5*s + h, 2, true, false, 2, time.Hour}, // another window, which begins with this byte
			{4 * h, 2, true, false, 2, time.Hour},   // and not when the last one ended
		}},
		{"cut", cutting(ten), []step{
			{0, 9, true, false, 9, time.Hour},
			{0, 100, true, true, 109, time.Hour}, // something was left: the piece passes whole
			{0, 1, false, false, 109, time.Hour},
			{h - 1, 1, false, false, 109, 1}, // what is refused counts nothing
			{h, 1, true, false, 1, time.Hour},
		}},
		{"in one piece", cutting(ten), []step{{0, 11, true, true, 11, time.Hour}, {1, 1, false, false, 11, time.Hour - 1}}},
		{"exactly", cutting(ten), []step{{0, 10, true, true, 10, time.Hour}, {0, 1, false, false, 10, time.Hour}}},
		{"time goes back", cutting(ten), []step{{h, 10, true, true, 10, time.Hour}, {0, 1, false, false, 10, 2 * time.Hour}, {2*h - 1, 1, false, false, 10, 1}, {2 * h, 1, true, false, 1, time.Hour}}},
		{"no limit", tunnel.Limit{Window: time.Hour, Cut: true}, []step{{0, math.MaxInt64, true, false, 0, 0}, {0, math.MaxInt64, true, false, 0, 0}}},
		{"more than can be counted", ten, []step{{0, math.MaxInt64, true, true, math.MaxInt64, time.Hour}, {0, math.MaxInt64, true, false, math.MaxInt64, time.Hour}}},
		{"a window without end", cutting(tunnel.Limit{Bytes: 1, Window: math.MaxInt64}), []step{{5, 1, true, true, 1, math.MaxInt64}, {6, 1, false, false, 1, math.MaxInt64 - 1}}},
	} {
		b := tunnel.NewBudgets(10, nil)
		for i, want := range c.steps {
			lease := b.Spend("a", c.limit, want.n, want.at)
			got := b.Standing("a", c.limit, want.at)
			if lease.OK != want.ok || lease.Last != want.last || got.Used != want.used || got.Ends != want.ends {
				t.Errorf("%s, step %d: %+v %+v, want %+v", c.name, i, lease, got, want)
			}
			if exhausted := c.limit.Bytes > 0 && want.used >= c.limit.Bytes; (got.Exhausted() > 0) != exhausted || exhausted && got.Exhausted() != want.ends {
				t.Errorf("%s, step %d: exhausted for %s", c.name, i, got.Exhausted())
			}
			if other := b.Standing("b", c.limit, want.at); other.Used != 0 || other.Exhausted() != 0 {
				t.Errorf("%s, step %d: another caller: %+v", c.name, i, other)
			}
		}
	}
}

// TestReturn: what did not flow is given back, within its window alone.
func TestReturn(t *testing.T) {
	b := tunnel.NewBudgets(10, nil)
	lease := b.Spend("a", cutting(ten), 10, 0)
	b.Return("a", lease, 4)
	if got := b.Standing("a", ten, 0); got.Used != 6 || got.Left != 4 {
		t.Errorf("%+v", got)
	}
	b.Return("a", tunnel.Lease{}, 4) // of what was refused
	b.Return("a", lease, -1)
	b.Return("nobody", lease, 4)
	if got := b.Standing("a", ten, 0); got.Used != 6 {
		t.Errorf("%+v", got)
	}
	if next := b.Spend("a", cutting(ten), 10, h); !next.OK || !next.Last {
		t.Errorf("%+v", next)
	}
	b.Return("a", lease, 6)
	if got := b.Standing("a", ten, h); got.Used != 10 {
		t.Errorf("what was counted in one window is returned in the next: %+v", got)
	}
	all := b.Spend("b", cutting(ten), 3, h)
	b.Return("b", all, 3)
	b.Spend("b", cutting(ten), 1, h+5)
	if got := b.Standing("b", ten, h+5); got.Ends != time.Hour {
		t.Errorf("the window began with a byte that did not flow: %+v", got)
	}
}

// TestAnotherLimit: what was used counts under whatever limit comes with a change of the file.
func TestAnotherLimit(t *testing.T) {
	b := tunnel.NewBudgets(10, nil)
	b.Spend("a", ten, 10, 0)
	wider := tunnel.Limit{Bytes: 20, Window: time.Hour}
	if got := b.Standing("a", wider, 0); got.Left != 10 || got.Exhausted() != 0 {
		t.Errorf("%+v", got)
	}
	shorter := tunnel.Limit{Bytes: 10, Window: time.Minute}
	if got := b.Standing("a", shorter, 1); got.Exhausted() != time.Minute-1 {
		t.Errorf("%+v", got)
	}
	if got := b.Standing("a", shorter, int64(time.Minute)); got.Used != 0 {
		t.Errorf("%+v", got)
	}
}

// TestATableIsBounded: windows that are over go when others come, none that is not, and who
// finds no room shares one window with all others who do not, and takes its debts along.
func TestATableIsBounded(t *testing.T) {
	warned := 0
	b := tunnel.NewBudgets(3, func() { warned++ })
	limit := cutting(ten)
	for i, who := range []string{"a", "b", "c"} {
		b.Spend(who, limit, 10, int64(i))
	}
	if !b.Spend("d", limit, 6, 3).OK || !b.Spend("e", limit, 6, 3).OK || b.Spend("d", limit, 1, 3).OK || b.Spend("f", limit, 1, 4).OK {
		t.Error("those without a window of their own do not share one")
	}
	if b.Len() != 3 || warned != 1 {
		t.Errorf("%d windows, %d warnings", b.Len(), warned)
	}
	for _, who := range []string{"a", "b", "c"} {
		if b.Spend(who, limit, 1, 5).OK {
			t.Errorf("%s has got more", who)
		}
	}
	b.Spend("g", limit, 1, int64(time.Minute)+3)
	if warned != 2 {
		t.Errorf("%d warnings", warned)
	}
	if b.Spend("d", limit, 1, h).OK || b.Len() != 3 {
		t.Error("d, which finds room now, has forgotten what is used")
	}
	if !b.Spend("d", limit, 1, h+3).OK {
		t.Error("the shared window does not end")
	}
	for i := range 100 {
		b.Spend(fmt.Sprint(i), limit, 1, 3*h)
	}
	if b.Len() != 3 {
		t.Errorf("%d windows", b.Len())
	}
	if !b.Spend("a", limit, 10, 5*h).OK || b.Spend("a", limit, 1, 5*h).OK {
		t.Error("a new window")
	}
}

// TestAFullTableEmpties: two that are over go for each that comes.
func TestAFullTableEmpties(t *testing.T) {
	b := tunnel.NewBudgets(1000, nil)
	for i := range 1000 {
		b.Spend(fmt.Sprint("old", i), ten, 1, 0)
	}
	for i := range 400 {
		b.Spend(fmt.Sprint("new", i), ten, 1, h)
	}
	if b.Len() != 600 {
		t.Errorf("%d windows", b.Len())
	}
	b.Spend("old999", ten, 1, h+1) // who comes again has a window that begins now
	for i := range 1000 {
		b.Spend(fmt.Sprint("newer", i), ten, 1, 2*h)
	}
	if got := b.Standing("old999", ten, 2*h); got.Used != 1 || got.Ends != 1 {
		t.Errorf("a window that is not over is gone: %+v", got)
	}
}

// TestManyTunnelsOfOneCaller spend at once: what they carry together is the limit and at
// most the one piece that reaches it, and one of them alone is told that it does.
func TestManyTunnelsOfOneCaller(t *testing.T) {
	const limit, piece = 100_000, 4096
	for range 20 {
		b := tunnel.NewBudgets(10, nil)
		var carried, last atomic.Int64
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				for {
					n := rand.Int64N(piece) + 1
					lease := b.Spend("a", tunnel.Limit{Bytes: limit, Window: time.Hour, Cut: true}, n, 0)
					if !lease.OK {
						return
					}
					if lease.Last {
						last.Add(1)
					}
					carried.Add(n)
				}
			})
		}
		all.Wait()
		if got := carried.Load(); got < limit || got >= limit+piece || last.Load() != 1 {
			t.Fatalf("%d bytes, %d times the last", got, last.Load())
		}
	}
}

// TestBudgetsAgainstAList: whatever callers do and whenever, they are decided as by a list of
// all that has flowed.
func TestBudgetsAgainstAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := tunnel.NewBudgets(5, nil)
		limit := tunnel.Limit{Bytes: rapid.Int64Range(1, 30).Draw(t, "bytes"), Window: time.Duration(rapid.Int64Range(1, 20).Draw(t, "window")), Cut: rapid.Bool().Draw(t, "cut")}
		type flowed struct{ began, used int64 }
		list, now := map[string]flowed{}, int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.Int64Range(0, 8).Draw(t, "later")
			who := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "who")
			n := rapid.Int64Range(1, 12).Draw(t, "n")
			f, begun := list[who]
			if begun && now >= f.began+int64(limit.Window) {
				f, begun = flowed{}, false
			}
			wanted := !limit.Cut || f.used < limit.Bytes
			if !begun {
				f.began = now
			}
			lease := b.Spend(who, limit, n, now)
			if lease.OK != wanted || lease.Last != (wanted && f.used < limit.Bytes && f.used+n >= limit.Bytes) {
				t.Fatalf("%+v, used %d before", lease, f.used)
			}
			if wanted {
				f.used += n
				if unused := rapid.Int64Range(0, n-1).Draw(t, "unused"); unused > 0 {
					b.Return(who, lease, unused)
					f.used -= unused
				}
				list[who] = f
			}
			if got := b.Standing(who, limit, now); list[who].began == f.began && list[who].used > 0 && got.Used != f.used {
				t.Fatalf("%+v, want %+v", got, f)
			}
		}
	})
}

// TestWhoComesAgainIsNoLongerTheOldest: windows that have begun anew do not hide those behind
// them that are over, however many they are.
func TestWhoComesAgainIsNoLongerTheOldest(t *testing.T) {
	b := tunnel.NewBudgets(40, func() { t.Error("there was no room") })
	for i := range 40 {
		b.Spend(fmt.Sprint(i), ten, 1, 0)
	}
	for i := range 20 {
		b.Spend(fmt.Sprint(i), ten, 1, h)
	}
	b.Spend("new", ten, 1, h+1)
	if b.Len() != 39 {
		t.Errorf("%d windows, want that of the new one and 38 of the others", b.Len())
	}
}
