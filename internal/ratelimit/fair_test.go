package ratelimit

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// rivals are tenants that share a pool of slots, by the arithmetic of the line alone.
type rivals struct {
	slots   int64
	weights []int64
	holds   []int64 // for how long a call of each has its slot, on average
	passes  []pass
	pool    pool
	// oneByOne: the tenant has one call at a time, and the next comes a moment after
	// that has ended. Of the others more wait than there are slots.
	oneByOne []bool
}

func newRivals(slots int64, weights []int64) *rivals {
	n := len(weights)
	r := &rivals{slots: slots, weights: weights, passes: make([]pass, n), oneByOne: make([]bool, n)}
	for range n {
		r.holds = append(r.holds, ordinary)
	}
	return r
}

// share lets so many calls begin, as slots come free, and returns how much of the
// slots' time each tenant had.
func (r *rivals) share(calls int) []float64 {
	type call struct {
		of   int
		ends int64
	}
	n := len(r.weights)
	random := rand.New(rand.NewPCG(1, 2))
	tallies, hold, had := make([]tally, n), make([]int64, n), make([]float64, n)
	var running []call
	now, pool, ended := int64(0), int64(0), -1
	begin := func(free int64) bool {
		var claims []claim
		var who []int
		for i, w := range r.weights {
			if r.oneByOne[i] && (tallies[i].n > 0 || ended == i) {
				continue
			}
			c := claim{weight: w, turn: (hold[i] + turnTime) / w, since: uint64(i)}
			c.stakes[ofProcess] = stake{0, int64(tallies[i].n), r.passes[i].ahead(tallies[i].had(now), w, pool)}
			c.stakes[ofService] = stake{pool: uncapped}
			claims, who = append(claims, c), append(who, i)
		}
		if len(claims) == 0 {
			return false
		}
		pools := []division{{free: free}}
		i := who[next(claims, pools)]
		pool += pools[0].advance
		r.passes[i].serve(tallies[i].had(now), r.weights[i], pool)
		tallies[i].enter(&r.pool, true, now)
		lasts := r.holds[i]/2 + random.Int64N(r.holds[i])
		hold[i] = averaged(hold[i], lasts)
		had[i] += float64(lasts)
		running = append(running, call{i, now + lasts})
		return true
	}
	for range calls {
		for free := r.slots - int64(len(running)); free > 0 && begin(free); free-- {
		}
		first := slices.IndexFunc(running, func(c call) bool {
			return !slices.ContainsFunc(running, func(o call) bool { return o.ends < c.ends })
		})
		ended, now = running[first].of, running[first].ends
		tallies[ended].leave(now)
		running = slices.Delete(running, first, first+1)
	}
	sum := 0.0
	for _, h := range had {
		sum += h
	}
	for i := range had {
		had[i] /= sum
	}
	return had
}

// fair is what belongs to each weight.
func fair(weights []int64) []float64 {
	sum := int64(0)
	for _, w := range weights {
		sum += w
	}
	shares := make([]float64, len(weights))
	for i, w := range weights {
		shares[i] = float64(w) / float64(sum)
	}
	return shares
}

// near reports whether shares are what belongs to each, by a point, and by a tenth of
// what is small.
func near(shares, want []float64) bool {
	for i := range want {
		if d := math.Abs(shares[i] - want[i]); d > 0.01 || d > want[i]/10 {
			return false
		}
	}
	return true
}

const ordinary = 1000 * turnTime // for which a call has its slot

// TestSharesAreByWeight, also of few slots, of fewer than tenants, and between the
// heavy and the light; whether calls last equally long, or those of one tenant ten or a
// hundred times as long as another's.
func TestSharesAreByWeight(t *testing.T) {
	for _, c := range []struct {
		slots   int64
		weights []int64
		longer  []int64 // how many times as long the calls of one tenant are
	}{
		{40, []int64{1, 1, 2}, []int64{1, 10}}, {3, []int64{1, 1, 2}, []int64{1, 10, 100}}, {1, []int64{1, 1, 2}, []int64{1, 10, 100}},
		{5, []int64{10, 1}, []int64{1, 10, 100}}, {2, []int64{10, 1}, []int64{1, 10, 100}}, {16, []int64{1, 1}, []int64{1, 10}},
		{4, []int64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, []int64{1, 10}}, {7, []int64{1, 2, 3, 4}, []int64{1, 10}}, {1, []int64{1000, 1}, []int64{1}},
	} {
		for long := range c.weights {
			for _, times := range c.longer {
				r := newRivals(c.slots, c.weights)
				r.holds[long] *= times
				if had := r.share(30_000); !near(had, fair(c.weights)) {
					t.Errorf("%d slots, weights %v, calls of %d are %d times as long: shares %.3f", c.slots, c.weights, long, times, had)
				}
			}
		}
	}
}

// TestWhoCallsOneByOneIsChargedToo: one whose next call comes when its last has ended
// does not wait in between, and is not forgiven what that took.
func TestWhoCallsOneByOneIsChargedToo(t *testing.T) {
	for _, times := range []int64{1, 10, 100} {
		r := newRivals(1, []int64{1, 1})
		r.holds[0] *= times
		r.oneByOne[0] = true
		if had := r.share(scaled(100_000)); !near(had, []float64{0.5, 0.5}) {
			t.Errorf("calls %d times as long: shares %.3f", times, had)
		}
	}
}

