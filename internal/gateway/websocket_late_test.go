package gateway_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"agentgw/internal/identity"
	"agentgw/internal/receipts"
	"agentgw/internal/websocket"
)

// TestAMessageThatGoesNowhereIsNotCharged: one that comes when the conversation is over is
// neither charged nor refused.
func TestAMessageThatGoesNowhereIsNotCharged(t *testing.T) {
	over := make(chan struct{})
	key := &identity.Key{ID: "k", Services: []string{"*"}, Users: []string{"*"}, Tenant: "wide", Limits: &identity.Limits{RPS: 0.1, Burst: 1}} // which the upgrade takes
	w := wsWorld(t, setup{}, func(rw http.ResponseWriter, r *http.Request) {
		s, err := accept(rw, r)
		if err != nil {
			t.Error(err)
			return
		}
		_ = s.close(websocket.Normal, "enough")
		<-over
		_ = s.Close()
	}, key)
	t.Cleanup(func() { close(over) })
	c := w.talk("llm/x", "k")
	if f := c.hears(t); f.code() != 1000 {
		t.Fatal(f)
	}
	for range 3 {
		if err := c.send(websocket.Text, `{"type":"response.create"}`); err != nil {
			t.Fatal(err)
		}
	}
	_ = c.close(websocket.Normal, "")
	endSide(c)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := w.gateway.Wait(ctx); err != nil { // then all that came is read
		t.Fatal(err)
	}
	for _, r := range w.ledger.all() {
		if r.Kind == receipts.KindRefusal {
			t.Errorf("%+v", r)
		}
	}
}
