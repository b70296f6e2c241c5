package ratelimit

import (
	"math"
	"testing"
)

// TestDecideWholeDomain compares decide with a bucket that counts in tokens, over
// every small case: no case outside behaves differently but for overflow, which
// maxWindow excludes.
func TestDecideWholeDomain(t *testing.T) {
	for interval := int64(1); interval <= 4; interval++ {
		for burst := int64(1); burst <= 4; burst++ {
			l := Limit{interval, burst}
			for now := int64(0); now <= 20; now++ {
				for tat := int64(0); tat <= now+l.window(); tat++ {
					for cost := int64(0); cost <= burst+1; cost++ {
						d := decide(l, tat, now, cost)
						owed := max(0, tat-now)
						fits := owed+cost*interval <= l.window()
						switch {
						case d.never != (cost > burst):
							t.Fatalf("%+v tat %d now %d cost %d: never %v", l, tat, now, cost, d.never)
						case d.never:
							if d.tat != tat {
								t.Fatal("a never moved tat")
							}
						case fits != (d.wait == 0):
							t.Fatalf("%+v tat %d now %d cost %d: wait %d", l, tat, now, cost, d.wait)
						case d.wait > 0:
							if again := decide(l, tat, now+d.wait, cost); again.wait != 0 {
								t.Fatalf("%+v tat %d now %d cost %d: refused after the wait told", l, tat, now, cost)
							}
							if early := decide(l, tat, now+d.wait-1, cost); early.wait != 1 {
								t.Fatalf("%+v tat %d now %d cost %d: admitted before the wait told", l, tat, now, cost)
							}
						case cost == 0:
							if d.tat != tat {
								t.Fatal("a peek moved tat")
							}
						}
						r := sample{l, tat - now}.reading(KindKey)
						if r.Remaining < 0 || r.Remaining > burst || (r.Remaining >= cost) != (d.wait == 0 && !d.never) {
							t.Fatalf("%+v tat %d now %d: remaining %d, cost %d, decision %+v", l, tat, now, r.Remaining, cost, d)
						}
						if next := int64(r.Next); next > 0 {
							later := sample{l, tat - now - next}.reading(KindKey)
							early := sample{l, tat - now - next + 1}.reading(KindKey)
							if later.Remaining != r.Remaining+1 || early.Remaining != r.Remaining {
								t.Fatalf("%+v tat %d now %d: next %d is wrong", l, tat, now, next)
							}
						} else if r.Remaining != burst {
							t.Fatalf("%+v tat %d now %d: nothing to come and %d of %d there", l, tat, now, r.Remaining, burst)
						}
					}
				}
			}
		}
	}
}

func TestDecideEdges(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a negative cost, which would mint, did not panic")
		}
	}()
	widest := Limit{1, maxWindow}
	if d := decide(widest, math.MaxInt64/2, math.MaxInt64/4, maxWindow); d.wait <= 0 {
		t.Errorf("overflow: %+v", d)
	}
	decide(Limit{10, 2}, 0, 0, -1)
}

// script runs one bucket through a history: time is a column.
type step struct {
	at     int64
	op     string // take | refund (of charge n, counted from 0) | limit | limit since
	charge int
	limit  Limit
	since  int64
	ok     bool  // take: whether it is admitted
	wait   int64 // take: when not
	left   int64 // tokens afterwards
}

func run(t *testing.T, name string, l Limit, steps []step) {
	t.Helper()
	e := &entry{}
	var charges []spent
	for i, s := range steps {
		switch s.op {
		case "take":
			c, wait := e.takeLocked(l, s.at, s.at)
			if (wait == 0) != s.ok || wait != s.wait {
				t.Errorf("%s: step %d at %d: wait %d; want admitted %v, wait %d", name, i, s.at, wait, s.ok, s.wait)
			}
			if wait == 0 {
				charges = append(charges, c)
			}
		case "refund":
			e.refundLocked(charges[s.charge], s.at)
		case "limit":
			l = s.limit
			e.askLocked(l, s.at, s.at)
		case "limit since":
			l = s.limit
			e.askLocked(l, s.since, s.at)
		}
		if left := l.left(e.bucket.tat, e.bucket.now(s.at)) / l.Interval; left != s.left {
			t.Errorf("%s: step %d at %d: %d tokens left, want %d", name, i, s.at, left, s.left)
		}
	}
}

