package registry

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// CheckTarget says what is wrong with the path and the query of a request that is to
// go out byte for byte, or nil. The path is refused where two servers could read two
// paths in it: an empty or a dot segment, however it is spelled (see survey), a
// backslash, a control byte, a percent sign that begins no escape, and whatever may not
// stand in a path as it is (RFC 3986, section 3.3). An escaped slash is no slash, and
// stays one segment. The query is anything but what would end it.
func CheckTarget(path, query string) error {
	if path != "" && path[0] != '/' {
		return errors.New("the path does not begin with a slash")
	}
	for i := 0; i < len(path); i++ {
		c := path[i]
		switch {
		case isUnreserved(c) || strings.IndexByte("/!$&'()*+,;=:@", c) >= 0:
		case c == '%' && i+2 < len(path) && isHex(path[i+1]) && isHex(path[i+2]):
			i += 2
			if c := hexDigit(path[i-1])<<4 | hexDigit(path[i]); c < ' ' || c == 0x7f || c == '\\' {
				return errors.New("the path has the escape of a control byte or a backslash")
			}
		case c == '%':
			return errors.New("a % in the path begins no escape of two hex digits")
		default:
			return errors.New("the path has a byte that has to be escaped there")
		}
	}
	if err := checkPath(path); err != nil {
		return err
	}
	for i := range len(query) {
		if c := query[i]; c <= ' ' || c == 0x7f || c == '#' {
			return errors.New("the query has a space, a control byte or a #")
		}
	}
	return nil
}

// Relay returns the request by this method for a path below the service's base path,
// with this query, both byte for byte; query begins with a question mark, or is "".
// The error is for who called. The header and the body are for the caller of Relay to fill in.
func (s *Service) Relay(method, path, query string) (*Target, error) {
	query, asked := strings.CutPrefix(query, "?")
	if err := CheckTarget(path, query); err != nil {
		return nil, err
	}
	if name := s.Credential.Name; s.Credential.Type == CredentialQuery && queryHas(query, name) {
		return nil, fmt.Errorf("the query has %s, which is where the service's credential goes", shorten(name))
	}
	u := *s.BaseURL
	u.RawPath, u.RawQuery, u.ForceQuery = s.BaseURL.EscapedPath()+path, query, asked && query == ""
	var err error
	if u.Path, err = url.PathUnescape(u.RawPath); err != nil || u.EscapedPath() != u.RawPath {
		return nil, errors.New("the path would not go out as it came")
	}
	return &Target{Method: method, URL: &u}, nil
}

// queryHas reports whether some reader of a query finds a parameter of that name in it.
func queryHas(query, name string) bool {
	for pair := range strings.FieldsFuncSeq(query, func(c rune) bool { return c == '&' || c == ';' }) {
		have, _, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(have); err == nil {
			have = plain
		}
		if strings.EqualFold(have, name) {
			return true
		}
	}
	return false
}
