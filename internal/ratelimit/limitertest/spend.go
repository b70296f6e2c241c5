package limitertest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/ratelimit"
)

// rulesAloneAreAllOrNothing: a request that is no call is counted by all of its rules, for
// each of its partition keys, or by none, and takes no slot; its key's token stays spent,
// and the wait covers the next.
func rulesAloneAreAllOrNothing(t *testing.T, make Maker) {
	for full := range 4 {
		s := make(t)
		s.toWindow(time.Hour)
		a, b := rule("a", time.Minute), rule("b", time.Hour)
		s.meet(use(b, "other", 1, 9)) // b comes first in whatever order there is
		k := key("k", ratelimit.Limit{Interval: 7200 * second, Burst: 1})
		uses := []ratelimit.Use{use(a, "p", 2, 5), use(b, "p", 1, 5), use(a, "q", 3, 5)}
		if full < len(uses) {
			s.meet(use(uses[full].Rule, uses[full].Partition, 5, 5))
		}
		counts := func() [3]int64 { return [3]int64{s.counted(a, "p"), s.counted(b, "p"), s.counted(a, "q")} }
		before := counts()
		v := s.Spend(s.Take(k, s.Now()), uses, s.Now())
		want := before
		if full == len(uses) {
			want = [3]int64{2, 1, 3}
		}
		if admitted := v.Outcome == ratelimit.Admitted; admitted != (full == len(uses)) || counts() != want || s.left(k) != 0 {
			t.Errorf("full %d: %v, %v counted, want %v; the key has %d", full, v.Outcome, counts(), want, s.left(k))
		}
		for i, u := range uses {
			if u.Refused() != (i == full) || u.Reading().Quota != 5 {
				t.Errorf("full %d: use %d refused %v, %+v", full, i, u.Refused(), u.Reading())
			}
		}
		if full < len(uses) && (v.Rule != uses[full].Rule.Name() || v.Wait != 2*time.Hour) {
			t.Errorf("full %d: %q, wait %v, and the key has a token in 2h", full, v.Rule, v.Wait)
		}
		if v := s.Spend(ratelimit.Charge{}, nil, s.Now()); v.Outcome != ratelimit.Admitted {
			t.Errorf("without a rule: %+v", v)
		}
	}
}

// rulesAloneCountExactly: requests and calls that meet the same rules in different orders
// neither wait for each other for ever nor get more together than the rules allow.
func rulesAloneCountExactly(t *testing.T, make Maker) {
	s := make(t)
	s.toWindow(time.Hour)
	const most = 500
	a, b := rule("a", time.Hour), rule("b", time.Hour)
	var of [2]atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range scaled(5000) {
				p, q := "p", "q"
				if i%2 == 1 {
					p, q = q, p
				}
				if i < 4 {
					if s.Spend(ratelimit.Charge{}, []ratelimit.Use{use(b, p, 1, most), use(a, p, 1, most), use(b, q, 1, most)}, s.Now()).Outcome == ratelimit.Admitted {
						of[0].Add(1)
						of[1].Add(1)
					}
				} else if s.meet(use(a, p, 1, most), use(b, "p", 1, most)).Outcome == ratelimit.Admitted {
					of[0].Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := s.counted(b, "p"); n != of[0].Load() || n > most {
		t.Errorf("p counted %d of %d, and may %d", n, of[0].Load(), most)
	}
	if n := s.counted(b, "q"); n != of[1].Load() || n > most {
		t.Errorf("q counted %d of %d, and may %d", n, of[1].Load(), most)
	}
}
