package gateway_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"agentgw/internal/receipts"
)

// fullListener is an address at which connections are neither taken nor refused: of a
// listener whose queue is full Linux drops what would begin another.
func fullListener(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
	for range 100 {
		c, err := net.DialTimeout("tcp", address, 200*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatal("the queue does not become full")
	return ""
}

// TestATunnelThatCannotBeReached: 502 where nobody listens, 504 where nobody answers, and
// what ends a call ends it while it dials; each with its outcome.
func TestATunnelThatCannotBeReached(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	_ = l.Close()
	silent := fullListener(t)
	for _, c := range []struct {
		name, to string
		end      func(w *world, c net.Conn)
		status   int
		code     string
		ending   receipts.Ending
	}{
		{"nobody listens", closed, func(*world, net.Conn) {}, 502, "upstream_unreachable", receipts.UpstreamAborted},
		{"no such name", "gone.invalid:443", func(*world, net.Conn) {}, 502, "upstream_unreachable", receipts.UpstreamAborted},
		{"nobody answers", silent, func(w *world, _ net.Conn) { w.clock.Advance(10 * time.Second) }, 504, "upstream_timeout", receipts.Timeout},
		{"the tenant is blocked", silent, func(w *world, _ net.Conn) { w.gateway.Block("key:k") }, 403, "tenant_blocked", receipts.Blocked},
		{"the key is revoked", silent, func(w *world, _ net.Conn) { w.use(worldRegistry) }, 407, "unauthenticated", receipts.Revoked},
		{"the drain time ends", silent, func(w *world, _ net.Conn) { w.gateway.Cut() }, 503, "draining", receipts.Shutdown},
		{"the client hangs up", silent, func(_ *world, c net.Conn) { _ = c.Close() }, 0, "", receipts.ClientCancelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := tunnelWorld(t, fmt.Sprintf("{allow: [%q], allow_private: true}", c.to), everything("k"))
			conn, err := net.Dial("tcp", w.server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\n", c.to, c.to, w.withKey("k")); err != nil {
				t.Fatal(err)
			}
			within(t, 20*time.Second, "it is known to run", func() bool { return w.gateway.Running() > 0 || len(w.ledger.all()) == 2 })
			c.end(w, conn)
			if c.status > 0 {
				res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: "CONNECT"})
				if err != nil {
					t.Fatal(err)
				}
				if res.StatusCode != c.status || res.Header.Get("Agentgate-Code") != c.code || res.Header.Get("X-Should-Retry") == "false" && c.code != "tenant_blocked" {
					t.Errorf("%s %v", res.Status, res.Header)
				}
			}
			if r := w.outcomes(1)[0]; r.Ending != c.ending || r.Code != c.code || r.In+r.Out != 0 {
				t.Errorf("%+v", r)
			}
			if n := w.inFlight("key:k"); n != 0 {
				t.Errorf("%d slots are taken", n)
			}
		})
	}
}
