package ratelimit

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// history is the naive account of a bucket: the times of the calls that it let
// through and that were not given back. It knows no TAT.
type history struct {
	limit Limit
	times []int64 // sorted
}

// conforms reports whether every window [s, e] holds at most burst + (e-s)/T.
// Windows that begin and end at an admission are the worst, so only those count.
func (h *history) conforms() bool {
	for i, s := range h.times {
		for j := i; j < len(h.times); j++ {
			if int64(j-i+1) > h.limit.Burst+(h.times[j]-s)/h.limit.Interval {
				return false
			}
		}
	}
	return true
}

func (h *history) add(at int64) {
	i, _ := slices.BinarySearch(h.times, at)
	h.times = slices.Insert(h.times, i, at)
}

func (h *history) remove(at int64) {
	i, ok := slices.BinarySearch(h.times, at)
	if !ok {
		panic("not in the history")
	}
	h.times = slices.Delete(h.times, i, i+1)
}

// admits reports whether one more call at the given time would conform.
func (h *history) admits(at int64) bool {
	h.add(at)
	defer h.remove(at)
	return h.conforms()
}

func drawLimit(t *rapid.T) Limit {
	return Limit{rapid.Int64Range(1, 20).Draw(t, "interval"), rapid.Int64Range(1, 6).Draw(t, "burst")}
}

// TestNeverMoreThanTheLimit: any history of takes and refunds, in time that may
// run backwards, keeps every window of what was let through and not given back,
// each at the latest time that was known by then. Without refunds, it admits
// whenever that allows: a call that read the clock before those that had their
// turn first is not refused for it.
func TestNeverMoreThanTheLimit(t *testing.T) {
	for _, tt := range []struct {
		name               string
		backwards, refunds bool
	}{
		{"in order", false, false},
		{"backwards", true, false},
		{"with refunds", false, true},
		{"backwards with refunds", true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				h := history{limit: drawLimit(t)}
				e := &entry{}
				now := int64(0)
				var charges []spent
				var times []int64
				var alive []bool
				back := int64(0)
				if tt.backwards {
					back = -30
				}
				for range rapid.IntRange(1, 60).Draw(t, "steps") {
					now = max(0, now+rapid.Int64Range(back, 30).Draw(t, "dt"))
					if tt.refunds && len(charges) > 0 && rapid.IntRange(0, 2).Draw(t, "op") == 0 {
						i := rapid.IntRange(0, len(charges)-1).Draw(t, "charge")
						before := e.bucket
						e.refundLocked(charges[i], now)
						if e.bucket.tat > before.tat {
							t.Fatalf("a refund took: %+v to %+v", before, e.bucket)
						}
						if e.bucket.tat != before.tat && !alive[i] {
							t.Fatalf("a second refund gave: %+v to %+v", before, e.bucket)
						}
						if alive[i] {
							h.remove(times[i])
						}
						alive[i] = false
						continue
					}
					at := e.bucket.now(now)
					may := h.admits(at)
					c, wait := e.takeLocked(h.limit, now, now)
					if wait == 0 {
						charges, times, alive = append(charges, c), append(times, at), append(alive, true)
						h.add(at)
						if !h.conforms() {
							t.Fatalf("%+v: %v breaks the limit", h.limit, h.times)
						}
					} else if may && !tt.refunds {
						t.Fatalf("%+v: refused at %d after %v, which allows it", h.limit, at, h.times)
					}
				}
			})
		})
	}
}

// TestRefundAtOnceIsExact: a bucket whose calls are given back at the moment of
// their charge, in any order, decides ever after like one that never saw them.
func TestRefundAtOnceIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimit(t)
		tested, plain := &entry{}, &entry{}
		now := int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now += rapid.Int64Range(0, 30).Draw(t, "dt")
			var crowd []spent
			for range rapid.IntRange(0, 4).Draw(t, "crowd") {
				if c, wait := tested.takeLocked(l, now, now); wait == 0 {
					crowd = append(crowd, c)
				}
			}
			for _, c := range rapid.Permutation(crowd).Draw(t, "order") {
				tested.refundLocked(c, now)
			}
			_, a := tested.takeLocked(l, now, now)
			_, b := plain.takeLocked(l, now, now)
			if a != b {
				t.Fatalf("%+v at %d: waits %d, without the refunded calls %d", l, now, a, b)
			}
		}
	})
}

// TestRefundLosesLessThanAToken: a refund d after its charge gives back at least
// a token less d, as far as the bucket owes it still.
func TestRefundLosesLessThanAToken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimit(t)
		e := &entry{}
		now := int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now += rapid.Int64Range(0, 30).Draw(t, "dt")
			c, wait := e.takeLocked(l, now, now)
			if wait != 0 {
				continue
			}
			late := rapid.Int64Range(0, 30).Draw(t, "late")
			before := e.bucket.tat
			e.refundLocked(c, now+late)
			if back := before - e.bucket.tat; back < l.Interval-late || back > l.Interval {
				t.Fatalf("%+v: %d back of %d, %d after the charge", l, back, l.Interval, late)
			}
			now += late
		}
	})
}

// TestChangesMintNothing: through any changes of limit, the tokens never exceed
// what the old balance and the time since at the new rate make, nor the burst.
func TestChangesMintNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimit(t)
		e := &entry{}
		e.bucket.adopt(l, 0, 0)
		now := int64(0)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += rapid.Int64Range(0, 10).Draw(t, "dt")
			if rapid.Bool().Draw(t, "take") {
				e.takeLocked(l, now, now)
				continue
			}
			was := e.bucket
			had := l.left(was.tat, now) / l.Interval
			l = drawLimit(t)
			e.bucket.adopt(l, now, now)
			has := l.left(e.bucket.tat, now) / l.Interval
			rested := now-was.seen >= was.limit.window()
			if has > had && !rested || has > l.Burst {
				t.Fatalf("%+v with %d tokens became %+v with %d", was.limit, had, l, has)
			}
			if e.bucket.tat > now+l.window() {
				t.Fatalf("a change locked the bucket: %d > %d", e.bucket.tat, now+l.window())
			}
		}
	})
}
