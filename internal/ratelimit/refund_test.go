package ratelimit

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// row is the naive account of what a bucket owes: its charges in the order in which
// they came. Time pays at the front, and a refund takes out what is left of its charge.
type row struct {
	rest []int64 // of each charge ever made
	paid int     // how many at the front are paid for
}

func (r *row) pass(dt int64) {
	for r.paid < len(r.rest) && dt >= r.rest[r.paid] {
		dt -= r.rest[r.paid]
		r.rest[r.paid] = 0
		r.paid++
	}
	if r.paid < len(r.rest) {
		r.rest[r.paid] -= dt
	}
}

func (r *row) takeOut(i int) (rest int64) {
	rest, r.rest[i] = r.rest[i], 0
	return rest
}

func (r *row) owes() (sum int64) {
	for _, rest := range r.rest[r.paid:] {
		sum += rest
	}
	return sum
}

// letThrough is when a call was, and whether it was given back.
type letThrough struct {
	at   int64
	back bool
}

// without is what a bucket owes at now that never saw the calls given back.
func without(calls []letThrough, cost, now int64) int64 {
	tat := int64(0)
	for _, c := range calls {
		if !c.back {
			tat = max(tat, c.at) + cost
		}
	}
	return max(0, tat-now)
}

// TestRefundsWithholdNoMoreThanTime: takes and refunds in any order, of who came
// first, last or between, some given back twice, with waits between and crowds that
// come and leave while others wait. A bucket owes what the row does: no more, so that
// all that was withheld together is no more than the time that passed, and nothing of
// who stands behind others; and never less than had the calls not been.
func TestRefundsWithholdNoMoreThanTime(t *testing.T) {
	for seed := range uint64(scaled(200_000)) {
		r := rand.New(rand.NewPCG(seed, 7))
		l := Limit{1 + r.Int64N(20), 1 + r.Int64N(8)}
		if seed%4 == 0 {
			l.Burst *= 8
		}
		// The slower time is, the more is owed.
		pace := 1 + r.Int64N(3*l.Interval)
		e := &entry{}
		var now, lost int64
		var naive row
		var calls []letThrough
		var charges []spent
		take := func() bool {
			c, wait := e.takeLocked(l, 0, now)
			if wait == 0 {
				calls, charges, naive.rest = append(calls, letThrough{at: now}), append(charges, c), append(naive.rest, l.Interval)
			}
			return wait == 0
		}
		refund := func(i int) {
			before := e.bucket.tat
			e.refundLocked(charges[i], now)
			got := before - e.bucket.tat
			if want := naive.takeOut(i); got != want {
				t.Fatalf("seed %d, %+v at %d: charge %d gave %d, in the row it had %d left", seed, l, now, i, got, want)
			}
			if !calls[i].back {
				calls[i].back = true
				lost += l.Interval - got
			}
		}
		for range 10 + r.IntN(60) {
			switch n := len(charges); {
			case r.IntN(3) == 0:
				dt := r.Int64N(pace)
				now += dt
				naive.pass(dt)
			case n == 0 || r.IntN(2) == 0:
				for range 1 + r.IntN(4) {
					take()
				}
			case r.IntN(3) == 0: // come and go
				for range 1 + r.IntN(6) {
					if take() {
						refund(len(charges) - 1)
					}
				}
			case r.IntN(3) == 0: // a crowd, from the front, the back, or in no order
				crowd := r.Perm(n)[:1+r.IntN(min(n, 6))]
				if r.IntN(3) > 0 {
					slices.Sort(crowd)
				}
				if r.IntN(2) == 0 {
					slices.Reverse(crowd)
				}
				for _, i := range crowd {
					refund(i)
				}
			default:
				refund(r.IntN(n))
			}
			owes := max(0, e.bucket.tat-now)
			if in := naive.owes(); owes != in {
				t.Fatalf("seed %d, %+v at %d: owes %d, the row %d", seed, l, now, owes, in)
			}
			if least := without(calls, l.Interval, now); owes < least {
				t.Fatalf("seed %d, %+v at %d: owes %d, without the calls %d", seed, l, now, owes, least)
			}
			if lost > now {
				t.Fatalf("seed %d, %+v at %d: %d lost in that time", seed, l, now, lost)
			}
		}
	}
}

// TestRefundsByAnyClock: by clocks that run backwards a bucket never owes less than
// had the calls that were given back not been.
func TestRefundsByAnyClock(t *testing.T) {
	for seed := range uint64(scaled(100_000)) {
		r := rand.New(rand.NewPCG(seed, 8))
		l := Limit{1 + r.Int64N(20), 1 + r.Int64N(20)}
		pace := 1 + r.Int64N(3*l.Interval)
		e := &entry{}
		var calls []letThrough
		var charges []spent
		now := int64(0)
		for range 10 + r.IntN(60) {
			now = max(0, now+r.Int64N(pace)-pace/3)
			if n := len(charges); n > 0 && r.IntN(2) == 0 {
				i := r.IntN(n)
				e.refundLocked(charges[i], now)
				calls[i].back = true
			} else if c, wait := e.takeLocked(l, 0, now); wait == 0 {
				calls, charges = append(calls, letThrough{at: now}), append(charges, c)
			}
			if owes, least := e.bucket.tat-e.bucket.seen, without(calls, l.Interval, e.bucket.seen); max(0, owes) < least {
				t.Fatalf("seed %d, %+v at %d: owes %d, without the calls %d", seed, l, now, owes, least)
			}
		}
	}
}

// TestRefundedBeginsAnew: what is given back of the slowest limits in a crowd passes
// what can be counted. The count begins anew, and nothing is given twice.
func TestRefundedBeginsAnew(t *testing.T) {
	e, l := &entry{}, Limit{maxWindow / 4, 4}
	first, _ := e.takeLocked(l, 0, 0)
	second, _ := e.takeLocked(l, 0, 0)
	e.refundLocked(second, 0)
	for range 100 {
		c, wait := e.takeLocked(l, 0, 0)
		if wait != 0 {
			t.Fatal("what comes and goes was withheld")
		}
		before := e.bucket.tat
		e.refundLocked(c, 0)
		e.refundLocked(c, 0)
		e.refundLocked(second, 0)
		if e.bucket.tat != before-l.Interval {
			t.Fatalf("%d back, of %d", before-e.bucket.tat, l.Interval)
		}
	}
	if e.refundLocked(first, 0); e.bucket.tat != l.Interval {
		t.Errorf("a charge of before the count began anew gave %d", l.Interval-e.bucket.tat)
	}
}
