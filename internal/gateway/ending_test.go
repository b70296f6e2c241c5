package gateway_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"agentgw/internal/receipts"
)

// TestGatewayEndsStreams: a stream that the gateway itself ends looks cut to
// the client, has whole events, cancels the upstream, and says why.
func TestGatewayEndsStreams(t *testing.T) {
	for _, c := range []struct {
		name   string
		end    func(*world)
		ending receipts.Ending
	}{
		{"upstream silent for the idle time", func(w *world) { w.clock.Advance(5 * time.Minute) }, receipts.Timeout},
		{"drain", func(w *world) { w.gateway.Drain() }, receipts.Shutdown},
		{"cut at the end of the drain time", func(w *world) { w.gateway.Cut() }, receipts.Shutdown},
	} {
		t.Run(c.name, func(t *testing.T) {
			gone := make(chan struct{})
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				defer close(gone)
				rw.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(rw, "data: 1\n\n")
				_ = http.NewResponseController(rw).Flush()
				<-r.Context().Done()
			}, everything("k"))
			res, err := w.server.Client().Do(w.request(context.Background(), "k", `{"service":"tools","action":"stream"}`))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }()
			buf := make([]byte, 9)
			if _, err := io.ReadFull(res.Body, buf); err != nil {
				t.Fatal(err)
			}
			c.end(w)
			if rest, err := io.ReadAll(res.Body); err == nil || len(rest) > 0 {
				t.Errorf("after the end: %q, error %v; want a cut and nothing more", rest, err)
			}
			<-gone
			eventually(t, "no slot taken", func() bool { return w.inFlight("key:k") == 0 })
			eventually(t, "an outcome", func() bool { return len(w.ledger.all()) == 2 })
			if r := w.ledger.all()[1]; r.Kind != receipts.KindOutcome || r.Ending != c.ending || r.Out != 9 {
				t.Errorf("the outcome: %s, ending %q, %d bytes; want %q, 9 bytes", r.Kind, r.Ending, r.Out, c.ending)
			}
		})
	}
}

// TestDrainingRefusesNewCalls: and keeps nothing of them.
func TestDrainingRefusesNewCalls(t *testing.T) {
	w := newWorld(t, hello, everything("k"))
	w.gateway.Drain()
	got := w.act("k", `{"service":"tools","action":"get","params":{"id":"1"}}`)
	if got.status != 503 || got.code != "draining" || got.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", got.status, got.body)
	}
}
