package ratelimit

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// tokenRow is the naive account of a bucket whose limit changes: what it owes, in
// tokens and fractions of them that are exact. Time pays for the tokens that nobody
// put in yet, and then at the front; so does a lowered burst.
type tokenRow struct {
	limit  Limit
	nobody *big.Rat
	rest   []*big.Rat // of each charge ever made
}

func newTokenRow(l Limit) *tokenRow { return &tokenRow{limit: l, nobody: new(big.Rat)} }

func (r *tokenRow) pay(amount *big.Rat) {
	for _, rest := range append([]*big.Rat{r.nobody}, r.rest...) {
		paid := amount
		if rest.Cmp(paid) < 0 {
			paid = new(big.Rat).Set(rest)
		}
		rest.Sub(rest, paid)
		amount = new(big.Rat).Sub(amount, paid)
	}
}

func (r *tokenRow) pass(dt int64) { r.pay(big.NewRat(dt, r.limit.Interval)) }

func (r *tokenRow) change(l Limit) {
	if more := l.Burst - r.limit.Burst; more > 0 {
		r.nobody.Add(r.nobody, big.NewRat(more, 1))
	} else {
		r.pay(big.NewRat(-more, 1))
	}
	r.limit = l
}

func (r *tokenRow) charge() { r.rest = append(r.rest, big.NewRat(1, 1)) }

func (r *tokenRow) giveBack(i int) { r.rest[i] = new(big.Rat) }

func (r *tokenRow) owes() *big.Rat {
	sum := new(big.Rat).Set(r.nobody)
	for _, rest := range r.rest {
		sum.Add(sum, rest)
	}
	return sum
}

// event is one of a bucket's history.
type event struct {
	dt     int64
	to     Limit // unless it is the zero Limit
	charge bool
	back   bool // the charge was given back, later
}

// replayed is what a bucket owes that never saw the calls given back.
func replayed(l Limit, history []event) *big.Rat {
	r := newTokenRow(l)
	for _, e := range history {
		r.pass(e.dt)
		switch {
		case !e.to.Unlimited():
			r.change(e.to)
		case e.charge && !e.back:
			r.charge()
		}
	}
	return r.owes()
}

func drawWideLimit(t *rapid.T) Limit {
	return Limit{rapid.SampledFrom([]int64{300, 1000, 1500, 2999, 7000, 100_000}).Draw(t, "interval"), rapid.Int64Range(1, 8).Draw(t, "burst")}
}

// TestRefundsAcrossChanges: takes, changes of rate and burst, waits, and refunds of any
// charge, also twice. What a bucket owes is never less than had the calls given back
// not been; and no more than the row does, but for the fraction of a nanosecond that
// each change rounds up: of what is given back nothing is withheld but what time paid
// and a lowered burst forgave while it stood at the front.
func TestRefundsAcrossChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := drawWideLimit(t)
		l, e, naive := first, &entry{}, newTokenRow(first)
		e.askLocked(first, 0, 0)
		var now int64
		var charges []spent
		var history []event
		var chargedAt []int      // in history
		rounding := new(big.Rat) // in tokens: a change may owe a nanosecond more
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			op := rapid.SampledFrom([]string{"pass", "take", "take", "take", "refund", "refund", "change"}).Draw(t, "op")
			var happened event
			switch {
			case op == "pass":
				happened.dt = rapid.Int64Range(0, 2*l.Interval).Draw(t, "dt")
				now += happened.dt
				naive.pass(happened.dt)
			case op == "take":
				c, wait := e.takeLocked(l, now, now)
				if wait != 0 {
					continue
				}
				happened.charge = true
				charges, chargedAt = append(charges, c), append(chargedAt, len(history))
				naive.charge()
			case op == "change":
				l = drawWideLimit(t)
				// Asked at once, for a bucket that nobody asks for a whole window is full
				// under either limit, which the row knows nothing of.
				e.askLocked(l, now, now)
				happened.to = l
				naive.change(l)
				rounding.Add(rounding, big.NewRat(1, l.Interval))
			case len(charges) > 0:
				i := rapid.IntRange(0, len(charges)-1).Draw(t, "charge")
				before := e.bucket.tat
				e.refundLocked(charges[i], now)
				if given := before - e.bucket.tat; given < 0 || given > l.Interval || history[chargedAt[i]].back && given != 0 {
					t.Fatalf("at %d: charge %d gave %d", now, i, given)
				}
				history[chargedAt[i]].back = true
				naive.giveBack(i)
			}
			history = append(history, happened)
			e.bucket.seen = now // asked all the time
			owes := big.NewRat(max(0, e.bucket.tat-now), l.Interval)
			if least := replayed(first, history); owes.Cmp(least) < 0 {
				t.Fatalf("%+v at %d after %s: owes %v tokens, without the calls %v", l, now, op, owes.FloatString(9), least.FloatString(9))
			}
			if most := new(big.Rat).Add(naive.owes(), rounding); owes.Cmp(most) > 0 {
				t.Fatalf("%+v at %d after %s: owes %v tokens, the row %v", l, now, op, owes.FloatString(9), naive.owes().FloatString(9))
			}
		}
	})
}

