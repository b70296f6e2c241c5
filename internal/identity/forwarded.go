package identity

import (
	"iter"
	"slices"
	"strings"
)

// forwardedHops are the for= nodes of all elements of a Forwarded header
// (RFC 7239), the nearest, which is the last, first. An element without one, or one that cannot be
// read, is the empty hop, which no address is: to drop it would shift trust one
// hop to the left.
//
// Each line is read by itself, so that a quote which a client leaves open in
// its own line does not swallow the lines of the proxies after it.
func forwardedHops(lines []string) iter.Seq[string] {
	var hops []string
	for _, line := range lines {
		for line != "" {
			var node string
			var pairs int
			if node, pairs, line = forwardedElement(line); pairs > 0 {
				hops = append(hops, node)
			}
		}
	}
	slices.Reverse(hops)
	return slices.Values(hops)
}

// forwardedElement reads up to the next comma outside of quotes, and returns
// the node, the number of pairs, and what is left.
func forwardedElement(list string) (node string, pairs int, rest string) {
	seen := 0
	for {
		var name, value string
		var ok bool
		name, value, ok, list = forwardedPair(list)
		if name != "" || value != "" || !ok {
			pairs++
		}
		if strings.EqualFold(name, "for") {
			seen++
			node = value
		}
		if !ok {
			// Not to be read: whatever follows cannot be trusted to be
			// what it looks like, and it all came from the left of here or
			// from this very hop.
			node, seen = "", 2
		}
		if list == "" || list[0] == ',' {
			if seen > 1 {
				node = ""
			}
			return node, pairs, strings.TrimPrefix(list, ",")
		}
		list = list[1:] // the semicolon
	}
}

// forwardedPair reads one name=value, the value a token or a quoted string, up
// to a semicolon, a comma or the end.
func forwardedPair(s string) (name, value string, ok bool, rest string) {
	s = strings.TrimLeft(s, " \t")
	end := strings.IndexAny(s, "=;,")
	if end < 0 || s[end] != '=' {
		if end < 0 {
			end = len(s)
		}
		word := trimSpace(s[:end])
		return word, "", word == "", s[end:]
	}
	name, s = s[:end], s[end+1:]
	if !strings.HasPrefix(s, `"`) {
		if end = strings.IndexAny(s, ";,"); end < 0 {
			end = len(s)
		}
		return name, trimSpace(s[:end]), true, s[end:]
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i < len(s) {
				b.WriteByte(s[i])
			}
		case '"':
			rest = strings.TrimLeft(s[i+1:], " \t")
			return name, b.String(), rest == "" || rest[0] == ';' || rest[0] == ',', skipTo(rest)
		default:
			b.WriteByte(s[i])
		}
	}
	return name, "", false, "" // the quote is never closed
}

// skipTo drops what stands between a closing quote and the next separator.
func skipTo(s string) string {
	if i := strings.IndexAny(s, ";,"); i >= 0 {
		return s[i:]
	}
	return ""
}
