package identity_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"agentgw/internal/identity"
)

func proxies(s string) (p identity.Proxies) {
	for _, prefix := range list(s) {
		p = append(p, netip.MustParsePrefix(prefix))
	}
	return p
}

func TestClientAddr(t *testing.T) {
	const trusted = "192.0.2.0/24,2001:db8:ffff::/48"
	for _, c := range []struct {
		name, trusted, peer string
		xff, forwarded      string // lines parted by |
		want                string
	}{
		{"nobody trusted", "", "192.0.2.1:1", "203.0.113.7", "for=203.0.113.8", "192.0.2.1"},
		{"untrusted peer", trusted, "198.51.100.1:1", "203.0.113.7", "for=203.0.113.8", "198.51.100.1"},
		{"no header", trusted, "192.0.2.1:1", "", "", "192.0.2.1"},
		{"one hop", trusted, "192.0.2.1:1", "203.0.113.7", "", "203.0.113.7"},
		{"the right-most untrusted", trusted, "192.0.2.1:1", "10.0.0.9, 203.0.113.7, 192.0.2.2", "", "203.0.113.7"},
		{"what the client wrote", trusted, "192.0.2.1:1", "6.6.6.6, 9.9.9.9", "", "9.9.9.9"},
		{"all trusted", trusted, "192.0.2.1:1", "192.0.2.7,192.0.2.3", "", "192.0.2.7"},
		{"lines are one list", trusted, "192.0.2.1:1", "6.6.6.6|203.0.113.7|192.0.2.2", "", "203.0.113.7"},
		{"empty elements", trusted, "192.0.2.1:1", "203.0.113.7,, 192.0.2.2,", "", "203.0.113.7"},
		{"port", trusted, "192.0.2.1:1", "203.0.113.7:5123", "", "203.0.113.7"},
		{"brackets", trusted, "192.0.2.1:1", "[2001:db8::7]", "", "2001:db8::7"},
		{"brackets and port", trusted, "192.0.2.1:1", "[2001:db8::7]:5123", "", "2001:db8::7"},
		{"IPv6", trusted, "192.0.2.1:1", "2001:db8::7", "", "2001:db8::7"},
		{"IPv6 proxies", trusted, "[2001:db8:ffff::1]:1", "203.0.113.7, 2001:DB8:FFFF::2", "", "203.0.113.7"},
		{"zone refused", trusted, "192.0.2.1:1", "203.0.113.7, fe80::1%eth0", "", "192.0.2.1"},
		{"zone and port refused", trusted, "192.0.2.1:1", "203.0.113.7, [fe80::1%eth0]:443", "", "192.0.2.1"},
		{"IPv4 in brackets refused", trusted, "192.0.2.1:1", "[203.0.113.7]", "", "192.0.2.1"},
		{"junk stops at the hop that said it", trusted, "192.0.2.1:1", "203.0.113.7, junk, 192.0.2.2", "", "192.0.2.2"},
		{"junk to the left of the answer", trusted, "192.0.2.1:1", "junk, 203.0.113.7", "", "203.0.113.7"},
		{"leading zeros refused", trusted, "192.0.2.1:1", "203.0.113.007", "", "192.0.2.1"},
		{"mapped hop", trusted, "192.0.2.1:1", "::ffff:203.0.113.7", "", "203.0.113.7"},
		{"mapped proxy", trusted, "192.0.2.1:1", "203.0.113.7, ::ffff:192.0.2.2", "", "203.0.113.7"},
		{"mapped peer", trusted, "[::ffff:192.0.2.1]:1", "203.0.113.7", "", "203.0.113.7"},
		{"link-local peer", "", "[fe80::1%eth0]:1", "", "", "fe80::1"},
		{"Unix socket", trusted, "@", "203.0.113.7", "", "invalid IP"},
		{"no peer", "0.0.0.0/0,::/0", "", "203.0.113.7", "", "invalid IP"},

		{"Forwarded", trusted, "192.0.2.1:1", "", "for=203.0.113.7", "203.0.113.7"},
		{"Forwarded, parameters", trusted, "192.0.2.1:1", "", "proto=https ;For=203.0.113.7; by=192.0.2.1, by=x;FOR=192.0.2.2", "203.0.113.7"},
		{"Forwarded, quoted", trusted, "192.0.2.1:1", "", `for="[2001:db8::7]:443"`, "2001:db8::7"},
		{"Forwarded, escaped", trusted, "192.0.2.1:1", "", `for="\[2001:db8::7]"`, "2001:db8::7"},
		{"Forwarded, separators in quotes", trusted, "192.0.2.1:1", "", `for=6.6.6.6;x="a,for=7.7.7.7;b", for=203.0.113.7;y=",;", for=192.0.2.2`, "203.0.113.7"},
		{"Forwarded, lines", trusted, "192.0.2.1:1", "", "for=6.6.6.6|for=203.0.113.7", "203.0.113.7"},
		{"Forwarded, empty elements", trusted, "192.0.2.1:1", "", "for=203.0.113.7, , for=192.0.2.2,", "203.0.113.7"},
		{"Forwarded, obfuscated", trusted, "192.0.2.1:1", "", "for=203.0.113.7, for=_hidden, for=192.0.2.2", "192.0.2.2"},
		{"Forwarded, unknown", trusted, "192.0.2.1:1", "", "for=203.0.113.7, for=unknown", "192.0.2.1"},
		{"Forwarded, an element without for", trusted, "192.0.2.1:1", "", "for=203.0.113.7, proto=https", "192.0.2.1"},
		{"Forwarded, for twice", trusted, "192.0.2.1:1", "", "for=203.0.113.7;for=203.0.113.8", "192.0.2.1"},
		{"Forwarded, open quote", trusted, "192.0.2.1:1", "", `for="203.0.113.7`, "192.0.2.1"},
		{"Forwarded, a client's open quote", trusted, "192.0.2.1:1", "", `for="6.6.6.6|for=203.0.113.7`, "203.0.113.7"},
		{"Forwarded, after the quote", trusted, "192.0.2.1:1", "", `for="203.0.113.7"x`, "192.0.2.1"},
		{"Forwarded, a word alone", trusted, "192.0.2.1:1", "", `203.0.113.7`, "192.0.2.1"},
		{"Forwarded, space before the sign", trusted, "192.0.2.1:1", "", `for =203.0.113.7`, "192.0.2.1"},

		{"both agree", trusted, "192.0.2.1:1", "6.6.6.6, 203.0.113.7", `for="203.0.113.7:99"`, "203.0.113.7"},
		{"both disagree", trusted, "192.0.2.1:1", "203.0.113.7", "for=203.0.113.8", "192.0.2.1"},
	} {
		h := http.Header{"X-Real-Ip": {"7.7.7.7"}, "Cf-Connecting-Ip": {"7.7.7.7"}, "X-Client-Ip": {"7.7.7.7"}}
		if c.xff != "" {
			h["X-Forwarded-For"] = strings.Split(c.xff, "|")
		}
		if c.forwarded != "" {
			h["Forwarded"] = strings.Split(c.forwarded, "|")
		}
		if got := proxies(c.trusted).ClientAddr(c.peer, h).String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestNobodyChoosesTheirAddress(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		invented := fmt.Sprintf("%d.%d.%d.%d", random.IntN(256), random.IntN(256), random.IntN(256), random.IntN(256))
		h := http.Header{
			"X-Forwarded-For": {invented}, "X-Real-Ip": {invented}, "Cf-Connecting-Ip": {invented},
			"Forwarded": {"for=" + invented},
		}
		if got := identity.Proxies(nil).ClientAddr("198.51.100.9:1234", h); got.String() != "198.51.100.9" {
			t.Fatalf("%s made itself %s", "198.51.100.9", got)
		}
	}
}

func TestLimitPrefix(t *testing.T) {
	for _, c := range []struct{ addr, want string }{
		{"203.0.113.7", "203.0.113.7/32"},
		{"::ffff:203.0.113.7", "203.0.113.7/32"},
		{"2001:db8:0:1::1", "2001:db8:0:1::/64"},
		{"2001:db8:0:1:ffff:ffff:ffff:ffff", "2001:db8:0:1::/64"},
		{"2001:db8:0:2::1", "2001:db8:0:2::/64"},
		{"fe80::1%eth0", "fe80::/64"},
	} {
		if got := identity.LimitPrefix(netip.MustParseAddr(c.addr)).String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.addr, got, c.want)
		}
	}
	if got := identity.LimitPrefix(netip.Addr{}); got != (netip.Prefix{}) {
		t.Errorf("of no address: %v", got)
	}
}

func FuzzClientAddr(f *testing.F) {
	f.Add("203.0.113.7, 192.0.2.2", `for="[2001:db8::7]:443";by=x`)
	f.Add("[", `for="\`)
	f.Add("::1%z", `for=,;=";`)
	p := proxies("192.0.2.0/24")
	f.Fuzz(func(t *testing.T, xff, forwarded string) {
		// Whatever comes from the left of a hop that is known, the hop counts.
		for _, h := range []http.Header{
			{"X-Forwarded-For": {xff + ",203.0.113.7"}}, {"X-Forwarded-For": {xff, "203.0.113.7"}},
			{"Forwarded": {forwarded, "for=203.0.113.7"}},
		} {
			if got := p.ClientAddr("192.0.2.1:1", h).String(); got != "203.0.113.7" {
				t.Fatalf("%q: %s", h, got)
			}
		}
		// On its own it yields some address without a zone.
		got := p.ClientAddr("192.0.2.1:1", http.Header{"X-Forwarded-For": {xff}, "Forwarded": {forwarded}})
		if !got.IsValid() || got.Zone() != "" || got.Is4In6() {
			t.Fatalf("%q, %q: %v", xff, forwarded, got)
		}
	})
}
