package ratelimit

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// simulate lets tenants that always want more share a pool of so many slots, each
// of which one comes free at each turn, and returns how much of it each had.
func simulate(slots int, weights []int64, turns int) []float64 {
	return simulateFrom(slots, weights, make([]int64, len(weights)), turns)
}

// simulateFrom is the same after a history that left them with those passes.
func simulateFrom(slots int, weights, passes []int64, turns int) []float64 {
	n := len(weights)
	holds, had := make([]int64, n), make([]float64, n)
	passes = slices.Clone(passes)
	random := uint64(1)
	free := slots
	for range turns {
		for free > 0 {
			var claims []claim
			for i := range n {
				claims = append(claims, claim{process: stake{0, holds[i]}, service: stake{uncapped, 0}, weight: weights[i], pass: passes[i], since: uint64(i)})
			}
			i := next(claims, []division{{free: int64(free)}})
			for j := range claims {
				passes[j] = claims[j].pass
			}
			passes[i] += stride / weights[i]
			holds[i]++
			free--
		}
		for i := range n {
			had[i] += float64(holds[i]) / float64(slots) / float64(turns)
		}
		random = random*6364136223846793005 + 1442695040888963407
		ends := int64(random>>33) % int64(slots)
		for i := range n { // any slot is as likely as another to come free
			if ends -= holds[i]; ends < 0 {
				holds[i]--
				free++
				break
			}
		}
	}
	return had
}

// TestSharesAreByWeight, also of few slots, of fewer than tenants, and between the
// heavy and the light.
func TestSharesAreByWeight(t *testing.T) {
	for _, c := range []struct {
		slots   int
		weights []int64
	}{
		{40, []int64{1, 1, 2}}, {3, []int64{1, 1, 2}}, {1, []int64{1, 1, 2}}, {5, []int64{10, 1}}, {2, []int64{10, 1}},
		{4, []int64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}, {7, []int64{1, 2, 3, 4}}, {1, []int64{1000, 1}}, {16, []int64{1, 1}},
	} {
		sum := int64(0)
		for _, w := range c.weights {
			sum += w
		}
		had := simulate(c.slots, c.weights, 50_000)
		for i, w := range c.weights {
			want := float64(w) / float64(sum)
			if d := had[i] - want; d > 0.02 || d < -0.02 || had[i] < want/2 {
				t.Errorf("%d slots, weights %v: shares %.3f", c.slots, c.weights, had)
				break
			}
		}
	}
}

// TestSharesAreByWeightWhateverWasBefore: few slots, and passes as far apart as they
// may come.
func TestSharesAreByWeightWhateverWasBefore(t *testing.T) {
	for _, weights := range [][]int64{{1, 1, 2}, {1, 10}, {2, 2, 1}, {10, 1, 1}} {
		for slots := 1; slots <= 5; slots++ {
			fair := simulate(slots, weights, 20_000)
			sum := int64(0)
			for _, w := range weights {
				sum += w
			}
			for late := range weights {
				passes := make([]int64, len(weights))
				passes[late] = 1 << 50
				had := simulateFrom(slots, weights, passes, 20_000)
				for i, w := range weights {
					want := float64(w) / float64(sum)
					if d := had[i] - want; d > 0.02 || d < -0.02 || had[i] < want/2 {
						t.Errorf("%d slots, weights %v, %d was served for long: shares %.3f, and %.3f without that", slots, weights, late, had, fair)
						break
					}
				}
			}
		}
	}
}

// TestHistoryIsWorthSomeTurns: whatever passes were left behind, a tenant has its turn
// as soon as the others have had a few of theirs.
func TestHistoryIsWorthSomeTurns(t *testing.T) {
	for _, weights := range [][]int64{{1, 1}, {1, 10}, {10, 1}, {1, 1, 2}} {
		passes := make([]int64, len(weights))
		passes[0] = 1 << 50
		others := int64(0)
		for _, w := range weights[1:] {
			others += w
		}
		turns := int(turnsAhead*others/weights[0]) + 2*len(weights)
		if had := simulateFrom(1, weights, passes, turns); had[0] == 0 {
			t.Errorf("weights %v: nothing in %d turns", weights, turns)
		}
	}
}

// TestNextIsBelowItsShare: whoever is next could hold one more slot and not hold a
// whole one more than its share; and nobody who waits with less than all it is
// entitled to is passed over for one that has it.
func TestNextIsBelowItsShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "tenants")
		free := rapid.Int64Range(1, 5).Draw(t, "free")
		var claims []claim
		sum, slots := int64(0), free
		for range n {
			c := claim{
				process: stake{0, rapid.Int64Range(0, 9).Draw(t, "holds")}, service: stake{uncapped, 0},
				weight: rapid.Int64Range(1, 5).Draw(t, "weight"), pass: rapid.Int64Range(0, 3).Draw(t, "pass"), since: rapid.Uint64().Draw(t, "since"),
			}
			sum, slots = sum+c.weight, slots+c.process.holds
			claims = append(claims, c)
		}
		got := claims[next(claims, []division{{free: free}})]
		below := func(c claim) bool { // of slots*weight/sum
			return float64(c.process.holds) < float64(slots)*float64(c.weight)/float64(sum)-1e-9
		}
		if !below(got) {
			t.Fatalf("%+v of %+v with %d free", got, claims, free)
		}
		for _, c := range claims {
			if below(c) && (c.pass < got.pass || c.pass == got.pass && c.since < got.since) {
				t.Fatalf("%+v before %+v", got, c)
			}
		}
	})
}

// TestNextOfAServiceAndTheProcess: the process's shares come first, then the
// service's.
func TestNextOfAServiceAndTheProcess(t *testing.T) {
	at := func(process, service int64, since uint64) claim {
		return claim{process: stake{0, process}, service: stake{1, service}, weight: 1, since: since}
	}
	for _, c := range []struct {
		a, b claim
		want int
	}{
		{at(3, 0, 1), at(1, 5, 2), 1}, // above its share of the process, whatever of the service
		{at(2, 5, 1), at(2, 1, 2), 1}, // both below that of the process
		{at(2, 2, 1), at(2, 2, 2), 0},
	} {
		if got := next([]claim{c.a, c.b}, []division{{free: 1}, {free: 1}}); got != c.want {
			t.Errorf("%+v, %+v: %d", c.a, c.b, got)
		}
	}
	huge := claim{process: stake{0, 1 << 30}, service: stake{uncapped, 0}, weight: 1000}
	if i := next([]claim{huge, at(0, 0, 9)}, []division{{free: 1<<63 - 1}, {free: 1}}); i != 0 {
		t.Errorf("with room for everybody: %d, want the first that came", i)
	}
}
