package literal_test

import (
	"testing"

	"agentgw/internal/literal"
)

// TestTokensAreMasked, of other makers too; and what is a name, a number or a word is
// left as it was written.
func TestTokensAreMasked(t *testing.T) {
	for in, want := range map[string]string{
		"sk-proj-Ab3dEf6hIj9kLm2n":                     "sk-[redacted]",
		"Bearer ghp_16C7e42F292c6912E7710c838347Ae178": "Bearer ghp_[redacted]",
		"xoxb-123456789012-abcdef":                     "xoxb-[redacted]",
		"AKIAIOSFODNN7EXAMPLE":                         "AKIA[redacted]",
		"eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.":         "eyJ[redacted]",
		"2b7e151628aed2a6abf7158809cf4f3c":             "[redacted]",
		"x=wJalrXUtnFEMI0K7MDENGbPxRfiCY&y":            "x=[redacted]&y",
		"GETT 30sec /repos/{owner}/issues":             "GETT 30sec /repos/{owner}/issues",
		"create_pull_request_review_comment2":          "create_pull_request_review_comment2",
		"internationalizationoverrides":                "internationalizationoverrides",
		"100000000000000000000000000000":               "100000000000000000000000000000",
		"task-runner sk-1":                             "task-runner sk-1",
	} {
		if got := literal.Mask(in); got != want {
			t.Errorf("%q is told as %q, want %q", in, got, want)
		}
	}
}
