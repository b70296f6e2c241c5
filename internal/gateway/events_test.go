package gateway_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"agentgw/internal/receipts"
)

// protocols are the two that agents speak.
var protocols = []string{"HTTP/1.1", "HTTP/2"}

// paced is an upstream that sends the next part only when it is told to, so that
// a part which does not arrive by itself never arrives.
type paced struct {
	header http.Header
	next   chan []byte
	finish func()
}

func newPaced(header ...string) *paced {
	p := &paced{header: http.Header{}, next: make(chan []byte)}
	p.finish = sync.OnceFunc(func() { close(p.next) })
	for i := 0; i < len(header); i += 2 {
		p.header.Add(header[i], header[i+1])
	}
	return p
}

func (p *paced) serve(rw http.ResponseWriter, r *http.Request) {
	for name, values := range p.header {
		rw.Header()[name] = values
	}
	_ = http.NewResponseController(rw).Flush()
	for part := range p.next {
		_, _ = rw.Write(part)
		_ = http.NewResponseController(rw).Flush()
	}
}

// TestEventsArriveOneByOne: each event is with the client before the next one
// has been sent; what the upstream compressed stays as it is and comes just as
// promptly, and what it did not compress nobody does.
func TestEventsArriveOneByOne(t *testing.T) {
	plain := make([][]byte, 10)
	for i := range plain {
		plain[i] = fmt.Appendf(nil, "data: %032d\n\n", i)
	}
	var compressed [][]byte
	var buffer bytes.Buffer
	z := gzip.NewWriter(&buffer)
	for _, p := range plain {
		_, _ = z.Write(p)
		_ = z.Flush()
		compressed = append(compressed, bytes.Clone(buffer.Bytes()))
		buffer.Reset()
	}
	_ = z.Close()
	compressed = append(compressed, buffer.Bytes())
	for _, c := range []struct {
		name, encoding, length string
		parts                  [][]byte
	}{{"plain", "", "", plain}, {"of a declared length", "", fmt.Sprint(10 * len(plain[0])), plain}, {"gzip", "gzip", "", compressed}} {
		for _, protocol := range protocols {
			t.Run(c.name+" "+protocol, func(t *testing.T) {
				p := newPaced("Content-Type", "text/event-stream")
				if c.encoding != "" {
					p.header.Set("Content-Encoding", c.encoding)
				}
				if c.length != "" {
					p.header.Set("Content-Length", c.length)
				}
				w := newWorld(t, p.serve, wide("k"))
				t.Cleanup(p.finish)
				w.front(protocol)
				caller := w.caller("k")
				caller.header = http.Header{"Accept-Encoding": {"gzip, br"}}
				got, err := caller.call("stream", "{}")
				if err != nil {
					t.Fatal(err)
				}
				defer got.cancel()
				if e := got.Header.Get("Content-Encoding"); e != c.encoding {
					t.Errorf("Content-Encoding %q, want %q", e, c.encoding)
				}
				for i, part := range c.parts {
					p.next <- part
					if err := got.expect(string(part)); err != nil {
						t.Fatalf("part %d: %v", i, err)
					}
				}
				p.finish()
				if more, err := got.rest(); err != nil || more != "" {
					t.Errorf("at the end: %q, %v", more, err)
				}
			})
		}
	}
}

// TestWhatIsAStreamOfEvents: what says that it is one, in any way of writing
// that, does not end by itself and is cut by a drain; anything else finishes.
func TestWhatIsAStreamOfEvents(t *testing.T) {
	for _, c := range []struct {
		types  []string
		stream bool
	}{
		{[]string{"text/event-stream"}, true},
		{[]string{"text/event-stream;charset=UTF-8"}, true},
		{[]string{"Text/Event-Stream"}, true},
		{[]string{` text/event-stream ; charset="utf-8"`}, true},
		{[]string{"text/event-stream; charset"}, true}, // not well formed, and no doubt what it means
		{[]string{"text/event-stream", "text/plain"}, true},
		{[]string{"text/plain", "text/event-stream"}, false}, // the first line counts, for agents too
		{[]string{"text/event-streams"}, false},
		{[]string{"application/json"}, false},
		{[]string{"application/x-ndjson"}, false},
	} {
		t.Run(strings.Join(c.types, ", "), func(t *testing.T) {
			p := newPaced()
			p.header["Content-Type"] = c.types
			w := newWorld(t, p.serve, wide("k"))
			t.Cleanup(p.finish)
			got, err := w.caller("k").call("stream", "{}")
			if err != nil {
				t.Fatal(err)
			}
			defer got.cancel()
			p.next <- []byte(event)
			if err := got.expect(event); err != nil {
				t.Fatal(err)
			}
			w.gateway.Drain()
			if !c.stream {
				p.finish()
			}
			more, err := got.rest()
			if c.stream && !cut(err) || !c.stream && err != nil || more != "" {
				t.Errorf("after a drain: %q, %v; a stream is cut (%v), all else ends", more, err, c.stream)
			}
		})
	}
}

