package gateway_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// actions with which a request is sent: safe and unsafe, with and without a body.
var onceCalls = map[string]string{
	"GET":             `{"service":"bare","action":"get"}`,
	"DELETE":          `{"service":"bare","action":"drop"}`,
	"PUT, no body":    `{"service":"bare","action":"put"}`,
	"POST of 2 KiB":   `{"service":"bare","action":"make","params":{"title":"` + strings.Repeat("t", 2048) + `"}}`,
	"POST of nothing": `{"service":"bare","action":"make"}`,
}

// TestSentOnce: a request of which the upstream may have read a byte is never
// sent again, by the transport neither, not even where the agent gave it an
// Idempotency-Key; the agent is told not to do so blindly.
func TestSentOnce(t *testing.T) {
	for name, act := range onceCalls {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			// The first request on a connection is answered, so that it is kept;
			// the next one is read and the connection closed.
			w := newWire(t, "", func(c net.Conn, _ string) bool {
				if asked.Add(1)%2 == 0 {
					return false
				}
				_, err := io.WriteString(c, helloBytes)
				return err == nil
			})
			g := headeredWorld(t, w)
			const rounds = 5
			for range rounds {
				if res, body := g.send(g.raw(act, "Idempotency-Key: once")); res.StatusCode != 200 {
					t.Fatalf("%s %s", res.Status, body)
				}
				res, body := g.send(g.raw(act, "Idempotency-Key: once"))
				if res.StatusCode != 502 || res.Header.Get("Agentgate-Code") != "upstream_unreachable" || res.Header.Get("X-Should-Retry") != "false" {
					t.Fatalf("%s %v %s", res.Status, res.Header, body)
				}
			}
			if n := len(w.all()); n != 2*rounds {
				t.Errorf("%d calls became %d requests", 2*rounds, n)
			}
			if w.connections() != rounds {
				t.Errorf("%d connections: the dying one was not a kept one", w.connections())
			}
			if n := g.inFlight("key:k"); n != 0 {
				t.Errorf("%d slots are taken", n)
			}
		})
	}
}

// TestResetWhileReading: the upstream reads half of a body and resets.
func TestResetWhileReading(t *testing.T) {
	var conns atomic.Int32
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			_, _ = io.ReadFull(c, make([]byte, 1024))
			_ = c.(*net.TCPConn).SetLinger(0) // close becomes a reset
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	g := setup{registry: headered("http://" + l.Addr().String()), vault: fullVault(t)}.world(t, hello, tireless("k"))
	res := g.act("k", onceCalls["POST of 2 KiB"])
	if res.status != 502 || res.code != "upstream_unreachable" || res.header.Get("X-Should-Retry") != "false" || res.header.Get("Retry-After") != "" {
		t.Errorf("%d %s %v", res.status, res.body, res.header)
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("the upstream was called %d times", n)
	}
}

// TestNobodyListens: a call that reached nobody may be made again.
func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	g := setup{registry: headered("http://" + address), vault: fullVault(t)}.world(t, hello, tireless("k"))
	res := g.act("k", onceCalls["POST of 2 KiB"])
	if res.status != 502 || res.code != "upstream_unreachable" || res.header.Get("X-Should-Retry") != "" || strings.Contains(res.body, address) {
		t.Errorf("%d %s %v", res.status, res.body, res.header)
	}
}

// TestOwnRefusalsOfTheUpstream: what an upstream says of itself is relayed as
// it is, once.
func TestOwnRefusalsOfTheUpstream(t *testing.T) {
	for status, want := range map[string]int{"503 Service Unavailable": 503, "429 Too Many Requests": 429, "401 Unauthorized": 401, "408 Request Timeout": 408, "425 Too Early": 425} {
		w := newWire(t, "", says("HTTP/1.1 "+status+"\r\nRetry-After: 7\r\nX-Should-Retry: true\r\nContent-Type: text/x\r\nContent-Length: 4\r\n\r\nbusy"))
		g := headeredWorld(t, w)
		for _, act := range onceCalls {
			res, body := g.send(g.raw(act, "Idempotency-Key: once"))
			if res.StatusCode != want || body != "busy" || res.Header.Get("Retry-After") != "7" || res.Header.Get("Agentgate-Code") != "" ||
				res.Header.Get("Content-Type") != "text/x" || res.Header.Get("X-Should-Retry") != "true" {
				t.Errorf("%s: %s %v %s", status, res.Status, res.Header, body)
			}
		}
		if n := len(w.all()); n != len(onceCalls) {
			t.Errorf("%s: %d calls became %d requests", status, len(onceCalls), n)
		}
	}
}

// TestClosedWhileIdle: an upstream that closes each connection after an answer
// that promised to keep it is called once for each call at most, and is served
// whenever the close was there before the call.
func TestClosedWhileIdle(t *testing.T) {
	w := newWire(t, "", func(c net.Conn, _ string) bool {
		_, _ = io.WriteString(c, helloBytes)
		return false
	})
	g := headeredWorld(t, w)
	calls := 0
	for _, act := range onceCalls {
		eventually(t, "the close is noticed and the call goes out on a new connection", func() bool {
			calls++
			res := g.act("k", act)
			if res.status != http.StatusOK && res.status != http.StatusBadGateway {
				t.Fatalf("%d %s", res.status, res.body)
			}
			return res.status == http.StatusOK
		})
	}
	if n := len(w.all()); n > calls {
		t.Errorf("%d calls became %d requests", calls, n)
	}
}
