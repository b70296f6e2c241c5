package gateway_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"agentgw/internal/config"
	"agentgw/internal/receipts"
)

// clientAddresses are those of all records, in their order.
func (w *world) clientAddresses() (list []string) {
	for _, r := range w.ledger.all() {
		list = append(list, r.ClientAddr)
	}
	return list
}

// forwardingHeaders are those by which somebody could say where they come from.
var forwardingHeaders = []string{
	"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "Fastly-Client-Ip",
	"X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded", "Forwarded-For", "Via",
}

// TestNobodyChoosesTheirAddress: without trusted proxies a hundred requests that
// say to come from anywhere are one client's, and the peer is in the receipts.
func TestNobodyChoosesTheirAddress(t *testing.T) {
	w := newWorld(t, hello)
	random := rand.New(rand.NewPCG(1, 2))
	counts := map[string]int{}
	for range 100 {
		r := w.request(context.Background(), "", plainCall("tools", ""))
		for _, name := range forwardingHeaders {
			r.Header.Set(name, fmt.Sprintf("%d.%d.%d.%d", 1+random.IntN(220), random.IntN(256), random.IntN(256), random.IntN(256)))
		}
		r.Header.Set("Forwarded", "for="+r.Header.Get("X-Real-Ip"))
		got := w.do(r)
		counts[fmt.Sprint(got.status, " ", got.code)]++
	}
	if counts["401 unauthenticated"] != 60 || counts["429 rate_limited"] != 40 {
		t.Errorf("%v, want 60 failures of one address and 40 refusals", counts)
	}
	for _, address := range w.clientAddresses() {
		if address != "127.0.0.1" {
			t.Fatalf("a receipt says %s", address)
		}
	}
}

// TestWhereACallerIsStaysHere: no header that tells of it reaches the service, be
// it from a stranger or from a proxy that is trusted.
func TestWhereACallerIsStaysHere(t *testing.T) {
	for name, trusted := range map[string]func(*config.Settings){
		"from a stranger": func(*config.Settings) {},
		"from a proxy":    func(s *config.Settings) { s.TrustedProxies = loopback },
	} {
		var seen atomic.Pointer[http.Header]
		w := setup{settings: trusted}.world(t, func(rw http.ResponseWriter, r *http.Request) {
			seen.Store(&r.Header)
			hello(rw, r)
		}, everything("k"))
		r := w.request(context.Background(), "k", plainCall("tools", ""))
		for _, header := range forwardingHeaders {
			r.Header[header] = []string{"198.51.100.77", "198.51.100.78"}
		}
		w.do(r).want(t, name, 200, "", "")
		for header, values := range *seen.Load() {
			if text := strings.Join(values, " "); strings.Contains(text, "198.51.100") || strings.Contains(text, "127.0.0.1") {
				t.Errorf("%s: the service is told %s: %s", name, header, text)
			}
		}
	}
}

