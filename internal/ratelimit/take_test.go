package ratelimit

import "testing"

// TestRefusedAtSight: what a drained bucket is remembered as tells the wait that
// the bucket itself would, also to a clock that is behind, whatever happened
// since it was.
func TestRefusedAtSight(t *testing.T) {
	l := NewLocal(Options{})
	quick, slow := NewRef(Registered, KindKey, "k", Limit{10, 1}), NewRef(Registered, KindKey, "k", Limit{100, 1})
	ask := func(what string, r *Ref, at, wait int64) Charge {
		t.Helper()
		c := l.Take(r, at)
		if c.wait != wait || c.Refused() != (wait > 0) || int64(c.Verdict().Wait) != wait {
			t.Errorf("%s, at %d: wait %d, want %d", what, at, c.wait, wait)
		}
		return c
	}
	seen := func(what string, want bool) {
		t.Helper()
		if _, _, wait := quick.drained(0); (wait > 0) != want {
			t.Errorf("%s: refused at sight: %v", what, !want)
		}
	}
	ask("the only token", quick, 0, 0)
	seen("nobody was refused yet", false)
	ask("refused", quick, 5, 5)
	seen("refused", true)
	ask("refused at sight", quick, 6, 4)
	c := ask("the next token", quick, 10, 0)
	seen("a token was taken", false)
	ask("a clock behind, after it, as at 10", quick, 9, 10)
	c.refund(10)
	seen("given back", false)
	ask("what was given back", quick, 10, 0)
	ask("refused", quick, 15, 5)
	ask("another limit: half a token is there", slow, 15, 50)
	ask("and the first again", quick, 15, 5)
	ask("to and fro", slow, 16, 40)
	seen("another limit holds", false)
}
