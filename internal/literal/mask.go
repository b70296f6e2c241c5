package literal

import "regexp"

// key is a gateway's key, or most of one: more of it than anybody could guess the
// rest of, and less than would be taken for one by chance.
var key = regexp.MustCompile(`agw_[0-9A-Za-z]{20,}`)

// Mask returns s with [redacted] in the place of what looks like a gateway's key.
// It is for every message that repeats what somebody wrote: the likeliest secret
// in a wrong place is the one that this program hands out.
func Mask(s string) string { return key.ReplaceAllString(s, "agw_[redacted]") }