// TestAddressForms: with a port or without, in brackets or not, in one line or in
// several, in either header, it is one client.
func TestAddressForms(t *testing.T) {
	type head map[string][]string
	xff := func(lines ...string) head { return head{"X-Forwarded-For": lines} }
	forwarded := func(lines ...string) head { return head{"Forwarded": lines} }
	for address, heads := range map[string][]head{
		"203.0.113.7": {
			xff("203.0.113.7"), xff("203.0.113.7:5123"), xff("::ffff:203.0.113.7"), xff("[::ffff:203.0.113.7]:1"), xff("6.6.6.6, 203.0.113.7"),
			xff("6.6.6.6", "203.0.113.7"), xff("10.0.0.9, 203.0.113.7, 192.0.2.2"), xff("10.0.0.9", "203.0.113.7:1 ,", " 192.0.2.2:2"),
			forwarded("for=203.0.113.7"), forwarded(`for="203.0.113.7:5123";proto=https`), forwarded("for=6.6.6.6, for=203.0.113.7"), forwarded("for=6.6.6.6", "For=203.0.113.7, for=192.0.2.2"),
			{"X-Forwarded-For": {"203.0.113.7:9"}, "Forwarded": {`for="203.0.113.7:8"`}},
		},
		"2001:db8::7": {
			xff("2001:db8::7"), xff("[2001:db8::7]"), xff("[2001:db8::7]:5123"), xff("2001:DB8:0:0::0:7"),
			forwarded(`for="[2001:db8::7]"`), forwarded(`for="[2001:db8::7]:443"`), forwarded(`by=203.0.113.43;for="[2001:db8::7]:_port"`, `for="[2001:db8::7]:1"`),
		},
		"127.0.0.1": { // what the proxy that is known said cannot be read, so it is the last that is known
			xff("fe80::1%eth0"), xff("[fe80::1%eth0]:443"), xff("203.0.113.7, unknown"), xff("203.0.113.7, " + strings.Repeat("x", 5000)), xff(""),
			forwarded(`for="[fe80::1%25eth0]"`), forwarded("for=203.0.113.7, for=_hidden"), forwarded("for=203.0.113.7, for=unknown"), forwarded(`for=203.0.113.7, for="`),
			{"X-Forwarded-For": {"203.0.113.7"}, "Forwarded": {"for=203.0.113.8"}}, {"X-Forwarded-For": {"203.0.113.7"}, "Forwarded": {"for=unknown"}},
			{"X-Real-Ip": {"203.0.113.7"}, "Cf-Connecting-Ip": {"203.0.113.7"}},
		},
		"192.0.2.9": {xff("192.0.2.9"), xff("192.0.2.9, 192.0.2.8:1", "192.0.2.7"), xff("unknown, 192.0.2.9")}, // all are trusted: the left-most that can be read
	} {
		w := setup{settings: func(s *config.Settings) {
			s.TrustedProxies = append(prefixes("192.0.2.0/24"), loopback...)
			s.RateAuthPerMinute = len(heads)
		}}.world(t, hello)
		for i, h := range append(heads, heads[0]) {
			r := w.request(context.Background(), "", plainCall("tools", ""))
			for name, lines := range h {
				r.Header[name] = lines
			}
			if i < len(heads) {
				w.do(r).want(t, fmt.Sprint(h), 401, "unauthenticated", "")
			} else {
				w.do(r).want(t, "one more than its budget", 429, "rate_limited", "address")
			}
			if all := w.clientAddresses(); all[i] != address {
				t.Errorf("%v: the receipt says %s, want %s", h, all[i], address)
			}
		}
	}
}

// TestOneHostsAddresses: a thousand addresses of one /64 have one budget, and the
// next /64 has its own; each receipt has the address in full.
func TestOneHostsAddresses(t *testing.T) {
	w := setup{settings: func(s *config.Settings) { s.TrustedProxies = loopback }}.world(t, hello)
	var want []string
	counts := map[int]int{}
	for i := range 1000 {
		address := fmt.Sprintf("2001:db8:0:1:%x:0:%x:1", i%7+1, i+1)
		want = append(want, address)
		counts[w.from(address, "").status]++
	}
	if counts[401] != 60 || counts[429] != 940 {
		t.Errorf("of one /64: %v, want 60 failures and 940 refusals", counts)
	}
	for i := range 10 {
		address := fmt.Sprintf("2001:db8:0:2::%x", i+1)
		want = append(want, address)
		w.from(address, "").want(t, address, 401, "unauthenticated", "")
	}
	for i, address := range w.clientAddresses() {
		if address != want[i] {
			t.Fatalf("the receipt of %s says %s", want[i], address)
		}
	}
}

// TestIPv6Peer: over IPv6 the peer is known by its address, and trusted by it.
func TestIPv6Peer(t *testing.T) {
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6: ", err)
	}
	w := setup{settings: func(s *config.Settings) { s.TrustedProxies = prefixes("::1/128") }}.world(t, hello, everything("k"))
	w.server.Close()
	w.server = httptest.NewUnstartedServer(w.gateway.Handler())
	_ = w.server.Listener.Close()
	w.server.Listener = l
	w.server.Start()
	t.Cleanup(w.server.Close)
	w.act("k", plainCall("tools", "")).want(t, "without a header", 200, "", "")
	w.from("2001:db8::7", "k").want(t, "with one", 200, "", "")
	if got := fmt.Sprint(w.clientAddresses()); got != "[::1 ::1 2001:db8::7 2001:db8::7]" {
		t.Errorf("the receipts say %s", got)
	}
	if kinds := w.ledger.all(); kinds[0].Kind != receipts.KindIntent || kinds[1].Kind != receipts.KindOutcome {
		t.Errorf("%+v", kinds)
	}
}
