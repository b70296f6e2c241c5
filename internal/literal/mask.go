package literal

import (
	"regexp"
	"strings"
)

var (
	// key is a gateway's key, or most of one: more of it than anybody could guess the
	// rest of, and less than would be taken for one by chance.
	key = regexp.MustCompile(`agw_[0-9A-Za-z]{20,}`)
	// vendors is a secret of those who say at its beginning that it is one, or a JWT.
	vendors = regexp.MustCompile(`\b(sk-|sk_live_|sk_test_|gh[oprsu]_|github_pat_|glpat-|xox[abeprs]-|AKIA|AIza|eyJ)[0-9A-Za-z_.-]{12,}`)
	// run is a word without a break; nobody writes one so long that has digits too.
	run = regexp.MustCompile(`[0-9A-Za-z]{24,}`)
)

// Mask returns s with [redacted] in the place of what looks like a gateway's key or
// another token. It is for every message that repeats what somebody wrote: the
// likeliest secret in a wrong place is the one that this program hands out, and then
// that of a service. It is a net and no proof: a password of words passes.
func Mask(s string) string {
	s = key.ReplaceAllString(s, "agw_[redacted]")
	s = vendors.ReplaceAllString(s, "${1}[redacted]")
	return run.ReplaceAllStringFunc(s, func(word string) string {
		if strings.ContainsAny(word, "0123456789") && strings.Trim(word, "0123456789") != "" {
			return "[redacted]"
		}
		return word
	})
}