func TestBucketStories(t *testing.T) {
	run(t, "drain, be refused, wait as told, be admitted", Limit{10, 3}, []step{
		{at: 100, op: "take", ok: true, left: 2},
		{at: 100, op: "take", ok: true, left: 1},
		{at: 100, op: "take", ok: true, left: 0},
		{at: 100, op: "take", wait: 10, left: 0},
		{at: 109, op: "take", wait: 1, left: 0},
		{at: 110, op: "take", ok: true, left: 0},
		{at: 110, op: "take", wait: 10, left: 0},
		{at: 10_000, op: "take", ok: true, left: 2}, // idling fills to the burst, no further
	})
	run(t, "knocking does not reset the refill", Limit{10, 1}, []step{
		{at: 0, op: "take", ok: true, left: 0},
		{at: 3, op: "take", wait: 7, left: 0},
		{at: 6, op: "take", wait: 4, left: 0},
		{at: 9, op: "take", wait: 1, left: 0},
		{at: 10, op: "take", ok: true, left: 0},
	})
	run(t, "time running backwards neither mints nor burns", Limit{10, 2}, []step{
		{at: 100, op: "take", ok: true, left: 1},
		{at: 50, op: "take", ok: true, left: 0}, // as at 100, since nobody is in its way
		{at: 100, op: "take", wait: 10, left: 0},
		{at: 0, op: "take", wait: 10, left: 0},
		{at: 110, op: "take", ok: true, left: 0},
	})
}

func TestRefundStories(t *testing.T) {
	run(t, "at the moment of the charge it restores exactly", Limit{10, 2}, []step{
		{at: 5, op: "take", ok: true, left: 1},
		{at: 5, op: "take", ok: true, left: 0},
		{at: 5, op: "refund", charge: 1, left: 1},
		{at: 5, op: "refund", charge: 0, left: 2},
		{at: 5, op: "take", ok: true, left: 1},
		{at: 5, op: "take", ok: true, left: 0},
		{at: 5, op: "take", wait: 10, left: 0},
	})
	run(t, "at level 0, where it matters most", Limit{1 << 40, 1}, []step{
		{at: 5, op: "take", ok: true, left: 0},
		{at: 6, op: "take", wait: 1<<40 - 1, left: 0},
		{at: 6, op: "refund", charge: 0, left: 1},
		{at: 6, op: "take", ok: true, left: 0},
	})
	// The first token has refilled by 10 already: giving it back would count it
	// twice, and lowering tat by one interval would admit a third.
	run(t, "what time gave back is not given again", Limit{10, 2}, []step{
		{at: 0, op: "take", ok: true, left: 1},
		{at: 10, op: "take", ok: true, left: 1},
		{at: 10, op: "take", ok: true, left: 0},
		{at: 10, op: "refund", charge: 0, left: 0},
		{at: 10, op: "take", wait: 10, left: 0},
	})
	run(t, "a charge long refilled is worth nothing", Limit{10, 1}, []step{
		{at: 0, op: "take", ok: true, left: 0},
		{at: 10, op: "take", ok: true, left: 0},
		{at: 28, op: "take", ok: true, left: 0},
		{at: 30, op: "refund", charge: 1, left: 0},
		{at: 36, op: "take", wait: 2, left: 0},
	})
	run(t, "twice is once", Limit{10, 4}, []step{
		{at: 0, op: "take", ok: true, left: 3},
		{at: 0, op: "take", ok: true, left: 2},
		{at: 0, op: "take", ok: true, left: 1},
		{at: 0, op: "take", ok: true, left: 0},
		{at: 0, op: "refund", charge: 3, left: 1},
		{at: 0, op: "refund", charge: 3, left: 1},
		{at: 0, op: "refund", charge: 2, left: 2},
		{at: 0, op: "refund", charge: 3, left: 2},
		{at: 0, op: "refund", charge: 2, left: 2},
	})
	// The refund at 5 moved the second charge towards now, and so less of it lies
	// ahead at 12. Without that, 8, 12 and 17 would be admitted: three in 9.
	run(t, "what earlier refunds moved", Limit{10, 2}, []step{
		{at: 0, op: "take", ok: true, left: 1},
		{at: 0, op: "take", ok: true, left: 0},
		{at: 5, op: "refund", charge: 0, left: 1},
		{at: 8, op: "take", ok: true, left: 0},
		{at: 12, op: "refund", charge: 1, left: 1},
		{at: 12, op: "take", ok: true, left: 0},
		{at: 17, op: "take", wait: 5, left: 0},
	})
	// The 3 who come and go stand behind the one who waits, and move it nowhere.
	run(t, "who waits while others come and go", Limit{10, 5}, []step{
		{at: 0, op: "take", ok: true, left: 4},
		{at: 0, op: "take", ok: true, left: 3},
		{at: 0, op: "take", ok: true, left: 2}, // waits
		{at: 5, op: "take", ok: true, left: 1},
		{at: 5, op: "refund", charge: 3, left: 2},
		{at: 6, op: "take", ok: true, left: 1},
		{at: 6, op: "take", ok: true, left: 0},
		{at: 6, op: "refund", charge: 4, left: 1},
		{at: 6, op: "refund", charge: 5, left: 2},
		{at: 10, op: "refund", charge: 3, left: 3},
		{at: 12, op: "refund", charge: 2, left: 4},
		{at: 12, op: "refund", charge: 2, left: 4},
		{at: 12, op: "refund", charge: 1, left: 5}, // the 8 of its 10 that are left
		{at: 20, op: "take", ok: true, left: 4},
	})
	run(t, "by a clock that is behind, as at the latest time known", Limit{10, 3}, []step{
		{at: 0, op: "take", ok: true, left: 2},
		{at: 25, op: "take", ok: true, left: 2},
		{at: 0, op: "refund", charge: 0, left: 2}, // nothing: time has given it back already
		{at: 25, op: "take", ok: true, left: 1},
	})
}

