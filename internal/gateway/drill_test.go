package gateway_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"agentgw/internal/hangup"
	"agentgw/internal/identity"
)

// drills scales a test that repeats itself: short in make test, full with
// DRILLS=full.
func drills(short, full int) int {
	if os.Getenv("DRILLS") == "full" {
		return full
	}
	return short
}

// wide is a key that no limit stops.
func wide(id string) *identity.Key {
	return &identity.Key{ID: id, Services: []string{"*"}, Users: []string{"*"}, Tenant: "wide", Limits: &identity.Limits{RPS: 100000, Burst: 100000}}
}

// front serves the world's gateway anew: over TLS with HTTP/2, or in plain text, with
// HTTP/2 ("h2c") or without.
func (w *world) front(protocol string) {
	w.server.Close()
	w.server = httptest.NewUnstartedServer(w.gateway.Handler())
	w.server.Config.ErrorLog = log.New(&w.logged, "", 0)
	if protocol == "HTTP/2" {
		w.server.EnableHTTP2 = true
		w.server.StartTLS()
	} else if protocol == "h2c" {
		w.server.Listener = hangup.Listener(w.server.Listener)
		w.server.Config.ReadHeaderTimeout = 10 * time.Second
		w.server.Config.Protocols = new(http.Protocols)
		w.server.Config.Protocols.SetHTTP1(true)
		w.server.Config.Protocols.SetUnencryptedHTTP2(true)
		w.server.Start()
		spoken := new(http.Protocols)
		spoken.SetUnencryptedHTTP2(true)
		w.server.Client().Transport = &http.Transport{Protocols: spoken, DisableCompression: true}
		w.t.Cleanup(w.server.Client().CloseIdleConnections)
	} else {
		w.server.Config.ConnState = func(c net.Conn, state http.ConnState) {
			if state == http.StateNew {
				_ = tcp(c).SetWriteBuffer(16 << 10) // a client that stops reading is felt soon
			}
		}
		w.server.Start()
	}
	w.t.Cleanup(w.server.Close)
}

func tcp(c net.Conn) *net.TCPConn {
	if over, ok := c.(*tls.Conn); ok {
		c = over.NetConn()
	}
	return c.(*net.TCPConn)
}

// caller is an agent. Over HTTP/1.1 each of its calls has a connection of its
// own, over HTTP/2 they share one.
type caller struct {
	url, key  string
	header    http.Header // of each call, besides the usual
	transport *http.Transport
}

func newCaller(url, key string) *caller {
	return &caller{url: url, key: key, transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, DisableCompression: true,
		DisableKeepAlives: strings.HasPrefix(url, "http:"),
		HTTP2:             &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10},
	}}
}

func (w *world) caller(key string) *caller {
	c := newCaller(w.server.URL, w.keys[key])
	w.t.Cleanup(c.transport.CloseIdleConnections)
	return c
}

// open is one call under way. Its response is there once done is closed, unless
// it failed.
type open struct {
	*http.Response
	err    error
	done   chan struct{}
	conn   chan *net.TCPConn // holds the connection
	cancel context.CancelFunc
}

// length is a body whose length is known.
type length interface {
	io.Reader
	Len() int
}

func action(name, params string) length {
	return strings.NewReader(`{"service":"tools","action":"` + name + `","params":` + params + `}`)
}

// start sends a call and does not wait for its answer.
func (c *caller) start(body length) (*open, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	got := &open{done: make(chan struct{}), conn: make(chan *net.TCPConn, 1), cancel: cancel}
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { got.conn <- tcp(i.Conn) }})
	r, err := http.NewRequestWithContext(traced, "POST", c.url+"/v1/act", body)
	if err != nil {
		cancel()
		return nil, err
	}
	r.ContentLength = int64(body.Len())
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+c.key)
	maps.Copy(r.Header, c.header)
	go func() {
		defer close(got.done)
		if got.Response, got.err = c.transport.RoundTrip(r); got.err != nil {
			cancel()
		}
	}()
	return got, nil
}

// send sends a call and returns when the header of its answer is there.
func (c *caller) send(body length) (*open, error) {
	got, err := c.start(body)
	if err != nil {
		return nil, err
	}
	<-got.done
	return got, got.err
}

func (c *caller) call(name, params string) (*open, error) { return c.send(action(name, params)) }

// streams opens n streams at once and reads the first event of each.
func (c *caller) streams(n int) ([]*open, error) {
	list, errs := make([]*open, n), make([]error, n)
	var all sync.WaitGroup
	one := func(i int) {
		if list[i], errs[i] = c.call("stream", "{}"); errs[i] == nil {
			errs[i] = list[i].expect(event)
		}
	}
	one(0) // alone, so that the others find its connection, where they may share it
	for i := 1; i < n; i++ {
		all.Go(func() { one(i) })
	}
	all.Wait()
	return list, errors.Join(errs...)
}

// event is the first event of every stream of a drill.
const event = "data: 1\n\n"

// expect reads just as much as it wants to see.
func (c *open) expect(want string) error {
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c.Body, got); err != nil || string(got) != want {
		return fmt.Errorf("read %q (%v), want %q; status %d", got[:n], err, want, c.StatusCode)
	}
	return nil
}

// rest reads to the end. It is nil where the end was a clean one.
func (c *open) rest() (string, error) {
	got, err := io.ReadAll(c.Body)
	return string(got), err
}

// cut reports whether err is a broken transfer: an end, but not a clean one.
func cut(err error) bool { return err != nil && !errors.Is(err, context.DeadlineExceeded) }

func (c *open) hangUp() {
	conn := <-c.conn
	_ = conn.Close()
	c.conn <- conn
}

func (c *open) reset() {
	conn := <-c.conn
	_ = conn.SetLinger(0)
	_ = conn.Close()
	c.conn <- conn
}

// TestAnotherProcess is no test: it is the client that TestStreamsEnd kills.
func TestAnotherProcess(t *testing.T) {
	url, n := os.Getenv("DRILL_URL"), os.Getenv("DRILL_STREAMS")
	if url == "" {
		return
	}
	count, _ := strconv.Atoi(n)
	if _, err := newCaller(url, os.Getenv("DRILL_KEY")).streams(count); err != nil {
		t.Fatal(err)
	}
	fmt.Println("all open")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// anotherProcess starts a process that holds n streams.
func anotherProcess(t *testing.T, url, key string, n int) *os.Process {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestAnotherProcess$")
	c.Env = append(os.Environ(), "DRILL_URL="+url, "DRILL_KEY="+key, "DRILL_STREAMS="+strconv.Itoa(n))
	if _, err := c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "all open" {
			return c.Process
		}
		t.Log(lines.Text())
	}
	t.Fatal("the other process opened no streams")
	return nil
}

// within fails the test if holds does not come true in time: in so many naps of a
// millisecond, which on a machine that is busy last longer, as does all else.
func within(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	for naps := limit / time.Millisecond; !holds(); time.Sleep(time.Millisecond) {
		if naps--; naps < 0 {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}
