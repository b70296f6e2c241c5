package gateway_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// certificateFor makes a certificate for exactly these names and addresses.
func certificateFor(t *testing.T, names []string, addresses ...net.IP) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		DNSNames: names, IPAddresses: addresses, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// TestServerName: TLS asks for the host of base_url by name, for none where
// that is an address (RFC 6066, section 3), and Host says the same; what the
// agent calls the gateway is neither. A certificate for another name is refused.
func TestServerName(t *testing.T) {
	for _, c := range []struct {
		name, host string // of base_url; PORT stands for the port
		sni        string
		names      []string
		addresses  []net.IP
		trusted    bool
	}{
		{"a name", "localhost:PORT", "localhost", []string{"localhost"}, nil, true},
		{"a name in capitals", "LocalHost:PORT", "LocalHost", []string{"localhost"}, nil, true},
		{"an IPv4 address", "127.0.0.1:PORT", "", nil, []net.IP{net.IPv4(127, 0, 0, 1)}, true},
		{"an IPv6 address", "[::1]:PORT", "", nil, []net.IP{net.IPv6loopback}, true},
		{"a certificate for another name", "localhost:PORT", "localhost", []string{"gateway"}, nil, false},
		{"an address, and a certificate for the name", "127.0.0.1:PORT", "", []string{"localhost"}, nil, false},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(c.name+map[bool]string{true: ", HTTP/2"}[http2], func(t *testing.T) {
				var mu sync.Mutex
				var asked []string
				var host string
				var major int
				certificate, pool := certificateFor(t, c.names, c.addresses...)
				upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					host, major = r.Host, r.ProtoMajor
					hello(w, r)
				}))
				if strings.HasPrefix(c.host, "[") {
					l, err := net.Listen("tcp", "[::1]:0")
					if err != nil {
						t.Skipf("no IPv6 here: %v", err)
					}
					_ = upstream.Listener.Close()
					upstream.Listener = l
				}
				upstream.EnableHTTP2 = http2
				upstream.Config.ErrorLog = nothing
				upstream.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
					mu.Lock()
					defer mu.Unlock()
					asked = append(asked, h.ServerName)
					return nil, nil
				}}
				upstream.StartTLS()
				defer upstream.Close()
				_, port, err := net.SplitHostPort(upstream.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				address := strings.Replace(c.host, "PORT", port, 1)
				g := setup{registry: headered("https://" + address), vault: fullVault(t)}.world(t, hello, tireless("k"))
				g.gateway.Trust(pool)
				res, body := g.send(strings.Replace(g.raw(`{"service":"bare","action":"get"}`), "Host: gateway", "Host: evil.example", 1))
				mu.Lock()
				defer mu.Unlock()
				if len(asked) != 1 || asked[0] != c.sni {
					t.Errorf("the server name was %q, want %q", asked, c.sni)
				}
				if !c.trusted {
					if res.StatusCode != 502 || res.Header.Get("Agentgate-Code") != "upstream_unreachable" || host != "" {
						t.Errorf("%s %s; the upstream was called as %q", res.Status, body, host)
					}
					return
				}
				if res.StatusCode != 200 || host != address || major != map[bool]int{true: 2, false: 1}[http2] {
					t.Errorf("%s %s; the upstream was called as %q over HTTP/%d", res.Status, body, host, major)
				}
			})
		}
	}
}
