package delegation_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"agentgw/internal/delegation"
)

// TestDecimalsCompareExactly, as fractions do, and not as floats.
func TestDecimalsCompareExactly(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	number := func() string {
		digits := func(n int) string {
			var b strings.Builder
			for range n {
				b.WriteByte("0123999"[random.IntN(7)])
			}
			return b.String()
		}
		s := strings.TrimLeft(digits(random.IntN(20)), "0")
		if s == "" {
			s = "0"
		}
		if random.IntN(2) == 0 {
			s += "." + digits(1+random.IntN(4))
		}
		if random.IntN(3) == 0 && strings.Trim(s, "0.") != "" {
			s = "-" + s
		}
		return s
	}
	rat := func(s string) *big.Rat {
		r, ok := new(big.Rat).SetString(s)
		if !ok {
			t.Fatal(s)
		}
		return r
	}
	for range 20_000 {
		a, b := number(), number()
		if !delegation.IsDecimal(a) || !delegation.IsDecimal(b) {
			t.Fatalf("%s or %s is no number", a, b)
		}
		if got, want := delegation.CompareDecimals(a, b), rat(a).Cmp(rat(b)); got < 0 != (want < 0) || got > 0 != (want > 0) {
			t.Fatalf("%s and %s: %d, want %d", a, b, got, want)
		}
	}
	if delegation.CompareDecimals("9007199254740993", "9007199254740992") <= 0 {
		t.Error("compared as floats")
	}
	for _, s := range []string{"", "-", "-0", "-0.00", "1e5", "1E5", "+1", "a", "NaN", fmt.Sprint("1", strings.Repeat("0", 64))} {
		if delegation.IsDecimal(s) {
			t.Errorf("%q is taken for a number", s)
		}
	}
}
