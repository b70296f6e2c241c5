package gateway_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/receipts"
)

// asking is a service that is asked, "Expect: 100-continue", and does then as answer says; it
// keeps its connections.
type asking struct {
	listener net.Listener
	requests atomic.Int32
	said     chan bool // when answer has returned
	rest     chan int  // the bytes that came after that, to the end of the connection
}

func newAsking(t *testing.T, answer func(c net.Conn, r *bufio.Reader)) *asking {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &asking{listener: l, said: make(chan bool, 10), rest: make(chan int, 10)}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			go func() {
				r := bufio.NewReader(c)
				head := ""
				for !strings.HasSuffix(head, "\r\n\r\n") {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					head += line
				}
				a.requests.Add(1)
				if !strings.Contains(head, "\r\nExpect: 100-continue\r\n") {
					t.Errorf("it is not asked: %q", head)
				}
				answer(c, r)
				a.said <- true
				n, _ := io.Copy(io.Discard, r)
				a.rest <- int(n)
			}()
		}
	}()
	return a
}

// TestAnswersToWhoAsks: whatever a service says to the question whether it wants a body, and
// however it goes on, the agent has that answer, whole; it is told to send the body once if it
// is wanted and not at all if it is refused; and the service has the body or the end of its
// connection. (RFC 9110, section 10.1.1, and RFC 9112, section 9.3.)
func TestAnswersToWhoAsks(t *testing.T) {
	const size = 100_000
	says := func(text string) func(net.Conn, *bufio.Reader) {
		return func(c net.Conn, _ *bufio.Reader) { _, _ = io.WriteString(c, text) }
	}
	body := func(r *bufio.Reader) string {
		n, err := io.ReadFull(r, make([]byte, size))
		return fmt.Sprint(n, err)
	}
	for name, c := range map[string]struct {
		answer    func(net.Conn, *bufio.Reader)
		status    int
		body      string
		continued int
		in        int64
		ending    receipts.Ending
	}{
		"a refusal":              {says("HTTP/1.1 417 No\r\nContent-Length: 2\r\n\r\nno"), 417, "no", 0, 0, receipts.Complete},
		"a refusal of no length": {says("HTTP/1.1 401 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n"), 401, "no", 0, 0, receipts.Complete},
		"a refusal of no bytes":  {says("HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n"), 413, "", 0, 0, receipts.Complete},
		"a redirect":             {says("HTTP/1.1 307 There\r\nLocation: /there\r\nContent-Length: 2\r\n\r\nno"), 307, "no", 0, 0, receipts.Complete},
		"a refusal that is long in coming": {func(c net.Conn, _ *bufio.Reader) {
			_, _ = io.WriteString(c, "HTTP/1.1 417 No\r\nTransfer-Encoding: chunked\r\n\r\n")
			for range 200 {
				_, _ = fmt.Fprintf(c, "%x\r\n%s\r\n", 1000, strings.Repeat("n", 1000))
			}
			_, _ = io.WriteString(c, "0\r\n\r\n")
		}, 417, strings.Repeat("n", 200_000), 0, 0, receipts.Complete},
		"a refusal of two parts": {func(c net.Conn, r *bufio.Reader) {
			_, _ = io.WriteString(c, "HTTP/1.1 417 No\r\nContent-Length: 4\r\n\r\nno")
			// By now the transport would have the body. What it is told then must not
			// have it end the connection, of which the answer is not read yet.
			_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
			if _, err := r.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("between two parts of its answer the service reads: %v", err)
			}
			_ = c.SetReadDeadline(time.Time{})
			_, _ = io.WriteString(c, "no")
		}, 417, "nono", 0, 0, receipts.Complete},
		"a refusal and the end": {says("HTTP/1.1 417 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"), 417, "no", 0, 0, receipts.Complete},
		"yes, twice": {func(c net.Conn, r *bufio.Reader) {
			_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
			got := body(r)
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(got), got)
		}, 200, fmt.Sprint(size, nil), 1, size, receipts.Complete},
		"an answer that is made of the body": {func(c net.Conn, r *bufio.Reader) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
			got := body(r)
			_, _ = fmt.Fprintf(c, "%x\r\n%s\r\n0\r\n\r\n", len(got), got)
		}, 200, "a" + fmt.Sprint(size, nil), 1, size, receipts.Complete},
		"yes, and then a refusal": {func(c net.Conn, r *bufio.Reader) {
			_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
			_ = body(r)
			_, _ = io.WriteString(c, "HTTP/1.1 417 No\r\nContent-Length: 2\r\n\r\nno")
		}, 417, "no", 1, size, receipts.Complete},
		"nothing": {func(c net.Conn, r *bufio.Reader) {
			got := body(r)
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(got), got)
		}, 200, fmt.Sprint(size, nil), 1, size, receipts.Complete},
		"nothing but a hint": {func(c net.Conn, r *bufio.Reader) {
			_, _ = io.WriteString(c, "HTTP/1.1 102 Processing\r\n\r\n")
			got := body(r)
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(got), got)
		}, 200, fmt.Sprint(size, nil), 1, size, receipts.Complete},
		"the end":            {func(c net.Conn, _ *bufio.Reader) { _ = c.Close() }, 502, "upstream_unreachable", 0, 0, receipts.UpstreamAborted},
		"a part and the end": {func(c net.Conn, _ *bufio.Reader) { _, _ = io.WriteString(c, "HTTP/1.1 41"); _ = c.Close() }, 502, "upstream_unreachable", 0, 0, receipts.UpstreamAborted},
		"a part of a word":   {says("HTTP/1.1 41"), 504, "upstream_timeout", 0, 0, receipts.Timeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := newAsking(t, c.answer)
			w := setup{registry: strings.ReplaceAll(uploadRegistry, "%[1]s", "http://"+up.listener.Addr().String())}.world(t, hello, wide("k"))
			p := w.dial()
			p.write(fmt.Sprintf("PUT /proxy/any/x HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", w.keys["k"], size))
			answered := make(chan string, 1)
			go func() { answered <- p.ask(strings.Repeat("x", size)) }()
			soon(t, up.said) // it has said all: what is stuck by now stays so, until its time is over
			var got string
			eventually(t, "the agent is answered", func() bool {
				select {
				case got = <-answered:
					return true
				case <-time.After(10 * time.Millisecond):
					if c.ending == receipts.Timeout {
						w.clock.Advance(time.Second)
					}
					return false
				}
			})
			want := fmt.Sprintf("%d %d %s", c.continued, c.status, c.body)
			if got != want && (c.status < 500 || !strings.HasPrefix(got, fmt.Sprintf("%d %d ", c.continued, c.status)) || !strings.Contains(got, c.body)) {
				t.Errorf("the agent got %.200q, want %.200q", got, want)
			}
			_ = p.c.Close()
			eventually(t, "the slot is free", func() bool { return w.inFlight("tenant:wide") == 0 })
			if last := w.lastClosing(); last.In != c.in || last.Ending != c.ending {
				t.Errorf("the outcome is %+v", last)
			}
			if n := up.requests.Load(); n != 1 {
				t.Errorf("the service was asked %d times", n)
			}
			if c.in == 0 {
				if n := soon(t, up.rest); n != 0 {
					t.Errorf("%d bytes came of a body that was refused", n)
				}
			}
		})
	}
}

