package gateway_test

import (
	"io"
	"net/http"
	"testing"

	"agentgw/internal/receipts"
)

// TestBlockedBeforeTheAnswer: a call that waits for its service when its tenant
// is blocked is refused, its upstream is cancelled, and its outcome says why. One
// that was admitted before and reaches its service later fares the same.
func TestBlockedBeforeTheAnswer(t *testing.T) {
	called, gone := make(chan struct{}), make(chan struct{}, 2)
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		select {
		case called <- struct{}{}:
		case <-r.Context().Done(): // ended before anybody looked
		}
		<-r.Context().Done()
		gone <- struct{}{}
	}, everything("k"))
	answered := make(chan told, 1)
	go func() { answered <- w.act("k", `{"service":"tools","action":"get","params":{"id":"1"}}`) }()
	<-called
	if n := w.gateway.Block("key:k"); n != 1 {
		t.Errorf("%d calls were ended, want 1", n)
	}
	first := <-answered
	<-gone
	late := w.act("k", `{"service":"tools","action":"get","params":{"id":"1"}}`) // the limiter was not told
	for _, got := range []told{first, late} {
		if got.status != 403 || got.code != "tenant_blocked" || got.header.Get("X-Should-Retry") != "false" {
			t.Errorf("%d %s %v", got.status, got.body, got.header)
		}
	}
	outcomes := 0
	for _, r := range w.ledger.all() {
		if r.Kind == receipts.KindOutcome {
			outcomes++
			if r.Ending != receipts.Blocked || r.Code != "tenant_blocked" {
				t.Errorf("an outcome: %q, %q", r.Ending, r.Code)
			}
		}
	}
	if n := w.inFlight("key:k"); outcomes != 2 || n != 0 {
		t.Errorf("%d outcomes, %d slots taken", outcomes, n)
	}
	w.gateway.Unblock("key:k")
	go func() { answered <- w.act("k", `{"service":"tools","action":"get","params":{"id":"1"}}`) }()
	<-called // it runs
	w.gateway.Block("key:k")
	<-answered
}