func TestChangeOfLimit(t *testing.T) {
	run(t, "raised while drained: one new interval to the next, nothing minted", Limit{100, 2}, []step{
		{at: 0, op: "take", ok: true, left: 1},
		{at: 0, op: "take", ok: true, left: 0},
		{at: 0, op: "limit", limit: Limit{10, 20}, left: 0},
		{at: 0, op: "take", wait: 10, left: 0},
		{at: 10, op: "take", ok: true, left: 0},
	})
	run(t, "lowered: at most the new burst, at the new rate", Limit{10, 100}, []step{
		{at: 0, op: "take", ok: true, left: 99},
		{at: 0, op: "limit", limit: Limit{100, 2}, left: 2},
		{at: 0, op: "take", ok: true, left: 1},
		{at: 0, op: "take", ok: true, left: 0},
		{at: 0, op: "take", wait: 100, left: 0},
	})
	run(t, "to and fro mints nothing", Limit{10, 2}, []step{
		{at: 0, op: "take", ok: true, left: 1},
		{at: 0, op: "limit", limit: Limit{10, 50}, left: 1},
		{at: 0, op: "limit", limit: Limit{10, 1}, left: 1},
		{at: 0, op: "limit", limit: Limit{10, 50}, left: 1},
		{at: 0, op: "take", ok: true, left: 0},
		{at: 0, op: "limit", limit: Limit{10, 2}, left: 0},
		{at: 0, op: "take", wait: 10, left: 0},
	})
	run(t, "untouched for a whole window, it is full under either", Limit{10, 2}, []step{
		{at: 0, op: "take", ok: true, left: 1},
		{at: 20, op: "limit", limit: Limit{10, 50}, left: 50},
	})
	run(t, "lowered while nobody asked", Limit{10, 5}, []step{
		{at: 0, op: "take", ok: true, left: 4},
		{at: 0, op: "take", ok: true, left: 3},
		{at: 0, op: "take", ok: true, left: 2},
		{at: 0, op: "take", ok: true, left: 1},
		{at: 0, op: "take", ok: true, left: 0},
		{at: 130, op: "limit since", since: 30, limit: Limit{100, 5}, left: 4},
	})
	run(t, "raised while nobody asked", Limit{100, 2}, []step{
		{at: 0, op: "take", ok: true, left: 1},
		{at: 0, op: "take", ok: true, left: 0},
		{at: 120, op: "limit since", since: 100, limit: Limit{10, 20}, left: 3},
	})
	run(t, "since before it was last asked, and since later than now", Limit{10, 2}, []step{
		{at: 100, op: "take", ok: true, left: 1},
		{at: 100, op: "take", ok: true, left: 0},
		{at: 100, op: "limit since", since: 5, limit: Limit{10, 3}, left: 0},
		{at: 105, op: "limit since", since: 1000, limit: Limit{10, 4}, left: 0},
		{at: 110, op: "take", ok: true, left: 0},
	})
	run(t, "by a clock that is behind", Limit{10, 2}, []step{
		{at: 1000, op: "take", ok: true, left: 1},
		{at: 1000, op: "take", ok: true, left: 0},
		{at: 0, op: "limit", limit: Limit{10, 3}, left: 0},
		{at: 1000, op: "take", wait: 10, left: 0},
	})
}

