package registry

import (
	"errors"
	"fmt"
	"strings"

	"agentgw/internal/literal"
)

// part is a piece of a path template: a literal that may hold slashes, or a
// variable, which never leaves its segment.
type part struct {
	literal  string // already escaped; "" for a variable
	variable string
	param    int // index of the variable's parameter
}

// parseTemplate reads a path such as /repos/{owner}/{repo}.json. Every brace
// is accounted for, so that none can reach an upstream.
func parseTemplate(s string) ([]part, error) {
	if !strings.HasPrefix(s, "/") {
		return nil, fmt.Errorf("%s does not begin with a slash", literal.Quote(s))
	}
	var parts []part
	seen := map[string]bool{}
	skeleton := "" // the path with an x for each variable
	for rest := s; rest != ""; {
		open := strings.IndexAny(rest, "{}")
		if open < 0 {
			open = len(rest)
		}
		if open > 0 {
			if err := checkLiteral(rest[:open]); err != nil {
				return nil, err
			}
			parts = append(parts, part{literal: rest[:open]})
			skeleton += rest[:open]
			rest = rest[open:]
			continue
		}
		if rest[0] == '}' {
			return nil, fmt.Errorf("%s closes a brace that was never opened", literal.Quote(s))
		}
		name, after, ok := strings.Cut(rest[1:], "}")
		switch {
		case !ok || strings.ContainsAny(name, "{/"):
			return nil, fmt.Errorf("%s opens a brace and does not close it", literal.Quote(s))
		case name == "":
			return nil, fmt.Errorf("%s has a variable without a name", literal.Quote(s))
		case seen[name]:
			return nil, fmt.Errorf("%s has the variable %s twice", literal.Quote(s), literal.Quote(name))
		case len(parts) > 0 && parts[len(parts)-1].variable != "":
			return nil, fmt.Errorf("%s has two variables with nothing between them", literal.Quote(s))
		}
		seen[name] = true
		parts = append(parts, part{variable: name})
		skeleton += "x"
		rest = after
	}
	return parts, checkPath(skeleton)
}

// checkLiteral refuses what a path may not hold as it stands (RFC 3986, pchar).
func checkLiteral(s string) error {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case isUnreserved(c) || strings.IndexByte("/!$&'()*+,;=:@", c) >= 0:
		case c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			i += 2
		case c == '%':
			return errors.New("a % in a path begins an escape of two hex digits")
		case c == '?' || c == '#':
			return fmt.Errorf("a path holds no %c: parameters that it does not name go into the query by themselves", c)
		default:
			return fmt.Errorf("a path holds no %q: write it as an escape", string(rune(c)))
		}
	}
	return nil
}

func isUnreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
