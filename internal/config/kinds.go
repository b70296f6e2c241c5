package config

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"agentgw/internal/literal"
	"agentgw/internal/secret"
)

// readProxies reads networks such as 10.0.0.0/8, or single addresses.
func readProxies(s *Settings, v string) error {
	s.TrustedProxies = nil
	for item := range strings.SplitSeq(v, ",") {
		item = strings.TrimSpace(item)
		p, err := network(item)
		if err != nil {
			return err
		}
		s.TrustedProxies = append(s.TrustedProxies, p)
	}
	return nil
}

func network(v string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(v); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(v)
	if err == nil && p.Addr().Is4In6() && p.Bits() >= 96 { // IPv4 in IPv6 clothing, as addresses are above
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if err != nil || p.Addr().Is4In6() {
		return p, fmt.Errorf("%s is not a network such as 10.0.0.0/8 or fd00::/8, nor an address", literal.Quote(v))
	}
	if p != p.Masked() {
		// Whoever wrote 10.1.2.3/8 trusts 16 million addresses, and may have
		// meant one.
		return p, fmt.Errorf("%s has bits beyond its length: write %s or %s", literal.Quote(v), p.Masked(), p.Addr())
	}
	return p, nil
}

// publicURL reads http or https, a host, perhaps a port and a path, and nothing else:
// it is compared as a text. A slash at its end is dropped. What is not a URL may be
// anything, so errors quote no more of it than the host.
func publicURL(v string) (string, error) {
	scheme, rest, ok := strings.Cut(v, "://")
	if !ok || scheme != "http" && scheme != "https" {
		return "", errors.New("does not begin with http:// or https://")
	}
	authority, path, _ := strings.Cut(rest, "/")
	if strings.ContainsAny(v, "@?#\\") {
		return "", errors.New("has a user, a query, a fragment or a backslash: write scheme, host, port and path alone")
	}
	host, port, hasPort := literal.SplitHostPort(authority)
	if err := literal.Host(host); err != nil {
		return "", err
	}
	if hasPort {
		if _, err := literal.Port(port); err != nil {
			return "", err
		}
	}
	for _, c := range []byte(path) {
		if c <= ' ' || c >= 0x7f {
			return "", fmt.Errorf("holds %q", string(rune(c)))
		}
	}
	if host != strings.ToLower(host) {
		return "", fmt.Errorf("the host %s is in upper case: write %s", literal.Quote(host), strings.ToLower(host))
	}
	return strings.TrimRight(v, "/"), nil
}

// readSecret keeps a secret as it was given.
func readSecret(field func(*Settings) *secret.Text) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		*field(s) = secret.New(v)
		return nil
	}
}

// maxSecret is the largest file that is read as a secret.
const maxSecret = 64 << 10

// readSecretFile reads a secret from the file at the given path. One line end
// at its end is dropped, since editors and echo leave one; nothing else is.
func readSecretFile(field func(*Settings) *secret.Text) func(*Settings, string) error {
	return func(s *Settings, path string) error {
		f, err := os.Open(path)
		if err != nil {
			return err // names the path
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
		if err != nil {
			return err
		}
		if len(data) > maxSecret {
			return fmt.Errorf("%s is larger than %d bytes", path, maxSecret)
		}
		text := string(data)
		if cut, ok := strings.CutSuffix(text, "\n"); ok {
			text = strings.TrimSuffix(cut, "\r")
		}
		if strings.TrimSpace(text) == "" {
			return errors.New(path + " is empty")
		}
		*field(s) = secret.New(text)
		return nil
	}
}
