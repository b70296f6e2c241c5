package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func TestGuarded(t *testing.T) {
	for _, c := range []struct {
		addr string
		want bool
	}{
		{"127.0.0.1", true}, {"10.1.2.3", true}, {"172.31.255.255", true}, {"172.32.0.1", false},
		{"192.168.0.1", true}, {"169.254.169.254", true}, {"100.64.0.1", true}, {"100.128.0.1", false},
		{"198.18.0.1", true}, {"0.0.0.0", true}, {"224.0.0.1", true}, {"255.255.255.255", true},
		{"8.8.8.8", false}, {"2606:4700::1111", false},
		{"::1", true}, {"::", true}, {"::127.0.0.1", true}, {"::ffff:127.0.0.1", true}, {"::ffff:8.8.8.8", false},
		{"fc00::1", true}, {"fe80::1", true}, {"fe80::1%eth0", true}, {"fec0::1", true},
		{"64:ff9b::a9fe:a9fe", true}, {"64:ff9b:1::1", true}, {"2002:a9fe:a9fe::", true}, {"2001::1", true},
	} {
		if got := Guarded(netip.MustParseAddr(c.addr)); got != c.want {
			t.Errorf("Guarded(%s) = %v, want %v", c.addr, got, c.want)
		}
	}
	if !Guarded(netip.Addr{}) {
		t.Error("an address that is none is not guarded")
	}
}

// TestNoProxyIsAsked: not one of the environment, which would dial for the gateway
// what the guard refuses.
func TestNoProxyIsAsked(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	for _, private := range []bool{false, true} {
		for _, scheme := range []string{"http", "https"} {
			proxy, err := NewTransport(private).Proxy(httptest.NewRequest("GET", scheme+"://service.example/", nil))
			if proxy != nil || err != nil {
				t.Errorf("private %v: %v is asked for, %v", private, proxy, err)
			}
		}
	}
}

// namesAt answers every question for a name's address, each with the next one.
func namesAt(t *testing.T, addresses ...netip.Addr) *net.Resolver {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		b := make([]byte, 512)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(b[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.Additionals = true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
					Body:   &dnsmessage.AResource{A: addresses[0].As4()},
				}}
				if len(addresses) > 1 {
					addresses = addresses[1:]
				}
			}
			if answer, err := m.Pack(); err == nil {
				_, _ = c.WriteTo(answer, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", c.LocalAddr().String())
	}}
}

// TestANameThatTurnsPrivate: a name is public when it is looked at, and leads to
// this machine when it is dialled. The guard looks at what is dialled.
func TestANameThatTurnsPrivate(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	usual := net.DefaultResolver
	net.DefaultResolver = namesAt(t, netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("127.0.0.1"))
	defer func() { net.DefaultResolver = usual }()
	const name = "turns.private.test."
	if list, err := net.DefaultResolver.LookupHost(t.Context(), name); err != nil || len(list) != 1 || list[0] != "93.184.216.34" {
		t.Fatal(list, err)
	}
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for _, private := range []bool{false, true} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+name+":"+port, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := NewTransport(private).RoundTrip(r)
		if err == nil {
			_ = res.Body.Close()
		}
		if private && err != nil || !private && !errors.Is(err, errGuarded) {
			t.Errorf("private %v: %v", private, err)
		}
		c, err := newDialer(private).DialContext(t.Context(), "tcp", name+":"+port) // as tunnels do
		if err == nil {
			_ = c.Close()
		}
		if private && err != nil || !private && !errors.Is(err, errGuarded) {
			t.Errorf("a tunnel, private %v: %v", private, err)
		}
	}
}