// TestLongEvents: an event is bytes and no line, and none is too long.
func TestLongEvents(t *testing.T) {
	for _, size := range []int{70 << 10, 1<<20 + 100<<10, 20 << 20} {
		for _, protocol := range protocols {
			t.Run(fmt.Sprint(size, " ", protocol), func(t *testing.T) {
				long := "data: " + strings.Repeat("0123456789abcde\t", size/16) + "\n\n"
				w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
					rw.Header().Set("Content-Type", "text/event-stream")
					send(rw, long)
				}, wide("k"))
				w.front(protocol)
				got, err := w.caller("k").call("stream", "{}")
				if err != nil {
					t.Fatal(err)
				}
				defer got.cancel()
				sum := sha256.New()
				n, err := io.Copy(sum, got.Body)
				if want := sha256.Sum256([]byte(long)); err != nil || n != int64(len(long)) || [32]byte(sum.Sum(nil)) != want {
					t.Errorf("%d bytes of %d, the same (%v): %v", n, len(long), [32]byte(sum.Sum(nil)) == want, err)
				}
				if r := w.ledger.all(); r[len(r)-1].Ending != receipts.Complete || r[len(r)-1].Out != n {
					t.Errorf("the outcome: %q, %d bytes", r[len(r)-1].Ending, r[len(r)-1].Out)
				}
			})
		}
	}
}

// TestAbortAsAHabit: an agent that hangs up on every stream after its first
// event has its slots back each time.
func TestAbortAsAHabit(t *testing.T) {
	const turns = 50
	s := setup{registry: strings.Replace(worldRegistry, "max_inflight: 100000", "max_inflight: 2", 1)}
	w := s.world(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/stream" {
			hello(rw, r)
			return
		}
		rw.Header().Set("Content-Type", "text/event-stream")
		send(rw, event)
		<-r.Context().Done()
	}, wide("k"))
	w.front("HTTP/1.1")
	caller := w.caller("k")
	for range turns {
		var got *open
		within(t, time.Second, "a slot is free", func() bool {
			var err error
			if got, err = caller.call("stream", "{}"); err != nil {
				t.Fatal(err)
			}
			return got.StatusCode == 200
		})
		if err := got.expect(event); err != nil {
			t.Fatal(err)
		}
		got.hangUp()
		got.cancel()
	}
	within(t, time.Second, "a plain call passes", func() bool {
		return w.act("k", `{"service":"tools","action":"get","params":{"id":"1"}}`).status == 200
	})
	within(t, time.Second, "no slot is taken", func() bool { return w.inFlight("tenant:wide") == 0 })
	cancelled := 0
	for _, r := range w.ledger.all() {
		if r.Kind == receipts.KindOutcome && r.Ending == receipts.ClientCancelled {
			cancelled++
		}
	}
	if cancelled != turns {
		t.Errorf("%d outcomes of client_cancelled, want %d", cancelled, turns)
	}
}

// TestNoBodyIsWaitedFor: an answer that has no body, though its header speaks of
// one, is relayed at once, and the one slot is free for the next call.
func TestNoBodyIsWaitedFor(t *testing.T) {
	for _, c := range []struct{ name, action, raw string }{
		{"HEAD, chunked", "head", "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{"HEAD, 500 bytes", "head", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 500\r\n\r\n"},
		{"HEAD, an event stream", "head", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n\r\n"},
		{"304, 500 bytes", "stream", "HTTP/1.1 304 Not Modified\r\nConnection: close\r\nContent-Length: 500\r\n\r\n"},
		{"204, chunked", "stream", "HTTP/1.1 204 No Content\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"},
	} {
		for _, protocol := range protocols {
			t.Run(c.name+" "+protocol, func(t *testing.T) {
				s := setup{registry: strings.Replace(worldRegistry, "max_inflight: 100000", "max_inflight: 1", 1)}
				w := s.world(t, func(rw http.ResponseWriter, r *http.Request) {
					if strings.HasPrefix(r.URL.Path, "/get/") {
						hello(rw, r)
						return
					}
					conn, _, err := http.NewResponseController(rw).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = io.WriteString(conn, c.raw)
					t.Cleanup(func() { _ = conn.Close() }) // not before: that would be an end of a body too
				}, wide("k"))
				w.front(protocol)
				caller := w.caller("k")
				got, err := caller.call(c.action, "{}")
				if err != nil {
					t.Fatal(err)
				}
				defer got.cancel()
				if body, err := got.rest(); err != nil || body != "" || fmt.Sprint(got.StatusCode) != c.raw[9:12] {
					t.Errorf("%d %q, %v; want %s and no body", got.StatusCode, body, err, c.raw[9:12])
				}
				next, err := caller.call("get", `{"id":"1"}`)
				if err != nil {
					t.Fatal(err)
				}
				defer next.cancel()
				if body, err := next.rest(); err != nil || next.StatusCode != 200 {
					t.Errorf("the next call: %d %s, %v", next.StatusCode, body, err)
				}
				if n := w.inFlight("tenant:wide"); n != 0 {
					t.Errorf("%d slots are still taken", n)
				}
			})
		}
	}
}