func TestScale(t *testing.T) {
	for _, tt := range []struct{ a, b, c, want int64 }{
		{7, 3, 2, 10},
		{0, maxWindow, 1, 0},
		{maxWindow, maxWindow, maxWindow, maxWindow},
		{maxWindow, maxWindow, 1, math.MaxInt64},
		{maxWindow, 9, 1, math.MaxInt64},
	} {
		if got := scale(tt.a, tt.b, tt.c); got != tt.want {
			t.Errorf("scale(%d, %d, %d) = %d, want %d", tt.a, tt.b, tt.c, got, tt.want)
		}
	}
}

// TestClocksApart: 2,000 calls of two clocks a second apart, at 10 a second and a
// burst of 10, may be worth the burst and the second's refill, and no more. In
// order they are worth exactly that; interleaved, the clock that is behind is
// refused what the other has used.
func TestClocksApart(t *testing.T) {
	for _, tt := range []struct {
		name string
		at   func(i int) int64
		want int
	}{
		{"in order", func(i int) int64 { return int64(i / 1000) }, 20},
		{"backwards", func(i int) int64 { return int64(1 - i/1000) }, 10},
		{"alternating", func(i int) int64 { return int64(i % 2) }, 11},
	} {
		e := &entry{}
		admitted := 0
		for i := range 2000 {
			at := tt.at(i) * 1_000_000_000
			if _, wait := e.takeLocked(Limit{100_000_000, 10}, at, at); wait == 0 {
				admitted++
			}
		}
		if admitted != tt.want {
			t.Errorf("%s: %d admitted, want %d", tt.name, admitted, tt.want)
		}
	}
}

// TestRefundMemory: what is remembered of refunds does not grow with a flood of
// them, and a second refund is refused all the same.
func TestRefundMemory(t *testing.T) {
	e := &entry{}
	l := Limit{1000, 4}
	for i := range int64(5000) {
		c, wait := e.takeLocked(l, i, i)
		if wait != 0 {
			t.Fatalf("refused at %d", i)
		}
		e.refundLocked(c, i)
		before := e.bucket
		e.refundLocked(c, i)
		if e.bucket != before {
			t.Fatalf("a second refund at %d did something", i)
		}
		if n := len(e.rare.given.list); n > 2100 {
			t.Fatalf("%d refunds remembered at %d, of which 1000 can matter", n, i)
		}
	}
	slow := Limit{1 << 40, 1}
	e = &entry{}
	free := 0
	for range 2 * maxGiven {
		c, wait := e.takeLocked(slow, 7, 7)
		if wait != 0 {
			break
		}
		e.refundLocked(c, 7)
		free++
	}
	if n := len(e.rare.given.list); free != maxGiven+1 || n != maxGiven {
		t.Errorf("%d takes in one instant before refunds are withheld, %d remembered; want one more than %d", free, n, maxGiven)
	}
}
