package gateway_test

import (
	"net/http"
	"testing"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/receipts"
	"agentgw/internal/websocket"
)

// TestAWebSocketIsCharged at one token a minute: the upgrade and two messages use a burst
// of three, the next is answered by the error frame and reaches nobody, and what is not
// charged goes on over the same connection. HTTP and WebSocket share the bucket.
func TestAWebSocketIsCharged(t *testing.T) {
	var heard heardBy
	w := wsWorld(t, setup{settings: func(s *config.Settings) { s.RateKeyRPS, s.RateKeyBurst = 1.0/60, 3 }}, func(rw http.ResponseWriter, r *http.Request) {
		s, err := accept(rw, r)
		if err != nil {
			return
		}
		defer func() { _ = s.Close() }()
		for {
			f, err := s.next()
			if err != nil {
				return
			}
			heard.add(f)
			if f.Opcode == websocket.Closing {
				_ = s.send(f.Opcode, f.payload)
				return
			}
			if s.send(f.Opcode, "re: "+f.payload) != nil {
				return
			}
		}
	}, &identity.Key{ID: "k", Services: []string{"*"}, Users: []string{"*"}, Tenant: "wide"})
	create := func(id string) string { return `{"type":"response.create","id":"` + id + `"}` }
	c := w.talk("llm/realtime?model=m", "k")
	for _, id := range []string{"1", "2"} {
		if f := c.says(t, create(id)); f.payload != "re: "+create(id) {
			t.Fatal(f)
		}
	}
	const refused = `{"type":"error","status":429,"error":{"message":"the key limit is a burst of 3 calls, refilled over 3m; wait 1m0s and call again","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`
	if f := c.says(t, create("3")); f.payload != refused || f.Opcode != websocket.Text || !f.Final {
		t.Fatalf("%v, want %s", f, refused)
	}
	if f := c.says(t, `{"type":"steer"}`); f.payload != `re: {"type":"steer"}` {
		t.Fatal(f)
	}
	if got := heard.texts(); got != create("1")+"|"+create("2")+`|{"type":"steer"}` {
		t.Errorf("the service heard %s", got)
	}
	if got := w.relayedBy("k", "GET", "none/x", ""); got.status != 429 || got.limit != "key" {
		t.Errorf("a plain call: %d %s", got.status, got.body)
	}
	if n := w.inFlight("tenant:wide"); n != 1 {
		t.Errorf("%d slots are taken", n)
	}
	if err := c.close(websocket.Normal, "bye"); err != nil {
		t.Fatal(err)
	}
	if f := c.hears(t); f.code() != 1000 || w.inFlight("tenant:wide") != 0 {
		t.Errorf("%v, and %d slots are taken when the close is there", f, w.inFlight("tenant:wide"))
	}
	list := w.ledger.all()
	if len(list) != 4 {
		t.Fatalf("%d records", len(list))
	}
	intent, no, outcome := list[0], list[1], list[3]
	if intent.Kind != receipts.KindIntent || intent.Method != "GET" || intent.Service != "llm" || intent.Action != "*" {
		t.Errorf("%+v", intent)
	}
	if no.Kind != receipts.KindRefusal || no.Code != "rate_limited" || no.Limit != "key" || no.Status != 429 || no.In != int64(len(create("3"))) || no.ID == intent.ID ||
		no.RequestID != intent.RequestID || no.Tenant != "tenant:wide" || no.Key != "k" || no.Service != "llm" || no.Params == nil {
		t.Errorf("%+v", no)
	}
	if outcome.Kind != receipts.KindOutcome || outcome.ID != intent.ID || outcome.Ending != receipts.Complete || outcome.Status != 101 || outcome.Messages != 2 {
		t.Errorf("%+v", outcome)
	}
	in := len(create("1"))*3 + len(`{"type":"steer"}`) + len("xxbye") + 5*6
	out := len("re: "+create("1"))*2 + len(refused) + len(`re: {"type":"steer"}`) + 4*2 + 2 + len("xxbye") + 2
	if outcome.In != int64(in) || outcome.Out != int64(out) {
		t.Errorf("%d bytes in and %d out, want %d and %d", outcome.In, outcome.Out, in, out)
	}
}
