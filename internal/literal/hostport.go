package literal

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Host checks the host of a URL or an address as it is written there: a name
// of ASCII letters, digits, dots, hyphens and underscores, an IPv4 address in
// four plain parts, or an IPv6 address in brackets and without a zone. Forms
// that resolvers disagree about (127.1, 0x7f000001, 017700000001) are refused.
func Host(s string) error {
	if s == "" {
		return errors.New("the host is missing")
	}
	if inner, ok := strings.CutPrefix(s, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		addr, err := netip.ParseAddr(inner)
		switch {
		case !ok || err != nil || !addr.Is6():
			return fmt.Errorf("%s is not an IPv6 address in brackets", Quote(s))
		case addr.Zone() != "":
			return fmt.Errorf("%s has a zone, which means nothing outside this machine", Quote(s))
		}
		return nil
	}
	if strings.Contains(s, ":") {
		return fmt.Errorf("%s: an IPv6 address stands in brackets, such as [2001:db8::5]", Quote(s))
	}
	for _, c := range s {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '.' && c != '-' && c != '_' {
			return fmt.Errorf("the host %s holds %q; names with other letters are written in their xn-- form", Quote(s), string(c))
		}
	}
	labels := strings.Split(strings.TrimSuffix(s, "."), ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || len(s) > 253 {
			return fmt.Errorf("%s is not a host name", Quote(s))
		}
	}
	// A name whose last label begins like a number is an IPv4 address to many
	// resolvers, in octal, hex or short forms too.
	if last := labels[len(labels)-1]; last[0] >= '0' && last[0] <= '9' {
		if addr, err := netip.ParseAddr(s); err != nil || !addr.Is4() {
			return fmt.Errorf("%s is not an IPv4 address in its plain form", Quote(s))
		}
	}
	return nil
}

// Port reads a port from 1 to 65535.
func Port(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || !whole.MatchString(s) || n < 1 || n > 65535 {
		return 0, fmt.Errorf("the port %s is not a number from 1 to 65535", Quote(s))
	}
	return n, nil
}

// SplitHostPort cuts the authority of a URL into host and port; found is false
// when it has no port. It judges neither.
func SplitHostPort(s string) (host, port string, found bool) {
	if strings.HasPrefix(s, "[") {
		if i := strings.Index(s, "]:"); i >= 0 {
			return s[:i+1], s[i+2:], true
		}
		return s, "", false
	}
	if strings.Count(s, ":") != 1 {
		return s, "", false // no port, or an IPv6 address without brackets
	}
	return strings.Cut(s, ":")
}
