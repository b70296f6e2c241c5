package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/identity"
	"agentgw/internal/receipts"
)

// TestTunnelsThatAreCutTogether: ten at once, with pieces of random lengths both ways, carry
// no more than the budget and less than a piece; by the receipts, and by what came out.
func TestTunnelsThatAreCutTogether(t *testing.T) {
	const budget, buffer = 1 << 20, 32 << 10
	for range drills(2, 50) {
		var cameUp, cameDown atomic.Int64
		begin := make(chan struct{})
		random := func(to net.Conn) {
			r := rand.New(rand.NewPCG(rand.Uint64(), 0))
			piece := make([]byte, 50_000)
			for {
				if _, err := to.Write(piece[:1+r.IntN(len(piece))]); err != nil {
					return
				}
			}
		}
		count := func(from net.Conn, n *atomic.Int64) {
			got, _ := io.Copy(io.Discard, from)
			n.Add(got)
		}
		to := far(t, func(c *net.TCPConn) {
			go func() {
				<-begin
				random(c)
			}()
			count(c, &cameUp)
		})
		w := tunnelWorld(t, fmt.Sprintf("{allow: [%q], allow_private: true, bytes_per_window: %d, on_exhausted: cut}", to, budget), wide("k"))
		open := make([]*through, 10)
		for i := range open {
			open[i] = w.open(to, "k")
		}
		close(begin)
		use := func(list ...*through) {
			var all sync.WaitGroup
			for _, c := range list {
				all.Go(func() { random(c.Conn) })
				all.Go(func() { count(c, &cameDown) })
			}
			all.Wait()
		}
		use(open...)
		// What one of them had counted and did not carry when it was cut is there for another.
		last := w.connect(to, "", w.withKey("k"))
		for ; last.res.StatusCode == 200 && len(open) < 100; last = w.connect(to, "", w.withKey("k")) {
			use(last)
			open = append(open, last)
		}
		last.refused(429, "rate_limited", "tunnel_bytes")
		var carried int64
		for _, r := range w.outcomes(len(open)) {
			carried += r.In + r.Out
			if r.Ending != receipts.Budget {
				t.Errorf("%+v", r)
			}
		}
		if carried < budget || carried >= budget+buffer {
			t.Errorf("%d bytes were carried of a budget of %d", carried, budget)
		}
		if came := cameUp.Load() + cameDown.Load(); came > carried {
			t.Errorf("%d bytes came out, and %d were carried", came, carried)
		}
	}
}

// TestTunnelsThatFinish: each carries all that it has to, far past the budget, which then
// lets no other begin.
func TestTunnelsThatFinish(t *testing.T) {
	to := far(t, echoes)
	w := tunnelWorld(t, fmt.Sprintf("{allow: [%q], allow_private: true, bytes_per_window: 1000, window: 1m}", to), wide("k"))
	open := []*through{w.open(to, "k"), w.open(to, "k"), w.open(to, "k")}
	for range 3 {
		for _, c := range open {
			text := strings.Repeat("x", 5000)
			c.say(text)
			c.hear(text)
		}
	}
	w.connect(to, "", w.withKey("k")).refused(429, "rate_limited", "tunnel_bytes")
	w.clock.Advance(time.Minute)
	open[0].say("y") // begins another window
	open[0].hear("y")
	again := w.open(to, "k")
	again.say(strings.Repeat("x", 1000))
	again.hear(strings.Repeat("x", 1000))
	w.connect(to, "", w.withKey("k")).refused(429, "rate_limited", "tunnel_bytes")
}

// TestWhatIsCarriedIsUnchanged: both ways at once, megabytes, whatever was sent behind the
// CONNECT before its answer, over TLS to the gateway and without; and each side's end comes
// behind all of it.
func TestWhatIsCarriedIsUnchanged(t *testing.T) {
	early := map[string][]byte{
		"nothing": nil, "a byte": {0}, "what looks like a request": []byte("GET /v1/whoami HTTP/1.1\r\nHost: g\r\n\r\n"),
		"a line end and a client hello": []byte("\r\n\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n\n"),
		"more than is kept":             bytes.Repeat([]byte("0123456789\n"), 60_000),
	}
	for name, first := range early {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %v", name, secure), func(t *testing.T) {
				up, down := make([]byte, 2<<20), make([]byte, 3<<20)
				_, _ = rand.NewChaCha8([32]byte{1}).Read(up)
				_, _ = rand.NewChaCha8([32]byte{2}).Read(down)
				copy(up, first)
				got := make(chan [32]byte, 1)
				to := far(t, func(c *net.TCPConn) {
					go func() {
						_, _ = c.Write(down)
						_ = c.CloseWrite()
					}()
					all, _ := io.ReadAll(c)
					got <- sha256.Sum256(all)
				})
				w := tunnelWorld(t, fmt.Sprintf("{allow: [%q], allow_private: true}", to), wide("k"))
				conn := dialGateway(t, w, secure)
				heard := make(chan error, 1)
				go func() {
					_, err := conn.Write(append(fmt.Appendf(nil, "CONNECT %s HTTP/1.0\r\n%s\r\n\r\n", to, w.withKey("k")), up...))
					if err == nil {
						err = conn.(interface{ CloseWrite() error }).CloseWrite()
					}
					heard <- err
				}()
				c := (&through{Conn: conn, t: t}).answered()
				all, err := io.ReadAll(c)
				if err != nil || !bytes.Equal(all, down) {
					t.Errorf("%d bytes came down of %d: %v", len(all), len(down), err)
				}
				if err := <-heard; err != nil {
					t.Error(err)
				}
				if <-got != sha256.Sum256(up) {
					t.Error("what came up is another")
				}
				if r := w.outcomes(1)[0]; r.Ending != receipts.Complete || r.In != int64(len(up)) || r.Out != int64(len(down)) {
					t.Errorf("%+v", r)
				}
			})
		}
	}
}

