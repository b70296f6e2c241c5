package gateway_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"agentgw/internal/config"
	"agentgw/internal/receipts"
)

// stalling is a world of real time in which a write may last for limit. That a
// write has ended and a pause has begun shows nowhere, so that no test can know
// when to move a fake clock. A machine that is busy may stop somebody for a while
// who is to be in time.
func stalling(limit time.Duration) setup {
	return setup{
		settings: func(s *config.Settings) { s.ClientStall = limit },
		clock:    func(*clockwork.FakeClock) clockwork.Clock { return clockwork.NewRealClock() },
	}
}

// longerThan lasts for longer than a write may.
func longerThan(stall time.Duration) { <-time.After(stall + stall/2) }

// TestSilenceIsNoStall: AGENTGATE_CLIENT_STALL bounds a client that takes no
// bytes, not an upstream that has none to send. One that is silent for longer,
// before its header, between two events, before its end, is relayed whole.
func TestSilenceIsNoStall(t *testing.T) {
	const stall = time.Second
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
		for _, c := range []struct {
			name     string
			upstream func(rw http.ResponseWriter)
			body     string
		}{
			{"before the header", func(rw http.ResponseWriter) {
				longerThan(stall)
				send(rw, event)
			}, event},
			{"after the header", func(rw http.ResponseWriter) {
				send(rw, "")
				longerThan(stall)
				send(rw, event)
			}, event},
			{"between two events", func(rw http.ResponseWriter) {
				send(rw, event)
				longerThan(stall)
				send(rw, event)
			}, event + event},
			{"before the terminator", func(rw http.ResponseWriter) {
				send(rw, event)
				longerThan(stall)
			}, event},
			{"before the last byte of a declared body", func(rw http.ResponseWriter) {
				rw.Header().Set("Content-Length", "2")
				send(rw, "1")
				longerThan(stall)
				send(rw, "2")
			}, "12"},
		} {
			t.Run(c.name+" "+protocol, func(t *testing.T) {
				t.Parallel()
				w := stalling(stall).world(t, func(rw http.ResponseWriter, _ *http.Request) {
					rw.Header().Set("Content-Type", "text/event-stream")
					c.upstream(rw)
				}, wide("k"))
				w.front(protocol)
				got, err := w.caller("k").call("stream", "{}")
				if err != nil {
					t.Fatal(err)
				}
				defer got.cancel()
				if body, err := got.rest(); err != nil || body != c.body {
					t.Errorf("read %q, %v; want %q and a clean end", body, err, c.body)
				}
				if r := w.ledger.all(); len(r) != 2 || r[1].Ending != receipts.Complete {
					t.Errorf("%d records, the last ending %q", len(r), r[len(r)-1].Ending)
				}
			})
		}
	}
}

// TestSteadyStreamOutlivesTheStall: each event that the client takes buys the
// stream a stall more, however small the steps.
func TestSteadyStreamOutlivesTheStall(t *testing.T) {
	const stall = time.Second
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			w := stalling(stall).world(t, func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", "text/event-stream")
				for range 25 {
					send(rw, event)
					<-time.After(stall / 10)
				}
			}, wide("k"))
			w.front(protocol)
			got, err := w.caller("k").call("stream", "{}")
			if err != nil {
				t.Fatal(err)
			}
			defer got.cancel()
			if body, err := got.rest(); err != nil || len(body) != 25*len(event) {
				t.Errorf("read %d bytes, %v; want %d and a clean end", len(body), err, 25*len(event))
			}
		})
	}
}

// TestLastBytesStall: what the server writes when the handler has returned is
// bounded too, and so is the first write that does not fit into what it buffers. The client
// gives its stream a window of no bytes (RFC 9113, 6.5.2), so that either waits in the server.
func TestLastBytesStall(t *testing.T) {
	t.Run("of a small answer", func(t *testing.T) {
		t.Parallel()
		lastBytesStall(t, hello, receipts.Complete)
	})
	t.Run("of a larger one", func(t *testing.T) {
		t.Parallel()
		lastBytesStall(t, func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(make([]byte, 20<<10)) }, receipts.SlowClient)
	})
}

func lastBytesStall(t *testing.T, upstream http.HandlerFunc, ending receipts.Ending) {
	w := stalling(time.Second).world(t, upstream, wide("k"))
	w.front("HTTP/2")
	conn, err := tls.Dial("tcp", w.server.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	body := `{"service":"tools","action":"get","params":{"id":"1"}}`
	var fields bytes.Buffer
	encoder := hpack.NewEncoder(&fields)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":authority", "x"}, {":path", "/v1/act"}, {"authorization", "Bearer " + w.keys["k"]}} {
		_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	_, _ = io.WriteString(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	if err := errors.Join(framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}),
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: fields.Bytes(), EndHeaders: true}),
		framer.WriteData(1, true, []byte(body))); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("the server still waits for the client: %v", err)
		}
		switch frame.(type) {
		case *http2.DataFrame:
			t.Fatal("data, and no room for it")
		case *http2.RSTStreamFrame:
			eventually(t, "there is an outcome", func() bool { return len(w.ledger.all()) == 2 })
			if r := w.ledger.all()[1]; r.Ending != ending || r.Status != 200 {
				t.Errorf("the outcome: %q, %d; want %q", r.Ending, r.Status, ending)
			}
			return
		}
	}
}
