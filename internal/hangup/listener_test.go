package hangup_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"agentgw/internal/hangup"
)

// TestTLSIsWhatNetHTTPMakesOfIt: HTTP/2 for who takes it, and a handler knows.
func TestTLSIsWhatNetHTTPMakesOfIt(t *testing.T) {
	w := newWorld(t, true, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(rw, r.Proto, " ", r.TLS != nil && r.TLS.HandshakeComplete && r.TLS.ServerName == "example.com")
	})
	for proto, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: w.pool, ServerName: "example.com"}, ForceAttemptHTTP2: http2}}
		res, err := client.Get("https://" + w.address)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		client.CloseIdleConnections()
		if string(got) != proto+" true" || err != nil {
			t.Errorf("%s, %v; want %s", got, err, proto)
		}
	}
	res, err := http.Get("http://" + w.address)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusBadRequest {
		t.Errorf("without TLS: %s", res.Status)
	}
}

// TestAHandshakeKeepsNobodyWaiting, and ends when its time is up or the listener is
// closed.
func TestAHandshakeKeepsNobodyWaiting(t *testing.T) {
	certificate, pool := aCertificate()
	for name, patience := range map[string]time.Duration{"its time is up": 10 * time.Millisecond, "the listener is closed": time.Hour} {
		t.Run(name, func(t *testing.T) {
			tcp, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			l := hangup.TLSListener(tcp, &tls.Config{Certificates: []tls.Certificate{certificate}}, patience)
			defer func() { _ = l.Close() }()
			silent, err := net.Dial("tcp", tcp.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = silent.Close() }()
			if patience < time.Hour {
				c, err := l.Accept() // as it is, for net/http to say why
				if err != nil {
					t.Fatal(err)
				}
				if err := c.(*tls.Conn).Handshake(); err == nil {
					t.Error("a handshake that did not happen is told as one that did")
				}
			} else {
				accepted := make(chan error)
				go func() { _, err := l.Accept(); accepted <- err }()
				dial := func() *tls.Conn {
					c, err := tls.Dial("tcp", tcp.Addr().String(), &tls.Config{RootCAs: pool, ServerName: "example.com"})
					if err != nil {
						t.Fatal(err)
					}
					return c
				}
				defer func(c *tls.Conn) { _ = c.Close() }(dial())
				if err := <-accepted; err != nil {
					t.Fatal(err)
				}
				defer func(c *tls.Conn) { gone(t, c); _ = c.Close() }(dial()) // which nobody accepts
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
					t.Errorf("a closed listener accepts: %v", err)
				}
			}
			gone(t, silent)
		})
	}
}

// gone holds that the other end of a connection is closed, or comes to be.
func gone(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is still open: %v", err)
	}
}

// failing is a listener out of file descriptors, and then not.
type failing struct {
	net.Listener
	left int
}

var errNoFiles = errors.New("too many open files")

func (l *failing) Accept() (net.Conn, error) {
	if l.left--; l.left >= 0 {
		return nil, errNoFiles
	}
	return l.Listener.Accept()
}

// TestAnErrorOfAcceptIsToldAndOver: each of them to who accepts, and then it goes on.
func TestAnErrorOfAcceptIsToldAndOver(t *testing.T) {
	certificate, pool := aCertificate()
	for _, wrap := range []func(net.Listener) net.Listener{hangup.Listener, func(l net.Listener) net.Listener {
		return hangup.TLSListener(l, &tls.Config{Certificates: []tls.Certificate{certificate}}, time.Minute)
	}} {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l := wrap(&failing{tcp, 2})
		for range 2 {
			if c, err := l.Accept(); c != nil || !errors.Is(err, errNoFiles) {
				t.Error(c, err)
			}
		}
		go func() {
			if c, err := tls.Dial("tcp", tcp.Addr().String(), &tls.Config{RootCAs: pool, ServerName: "example.com"}); err == nil {
				_ = c.Close()
			}
		}()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Close(), l.Close()
	}
}
