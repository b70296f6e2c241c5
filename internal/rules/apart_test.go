package rules_test

import (
	"strings"
	"testing"

	"agentgw/internal/rules"

	"pgregory.net/rapid"
)

// TestPartitionsAreApart: two calls share a rule's count exactly if its key has the
// same text of both, whatever stands in it, however long it is; and none shares that of
// the calls whose key has no result.
func TestPartitionsAreApart(t *testing.T) {
	r := one(t, "key: principal")
	faulty, _ := one(t, "key: request.params.nope").Charge(call())
	text := rapid.Custom(func(t *rapid.T) string {
		s := rapid.StringMatching(`[:/a\x00]{0,4}`).Draw(t, "text")
		switch rapid.IntRange(0, 3).Draw(t, "form") {
		case 0: // longer than what is kept as it is
			s = strings.Repeat("a", 126) + s
		case 1: // like what is kept in the place of such a text
			if ch, applies := r.Charge(&rules.Call{Principal: strings.Repeat("a", 129)}); applies {
				s = ch.Partition
			}
		}
		return s
	})
	of := func(s string) (string, bool) {
		ch, applies := r.Charge(&rules.Call{Principal: s})
		return ch.Partition, applies
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := text.Draw(t, "one"), text.Draw(t, "two")
		pa, applies := of(a)
		pb, _ := of(b)
		if applies != (a != "") {
			t.Fatalf("%q: applies %v", a, applies)
		}
		if (a == b) != (pa == pb) || pa == faulty.Partition || len(pa) > 128 {
			t.Fatalf("%q and %q are %q and %q", a, b, pa, pb)
		}
	})
}
