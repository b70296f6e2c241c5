package registry_test

import (
	"strings"
	"testing"

	"agentgw/internal/registry"
)

func tunnels(t *testing.T, allow ...string) *registry.Tunnels {
	t.Helper()
	s, err := registry.Parse("r", []byte(`tunnels: {allow: ["`+strings.Join(allow, `", "`)+`"]}`))
	if err != nil {
		t.Fatal(err)
	}
	return s.Tunnels
}

// TestWhereTunnelsMayLead: by the whole name or what is behind a star, and the port; in
// whatever case, with a dot at the end or none, and an address in any spelling of its own.
func TestWhereTunnelsMayLead(t *testing.T) {
	list := tunnels(t, "api.example.com:443", "*.Example.org:443", "Dotted.example.:80", "192.0.2.7:22", "[2001:db8::7]:443", "xn--bcher-kva.example:443", "*.a.example:1", "db:5432")
	for target, want := range map[string]bool{
		"api.example.com:443": true, "API.Example.COM:443": true, "api.example.com.:443": true,
		"api.example.com:80": false, "api.example.com:4430": false, "xapi.example.com:443": false, "x.api.example.com:443": false,
		"example.com:443": false, "api.example.com.evil.test:443": false, "api.example.co:443": false,

		"a.example.org:443": true, "a.b.c.example.org:443": true, "A.EXAMPLE.ORG.:443": true,
		"example.org:443": false, "example.org.:443": false, "badexample.org:443": false, "a.example.org:444": false, "a.example.org.evil.test:443": false,
		"-.example.org:443": true, "_dmarc.example.org:443": true,

		"dotted.example:80": true, "dotted.example.:80": true,
		"192.0.2.7:22": true, "[::ffff:192.0.2.7]:22": false, "192.0.2.8:22": false,
		"[2001:db8::7]:443": true, "[2001:DB8:0:0::7]:443": true, "[2001:db8::8]:443": false, "[2001:db8::7]:80": false,
		"xn--bcher-kva.example:443": true, "XN--Bcher-KVA.example:443": true, "bcher-kva.example:443": false,
		"b.a.example:1": true, "a.example:1": false, "ba.example:1": false, "db:5432": true, "db.:5432": true, "x.db:5432": false,
	} {
		h, err := registry.ParseHostPort(target)
		if err != nil {
			t.Errorf("%s: %v", target, err)
			continue
		}
		if got := list.Allows(h); got != want {
			t.Errorf("%s: %v, want %v", target, got, want)
		}
		again, err := registry.ParseHostPort(h.String())
		if err != nil || again != h {
			t.Errorf("%s is written %s, which is read as %v (%v)", target, h, again, err)
		}
	}
	if got := strings.Join(list.Hosts(), " "); got != "192.0.2.7:22 [2001:db8::7]:443 api.example.com:443 db:5432 dotted.example:80 xn--bcher-kva.example:443" {
		t.Error(got)
	}
}

// TestTargetsThatAreNone: what two readers could take for two hosts is none.
func TestTargetsThatAreNone(t *testing.T) {
	for _, target := range []string{
		"", ":", ":443", "a", "a:", "a.example", "a.example:0", "a.example:65536", "a.example:443x", "a.example: 443", "a.example:+443", "a.example:0443x",
		"a.example:443:443", "a.example:443/", "a.example:443/path", "a.example:443?x", "a.example:443#x", "http://a.example:443", "//a.example:443", "/a.example:443",
		"user@a.example:443", "user:pass@a.example:443", "a.example%00:443", "a.example\x00:443", "a.example\r\n:443", "a b:443", "a..example:443", ".a.example:443", "..:443", ".:443",
		"*.example.com:443", "*:443", "büch.example:443", "ａ.example:443", "a。example:443", "127.1:443", "0x7f000001:443", "0177.0.0.1:443", "2130706433:443", "1.2.3.4.5:443",
		"127.0.0.1.:443", "2001:db8::7:443", "[2001:db8::7]", "[2001:db8::7]443", "[fe80::1%25eth0]:443", "[fe80::1%eth0]:443", "[a]b:443", "[192.0.2.7]:443", "[]:443", "[::1:443",
		strings.Repeat("a", 64) + ".example:443", strings.Repeat("a.", 127) + "aa:443",
	} {
		if h, err := registry.ParseHostPort(target); err == nil {
			t.Errorf("%q is %v", target, h)
		}
	}
}

func FuzzParseHostPort(f *testing.F) {
	for _, s := range []string{"a.example:443", "[2001:db8::7]:1", "192.0.2.7:65535", "A.:80", "[::ffff:1.2.3.4]:1", "-:1", "1.2.3.4.:5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := registry.ParseHostPort(s)
		if err != nil {
			return
		}
		again, err := registry.ParseHostPort(h.String())
		if err != nil || again != h || strings.ToLower(h.Host) != h.Host || strings.HasSuffix(h.Host, ".") || strings.ContainsAny(h.Host, "@/%\x00 *") {
			t.Fatalf("%q is %q and then %q (%v)", s, h, again, err)
		}
	})
}
