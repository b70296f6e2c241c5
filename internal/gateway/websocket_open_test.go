package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"agentgw/internal/config"
	"agentgw/internal/websocket"
)

// withoutKey asks for an upgrade by who has no gateway key.
func (w *world) withoutKey(target string, header ...string) string {
	return w.asks(target, "", header...)
}

// TestWebSocketsOfOpenServices are charged to their caller's bucket, which is that of the
// upgrade's own credentials and of his calls over HTTP; who brings none shares one bucket
// with all others who do not, and is charged to nobody's key.
func TestWebSocketsOfOpenServices(t *testing.T) {
	seen := make(chan http.Header, 10)
	w := wsWorld(t, setup{
		registry: strings.Replace(wsRegistry, "  llm: {", "  llm: {access: open, ", 1),
		settings: func(s *config.Settings) { s.RateCallerRPM, s.RateCallerBurst = 1, 3 },
	}, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			hello(rw, r)
			return
		}
		seen <- r.Header.Clone()
		talks(rw, r)
	})
	dial := func(header ...string) *side {
		t.Helper()
		s, res, err := w.knock(w.withoutKey("llm/x", header...))
		if err != nil || res.StatusCode != 101 {
			t.Fatal(res, err)
		}
		if res.Header.Get("Ratelimit") != "" {
			t.Errorf("RateLimit fields: %v", res.Header)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	const create = `{"type":"response.create"}`
	mine, nobody := "Authorization: Bearer sk-mine", "X-Other: 1"
	for _, who := range []string{mine, nobody} {
		s := dial(who)
		if h := <-seen; (h.Get("Authorization") == "Bearer sk-mine") != (who == mine) {
			t.Errorf("%s: the service got %v", who, h)
		}
		for range 2 {
			if f := s.says(t, create); f.payload != create {
				t.Fatal(who, f)
			}
		}
		f := s.says(t, create)
		if !strings.HasPrefix(f.payload, `{"type":"error","status":429,"error":{"message":"`) || !strings.HasSuffix(f.payload, `","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`) {
			t.Fatal(who, f)
		}
		list := w.ledger.all()
		if r := list[len(list)-1]; r.Limit != "caller" || r.Key != "" || r.Tenant != "" || strings.Contains(r.Caller, "sk-mine") {
			t.Errorf("%s: %+v", who, r)
		}
		if f := s.says(t, `{"type":"steer"}`); f.payload != `{"type":"steer"}` {
			t.Error(who, f)
		}
		if got := w.refused(w.withoutKey("llm/x", who)); got.status != 429 || got.code != "rate_limited" {
			t.Errorf("%s: another upgrade: %d %s", who, got.status, got.body)
		}
		if got := w.relayedBy("", "GET", "llm/x", "", strings.SplitN(who, ": ", 2)...); got.status != 429 {
			t.Errorf("%s: a call over HTTP: %d %s", who, got.status, got.body)
		}
	}
	before := w.left("k")
	if got := w.refused(w.withoutKey("llm/x", "Authorization: Bearer sk-others")); got.status != 101 || w.left("k") != before {
		t.Errorf("another caller: %d %s", got.status, got.body)
	}
}

// TestTheCredentialIsNotRepeatedOverWebSocket: in a message, over two fragments of one, in
// a ping and in a close it is marked, and all else comes as it was sent.
func TestTheCredentialIsNotRepeatedOverWebSocket(t *testing.T) {
	g := newGuided()
	defer close(g.says)
	w := wsWorld(t, setup{vault: fullVault(t)}, g.serve)
	s := w.talk("bearer/x", "k")
	const credential = "u:s3cr3t+&"
	g.says <- string(websocket.AppendFrame(nil, websocket.Text, nil, []byte(`{"u":1,"key":"`+credential+`"}`)))
	g.says <- "\x01\x08key u:s3\x89\x0a" + credential + "\x80\x08cr3t+& u" // which ends as the credential begins
	for i, want := range []string{`{"u":1,"key":"?"}`, "key ?", "?", "? u"} {
		f := s.hears(t)
		if strings.Contains(f.payload, "s3cr3t") || strings.Contains(f.payload, "cr3t+") || len(want) > 3 && !strings.HasPrefix(f.payload, want[:3]) || !strings.HasSuffix(f.payload, want[len(want)-1:]) && want[len(want)-1] != '?' {
			t.Errorf("frame %d: %v, want %s", i, f, want)
		}
	}
	g.says <- string(websocket.AppendClose(nil, nil, 4000, "bad key "+credential))
	f := s.hears(t)
	if f.code() != 4000 || strings.Contains(f.payload, "s3cr3t") || !strings.HasPrefix(f.payload[2:], "bad key ") || len(f.payload) != 2+8+len(credential) {
		t.Error(f)
	}
	w.idle("tenant:wide")
	within(t, 5e9, "the operator is told", func() bool { return strings.Contains(w.logged.String(), "repeated its credential") })
	if strings.Contains(w.logged.String(), "s3cr3t") {
		t.Error("the log has it")
	}
}
