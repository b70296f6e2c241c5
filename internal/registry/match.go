package registry

import (
	"errors"
	"slices"
	"strings"
)

// ErrSpelling says that a path is another action, or a more exact one, to whoever
// decodes what needs no escape and has no regard to the case of an escape's digits
// (RFC 3986, sections 6.2.2.1 and 6.2.2.2). The service may well do so.
var ErrSpelling = errors.New("the path has letters, digits or one of -._~ written as an escape, or escapes in lower case, and can be read as another action for it: write it without")

// ErrTwoWays says that the variables of a path can be told apart in more ways than
// one, so that nobody knows which the service takes.
var ErrTwoWays = errors.New("the path can be read as its action in two ways")

// segment is what stands between two slashes of a template: literals, already
// escaped, with a variable between each two.
type segment struct {
	literals []string // one more than variables; each but the first and the last is not empty
	params   []int    // of the variables
}

// segments cuts a template at its slashes, as strings.Split does a path.
func segments(parts []part) []segment {
	var list []segment
	open := segment{literals: []string{""}}
	for _, p := range parts {
		if p.variable != "" {
			open.params, open.literals = append(open.params, p.param), append(open.literals, "")
			continue
		}
		for i, text := range strings.Split(p.literal, "/") {
			if i > 0 {
				list = append(list, open)
				open = segment{literals: []string{""}}
			}
			open.literals[len(open.literals)-1] += text
		}
	}
	return append(list, open)
}

// Match returns the action that a request by this method for this path is: both as
// they were sent, no byte decoded, the path below the service's base path. A
// variable is one or more bytes that are no slash. Of several actions it is the one
// with the most exact segments, from the left; of those that are alike the first by
// name that preferred says, or else the first. It is nil where there is none.
func (s *Service) Match(method, path string, preferred func(action string) bool) (*Action, error) {
	found, err := s.match(method, strings.Split(path, "/"), preferred)
	if err != nil || strings.IndexByte(path, '%') < 0 {
		return found, err
	}
	if usual := normal(path); usual != path {
		read, err := s.match(method, strings.Split(usual, "/"), preferred)
		if err != nil || read != nil && (found == nil || read.compare(found) < 0) {
			return nil, ErrSpelling
		}
	}
	return found, nil
}

func (s *Service) match(method string, path []string, preferred func(string) bool) (best *Action, err error) {
	for _, a := range s.byName {
		if a.Method != method || !a.matches(path) {
			continue
		}
		order := -1
		if best != nil {
			order = a.compare(best)
		}
		if order < 0 || order == 0 && preferred(a.Name) && !preferred(best.Name) {
			best = a
		}
	}
	if best != nil && best.twoWays(path) {
		return nil, ErrTwoWays
	}
	return best, nil
}

func (a *Action) matches(path []string) bool {
	if len(path) != len(a.segments) {
		return false
	}
	for i := range path {
		if _, ok := a.segments[i].leftmost(path[i]); !ok {
			return false
		}
	}
	return true
}

// twoWays reports whether the variables of a path that matches can be cut in more ways
// than one. All ways lie between that with every literal as far left as it can be and
// that with every literal as far right.
func (a *Action) twoWays(path []string) bool {
	for i, s := range a.segments {
		left, _ := s.leftmost(path[i])
		if len(s.params) > 1 && !slices.Equal(left, s.rightmost(path[i])) {
			return true
		}
	}
	return false
}

// compare is negative where a is more exact than b.
func (a *Action) compare(b *Action) int {
	for i := range a.segments {
		if c := b.segments[i].exactness() - a.segments[i].exactness(); c != 0 {
			return c
		}
	}
	return 0
}

// exactness is how many bytes of a segment are given; of one without a variable,
// more than any other has.
func (s segment) exactness() int {
	if len(s.params) == 0 {
		return MaxSize
	}
	n := 0
	for _, l := range s.literals {
		n += len(l)
	}
	return n
}

// leftmost cuts text into the values of the segment's variables, each as short as it
// can be, from the left.
func (s segment) leftmost(text string) (values []string, ok bool) {
	last := len(s.params)
	if last == 0 {
		return nil, text == s.literals[0]
	}
	if text, ok = strings.CutPrefix(text, s.literals[0]); !ok {
		return nil, false
	}
	if text, ok = strings.CutSuffix(text, s.literals[last]); !ok {
		return nil, false
	}
	for _, l := range s.literals[1:last] {
		if text == "" {
			return nil, false
		}
		at := strings.Index(text[1:], l)
		if at < 0 {
			return nil, false
		}
		values, text = append(values, text[:at+1]), text[at+1+len(l):]
	}
	return append(values, text), text != ""
}

// rightmost cuts a text that matches so that every value but the first is as short as
// it can be, from the right.
func (s segment) rightmost(text string) []string {
	last := len(s.params)
	text = strings.TrimSuffix(strings.TrimPrefix(text, s.literals[0]), s.literals[last])
	values := make([]string, last)
	for i := last - 1; i > 0; i-- {
		at := strings.LastIndex(text[:len(text)-1], s.literals[i])
		text, values[i] = text[:at], text[at+len(s.literals[i]):]
	}
	values[0] = text
	return values
}

// normal is a path without escapes of bytes that need none, and with upper-case digits
// in all others.
func normal(path string) string {
	b := make([]byte, 0, len(path))
	for i := 0; i < len(path); i++ {
		if path[i] != '%' || i+2 >= len(path) || !isHex(path[i+1]) || !isHex(path[i+2]) {
			b = append(b, path[i])
			continue
		}
		if c := hexDigit(path[i+1])<<4 | hexDigit(path[i+2]); isUnreserved(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', upperHex[c>>4], upperHex[c&15])
		}
		i += 2
	}
	return string(b)
}
