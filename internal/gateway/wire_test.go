package gateway_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
)

// wire is an upstream that keeps the very bytes of each request and answers
// with bytes of the test's choosing.
type wire struct {
	t        testing.TB
	listener net.Listener
	answer   func(c net.Conn, request string) (again bool)

	mu       sync.Mutex
	requests []string
	conns    int
}

const helloBytes = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

// says answers every request with the same bytes, a HEAD with the header alone, and reads
// the next one. A body behind the answer to a HEAD would be the answer to whatever comes next
// on that connection, which then fails or not, by who is quicker.
func says(answer string) func(net.Conn, string) bool {
	header, _, _ := strings.Cut(answer, "\r\n\r\n")
	return func(c net.Conn, request string) bool {
		said := answer
		if strings.HasPrefix(request, "HEAD ") {
			said = header + "\r\n\r\n"
		}
		_, err := io.WriteString(c, said)
		return err == nil
	}
}

// newWire listens on address; "" is any port of 127.0.0.1. A connection is
// closed when answer returns false.
func newWire(t testing.TB, address string, answer func(c net.Conn, request string) bool) *wire {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, listener: l, answer: answer}
	var conns sync.WaitGroup
	open := make(chan struct{})
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.mu.Lock()
			w.conns++
			w.mu.Unlock()
			conns.Go(func() {
				done := make(chan struct{})
				defer close(done)
				go func() { // a test that ends does not wait for a peer
					select {
					case <-open:
					case <-done:
					}
					_ = c.Close()
				}()
				w.serve(c)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); close(open); conns.Wait() })
	return w
}

func (w *wire) serve(c net.Conn) {
	r := bufio.NewReader(c)
	for {
		request, err := readRequest(r)
		if request != "" {
			w.mu.Lock()
			w.requests = append(w.requests, request)
			w.mu.Unlock()
		}
		if err != nil || !w.answer(c, request) {
			return
		}
	}
}

// readRequest reads one request with its body, and no byte of the next.
func readRequest(r *bufio.Reader) (string, error) {
	var text strings.Builder
	length, chunked := 0, false
	for {
		line, err := r.ReadString('\n')
		text.WriteString(line)
		if err != nil {
			return text.String(), err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\r\n"), ": ")
		switch name {
		case "Content-Length":
			length, _ = strconv.Atoi(value)
		case "Transfer-Encoding":
			chunked = true
		case "":
			body := make([]byte, length)
			n, err := io.ReadFull(r, body)
			text.Write(body[:n])
			for chunked && err == nil && !strings.HasSuffix(text.String(), "\r\n0\r\n\r\n") {
				line, err = r.ReadString('\n')
				text.WriteString(line)
			}
			return text.String(), err
		}
	}
}

func (w *wire) url() string { return "http://" + w.listener.Addr().String() }

// all returns the requests so far.
func (w *wire) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.requests...)
}

// take returns the requests so far and forgets them.
func (w *wire) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.requests
	w.requests = nil
	return list
}

func (w *wire) connections() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.conns
}

// lines returns the head of a request as its lines.
func lines(request string) []string {
	head, _, _ := strings.Cut(request, "\r\n\r\n")
	return strings.Split(head, "\r\n")
}

// wired is a world whose services are at w: %[1]s in file stands for its URL.
func wired(t *testing.T, w *wire, file string) *world {
	t.Helper()
	return setup{registry: strings.ReplaceAll(file, "%[1]s", w.url())}.world(t, hello, tireless("k"))
}

// tireless is a key for everything, with a limit that no test here meets.
func tireless(id string) *identity.Key {
	k := everything(id)
	k.Limits = &identity.Limits{RPS: 10000, Burst: 10000}
	return k
}

// peer is a connection to the gateway on which a test writes its own bytes.
type peer struct {
	t testing.TB
	c net.Conn
	r *bufio.Reader

	continued int // how often it was told to continue
}

func (w *world) dial() *peer {
	w.t.Helper()
	c, err := net.Dial("tcp", w.server.Listener.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	return &peer{t: w.t, c: c, r: bufio.NewReader(c)}
}

func (p *peer) write(raw string) {
	p.t.Helper()
	if _, err := io.WriteString(p.c, raw); err != nil {
		p.t.Fatal(err)
	}
}

// answer reads one answer to a POST, after any number of 100 Continue.
func (p *peer) answer() (*http.Response, string) {
	p.t.Helper()
	if err := p.c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		p.t.Fatal(err)
	}
	res, err := http.ReadResponse(p.r, &http.Request{Method: "POST"})
	for err == nil && res.StatusCode == http.StatusContinue {
		p.continued++
		res, err = http.ReadResponse(p.r, &http.Request{Method: "POST"})
	}
	if err != nil {
		p.t.Fatalf("no answer: %v", err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return res, string(body)
}

// closed reads up to the end of the connection, which must come, and returns
// what was there before it.
func (p *peer) closed() string {
	p.t.Helper()
	if err := p.c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		p.t.Fatal(err)
	}
	rest, err := io.ReadAll(p.r)
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Errorf("the gateway keeps the connection open")
	}
	return string(rest)
}

// send writes raw bytes on a connection of their own and reads one answer.
func (w *world) send(raw string) (*http.Response, string) {
	w.t.Helper()
	p := w.dial()
	defer func() { _ = p.c.Close() }()
	p.write(raw)
	return p.answer()
}

// raw is the text of a POST /v1/act by key k with more header lines.
func (w *world) raw(body string, header ...string) string {
	head := fmt.Sprintf("POST /v1/act HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n", w.keys["k"], len(body))
	for _, line := range header {
		head += line + "\r\n"
	}
	return head + "\r\n" + body
}

// limiterLeft is what is left in the bucket of a tireless key.
func (w *world) limiterLeft(key string) int64 {
	w.t.Helper()
	limit, err := ratelimit.NewLimit(10000, 10000)
	if err != nil {
		w.t.Fatal(err)
	}
	nanos := ratelimit.NewClock(w.clock)
	bucket, _ := w.limiter.Peek(ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, "key:"+key, limit), nanos.Nanos())
	return bucket.Remaining
}

// nothing takes the log lines that a test server writes about its peers.
var nothing = log.New(io.Discard, "", 0)

// expectContinue reads a 100 Continue, which must be there before anything else.
func (p *peer) expectContinue() {
	p.t.Helper()
	if err := p.c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		p.t.Fatal(err)
	}
	const want = "HTTP/1.1 100 Continue\r\n\r\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(p.r, got); err != nil || string(got) != want {
		p.t.Fatalf("got %q, %v; want 100 Continue", got, err)
	}
}