// asked is one question to a bucket, and whether it took a token that it kept.
type asked struct {
	limit      Limit
	since, now int64
	took, kept bool
}

// TestRefundsAcrossChangesByAnyClock: calls of two views to and fro, by clocks that run
// backwards, under limits in force for a while already, however far apart their rates
// are. A bucket never owes less, to the nanosecond, than one that was asked the same
// at the same times, but never took what was given back.
func TestRefundsAcrossChangesByAnyClock(t *testing.T) {
	intervals := []int64{1, 2, 7, 10, 13, 1000, maxWindow >> 4}
	rapid.Check(t, func(t *rapid.T) {
		var views []Limit
		for range rapid.IntRange(2, 3).Draw(t, "views") {
			views = append(views, Limit{rapid.SampledFrom(intervals).Draw(t, "interval"), rapid.Int64Range(1, 8).Draw(t, "burst")})
		}
		pace := views[0].Interval
		e := &entry{}
		now := int64(0)
		var charges []spent
		var of []int // in history
		var history []asked
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = max(0, now+rapid.Int64Range(-pace/2, pace).Draw(t, "dt"))
			if n := len(charges); n > 0 && rapid.IntRange(0, 2).Draw(t, "op") == 0 {
				i := rapid.IntRange(0, n-1).Draw(t, "charge")
				before := e.bucket.tat
				e.refundLocked(charges[i], now)
				if e.bucket.tat > before || e.bucket.tat != before && !history[of[i]].kept {
					t.Fatalf("charge %d gave %d", i, before-e.bucket.tat)
				}
				history[of[i]].kept = false
				history = append(history, asked{limit: e.bucket.limit, now: now})
			} else {
				q := asked{limit: rapid.SampledFrom(views).Draw(t, "view"), now: now}
				q.since = max(0, now-rapid.Int64Range(0, pace).Draw(t, "since"))
				c, wait := e.takeLocked(q.limit, q.since, now)
				if q.took, q.kept = wait == 0, wait == 0; q.took {
					charges, of = append(charges, c), append(of, len(history))
				}
				history = append(history, q)
			}
			without := &entry{}
			for _, q := range history {
				if d := without.askLocked(q.limit, q.since, q.now); q.kept {
					if d.wait > 0 {
						t.Fatalf("without the calls %+v is refused", q)
					}
					without.spendLocked(d)
				}
			}
			owes := func(e *entry) int64 { return max(0, e.bucket.tat-e.bucket.seen) }
			if e.bucket.seen != without.bucket.seen || owes(e) < owes(without) {
				t.Fatalf("at %d: owes %d, without the calls %d", e.bucket.seen, owes(e), owes(without))
			}
		}
	})
}

