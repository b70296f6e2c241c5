package gateway_test

import (
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/receipts"
	"agentgw/internal/websocket"
)

// refused asks for an upgrade that is to be refused, and returns the answer.
func (w *world) refused(request string) told {
	w.t.Helper()
	s, res, err := w.knock(request)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if res.StatusCode == http.StatusSwitchingProtocols {
		return told{status: res.StatusCode, header: res.Header}
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return told{status: res.StatusCode, code: res.Header.Get("Agentgate-Code"), header: res.Header, body: string(body)}
}

// TestUpgradesThatAreRefused are refused over plain HTTP, before the service is called and
// with the codes of the step that refuses; who sends no key is charged to nobody.
func TestUpgradesThatAreRefused(t *testing.T) {
	w := wsWorld(t, setup{}, talks, wide("k"), &identity.Key{ID: "narrow", Services: []string{"llm"}, Users: []string{"*"}},
		&identity.Key{ID: "named", Services: []string{"*"}, Users: []string{"u"}})
	without := func(line string) string {
		return strings.Replace(w.asks("llm/x", "k"), line+"\r\n", "", 1)
	}
	asked := func(header ...string) string { return w.asks("llm/x", "k", header...) }
	const key, version = "Sec-WebSocket-Key: " + wsKey, "Sec-WebSocket-Version: 13"
	for name, c := range map[string]struct {
		request string
		status  int
		code    string
	}{
		"no key":                        {w.asks("llm/x", ""), 401, "unauthenticated"},
		"no key, but as a subprotocol":  {w.asks("llm/x", "", "Sec-WebSocket-Protocol: "+w.keys["k"]), 401, "unauthenticated"},
		"a key in the query":            {w.asks("llm/x?key="+w.keys["k"], "k"), 400, "bad_request"},
		"a service that takes none":     {w.asks("none/x", "k"), 400, "bad_request"},
		"that, out of scope":            {w.asks("none/x", "narrow"), 403, "scope_denied"},
		"no such service":               {w.asks("nowhere/x", "k"), 404, "service_not_found"},
		"for nobody":                    {w.asks("llm/x", "named"), 403, "scope_denied"},
		"no action, and no passthrough": {w.asks("declared/x", "k"), 404, "action_not_found"},
		"a parameter too many":          {w.asks("declared/talk/1?x=1", "k"), 400, "bad_params"},
		"a POST":                        {strings.Replace(asked(), "GET ", "POST ", 1), 400, "bad_request"},
		"HTTP/1.0":                      {strings.Replace(asked(), "HTTP/1.1", "HTTP/1.0", 1), 400, "bad_request"},
		"a body":                        {asked("Content-Length: 1") + "x", 400, "bad_request"},
		"a body of chunks":              {asked("Transfer-Encoding: chunked") + "0\r\n\r\n", 400, "bad_request"},
		"no version":                    {without(version), 426, "bad_request"},
		"an old version":                {strings.Replace(asked(), version, "Sec-WebSocket-Version: 8", 1), 426, "bad_request"},
		"two versions":                  {asked("Sec-WebSocket-Version: 8"), 426, "bad_request"},
		"no Sec-WebSocket-Key":          {without(key), 400, "bad_request"},
		"two of them":                   {asked(key), 400, "bad_request"},
		"one of 15 bytes":               {strings.Replace(asked(), wsKey, "AAAAAAAAAAAAAAAAAAAA", 1), 400, "bad_request"},
		"one that is no base64":         {strings.Replace(asked(), wsKey, "!!!!!!!!!!!!!!!!!!!!!!==", 1), 400, "bad_request"},
		"a page of somebody else's":     {asked("Origin: http://evil.example"), 403, "scope_denied"},
		"a page of nobody's":            {asked("Origin: null"), 403, "scope_denied"},
		"a name that begins as ours":    {asked("Origin: http://gateway.evil"), 403, "scope_denied"},
		"another port":                  {asked("Origin: http://gateway:8081"), 403, "scope_denied"},
		"no scheme of the web":          {asked("Origin: file://gateway"), 403, "scope_denied"},
		"two origins":                   {asked("Origin: http://gateway", "Origin: http://gateway"), 403, "scope_denied"},
		"a path in it":                  {asked("Origin: http://gateway/x"), 403, "scope_denied"},
	} {
		got := w.refused(c.request)
		if got.status != c.status || got.code != c.code {
			t.Errorf("%s: %d %s %s, want %d %s", name, got.status, got.code, got.body, c.status, c.code)
		}
		if c.status == 426 && got.header.Get("Sec-Websocket-Version") != "13" {
			t.Errorf("%s: %v", name, got.header)
		}
		if c.status == 401 && got.header.Get("Ratelimit") != "" {
			t.Errorf("%s: charged: %v", name, got.header)
		}
	}
	for _, header := range [][]string{{"Origin: http://gateway"}, {"Origin: https://GATEWAY:443"}, {"Origin: http://gateway:80"}, nil} {
		if got := w.refused(asked(header...)); got.status != 101 {
			t.Errorf("%q: %d %s", header, got.status, got.body)
		}
	}
	w.idle("tenant:wide")
	if n := w.upstreamRequests(); n != 4 {
		t.Errorf("the service was called %d times, want 4", n)
	}
}

// TestALimitedUpgrade is told so before anything is switched: the key's bucket, and the
// slot that another WebSocket holds until it is over.
func TestALimitedUpgrade(t *testing.T) {
	w := wsWorld(t, setup{settings: func(s *config.Settings) { s.RateKeyRPS, s.RateKeyBurst = 1.0/60, 1 }}, talks,
		&identity.Key{ID: "k", Services: []string{"*"}, Users: []string{"*"}, Tenant: "wide"},
		&identity.Key{ID: "small", Services: []string{"*"}, Users: []string{"*"}, Tenant: "small", Limits: &identity.Limits{RPS: 100, Burst: 100}})
	first := w.talk("llm/x", "k")
	got := w.refused(w.asks("llm/x", "k"))
	const body = `{"error":{"message":"the key limit is a burst of 1 call, refilled over 1m; wait 1m0s and call again","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`
	if got.status != 429 || got.body != body || got.header.Get("Content-Type") != "application/json" || got.header.Get("X-Ratelimit-Remaining-Requests") != "0" || got.header.Get("Retry-After") == "" || got.header.Get("Upgrade") != "" {
		t.Errorf("%d %v %s", got.status, got.header, got.body)
	}
	if f := first.says(t, "still there?"); f.Opcode != websocket.Text || !strings.Contains(f.payload, "rate_limit_exceeded") { // no JSON: charged
		t.Error(f)
	}
	held := w.talk("plain/x", "small")
	if got := w.refused(w.asks("plain/x", "small")); got.status != 429 || got.code != "concurrency_limited" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if f := held.says(t, "free"); f.payload != "free" {
		t.Error(f)
	}
	_ = held.close(websocket.Normal, "")
	held.wantClose(t, 1000)
	if got := w.refused(w.asks("plain/x", "small")); got.status != 101 { // its slot was free when the close was there
		t.Errorf("%d %s", got.status, got.body)
	}
	within(t, 5*time.Second, "its client's end is seen", func() bool { return w.inFlight("tenant:small") == 0 })
	if got := w.refused(w.asks("plain/x", "small")); got.status != 429 || got.code != "rate_limited" { // the third of a burst of two
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestHowAnUpgradeIsAskedFor: in any of the ways in which clients spell it; what is another
// upgrade, or none, is not sent on.
func TestHowAnUpgradeIsAskedFor(t *testing.T) {
	w := wsWorld(t, setup{}, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			_, _ = io.WriteString(rw, "plain "+r.Header.Get("Connection"))
			return
		}
		talks(rw, r)
	})
	for _, header := range [][]string{
		{"Connection: keep-alive, Upgrade", "Upgrade: websocket"}, {"connection: UPGRADE", "upgrade: WebSocket"}, {"Connection: keep-alive", "Connection: Upgrade", "Upgrade: WEBSOCKET"},
		{"Connection: upgrade,x-mine", "Upgrade: websocket", "X-Mine: 1"}, {"Connection: Upgrade", "Upgrade: h2c, websocket"},
	} {
		request := w.proxied("GET", "plain/x", "k", "", append(slices.Clone(header), "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: "+wsKey)...)
		if got := w.refused(request); got.status != 101 || got.header.Get("Sec-Websocket-Accept") != wsAccept || !strings.EqualFold(got.header.Get("Upgrade"), "websocket") || !strings.EqualFold(got.header.Get("Connection"), "upgrade") {
			t.Errorf("%q: %d %v %s", header, got.status, got.header, got.body)
		}
	}
	for _, header := range [][]string{
		{"Connection: Upgrade", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"}, {"Connection: Upgrade", "Upgrade: foo"}, {"Connection: keep-alive", "Upgrade: websocket"},
		{"Connection: Upgrade"}, {"Connection: Upgrade", "Upgrade: websocketx"}, {"Upgrade: websocket"},
	} {
		request := w.proxied("GET", "plain/x", "k", "", append(slices.Clone(header), "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: "+wsKey)...)
		if got := w.refused(request); got.status != 200 || got.body != "plain " {
			t.Errorf("%q: %d %v %s", header, got.status, got.header, got.body)
		}
	}
	w.idle("tenant:wide")
}

// TestTheUpgradeOnTheWire: the very bytes that the service gets, and that the client does.
func TestTheUpgradeOnTheWire(t *testing.T) {
	u := newWire(t, "", func(c net.Conn, _ string) bool {
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "+wsAccept+"\r\nSec-WebSocket-Protocol: realtime\r\nX-Mine: 1\r\nX-Echo: u:s3cr3t+&\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n\x81\x02hi")
		return true
	})
	w := setup{registry: strings.ReplaceAll(wsRegistry, "%[1]s", u.url()), vault: fullVault(t)}.world(t, hello, wide("k"))
	s, res, err := w.knock(w.asks("bearer/a%2Fb?q=1", "k", "Sec-WebSocket-Extensions: permessage-deflate", "Sec-WebSocket-Protocol: realtime, v1", "Origin: http://gateway", "Cookie: c=d", "OpenAI-Beta: realtime=v1", "X-Odd: "+w.keys["k"]))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	host := u.listener.Addr().String()
	got := u.take()
	if len(got) == 0 {
		t.Fatal("the service was not called")
	}
	lines := strings.Split(strings.TrimSuffix(got[0], "\r\n\r\n"), "\r\n")
	id := ""
	for i, line := range lines {
		if rest, ok := strings.CutPrefix(line, "X-Request-Id: "); ok {
			id, lines[i] = rest, "X-Request-Id: ID"
		}
	}
	slices.Sort(lines[2:])
	want := []string{
		"GET /v1/a%2Fb?q=1 HTTP/1.1", "Host: " + host, "Accept-Encoding: identity", "Authorization: Bearer u:s3cr3t+&", "Connection: Upgrade", "Openai-Beta: realtime=v1", "Sec-Websocket-Key: " + wsKey,
		"Sec-Websocket-Protocol: realtime, v1", "Sec-Websocket-Version: 13", "Upgrade: websocket", "User-Agent: agentgw/test", "X-Request-Id: ID",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("the service got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	h := res.Header
	if res.StatusCode != 101 || h.Get("Sec-Websocket-Protocol") != "realtime" || h.Get("X-Mine") != "1" || h.Get("Set-Cookie") != "" || h.Get("Content-Length") != "" || strings.Contains(h.Get("X-Echo"), "s3cr3t") || h.Get("X-Request-Id") != id ||
		!strings.Contains(h.Get("Ratelimit-Policy"), `"inflight"`) || !strings.Contains(h.Get("Agentgate-Receipt"), "leaf=:") {
		t.Errorf("the client got %v", h)
	}
	if f := s.hears(t); f.payload != "hi" { // which came in one piece with the header
		t.Error(f)
	}
}

// TestAnswersToAnUpgrade: what is no 101 is relayed as any answer is; a 101 that is not
// WebSocket's is 502, and its connection is closed.
func TestAnswersToAnUpgrade(t *testing.T) {
	const good = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + wsAccept + "\r\n\r\n"
	for name, c := range map[string]struct {
		answer string
		status int
		body   string // "": of a refusal of ours
		ending receipts.Ending
	}{
		"403":                         {"HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno!", 403, "no!", receipts.Complete},
		"200":                         {helloBytes, 200, "{}", receipts.Complete},
		"426":                         {"HTTP/1.1 426 Upgrade Required\r\nSec-WebSocket-Version: 8\r\nContent-Length: 1\r\n\r\nx", 426, "x", receipts.Complete},
		"401":                         {"HTTP/1.1 401 Unauthorized\r\nContent-Length: 1\r\n\r\nx", 401, "x", receipts.Complete},
		"another upgrade":             {strings.Replace(good, "Upgrade: websocket", "Upgrade: h2c", 1), 502, "", receipts.UpstreamAborted},
		"none":                        {strings.Replace(good, "Upgrade: websocket\r\n", "", 1), 502, "", receipts.UpstreamAborted},
		"two":                         {strings.Replace(good, "Upgrade: websocket\r\n", "Upgrade: websocket\r\nUpgrade: websocket\r\n", 1), 502, "", receipts.UpstreamAborted},
		"no Connection":               {strings.Replace(good, "Connection: Upgrade\r\n", "", 1), 502, "", receipts.UpstreamAborted},
		"a token that is none":        {strings.Replace(good, "Upgrade: websocket", "Upgrade: \x7f", 1), 502, "", receipts.UpstreamAborted},
		"no Sec-WebSocket-Accept":     {strings.Replace(good, "Sec-WebSocket-Accept: "+wsAccept+"\r\n", "", 1), 502, "", receipts.UpstreamAborted},
		"a wrong one":                 {strings.Replace(good, wsAccept, "s3pPLMBiTxaQ9kYGzzhZRbK-xOo=", 1), 502, "", receipts.UpstreamAborted},
		"another's":                   {strings.Replace(good, wsAccept, websocket.Accept("AAAAAAAAAAAAAAAAAAAAAA=="), 1), 502, "", receipts.UpstreamAborted},
		"two of them":                 {strings.Replace(good, "\r\n\r\n", "\r\nSec-WebSocket-Accept: "+wsAccept+"\r\n\r\n", 1), 502, "", receipts.UpstreamAborted},
		"an extension":                {strings.Replace(good, "\r\n\r\n", "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n", 1), 502, "", receipts.UpstreamAborted},
		"a subprotocol that is none":  {strings.Replace(good, "\r\n\r\n", "\r\nSec-WebSocket-Protocol: other\r\n\r\n", 1), 502, "", receipts.UpstreamAborted},
		"a subprotocol in other case": {strings.Replace(good, "\r\n\r\n", "\r\nSec-WebSocket-Protocol: MINE\r\n\r\n", 1), 502, "", receipts.UpstreamAborted},
	} {
		t.Run(name, func(t *testing.T) {
			var ended atomic.Int64
			u := newWire(t, "", func(conn net.Conn, _ string) bool {
				_, _ = io.WriteString(conn, c.answer)
				if c.body == "" {
					_, _ = io.Copy(io.Discard, conn)
					ended.Add(1)
				}
				return c.body != ""
			})
			w := setup{registry: strings.ReplaceAll(wsRegistry, "%[1]s", u.url())}.world(t, hello, wide("k"))
			rounds := drills(3, 500)
			for range rounds {
				got := w.refused(w.asks("llm/x", "k"))
				if got.status != c.status || c.body != "" && got.body != c.body || (c.body == "") != (got.code == "upstream_unreachable") {
					t.Fatalf("%d %s %s", got.status, got.code, got.body)
				}
			}
			w.idle("tenant:wide")
			if c.body == "" {
				within(t, 5*time.Second, "every connection to the service is closed", func() bool { return ended.Load() == int64(rounds) })
			}
			list := w.ledger.all()
			said := c.status                                    // of the service
			if c.body == "" && name != "a token that is none" { // which net/http takes for no answer
				said = 101
			}
			if r := list[len(list)-1]; len(list) != 2*rounds || r.Ending != c.ending || r.Status != said {
				t.Errorf("%d records, the last %q %d", len(list), r.Ending, r.Status)
			}
		})
	}
}
