package admin_test

import (
	"strings"
	"testing"

	"agentgw/internal/admin"
	"agentgw/internal/secret"
)

// TestTokensThatAnybodyWouldTry are refused, nothing of them is repeated, and a
// token that is none of them is taken.
func TestTokensThatAnybodyWouldTry(t *testing.T) {
	const known, odd, short = "first that anybody would try", "no token has", "too short"
	for _, c := range []struct {
		token          string
		local, exposed string // what is said; "": taken
	}{
		{"", "is empty", "is empty"},
		{"changeme", known, known},
		{"ChangeMe", known, known},
		{"change-me!", known, known},
		{"changeme123", known, known},
		{"p4ssw0rd", "", short}, // digits in place of letters are not undone
		{"password1", known, known},
		{"administrator", known, known},
		{"secret", known, known},
		{"abc1234", known, known},
		{"12345678", known, known},
		{"9876543210", known, known},
		{"aaaaaaaaaaaaaaaaaaaa", known, known},
		{"changemechangeme", known, known},
		{"abcabcabcabcabcabc", known, known},
		{" ", odd, odd},
		{"        ", odd, odd},
		{"with a space in it 0", odd, odd},
		{"with-a-newline-0123\n", odd, odd},
		{"tab\tinside-0123456", odd, odd},
		{"zero\x00inside-0123456", odd, odd},
		{"ümlaut-0123456789", odd, odd},
		{"ops-7f3a9", "", short},
		{"the-operators-token", "", ""},
		{"0123456789012345678", "", ""}, // repeats after ten
		{"5f0e2a9c5f0e2a9d5f0e2a9e5f0e2a9f", "", ""},
		{"changeme-5f0e2a9c77d1", "", ""},
		{strings.Repeat("0123456789abcdef", 4), "", ""},
	} {
		for exposed, want := range map[bool]string{false: c.local, true: c.exposed} {
			err := admin.CheckToken(secret.New(c.token), exposed)
			switch {
			case err == nil && want == "":
			case err == nil || want == "" || !strings.Contains(err.Error(), want):
				t.Errorf("%q (exposed: %v): %v, want %q", c.token, exposed, err, want)
			case len(c.token) > 6 && strings.TrimSpace(c.token) != "" && strings.Contains(err.Error(), c.token):
				t.Errorf("%q is repeated: %v", c.token, err)
			}
		}
	}
}