func TestRefundsAcrossChangesStories(t *testing.T) {
	run(t, "half the rate: a token is a token, once", Limit{10, 4}, []step{
		{at: 0, op: "take", ok: true, left: 3},
		{at: 0, op: "take", ok: true, left: 2},
		{at: 0, op: "limit", limit: Limit{20, 4}, left: 2},
		{at: 0, op: "refund", charge: 1, left: 3},
		{at: 0, op: "refund", charge: 1, left: 3},
		{at: 0, op: "refund", charge: 0, left: 4},
	})
	run(t, "given back before the change and after it counts once", Limit{10, 4}, []step{
		{at: 0, op: "take", ok: true, left: 3},
		{at: 0, op: "take", ok: true, left: 2},
		{at: 0, op: "take", ok: true, left: 1},
		{at: 0, op: "refund", charge: 1, left: 2},
		{at: 0, op: "limit", limit: Limit{20, 4}, left: 2},
		{at: 0, op: "refund", charge: 1, left: 2},
		{at: 0, op: "refund", charge: 2, left: 3},
		{at: 0, op: "limit", limit: Limit{5, 4}, left: 3},
		{at: 0, op: "refund", charge: 2, left: 3},
		{at: 0, op: "refund", charge: 1, left: 3},
		{at: 0, op: "refund", charge: 0, left: 4},
	})
	run(t, "a burst raised and lowered again leaves what is owed as it was", Limit{10, 2}, []step{
		{at: 0, op: "take", ok: true, left: 1},
		{at: 0, op: "take", ok: true, left: 0},
		{at: 0, op: "limit", limit: Limit{10, 20}, left: 0},
		{at: 0, op: "refund", charge: 1, left: 1},
		{at: 0, op: "limit", limit: Limit{10, 2}, left: 1},
		{at: 0, op: "refund", charge: 0, left: 2},
	})
	run(t, "what a raised burst owes is paid first", Limit{10, 2}, []step{
		{at: 0, op: "take", ok: true, left: 1},
		{at: 0, op: "take", ok: true, left: 0},
		{at: 0, op: "limit", limit: Limit{10, 4}, left: 0},
		{at: 20, op: "refund", charge: 0, left: 3},
		{at: 20, op: "refund", charge: 1, left: 4},
	})
	run(t, "a lowered burst forgives the oldest", Limit{10, 10}, []step{
		{at: 0, op: "take", ok: true, left: 9},
		{at: 0, op: "take", ok: true, left: 8},
		{at: 0, op: "take", ok: true, left: 7},
		{at: 0, op: "take", ok: true, left: 6},
		{at: 0, op: "limit", limit: Limit{10, 7}, left: 6},
		{at: 0, op: "refund", charge: 0, left: 6},
		{at: 0, op: "refund", charge: 2, left: 6},
		{at: 0, op: "refund", charge: 3, left: 7},
	})
	// Of the 10 of the charge 4 were paid before the change, and of 600 another 100
	// after: 500 come back, and make 1.9 tokens into 2 and not into 2.4.
	run(t, "less what time paid on either side", Limit{10, 2}, []step{
		{at: 0, op: "take", ok: true, left: 1},
		{at: 4, op: "limit", limit: Limit{1000, 2}, left: 1},
		{at: 104, op: "take", ok: true, left: 0},
		{at: 104, op: "take", wait: 500, left: 0},
		{at: 104, op: "refund", charge: 0, left: 1},
		{at: 104, op: "take", ok: true, left: 0},
		{at: 104, op: "take", wait: 1000, left: 0},
	})
	run(t, "to the nanosecond, also where the rates do not divide", Limit{10, 2}, []step{
		{at: 0, op: "take", ok: true, left: 1},
		{at: 4, op: "limit", limit: Limit{7, 2}, left: 1},
		{at: 4, op: "refund", charge: 0, left: 2},
	})
	// Of 3 that are owed nobody has put in the first 2, and the second of those and the
	// charge are half a nanosecond each: all that is owed then is nobody's.
	run(t, "two halves of a nanosecond are one", Limit{2, 1}, []step{
		{at: 0, op: "take", ok: true, left: 0},
		{at: 1, op: "limit", limit: Limit{2, 2}, left: 0},
		{at: 2, op: "limit", limit: Limit{1, 2}, left: 1},
		{at: 2, op: "refund", charge: 0, left: 1},
	})
	run(t, "what is paid stays paid under a raised burst", Limit{10, 2}, []step{
		{at: 0, op: "take", ok: true, left: 1},
		{at: 9, op: "take", ok: true, left: 0},
		{at: 20, op: "limit", limit: Limit{10, 4}, left: 2},
		{at: 20, op: "refund", charge: 1, left: 2},
		{at: 20, op: "refund", charge: 0, left: 2},
	})
	run(t, "who was charged after it stands behind", Limit{10, 3}, []step{
		{at: 0, op: "take", ok: true, left: 2},
		{at: 0, op: "take", ok: true, left: 1},
		{at: 0, op: "limit", limit: Limit{20, 3}, left: 1},
		{at: 0, op: "take", ok: true, left: 0},
		{at: 0, op: "refund", charge: 2, left: 1},
		{at: 0, op: "refund", charge: 2, left: 1},
		{at: 30, op: "refund", charge: 1, left: 3},
		{at: 30, op: "refund", charge: 0, left: 3},
	})
	run(t, "far apart: a coarse limit and a fine one", Limit{1, 8}, []step{
		{at: 0, op: "take", ok: true, left: 7},
		{at: 0, op: "limit", limit: Limit{maxWindow >> 3, 8}, left: 7},
		{at: 0, op: "limit", limit: Limit{1, 1}, left: 1},
		{at: 0, op: "limit", limit: Limit{maxWindow >> 3, 8}, left: 1},
		{at: 5, op: "refund", charge: 0, left: 1},
		{at: 5, op: "take", ok: true, left: 0},
		{at: 5, op: "refund", charge: 1, left: 1},
	})
}

