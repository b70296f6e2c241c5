package websocket_test

import (
	"net/http"
	"testing"

	"agentgw/internal/websocket"
)

// TestAccept is the example of RFC 6455, section 1.3.
func TestAccept(t *testing.T) {
	if got := websocket.Accept("dGhlIHNhbXBsZSBub25jZQ=="); got != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Error(got)
	}
	for key, want := range map[string]bool{"dGhlIHNhbXBsZSBub25jZQ==": true, "AAAAAAAAAAAAAAAAAAAAAA==": true, "AAAAAAAAAAAAAAAAAAAAAB==": false, "": false, "dGhlIHNhbXBsZSBub25jZQ": false, "dGhlIHNhbXBsZSBub25j\nZQ==": false, "dGhlIHNhbXBsZSBub25jZQ==\n": false, "AAAAAAAAAAAAAAAAAAAA": false, "AAAAAAAAAAAAAAAAAAAAAAAA": false} {
		if websocket.ValidKey(key) != want {
			t.Errorf("%q is valid: %v", key, !want)
		}
	}
}

func TestAnswered(t *testing.T) {
	const key = "dGhlIHNhbXBsZSBub25jZQ=="
	good := func() http.Header {
		return http.Header{"Upgrade": {"WebSocket"}, "Connection": {"keep-alive, upgrade"}, "Sec-Websocket-Accept": {websocket.Accept(key)}}
	}
	if why := websocket.Answered(good(), key, nil); why != "" {
		t.Error(why)
	}
	h := good()
	h["Sec-Websocket-Protocol"] = []string{"b"}
	if why := websocket.Answered(h, key, []string{"a, b", "c"}); why != "" {
		t.Error(why)
	}
	for name, change := range map[string]http.Header{
		"another upgrade": {"Upgrade": {"h2c"}}, "two upgrades": {"Upgrade": {"websocket", "websocket"}}, "no upgrade": {"Upgrade": nil}, "no connection": {"Connection": {"keep-alive"}},
		"another accept": {"Sec-Websocket-Accept": {websocket.Accept("AAAAAAAAAAAAAAAAAAAAAA==")}}, "no accept": {"Sec-Websocket-Accept": nil}, "two": {"Sec-Websocket-Accept": {websocket.Accept(key), websocket.Accept(key)}},
		"an extension": {"Sec-Websocket-Extensions": {"permessage-deflate"}}, "an empty one": {"Sec-Websocket-Extensions": {""}}, "a protocol": {"Sec-Websocket-Protocol": {"d"}}, "two protocols": {"Sec-Websocket-Protocol": {"a", "b"}},
		"a protocol in another case": {"Sec-Websocket-Protocol": {"A"}}, "two in one": {"Sec-Websocket-Protocol": {"a, b"}},
	} {
		h := good()
		for k, v := range change {
			h[k] = v
		}
		if websocket.Answered(h, key, []string{"a, b", "c"}) == "" {
			t.Errorf("%s is let pass", name)
		}
	}
}