// TestSharesAreByWeightWhateverWasBefore: few slots, and passes as far apart as they
// may come.
func TestSharesAreByWeightWhateverWasBefore(t *testing.T) {
	for _, weights := range [][]int64{{1, 1, 2}, {1, 10}, {2, 2, 1}, {10, 1, 1}} {
		for slots := int64(1); slots <= 5; slots++ {
			for late := range weights {
				for _, before := range []int64{1 << 50, -1 << 50, 1<<63 - 1, -1 << 63} {
					r := newRivals(slots, weights)
					r.passes[late].at = before
					if had := r.share(scaled(60_000)); !near(had, fair(weights)) {
						t.Errorf("%d slots, weights %v, %d stood at %d: shares %.3f", slots, weights, late, before, had)
					}
				}
			}
		}
	}
}

// TestHistoryIsWorthSomeTurns: whatever a tenant had before, it is served as soon as
// the others have had what a few of its turns are worth to them.
func TestHistoryIsWorthSomeTurns(t *testing.T) {
	for _, weights := range [][]int64{{1, 1}, {1, 10}, {10, 1}, {1, 1, 2}} {
		r := newRivals(1, weights)
		r.share(100) // so that it is known how long calls last
		r.passes[0].at += 1 << 50
		others := int64(0)
		for _, w := range weights[1:] {
			others += w
		}
		turns := int(2*turnsAhead*others/weights[0]) + 2*len(weights)
		if had := r.share(turns); had[0] == 0 {
			t.Errorf("weights %v: nothing in %d turns", weights, turns)
		}
	}
}

// TestNextIsBelowItsShare: whoever is next could hold one more slot and not hold a
// whole one more than its share; and nobody who waits with less than all it is
// entitled to is passed over for one that has it.
func TestNextIsBelowItsShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 6).Draw(t, "tenants")
		free := rapid.Int64Range(1, int64(n)-1).Draw(t, "free") // with more there is nothing to share
		var claims []claim
		sum, slots := int64(0), free
		for range n {
			c := claim{
				stakes: [2]stake{{0, rapid.Int64Range(0, 9).Draw(t, "holds"), rapid.Int64Range(-1, 3).Draw(t, "ahead")}, {pool: uncapped}},
				weight: rapid.Int64Range(1, 5).Draw(t, "weight"), turn: 1, since: rapid.Uint64().Draw(t, "since"),
			}
			sum, slots = sum+c.weight, slots+c.stakes[ofProcess].holds
			claims = append(claims, c)
		}
		got := claims[next(claims, []division{{free: free}})]
		below := func(c claim) bool { // of slots*weight/sum
			return float64(c.stakes[ofProcess].holds) < float64(slots)*float64(c.weight)/float64(sum)-1e-9
		}
		if !below(got) {
			t.Fatalf("%+v of %+v with %d free", got, claims, free)
		}
		for _, c := range claims {
			ahead, of := max(0, c.stakes[ofProcess].ahead), max(0, got.stakes[ofProcess].ahead)
			if below(c) && (ahead < of || ahead == of && c.since < got.since) {
				t.Fatalf("%+v before %+v", got, c)
			}
		}
	})
}

// TestNextOfAServiceAndTheProcess: where the process is short its shares come first,
// then the service's, then its passes; where it is not, the service's shares and passes
// decide, and who claims a slot of another is no rival.
func TestNextOfAServiceAndTheProcess(t *testing.T) {
	const short, enough = 1, 2
	at := func(since uint64, process, service stake) claim {
		return claim{stakes: [2]stake{process, service}, weight: 1, turn: 1, since: since}
	}
	one, two := func(holds, ahead int64) stake { return stake{1, holds, ahead} }, func(holds, ahead int64) stake { return stake{2, holds, ahead} }
	whole := func(holds, ahead int64) stake { return stake{0, holds, ahead} }
	for _, c := range []struct {
		what string
		free int64 // of the process
		a, b claim
		want int
	}{
		{"above its share of the process, whatever of the service", short, at(1, whole(3, 0), one(0, 0)), at(2, whole(0, 0), one(5, 0)), 1},
		{"both below that of the process", short, at(1, whole(2, 0), one(5, 0)), at(2, whole(2, 0), one(1, 0)), 1},
		{"the pass of the process", short, at(1, whole(2, 2), one(2, 0)), at(2, whole(2, 1), one(2, 3)), 1},
		{"all the same", short, at(1, whole(2, 0), one(2, 0)), at(2, whole(2, 0), one(2, 0)), 0},
		{"a slot of the process for each", enough, at(1, whole(9, 9), one(1, 0)), at(2, whole(0, 0), one(5, 0)), 0},
		{"and then the pass of the service", enough, at(1, whole(0, 0), one(2, 2)), at(2, whole(9, 9), one(2, 1)), 1},
		{"no rivals", enough, at(1, whole(2, 0), one(5, 9)), at(2, whole(2, 0), two(0, 0)), 0},
		{"nothing to share", enough, at(1, whole(2, 9), stake{pool: uncapped}), at(2, whole(2, 0), stake{pool: uncapped}), 0},
		{"rivals for the process", short, at(1, whole(2, 2), one(2, 0)), at(2, whole(2, 1), two(2, 3)), 1},
	} {
		if got := next([]claim{c.a, c.b}, []division{{free: c.free}, {free: 1}, {free: 1}}); got != c.want {
			t.Errorf("%s: %d", c.what, got)
		}
	}
	huge := at(1, stake{pool: uncapped}, one(1<<30, 0))
	huge.weight = MaxWeight
	if i := next([]claim{huge, at(9, stake{pool: uncapped}, one(0, 0))}, []division{{}, {free: 1<<63 - 1}}); i != 0 {
		t.Errorf("with room for everybody: %d, want the first that came", i)
	}
}