// ask is how an agent that asked is answered: how often it was told to go on, with which
// it sends body, the status, and what came.
func (p *peer) ask(body string) string {
	_ = p.c.SetReadDeadline(time.Now().Add(time.Minute))
	told := 0
	for {
		res, err := http.ReadResponse(p.r, &http.Request{Method: "PUT"})
		if err != nil {
			return fmt.Sprintf("%d %v", told, err)
		}
		if res.StatusCode/100 == 1 {
			if res.StatusCode == http.StatusContinue {
				if told++; told == 1 {
					_, _ = io.WriteString(p.c, body)
				}
			}
			continue
		}
		text, err := io.ReadAll(res.Body)
		if err != nil {
			return fmt.Sprintf("%d %d, cut", told, res.StatusCode)
		}
		return fmt.Sprintf("%d %d %s", told, res.StatusCode, text)
	}
}

// TestWhoAsksOverAnyProtocol: an agent that asks, and a service of each protocol: the service's
// refusal reaches an agent that has sent nothing; over HTTP/2 the gateway has answered the
// question, as nobody else can, and the refusal comes all the same.
func TestWhoAsksOverAnyProtocol(t *testing.T) {
	const size = 100_000
	for _, front := range fronts {
		for _, behind := range behinds {
			t.Run(front+" to "+behind, func(t *testing.T) {
				t.Parallel()
				s := newSpoken(t, front, behind)
				for length, want := range map[int64]int{3: 417, size: 200} {
					if front != "HTTP/1.1" {
						if res, body := s.get(t, "POST", "continue", io.LimitReader(endless{}, length), length, "Expect", "100-continue"); res.StatusCode != want || want == 200 && body != fmt.Sprint(length) {
							t.Errorf("%d bytes: %s %q", length, res.Status, body)
						}
						continue
					}
					p := s.dial()
					p.write(fmt.Sprintf("POST /proxy/any/continue HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", s.keys["k"], length))
					told, body, in := 0, "", int64(0)
					if want == 200 {
						told, body, in = 1, fmt.Sprint(size), size
					}
					if got := p.ask(strings.Repeat("x", int(length))); got != fmt.Sprintf("%d %d %s", told, want, body) {
						t.Errorf("%d bytes: %s", length, got)
					}
					_ = p.c.Close()
					if last := s.lastClosing(); last.In != in || last.Ending != receipts.Complete || last.Status != want {
						t.Errorf("%+v", last)
					}
				}
				eventually(t, "no slot is taken", func() bool { return s.inFlight("tenant:wide") == 0 })
			})
		}
	}
}

// TestAnUploadThatIsEnded: a call that the gateway ends while its agent sends nothing more of
// the body ends then, and not when the agent is given up.
func TestAnUploadThatIsEnded(t *testing.T) {
	for _, protocol := range fronts {
		t.Run(protocol, func(t *testing.T) {
			called := make(chan bool, 1)
			w := uploadWorld(t, func(_ http.ResponseWriter, r *http.Request) {
				called <- true
				_, _ = io.Copy(io.Discard, r.Body)
			}, func(s *config.Settings) { s.ClientStall = time.Hour })
			w.front(protocol)
			body, end := io.Pipe()
			t.Cleanup(func() { _ = end.Close() })
			go func() { _, _ = io.WriteString(end, strings.Repeat("x", 1000)) }()
			got := make(chan string, 1)
			go func() {
				res, err := w.post("PUT", "any/x", body, -1)
				if err != nil {
					got <- err.Error()
					return
				}
				_ = res.Body.Close()
				got <- res.Header.Get("Agentgate-Code")
			}()
			soon(t, called)
			w.gateway.Block("tenant:wide")
			within(t, 10*time.Second, "the slot is free", func() bool { return w.inFlight("tenant:wide") == 0 })
			if code := soon(t, got); code != "tenant_blocked" {
				t.Errorf("the agent got %q", code)
			}
			if last := w.lastClosing(); last.Ending != receipts.Blocked {
				t.Errorf("%+v", last)
			}
		})
	}
}
