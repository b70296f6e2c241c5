package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/receipts"
)

// ended is a world with a stream of its dialectsRegistry that has got as far as sent.
type ended struct {
	*world
	res  *http.Response
	then func(how string) // has the service "end" its stream, or "abort" it
}

func (c dialectEnding) begin(t *testing.T, protocol, service, sent string, header http.Header) *ended {
	t.Helper()
	told := make(chan string, 1)
	s := setup{registry: dialectsRegistry, settings: func(s *config.Settings) { s.ClientStall = 0 }} // the clock moves, and may while a write has not quite ended
	w := s.world(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for name, values := range header {
			rw.Header()[name] = values
		}
		send(rw, sent)
		select {
		case how := <-told:
			if how == "abort" {
				panic(http.ErrAbortHandler)
			}
		case <-r.Context().Done():
		}
	}, tireless("k"))
	e := &ended{world: w, then: func(how string) { told <- how }}
	t.Cleanup(sync.OnceFunc(func() { close(told) }))
	w.front(protocol)
	var err error
	if e.res, err = w.post("GET", service+"/stream", nil, 0, "Accept-Encoding", "gzip"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.res.Body.Close() })
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(e.res.Body, got); err != nil || string(got) != sent {
		t.Fatalf("%q %v", got, err)
	}
	return e
}

// dialectEnding is a way in which a stream ends that its client did not end, and what it is told.
type dialectEnding struct {
	name                string
	do                  func(*ended)
	kind, code, message string
	ending              receipts.Ending
}

var dialectEndings = []dialectEnding{
	{"a block", func(e *ended) { e.gateway.Block("key:k") }, "permission_error", "tenant_blocked", "the operator has blocked this tenant", receipts.Blocked},
	{"a drain", func(e *ended) { e.gateway.Drain() }, "overloaded_error", "draining", "this gateway is shutting down; call again", receipts.Shutdown},
	{"a revoked key", func(e *ended) { e.use(dialectsRegistry) }, "authentication_error", "invalid_api_key", "the key or the delegation was revoked or is over", receipts.Revoked},
	{"silence", func(e *ended) { e.clock.Advance(5 * time.Minute) }, "timeout_error", "upstream_timeout", "SERVICE was silent for too long, or its stream grew too old", receipts.Timeout},
	{"a service that breaks off", func(e *ended) { e.then("abort") }, "api_error", "upstream_unreachable", "SERVICE broke off in its answer", receipts.UpstreamAborted},
	{"an outcome that cannot be recorded", func(e *ended) {
		e.ledger.mu.Lock()
		e.ledger.fail = receipts.ErrUnavailable
		e.ledger.mu.Unlock()
		e.then("end")
	}, "overloaded_error", "receipt_unavailable", "the gateway cannot write receipts, and does nothing that it cannot record", ""},
}

// TestAStreamEndsInTheDialect: one that the gateway ends, or the service breaks off,
// between two events has a last one that says why, and looks cut all the same. Nothing is
// said to a client of a service that has no dialect.
func TestAStreamEndsInTheDialect(t *testing.T) {
	for _, c := range dialectEndings {
		for _, protocol := range protocols {
			for service, form := range map[string]string{
				"openai":    `data: {"error":{"message":"MESSAGE","type":"KIND","param":null,"code":"CODE"}}` + "\n\n",
				"anthropic": `event: error` + "\n" + `data: {"type":"error","error":{"type":"KIND","message":"MESSAGE"},"request_id":"req_ID"}` + "\n\n",
				"native":    "",
			} {
				t.Run(c.name+" "+service+" "+protocol, func(t *testing.T) {
					e := c.begin(t, protocol, service, event, nil)
					c.do(e)
					more, err := io.ReadAll(e.res.Body)
					want := strings.NewReplacer("MESSAGE", c.message, "KIND", c.kind, "CODE", c.code, "SERVICE", service, "ID", e.res.Header.Get("X-Request-Id")).Replace(form)
					want = strings.ReplaceAll(want, "SERVICE", service)
					if string(more) != want || !cut(err) {
						t.Errorf("after an event: %q, %v; want %q and a cut", more, err, want)
					}
					if c.ending == "" {
						return
					}
					eventually(t, "its outcome is there", func() bool { return len(e.ledger.all()) == 2 })
					if r := e.ledger.all()[1]; r.Ending != c.ending || r.Out != int64(len(event)+len(want)) {
						t.Errorf("the outcome: %q, %d bytes of %d", r.Ending, r.Out, len(event)+len(want))
					}
				})
			}
		}
	}
}

// TestNothingIsSaidInAnEvent: a stream that is cut in the middle of one ends there, since
// whatever came next would be a part of that event, or dispatch it; a drain, which waits
// for its end, apart. Nor is anything said in what is compressed, or is no stream of events.
func TestNothingIsSaidInAnEvent(t *testing.T) {
	for _, c := range dialectEndings {
		if c.ending == receipts.Shutdown || c.ending == "" {
			continue
		}
		for name, half := range map[string]struct {
			sent   string
			header http.Header
		}{
			"half a line":   {event + "data: hal", nil},
			"a line":        {event + "data: half\n", nil},
			"a line, CR LF": {"data: 1\r\n\r\ndata: half\r\n", nil},
			"a line, CR":    {"data: 1\r\rdata: half\r", nil},
			"a comment":     {event + ": half\n", nil},
			"compressed":    {event, http.Header{"Content-Encoding": {"gzip"}}},
			"no stream":     {event, http.Header{"Content-Type": {"application/json"}}},
		} {
			for _, service := range []string{"openai", "anthropic"} {
				t.Run(c.name+" "+name+" "+service, func(t *testing.T) {
					e := c.begin(t, "HTTP/1.1", service, half.sent, half.header)
					c.do(e)
					if more, err := io.ReadAll(e.res.Body); len(more) > 0 || !cut(err) {
						t.Errorf("after %q: %q, %v; want a cut and nothing more", half.sent, more, err)
					}
				})
			}
		}
	}
}

// TestEventsEndAsTheyLike: whichever line ends a stream has, between two of its events is
// after a blank line, and what is said there is an event of its own.
func TestEventsEndAsTheyLike(t *testing.T) {
	c := dialectEndings[0]
	for _, sent := range []string{"data: 1\n\n", "data: 1\r\n\r\n", "data: 1\r\r", "data: 1\n\r\n", "data: 1\r\n\n", ": comment\n\n", "\n", "data: 1\r\n\r"} {
		e := c.begin(t, "HTTP/1.1", "openai", sent, nil)
		c.do(e)
		want := `data: {"error":{"message":"` + c.message + `","type":"permission_error","param":null,"code":"tenant_blocked"}}` + "\n\n"
		if more, err := io.ReadAll(e.res.Body); string(more) != want || !cut(err) {
			t.Errorf("after %q: %q, %v; want %q and a cut", sent, more, err, want)
		}
	}
}
