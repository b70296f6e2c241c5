package gateway_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"agentgw/internal/identity"
	"agentgw/internal/receipts"
)

// far is what tunnels lead to: it serves each connection by handle, and ends it
// behind that.
func far(t testing.TB, handle func(c *net.TCPConn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				handle(c.(*net.TCPConn))
			}()
		}
	}()
	return l.Addr().String()
}

// echoes answers with what it gets, to the end of it.
func echoes(c *net.TCPConn) { _, _ = io.Copy(c, c) }

// tunnelWorld is a world with the section tunnels of that text.
func tunnelWorld(t testing.TB, section string, keys ...*identity.Key) *world {
	t.Helper()
	return setup{registry: worldRegistry + "tunnels: " + section + "\n"}.world(t, hello, keys...)
}

// through is a client's end of a tunnel, or of what was refused.
type through struct {
	net.Conn
	t testing.TB
	*bufio.Reader
	res  *http.Response
	body string
}

func (c *through) Read(p []byte) (int, error) { return c.Reader.Read(p) }

// connect asks for a tunnel, with early behind the head.
func (w *world) connect(to, early string, header ...string) *through {
	w.t.Helper()
	c, err := net.Dial("tcp", w.server.Listener.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	head := "CONNECT " + to + " HTTP/1.1\r\nHost: gateway\r\n" // which the target wins over (RFC 9112, section 3.2.2)
	for _, h := range header {
		head += h + "\r\n"
	}
	if _, err := io.WriteString(c, head+"\r\n"+early); err != nil {
		w.t.Fatal(err)
	}
	got := &through{Conn: c, t: w.t, Reader: bufio.NewReader(c)}
	if got.res, err = http.ReadResponse(got.Reader, &http.Request{Method: "CONNECT"}); err != nil {
		w.t.Fatal(err)
	}
	if got.res.StatusCode != 200 {
		body, err := io.ReadAll(got.res.Body)
		if err != nil {
			w.t.Fatal(err)
		}
		got.body = string(body)
	}
	return got
}

// withKey is the field that a client of a proxy at http://x:KEY@gateway sends.
func (w *world) withKey(id string) string {
	return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+w.keys[id]))
}

func (w *world) open(to, key string) *through {
	w.t.Helper()
	c := w.connect(to, "", w.withKey(key))
	if c.res.StatusCode != 200 {
		w.t.Fatalf("no tunnel: %s %s", c.res.Status, c.body)
	}
	return c
}

func (c *through) say(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

func (c *through) hear(want string) {
	c.t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		c.t.Fatalf("got %q (%v), want %q", got[:n], err, want)
	}
}

func (c *through) halfClose() {
	c.t.Helper()
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *through) refused(status int, code, limit string) {
	c.t.Helper()
	var p struct{ Code, Limit string }
	_ = json.Unmarshal([]byte(c.body), &p)
	if c.res.StatusCode != status || p.Code != code || p.Limit != limit || c.res.Header.Get("Agentgate-Code") != code {
		c.t.Errorf("%s %s, want %d %s %s", c.res.Status, c.body, status, code, limit)
	}
}

// outcomes waits until there are n and returns those that there are.
func (w *world) outcomes(n int) (list []receipts.Record) {
	w.t.Helper()
	within(w.t, 20*time.Second, fmt.Sprintf("%d outcomes", n), func() bool {
		list = nil
		for _, r := range w.ledger.all() {
			if r.Kind == receipts.KindOutcome {
				list = append(list, r)
			}
		}
		return len(list) >= n
	})
	return list
}

// TestTunnel: what is said in a tunnel comes out at its other end, both ways, also what
// was sent before it was there; each side's end is passed on while the other goes on; and
// when the client sees the end the outcome is on disk, with its bytes, and the slot free.
func TestTunnel(t *testing.T) {
	to := far(t, echoes)
	w := tunnelWorld(t, fmt.Sprintf("{allow: [%q], allow_private: true}", to), everything("k"))
	c := w.connect(to, "early ", w.withKey("k"))
	if c.res.StatusCode != 200 || c.res.Header.Get("Content-Length") != "" || c.res.TransferEncoding != nil {
		t.Fatalf("%s %v %v %s", c.res.Status, c.res.Header, c.res.TransferEncoding, c.body)
	}
	if !strings.Contains(c.res.Header.Get("Agentgate-Receipt"), `id="`) || c.res.Header.Get("Connection") != "" {
		t.Error(c.res.Header)
	}
	c.hear("early ")
	c.say("and late")
	c.hear("and late")
	if n := w.inFlight("key:k"); n != 1 {
		t.Errorf("%d slots are taken", n)
	}
	c.halfClose()
	if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
		t.Errorf("%q %v", rest, err)
	}
	if n := w.inFlight("key:k"); n != 0 {
		t.Errorf("the client sees the end and %d slots are taken", n)
	}
	all := w.ledger.all()
	if len(all) != 2 || all[0].Kind != receipts.KindIntent {
		t.Fatalf("%+v", all)
	}
	r := all[1]
	if r.Kind != receipts.KindOutcome || r.Ending != receipts.Complete || r.In != 14 || r.Out != 14 || r.Status != 200 ||
		r.Service != "tunnels" || r.Action != to || r.Method != "CONNECT" || r.Tenant != "key:k" {
		t.Errorf("%+v", r)
	}
}