// TestChangesThatAreRemembered: as many as a call under way can meet, and no more; none
// once all that was charged before them is paid, at the next change or crowd; and none
// of a bucket that owed nothing.
func TestChangesThatAreRemembered(t *testing.T) {
	slow, quick := Limit{20, 100}, Limit{10, 100}
	toAndFro := func(e *entry, n int, now int64) {
		for range n {
			if e.bucket.limit == quick {
				e.askLocked(slow, now, now)
			} else {
				e.askLocked(quick, now, now)
			}
		}
	}
	remembered := func(e *entry) int { return len(e.rare.given.moves) }

	e := &entry{}
	first, _ := e.takeLocked(quick, 0, 0)
	toAndFro(e, 1, 0)
	second, _ := e.takeLocked(slow, 0, 0)
	toAndFro(e, maxMoves, 0)
	if remembered(e) != maxMoves {
		t.Errorf("%d changes remembered", remembered(e))
	}
	if e.refundLocked(first, 0); e.bucket.tat != 40 {
		t.Errorf("a charge of before %d changes gave %d", maxMoves+1, 40-e.bucket.tat)
	}
	if e.refundLocked(second, 0); e.bucket.tat != 20 {
		t.Errorf("a charge of before %d changes gave %d of 20", maxMoves, 40-e.bucket.tat)
	}

	e = &entry{}
	e.takeLocked(quick, 0, 0)
	toAndFro(e, 2, 0)
	e.takeLocked(quick, 0, 0)
	if toAndFro(e, 1, 9); remembered(e) != 3 {
		t.Errorf("%d changes remembered while a charge of before them is owed", remembered(e))
	}
	e = &entry{}
	e.takeLocked(quick, 0, 0)
	toAndFro(e, 2, 0)
	e.takeLocked(quick, 0, 0)
	if toAndFro(e, 1, 10); remembered(e) != 1 {
		t.Errorf("%d changes remembered of which the last matters", remembered(e))
	}
	for i := range int64(17) { // a crowd
		c, _ := e.takeLocked(slow, 1000, 1000+i)
		e.refundLocked(c, 1000+i)
	}
	if remembered(e) != 0 {
		t.Errorf("%d changes remembered when all of before them is paid", remembered(e))
	}
	e = &entry{}
	e.takeLocked(quick, 0, 0)
	if toAndFro(e, 5, 10); e.rare != nil {
		t.Error("a bucket that owes nothing remembers a change")
	}
}

// TestWhatIsRememberedAcrossChanges counts towards the bound of what is remembered.
func TestWhatIsRememberedAcrossChanges(t *testing.T) {
	e, now := &entry{}, int64(0)
	crowd := func(l Limit, n int) (free int) {
		for range n {
			c, wait := e.takeLocked(l, now, now)
			if wait != 0 {
				break
			}
			e.refundLocked(c, now)
			free++
		}
		return free
	}
	e.takeLocked(Limit{1 << 40, 2}, 0, 0)
	crowd(Limit{1 << 40, 2}, maxGiven/2)
	if free := crowd(Limit{1 << 41, 2}, maxGiven); free != maxGiven/2+1 || e.rare.given.size() != maxGiven {
		t.Errorf("%d refunds after as many as %d before a change, %d remembered", free, maxGiven/2, e.rare.given.size())
	}
}