// dialGateway is a connection to the gateway, which over TLS speaks HTTP/1.1.
func dialGateway(t *testing.T, w *world, secure bool) net.Conn {
	t.Helper()
	if !secure {
		c, err := net.Dial("tcp", w.server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		return c
	}
	w.front("HTTP/2")
	c, err := tls.Dial("tcp", w.server.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// TestACutTunnelOverTLSIsSeen: its end is not one that TLS takes for good.
func TestACutTunnelOverTLSIsSeen(t *testing.T) {
	to := far(t, echoes)
	w := tunnelWorld(t, fmt.Sprintf("{allow: [%q], allow_private: true}", to), wide("k"))
	conn := dialGateway(t, w, true)
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\nhi", to, to, w.withKey("k")); err != nil {
		t.Fatal(err)
	}
	c := (&through{Conn: conn, t: t}).answered()
	c.hear("hi")
	w.gateway.Cut()
	if rest, err := io.ReadAll(c); err == nil {
		t.Errorf("%q and a clean end", rest)
	}
}

// TestATunnelHoldsASlot to its end, and a refusal for want of one costs nothing.
func TestATunnelHoldsASlot(t *testing.T) {
	to := far(t, echoes)
	w := tunnelWorld(t, fmt.Sprintf("{allow: [%q], allow_private: true}", to),
		&identity.Key{ID: "k", Services: []string{"*"}, Users: []string{"*"}, Tenant: "small"})
	c := w.open(to, "k")
	for range 3 {
		got := w.connect(to, "", w.withKey("k"))
		got.refused(429, "concurrency_limited", "tenant")
		if got.res.Header.Get("RateLimit") != `"tenant";r=1;t=1, "inflight";r=0, "key";r=39;t=1` {
			t.Error(got.res.Header.Get("RateLimit"))
		}
	}
	if got := w.act("k", `{"service":"tools","action":"get","params":{"id":"1"}}`); got.code != "concurrency_limited" {
		t.Errorf("%d %s", got.status, got.body)
	}
	c.halfClose()
	if _, err := io.ReadAll(c); err != nil {
		t.Fatal(err)
	}
	w.open(to, "k")
}

// TestNewRulesAreForNewTunnels: one that is open goes on under the rules that it began with,
// and what was counted stays counted.
func TestNewRulesAreForNewTunnels(t *testing.T) {
	to := far(t, echoes)
	key := wide("k")
	w := tunnelWorld(t, fmt.Sprintf("{allow: [%q], allow_private: true, bytes_per_window: 100}", to), key)
	c := w.open(to, "k")
	c.say("ten bytes.")
	c.hear("ten bytes.")
	use := func(section string) { w.use(worldRegistry+section, key) }

	use(fmt.Sprintf("tunnels: {allow: [%q], allow_private: true, bytes_per_window: 20, on_exhausted: cut}\n", to))
	w.connect(to, "", w.withKey("k")).refused(429, "rate_limited", "tunnel_bytes")
	use(fmt.Sprintf("tunnels: {allow: [%q], allow_private: true, bytes_per_window: 21, on_exhausted: cut}\n", to))
	cut := w.open(to, "k")
	c.say("!") // reaches the limit of the newer one, and runs on
	c.hear("!")
	cut.say("?")
	if rest, err := io.ReadAll(cut); err == nil || len(rest) > 0 {
		t.Errorf("%q and a clean end", rest)
	}
	use("tunnels: {allow: [\"a.example:443\"]}\n")
	w.connect(to, "", w.withKey("k")).refused(403, "scope_denied", "")
	use(fmt.Sprintf("tunnels: {allow: [%q]}\n", to))
	w.connect(to, "", w.withKey("k")).refused(502, "upstream_unreachable", "")
	use("")
	w.connect(to, "", w.withKey("k")).refused(405, "method_not_allowed", "")
	c.say(strings.Repeat("x", 1000))
	c.hear(strings.Repeat("x", 1000))
	if n := w.inFlight("tenant:wide"); n != 1 {
		t.Errorf("%d slots are taken", n)
	}
}

// TestRulesCountWhatTunnelsCarry: requests by service and action, and bytes of both ways.
func TestRulesCountWhatTunnelsCarry(t *testing.T) {
	to := far(t, echoes)
	w := tunnelWorld(t, fmt.Sprintf("{allow: [%q], allow_private: true}\nrules:\n"+
		"  - {name: bytes, key: caller, window: 1h, max: 20, count: bytes, when: \"service == 'tunnels' && request.method == 'CONNECT'\"}\n"+
		"  - {name: host, key: action, window: 1h, max: 2, when: \"action == '%s'\"}", to, to), wide("k"), wide("other"))
	c := w.open(to, "k")
	c.say("0123456789")
	c.hear("0123456789")
	w.connect(to, "", w.withKey("k")).refused(429, "rate_limited", "bytes")
	w.open(to, "other")
	w.connect(to, "", w.withKey("other")).refused(429, "rate_limited", "host")
}

// TestATunnelWhoseOutcomeIsLost looks cut, as nobody may take for whole what is not recorded.
func TestATunnelWhoseOutcomeIsLost(t *testing.T) {
	to := far(t, echoes)
	w := tunnelWorld(t, fmt.Sprintf("{allow: [%q], allow_private: true}", to), everything("k"))
	c := w.open(to, "k")
	w.ledger.mu.Lock()
	w.ledger.fail = receipts.ErrUnavailable
	w.ledger.mu.Unlock()
	c.halfClose()
	if rest, err := io.ReadAll(c); err == nil {
		t.Errorf("%q and a clean end", rest)
	}
	within(t, 20*time.Second, "the slot is free", func() bool { return w.inFlight("key:k") == 0 })
}

// TestTunnelsGoOnWhileTheGatewayDrains, and it waits for them.
func TestTunnelsGoOnWhileTheGatewayDrains(t *testing.T) {
	to := far(t, echoes)
	w := tunnelWorld(t, fmt.Sprintf("{allow: [%q], allow_private: true}", to), everything("k"))
	c := w.open(to, "k")
	if streams, others := w.gateway.Drain(); streams != 0 || others != 1 {
		t.Errorf("%d streams and %d others", streams, others)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if w.gateway.Wait(ctx) == nil {
		t.Error("it did not wait")
	}
	c.say("on")
	c.hear("on")
	c.halfClose()
	long, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := w.gateway.Wait(long); err != nil {
		t.Error(err)
	}
	if n := len(w.outcomes(1)); n != 1 { // on disk by now
		t.Errorf("%d outcomes", n)
	}
	if err := w.gateway.Wait(long); err != nil {
		t.Error(err)
	}
}

// TestNoTunnelLeadsInside: to no address of a special range, in whatever spelling, though it
// is on the list.
func TestNoTunnelLeadsInside(t *testing.T) {
	inside := []string{
		"127.0.0.1:1", "10.1.2.3:443", "172.16.0.1:443", "192.168.1.1:443", "169.254.169.254:80", "100.64.0.1:443", "198.18.0.1:443", "0.0.0.0:1", "224.0.0.1:1", "255.255.255.255:1",
		"[::1]:1", "[::]:1", "[fc00::1]:1", "[fe80::1]:1", "[fec0::1]:1", "[::ffff:127.0.0.1]:1", "[::ffff:a9fe:a9fe]:80", "[64:ff9b::a9fe:a9fe]:80", "[64:ff9b:1::1]:1", "[2002:a9fe:a9fe::]:80", "[2001::1]:1", "[::7f00:1]:1",
		"localhost:1",
	}
	w := tunnelWorld(t, `{allow: ["`+strings.Join(inside, `", "`)+`"]}`, wide("k"))
	for _, to := range inside {
		c := w.connect(to, "", w.withKey("k"))
		c.refused(502, "upstream_unreachable", "")
		if !strings.Contains(c.body, "may not be dialled") {
			t.Errorf("%s: %s", to, c.body)
		}
	}
}

// TestTunnelsAreCountedByName in what metrics are told, also where they are refused.
func TestTunnelsAreCountedByName(t *testing.T) {
	to := far(t, echoes)
	w := tunnelWorld(t, fmt.Sprintf("{allow: [%q], allow_private: true}", to), everything("k"))
	w.open(to, "k").halfClose()
	w.outcomes(1)
	w.connect("b.example:1", "", w.withKey("k"))
	within(t, 20*time.Second, "both are counted", func() bool { return w.counted("", "") == 1 && w.counted("scope_denied", "") == 1 })
}

func (c *through) answered() *through {
	c.t.Helper()
	c.Reader = bufio.NewReader(c.Conn)
	var err error
	if c.res, err = http.ReadResponse(c.Reader, &http.Request{Method: "CONNECT"}); err != nil || c.res.StatusCode != 200 {
		c.t.Fatal(c.res, err)
	}
	return c
}