// TestWhatATunnelIsOpenedWith says nothing of a connection or of a body, as it has neither.
func TestWhatATunnelIsOpenedWith(t *testing.T) {
	to := far(t, echoes)
	w := tunnelWorld(t, fmt.Sprintf("{allow: [%q], allow_private: true}", to), everything("k"))
	c, err := net.Dial("tcp", w.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: gateway\r\n%s\r\n\r\n", to, w.withKey("k")); err != nil {
		t.Fatal(err)
	}
	lines := textproto.NewReader(bufio.NewReader(c))
	status, _ := lines.ReadLine()
	header, err := lines.ReadMIMEHeader() // net/http would take out what it understands
	if status != "HTTP/1.1 200 Connection established" || err != nil || header.Get("Agentgate-Receipt") == "" {
		t.Errorf("%q %v %v", status, header, err)
	}
	for _, name := range []string{"Connection", "Content-Length", "Transfer-Encoding"} {
		if header[name] != nil {
			t.Errorf("%s: %q", name, header[name])
		}
	}
}

// TestTunnelBudget: of a budget of ten bytes eleven come through, as they do in one piece;
// the next tunnel is refused until the window is over, which began with the first byte.
func TestTunnelBudget(t *testing.T) {
	for _, how := range []string{"finish", "cut"} {
		t.Run(how, func(t *testing.T) {
			heard := make(chan string, 10)
			to := far(t, func(c *net.TCPConn) {
				b := make([]byte, 100)
				for {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					heard <- string(b[:n])
				}
			})
			w := tunnelWorld(t, fmt.Sprintf("{allow: [%q], allow_private: true, bytes_per_window: 10, window: 1h, on_exhausted: %s}", to, how), everything("k"), everything("other"))
			idle := w.open(to, "k") // says nothing, and begins no window
			w.clock.Advance(time.Minute)
			c := w.open(to, "k")
			if got := c.res.Header.Get("RateLimit-Policy"); !strings.HasSuffix(got, `, "tunnel_bytes";q=10;w=3600`) {
				t.Error(got)
			}
			c.say("eleven byte")
			if got := <-heard; got != "eleven byte" {
				t.Fatal(got)
			}
			next := w.connect(to, "", w.withKey("k"))
			next.refused(429, "rate_limited", "tunnel_bytes")
			if wait := next.res.Header.Get("Retry-After"); wait < "3600" || wait > "4320" || len(wait) != 4 || next.res.Header.Get("X-Should-Retry") != "false" {
				t.Error(next.res.Header)
			}
			if !strings.Contains(next.body, `"violated-policies":["tunnel_bytes"]`) {
				t.Error(next.body)
			}
			if got := w.connect(to, "", w.withKey("other")); got.res.StatusCode != 200 {
				t.Errorf("another caller: %s", got.body)
			}
			if how == "finish" {
				c.say("on")
				if got := <-heard; got != "on" {
					t.Fatal(got)
				}
			} else {
				for _, c := range []*through{c, idle} {
					if rest, err := io.ReadAll(c); err == nil || len(rest) > 0 {
						t.Errorf("it reads %q and a clean end", rest)
					}
				}
				for _, r := range w.outcomes(2) {
					if r.Ending != receipts.Budget || r.In != 0 && r.In != 11 {
						t.Errorf("%+v", r)
					}
				}
			}
			w.clock.Advance(time.Hour - time.Nanosecond)
			w.connect(to, "", w.withKey("k")).refused(429, "rate_limited", "tunnel_bytes")
			w.clock.Advance(time.Nanosecond)
			w.open(to, "k").say("x")
			if got := <-heard; got != "x" {
				t.Fatal(got)
			}
		})
	}
}
