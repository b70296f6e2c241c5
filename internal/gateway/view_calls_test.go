package gateway_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/ratelimit"
	"agentgw/internal/vault"
)

// TestRemovedWhileItRuns: a call keeps the service and the tenant that it began
// with, to its end, as long as its key is there; the next one does not find them.
// When they come back they are the ones that they were.
func TestRemovedWhileItRuns(t *testing.T) {
	const file = "tenants:\n  t: {rps: 0.001, burst: 3, max_inflight: 2}\nservices:\n"
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			p := newPaced("Content-Type", "text/event-stream")
			k, other := of("t", limited("k", 1000, 2000)), roomy("other")
			whole := file + serviceLine("tools", "")
			w := setup{registry: whole}.world(t, p.serve, k, other)
			t.Cleanup(p.finish)
			w.front(protocol)
			stream, err := w.caller("k").call("stream", "{}")
			if err != nil {
				t.Fatal(err)
			}
			defer stream.cancel()
			passes := func(what string) {
				t.Helper()
				p.next <- []byte(event)
				if err := stream.expect(event); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			passes("at first")
			w.use(whole+serviceLine("another", ""), k, other)
			passes("a service was added")
			w.use(file+serviceLine("tools", "rate_limit: {rps: 0.001, burst: 1}, timeout: 1s,"), k, other)
			passes("the service's rate was changed")
			w.use("services:\n"+serviceLine("another", ""), k, other)
			passes("service and tenant are gone")
			w.act("k", plainCall("tools", "")).want(t, "the key", 404, "service_not_found", "")
			w.act("other", plainCall("tools", "")).want(t, "the service", 404, "service_not_found", "")
			if n := w.inFlight("tenant:t"); n != 1 {
				t.Errorf("%d in flight, want the stream", n)
			}
			w.use(file+serviceLine("tools", ""), k, other)
			passes("they are back")
			p.finish()
			if more, err := stream.rest(); err != nil || more != "" {
				t.Errorf("at the end: %q, %v", more, err)
			}
			eventually(t, "the slot is free", func() bool { return w.inFlight("tenant:t") == 0 })
			records := w.ledger.all()
			if r := records[len(records)-1]; r.Tenant != "tenant:t" || r.Service != "tools" || r.Key != "k" || r.Ending != "complete" {
				t.Errorf("the outcome: %+v", r)
			}
		})
	}
}

// opening is a vault that does something when it is asked, and holds nothing.
type opening func()

func (o opening) Open(context.Context, vault.Ref, vault.Form) (vault.Credential, error) {
	if o != nil {
		o()
	}
	return vault.Credential{}, nil
}

// halves is a body between whose halves something happens.
type halves struct {
	*strings.Reader
	between func()
}

func (h *halves) Read(p []byte) (int, error) {
	if left := int(h.Size()) / 2; h.Len() > left {
		return h.Reader.Read(p[:min(len(p), h.Len()-left)])
	}
	if h.between != nil {
		h.between()
		h.between = nil
	}
	return h.Reader.Read(p)
}

func (h *halves) Close() error { return nil }

// interrupted is a clock that has something happen when it is read next.
type interrupted struct {
	clockwork.Clock
	next *atomic.Pointer[func()]
}

func (c interrupted) Now() time.Time {
	if do := c.next.Swap(nil); do != nil {
		(*do)()
	}
	return c.Clock.Now()
}

// TestOneViewDecidesACall: what changes while a request is being read, or between
// two steps of its pipeline, is for the next one. Only a cap holds for it too, until it
// is admitted.
func TestOneViewDecidesACall(t *testing.T) {
	const before = "tenants:\n  t: {rps: 1, burst: 2, max_inflight: 1}\nservices:\n"
	var w *world
	k := of("t", limited("k", 1000, 2000))
	change := func() {
		next := *w.settings
		next.MaxRequestBody = 1
		w.settings = &next
		narrow := *k
		narrow.Services = []string{"another"}
		w.use("tenants:\n  t: {rps: 1, burst: 2, max_inflight: 3}\nservices:\n"+serviceLine("another", ""), &narrow)
	}
	underWay := func() {
		eventually(t, "the call is under way", func() bool { return len(w.entries(ratelimit.KindKey)) > 0 })
		change()
	}
	for name, c := range map[string]struct {
		first   func() // happens when it is identified
		between func() // the halves of its body
		vault   opening
		slots   int64 // left
	}{
		"when it has begun":    {first: change, slots: 2},
		"while it is read":     {between: underWay, slots: 2},
		"when it was admitted": {vault: change, slots: 0},
	} {
		t.Run(name, func(t *testing.T) {
			var next atomic.Pointer[func()]
			w = setup{registry: before + serviceLine("tools", ""), vault: c.vault, clock: func(fake *clockwork.FakeClock) clockwork.Clock {
				return interrupted{fake, &next}
			}}.world(t, hello, k)
			if c.first != nil {
				next.Store(&c.first)
			}
			body := plainCall("tools", "")
			r := w.request(context.Background(), "k", "")
			r.Body, r.ContentLength = &halves{strings.NewReader(body), c.between}, int64(len(body))
			got := w.do(r)
			got.want(t, name, 200, "", "")
			if left := got.left(t); left["tenant"] != 1 || left["inflight"] != c.slots {
				t.Errorf("it was told %v, want the limits before and %d slots", left, c.slots)
			}
			w.act("k", "{}").want(t, "the next one", 413, "body_too_large", "")
		})
	}
}
