package registry

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"agentgw/internal/literal"
)

// parseURL reads the address of an upstream: http or https, a host, perhaps a
// port and a path, and nothing else. It looks at the text itself before
// net/url does, which mends or overlooks part of what is refused here.
func parseURL(s string) (*url.URL, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || scheme != "http" && scheme != "https" {
		return nil, fmt.Errorf("%s does not begin with http:// or https://", literal.Quote(withoutUserinfo(s)))
	}
	authority, _, _ := strings.Cut(rest, "/")
	if strings.Contains(authority, "@") {
		// Not quoted: it may be a password.
		return nil, errors.New("a URL with a user name or password is not taken: declare a credential instead")
	}
	for _, c := range []byte(s) {
		switch {
		case c <= ' ' || c >= 0x7f || c == '\\':
			return nil, fmt.Errorf("%s holds %q", literal.Quote(s), string(rune(c)))
		case c == '?':
			return nil, errors.New("a URL with a query (?) is not taken: declare parameters instead")
		case c == '#':
			return nil, errors.New("a URL with a fragment (#) is not taken")
		case c == '{' || c == '}':
			return nil, fmt.Errorf("%s holds %q: a variable belongs in an action's path", literal.Quote(s), string(rune(c)))
		}
	}
	host, port, hasPort := literal.SplitHostPort(authority)
	if err := literal.Host(host); err != nil {
		return nil, err
	}
	if hasPort {
		if _, err := literal.Port(port); err != nil {
			return nil, err
		}
	}
	u, err := url.Parse(s)
	if err != nil {
		return nil, fmt.Errorf("%s is not a URL", literal.Quote(s))
	}
	escaped := strings.TrimRight(u.EscapedPath(), "/")
	if err := checkPath(escaped); err != nil {
		return nil, err
	}
	if u.Host != authority || u.EscapedPath() != rest[len(authority):] {
		return nil, fmt.Errorf("%s can be read in two ways", literal.Quote(s))
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	return u, nil
}

func withoutUserinfo(s string) string {
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		return "..." + s[i:]
	}
	return s
}

// checkPath refuses an escaped path with an empty or a dot segment: upstreams
// disagree on what these mean, and a prefix that one of them resolves is none.
// A single slash at the end is fine.
func checkPath(escaped string) error {
	if strings.Contains(escaped, "//") {
		return errors.New("the path has an empty segment (//)")
	}
	if _, dots := survey(escaped); dots {
		return errors.New("the path has a . or .. segment")
	}
	return nil
}

// survey counts the slashes of an escaped path and reports whether it has a
// dot segment, also to somebody who decodes %2F before he resolves dots.
func survey[T string | []byte](path T) (slashes int, dots bool) {
	for start, i := 0, 0; i <= len(path); i++ {
		width := 1
		switch {
		case i == len(path):
		case path[i] == '/':
			slashes++
		case path[i] == '%' && i+2 < len(path) && path[i+1] == '2' && path[i+2]|0x20 == 'f':
			width = 3
		default:
			continue
		}
		dots = dots || isDots(path[start:i])
		i += width - 1
		start = i + 1
	}
	return slashes, dots
}

// isDots reports whether an escaped segment means . or .. to anybody.
func isDots[T string | []byte](segment T) bool {
	dots := 0
	for i := 0; i < len(segment); i++ {
		switch {
		case segment[i] == '.':
		case segment[i] == '%' && i+2 < len(segment) && segment[i+1] == '2' && segment[i+2]|0x20 == 'e':
			i += 2
		default:
			return false
		}
		dots++
	}
	return dots == 1 || dots == 2
}
