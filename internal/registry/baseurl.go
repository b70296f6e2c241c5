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
//
// Errors quote no more of it than a host or a port: somebody may have put a
// password or a token into it, and where that begins is anybody's guess.
func parseURL(s string) (*url.URL, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || scheme != "http" && scheme != "https" {
		return nil, errors.New("does not begin with http:// or https://")
	}
	authority, _, _ := strings.Cut(rest, "/")
	if strings.Contains(authority, "@") {
		return nil, errUserinfo
	}
	for _, c := range []byte(s) {
		switch {
		case c <= ' ' || c >= 0x7f || c == '\\':
			return nil, fmt.Errorf("holds %q", string(rune(c)))
		case c == '?':
			return nil, errors.New("a URL with a query (?) is not taken: declare parameters instead")
		case c == '#':
			return nil, errors.New("a URL with a fragment (#) is not taken")
		case c == '{' || c == '}':
			return nil, fmt.Errorf("holds %q: a variable belongs in an action's path", string(rune(c)))
		}
	}
	host, port, hasPort := literal.SplitHostPort(authority)
	err := literal.Host(host)
	if err == nil && hasPort {
		_, err = literal.Port(port)
	}
	if err != nil && strings.Contains(rest, "@") {
		return nil, errUserinfo // with a slash in the password
	}
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(s)
	if err != nil {
		return nil, errors.New("is not a URL")
	}
	escaped := strings.TrimRight(u.EscapedPath(), "/")
	if err := checkPath(escaped); err != nil {
		return nil, err
	}
	if u.Host != authority || u.EscapedPath() != rest[len(authority):] {
		return nil, errors.New("can be read in two ways")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	return u, nil
}

var errUserinfo = errors.New("a URL with a user name or password is not taken: declare a credential instead")

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

// survey counts the slashes of a path and reports whether it has a segment
// that is . or .. to anybody: as it stands, to somebody who decodes once or
// more before he resolves dots (%2e, %2F, %252e), who takes a backslash for a
// slash, or who first cuts the parameters off a segment (..;x).
func survey[T string | []byte](path T) (slashes int, dots bool) {
	dot, other, params := 0, false, false
	for i := 0; i <= len(path); {
		c, width := byte('/'), 1 // the end closes a segment as a slash does
		if i < len(path) {
			c, width = decoded(path, i)
			if path[i] == '/' {
				slashes++
			}
		}
		switch {
		case c == '/' || c == '\\':
			dots = dots || !other && (dot == 1 || dot == 2)
			dot, other, params = 0, false, false
		case c == ';':
			params = true
		case params:
		case c == '.':
			dot++
		default:
			other = true
		}
		i += width
	}
	return slashes, dots
}

// decoded returns the byte that stands at i, however often it was escaped
// (%2525...2e), and how many bytes it is there.
func decoded[T string | []byte](path T, i int) (c byte, width int) {
	if path[i] != '%' {
		return path[i], 1
	}
	j := i + 1
	for j+1 < len(path) && path[j] == '2' && path[j+1] == '5' {
		j += 2
	}
	if j+1 >= len(path) || !isHex(path[j]) || !isHex(path[j+1]) {
		return '%', 1
	}
	return hexDigit(path[j])<<4 | hexDigit(path[j+1]), j + 2 - i
}

func hexDigit(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}
