package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/secret"
	"agentgw/internal/store"
	"agentgw/internal/vault"
)

// headered is a registry in which each credential has a service of its name.
func headered(url string) string {
	actions := `
      get: {method: GET, path: /x, params: {q: "string?", X-Trace: {in: header, required: false}, User-Agent: {in: header, required: false}}}
      make: {method: POST, path: /x, params: {title: "string?"}}
      put: {method: PUT, path: /x}
      drop: {method: DELETE, path: /x}
`
	file := "version: 1\nservices:\n"
	for name, credential := range map[string]string{
		"bare": "{type: none}", "bearer": "{type: bearer}", "basic": "{type: basic}", "query": "{type: query, name: api key}",
		"own": "{type: header, name: X-Api-Key}", "proxy": "{type: header, name: Proxy-Authorization}", "cookie": "{type: header, name: Cookie}",
	} {
		file += fmt.Sprintf("  %s:\n    base_url: %s\n    allow_private: true\n    credential: %s\n    actions:%s", name, url, credential, actions)
	}
	return file
}

// shelf keeps a vault's rows in memory.
type shelf struct {
	keys []store.DataKey
	rows []store.Credential
}

func (s *shelf) DataKeys(context.Context) ([]store.DataKey, error) { return s.keys, nil }
func (s *shelf) AddDataKey(_ context.Context, k store.DataKey) error {
	s.keys = append(s.keys, k)
	return nil
}
func (s *shelf) Credentials(context.Context) ([]store.Credential, error) { return s.rows, nil }
func (s *shelf) PutCredential(_ context.Context, c store.Credential, _ store.DataKey) error {
	s.rows = append(s.rows, c)
	return nil
}
func (s *shelf) RemoveCredential(context.Context, string, string) error { return nil }

// fullVault holds a credential for each service of headered.
func fullVault(t testing.TB) *vault.Vault {
	t.Helper()
	kek, err := vault.ParseKEK(strings.Repeat("0", 64))
	if err != nil {
		t.Fatal(err)
	}
	v, err := vault.Load(t.Context(), &shelf{}, kek)
	if err != nil {
		t.Fatal(err)
	}
	for _, service := range []string{"bearer", "basic", "query", "own", "proxy", "cookie"} {
		if err := v.Set(t.Context(), vault.Ref{Service: service}, vault.Form{}, secret.New("u:s3cr3t+&"), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

func headeredWorld(t *testing.T, w *wire) *world {
	t.Helper()
	return setup{registry: headered(w.url()), vault: fullVault(t)}.world(t, hello, tireless("k"))
}

// withoutID returns the lines of the one request that arrived, but for the
// value of its request id.
func withoutID(t *testing.T, w *wire) []string {
	t.Helper()
	got := w.take()
	if len(got) != 1 {
		t.Fatalf("%d requests arrived: %q", len(got), got)
	}
	list := lines(got[0])
	for i, line := range list {
		if id, ok := strings.CutPrefix(line, "X-Request-Id: "); ok && len(id) == 26 {
			list[i] = "X-Request-Id: ID"
		}
	}
	return list
}

// connections name what the next hop shall not see, in several lines of which
// the first is empty: what the agent sent, and what the gateway will add.
var connections = []string{
	"Connection:", "Connection: X-Forwarded-For, Authorization", "Connection: close, , X-Secret",
	"Connection: X-Request-Id, User-Agent, Cookie, X-Api-Key,Proxy-Authorization, traceparent",
}

// hostile are header lines of an agent that tries to speak to the upstream, or
// in the gateway's name.
var hostile = []string{
	"Proxy-Connection: keep-alive", "Keep-Alive: timeout=5", "X-Secret: 1", "X-Forwarded-For: 1.2.3.4", "X-Forwarded-Host: evil", "Forwarded: for=1.2.3.4", "X-Real-Ip: 1.2.3.4",
	"Cookie: session=mine", "Proxy-Authorization: Basic eDp5", "X-Request-Id: forged", "User-Agent: curl/8", "Via: 1.1 evil", "X-Gateway-Tenant: acme", "Agentgate-Receipt: forged",
	"Origin: https://evil", "Referer: https://evil", "X-Original-Url: /payroll", "X-Http-Method-Override: DELETE", "Te: trailers, gzip", "Upgrade: websocket", "Content-Encoding: identity",
	"Accept: text/plain", "Accept-Language: de", "Idempotency-Key: once", "Traceparent: 00-1-2-03", "Tracestate: a=b", "Last-Event-Id: 7",
}

// TestRequestOnTheWire: what reaches the upstream is the request that the
// gateway built, to the last byte. Of the agent's headers a few pass, and not
// those that it names in Connection; its Connection takes nothing away that the
// gateway adds.
func TestRequestOnTheWire(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	g := headeredWorld(t, w)
	host := "Host: " + w.listener.Addr().String()
	passedOn := []string{"Accept: text/plain", "Accept-Language: de", "Idempotency-Key: once", "Last-Event-Id: 7", "Te: trailers", "Tracestate: a=b", "X-Request-Id: ID"}
	with := func(more ...string) []string {
		return append(slices.Clone(passedOn), more...)
	}
	for _, c := range []struct {
		service, action, params, first string
		header                         []string
		body                           string
	}{
		{"bare", "get", `{}`, "GET /x HTTP/1.1", with(), ""},
		{"bare", "get", `{"X-Trace":"a b","q":"1"}`, "GET /x?q=1 HTTP/1.1", with("X-Trace: a b"), ""},
		{"bearer", "get", `{}`, "GET /x HTTP/1.1", with("Authorization: Bearer u:s3cr3t+&"), ""},
		{"basic", "get", `{}`, "GET /x HTTP/1.1", with("Authorization: Basic dTpzM2NyM3QrJg=="), ""},
		{"own", "get", `{}`, "GET /x HTTP/1.1", with("X-Api-Key: u:s3cr3t+&"), ""},
		{"proxy", "get", `{}`, "GET /x HTTP/1.1", with("Proxy-Authorization: u:s3cr3t+&"), ""},
		{"cookie", "get", `{}`, "GET /x HTTP/1.1", with("Cookie: u:s3cr3t+&"), ""},
		{"query", "get", `{}`, "GET /x?api%20key=u%3As3cr3t%2B%26 HTTP/1.1", with(), ""},
		{"query", "get", `{"q":"a+b"}`, "GET /x?q=a%2Bb&api%20key=u%3As3cr3t%2B%26 HTTP/1.1", with(), ""},
		{"bearer", "make", `{"title":"\u00e9"}`, "POST /x HTTP/1.1", append([]string{"Content-Length: 18"}, with("Authorization: Bearer u:s3cr3t+&", "Content-Type: application/json")...), `{"title":"\u00e9"}`},
		{"bare", "make", `{}`, "POST /x HTTP/1.1", append([]string{"Content-Length: 2"}, with("Content-Type: application/json")...), "{}"},
	} {
		p := g.dial()
		p.write(g.raw(fmt.Sprintf(`{"service":%q,"action":%q,"params":%s}`, c.service, c.action, c.params), append(connections, hostile...)...))
		if res, body := p.answer(); res.StatusCode != 200 {
			t.Errorf("%s %s: %s %s", c.service, c.params, res.Status, body)
			continue
		}
		all := w.all()
		_, body, _ := strings.Cut(all[len(all)-1], "\r\n\r\n")
		got := withoutID(t, w)
		if c.service != "bare" { // what is compressed would hide a credential that it repeats
			c.header = append(c.header, "Accept-Encoding: identity")
		}
		slices.Sort(got[3:]) // the transport has an order of its own
		slices.Sort(c.header)
		if diff := cmp.Diff(append([]string{c.first, host, "User-Agent: agentgw/test"}, c.header...), got); diff != "" || body != c.body {
			t.Errorf("%s %s: %s body %q", c.service, c.params, diff, body)
		}
	}

	// Without the Connection lines it is the allow-list alone that decides.
	if res, body := g.send(g.raw(`{"service":"bare","action":"get"}`, hostile...)); res.StatusCode != 200 {
		t.Fatalf("%s %s", res.Status, body)
	}
	got := withoutID(t, w)
	slices.Sort(got[3:])
	want := with("Traceparent: 00-1-2-03")
	slices.Sort(want)
	if diff := cmp.Diff(append([]string{"GET /x HTTP/1.1", host, "User-Agent: agentgw/test"}, want...), got); diff != "" {
		t.Error(diff)
	}
}

// TestOwnHeaderParameter: a declared header is what the caller gave, also where
// the gateway has a value of its own.
func TestOwnHeaderParameter(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	g := headeredWorld(t, w)
	if res := g.act("k", `{"service":"bare","action":"get","params":{"User-Agent":"mine/1"}}`); res.status != 200 {
		t.Fatalf("%d %s", res.status, res.body)
	}
	if got := withoutID(t, w); !slices.Contains(got, "User-Agent: mine/1") || slices.Contains(got, "User-Agent: agentgw/test") {
		t.Errorf("%q", got)
	}
	// It is one line, and no text in it makes a second.
	if res := g.act("k", `{"service":"bare","action":"get","params":{"X-Trace":"Host: evil; \u00e9, 1"}}`); res.status != 200 {
		t.Fatalf("%d %s", res.status, res.body)
	}
	if got := withoutID(t, w); !slices.Contains(got, "X-Trace: Host: evil; \u00e9, 1") {
		t.Errorf("%q", got)
	}
	for _, value := range []string{`a\r\nX-Evil: 1`, `a\nX-Evil: 1`, `a\rb`, `\u0000`, ` a`, `a `, `\t`, `\u007f`} {
		res := g.act("k", `{"service":"bare","action":"get","params":{"X-Trace":"`+value+`"}}`)
		if res.status != 400 || res.code != "bad_params" || !strings.Contains(res.body, "params.X-Trace") {
			t.Errorf("%s: %d %s", value, res.status, res.body)
		}
	}
	for _, params := range []string{`{"X-Other":"1"}`, `{"x-trace":"1"}`, `{"Authorization":"Bearer x"}`, `{"Host":"evil"}`} {
		if res := g.act("k", `{"service":"bare","action":"get","params":`+params+`}`); res.status != 400 || res.code != "bad_params" {
			t.Errorf("%s: %d %s", params, res.status, res.body)
		}
	}
	if got := w.take(); len(got) > 0 {
		t.Errorf("the upstream saw %q", got)
	}
}

// TestNoBodyOnTheWire: a request without a body says so in the way of its
// method, whatever else the gateway does to have it sent once only.
func TestNoBodyOnTheWire(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	g := headeredWorld(t, w)
	for action, want := range map[string][]string{
		"get": {"GET /x HTTP/1.1"}, "put": {"PUT /x HTTP/1.1", "Content-Length: 0"}, "drop": {"DELETE /x HTTP/1.1"},
	} {
		res, body := g.send(g.raw(`{"service":"bare","action":"`+action+`"}`, "Idempotency-Key: once"))
		if res.StatusCode != 200 {
			t.Fatalf("%s: %s %s", action, res.Status, body)
		}
		got := withoutID(t, w)
		for _, line := range got {
			name, _, _ := strings.Cut(line, ":")
			framing := name == "Content-Length" || name == "Transfer-Encoding" || name == "Content-Type"
			if framing && !slices.Contains(want, line) {
				t.Errorf("%s: a line %q", action, line)
			}
		}
		for _, line := range want {
			if !slices.Contains(got, line) {
				t.Errorf("%s: no line %q in %q", action, line, got)
			}
		}
		if !slices.ContainsFunc(got, func(line string) bool { return strings.EqualFold(line, "Idempotency-Key: once") }) {
			t.Errorf("%s: the Idempotency-Key is lost: %q", action, got)
		}
	}
}

// TestAnswerHeaders: hop-by-hop headers, those that the upstream names in any
// of its Connection lines, its cookies, its challenges and what speaks in the
// gateway's name stay behind; everything else passes, and the gateway's own
// arrive.
func TestAnswerHeaders(t *testing.T) {
	w := newWire(t, "", says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"+
		"Connection:\r\nConnection: X-Hop, ,Agentgate-Receipt\r\nConnection: RateLimit-Policy, X-Request-Id\r\nX-Hop: 1\r\n"+
		"Keep-Alive: timeout=5\r\nProxy-Connection: x\r\nUpgrade: h2c\r\nTe: trailers\r\nProxy-Authenticate: Basic\r\nProxy-Authorization: x\r\n"+
		"Set-Cookie: a=1\r\nset-cookie: b=2\r\nSet-Cookie2: c\r\nWWW-Authenticate: Bearer realm=\"u\"\r\nAuthentication-Info: x\r\nAuthorization: Bearer x\r\n"+
		"X-Request-Id: forged\r\nAgentgate-Receipt: id=\"forged\"\r\nagentgate-code: internal\r\nAgentgate-Anything: 1\r\n"+
		"X-Kept: 1\r\nX-Kept: 2\r\nETag: \"e\"\r\nx_odd: kept\r\nContent-Type: text/plain\r\nContent-Encoding: br\r\n\r\n{}"))
	g := headeredWorld(t, w)
	res, body := g.send(g.raw(`{"service":"bearer","action":"get"}`))
	if res.StatusCode != 200 || body != "{}" {
		t.Fatalf("%s %s", res.Status, body)
	}
	for _, name := range []string{"X-Hop", "Keep-Alive", "Proxy-Connection", "Upgrade", "Te", "Proxy-Authenticate", "Proxy-Authorization",
		"Set-Cookie", "Set-Cookie2", "Www-Authenticate", "Authentication-Info", "Authorization", "Agentgate-Code", "Agentgate-Anything"} {
		if v := res.Header.Values(name); len(v) > 0 {
			t.Errorf("%s: %q reached the agent", name, v)
		}
	}
	for name, want := range map[string][]string{"X-Kept": {"1", "2"}, "Etag": {`"e"`}, "X_odd": {"kept"}, "Content-Type": {"text/plain"}, "Content-Encoding": {"br"}, "Content-Length": {"2"}} {
		if diff := cmp.Diff(want, res.Header.Values(name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if v := res.Header.Values("X-Request-Id"); len(v) != 1 || len(v[0]) != 26 {
		t.Errorf("X-Request-Id: %q", v)
	}
	if v := res.Header.Values("Agentgate-Receipt"); len(v) != 1 || v[0] != named(g.ledger.all(), 0) {
		t.Errorf("Agentgate-Receipt: %q", v)
	}
	if v := res.Header.Values("Ratelimit-Policy"); len(v) != 1 {
		t.Errorf("RateLimit-Policy: %q", v)
	}
}

// TestTrailers: an upstream's trailer reaches an agent, announced or not, less
// what a header would be cleaned of and what has no place in a trailer.
func TestTrailers(t *testing.T) {
	for name, announced := range map[string]string{
		"announced":     "Trailer: X-Sum, Set-Cookie, Agentgate-Receipt\r\n",
		"in part":       "Trailer: X-Sum\r\n",
		"not announced": "",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, "", says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"+announced+"\r\n2\r\n{}\r\n0\r\n"+
				"X-Sum: 7\r\nSet-Cookie: a=1\r\nAgentgate-Receipt: id=\"forged\"\r\nWww-Authenticate: Bearer\r\nContent-Length: 5\r\nX-Request-Id: forged\r\n\r\n"))
			g := headeredWorld(t, w)
			res, body := g.send(g.raw(`{"service":"bare","action":"get"}`, "TE: trailers"))
			if res.StatusCode != 200 || body != "{}" {
				t.Fatalf("%s %q", res.Status, body)
			}
			if diff := cmp.Diff(http.Header{"X-Sum": {"7"}, "Agentgate-Receipt": {named(g.ledger.all(), 1)}}, res.Trailer); diff != "" {
				t.Error(diff)
			}
			if v := res.Header["Agentgate-Receipt"]; len(v) != 1 || strings.Contains(v[0], "forged") {
				t.Errorf("Agentgate-Receipt: %q", v)
			}
		})
	}
}

// TestTrailerIsAnnounced: who wants to know what will come behind the body is
// told before it.
func TestTrailerIsAnnounced(t *testing.T) {
	w := newWire(t, "", says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Set-Cookie\r\n\r\n2\r\n{}\r\n0\r\nX-Sum: 7\r\n\r\n"))
	g := headeredWorld(t, w)
	request, err := http.NewRequest("POST", g.server.URL+"/v1/act", strings.NewReader(`{"service":"bare","action":"get"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+g.keys["k"])
	res, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if diff := cmp.Diff(http.Header{"X-Sum": nil}, res.Trailer); diff != "" {
		t.Error(diff)
	}
}

// TestLargeAnswerHeaders: a header of up to 256 KiB is relayed, many lines of it
// too; a larger one is a refusal that says why, frees the slot, and is the last
// thing on its connection.
func TestLargeAnswerHeaders(t *testing.T) {
	fill := func(size int) string { return "X-Fill: " + strings.Repeat("f", size) + "\r\n" }
	lines := func(n int) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, "X-Line-%d: %s\r\n", i, strings.Repeat("l", 50))
		}
		return text.String()
	}
	for _, c := range []struct {
		name, header string
		fits         bool
	}{
		{"5 KiB", fill(5 << 10), true}, {"70 KiB", fill(70 << 10), true}, {"2,000 lines", lines(2000), true}, {"250 KiB", fill(250 << 10), true},
		{"260 KiB", fill(260 << 10), false}, {"1.1 MiB", fill(1126 << 10), false}, {"10,000 lines", lines(10000), false},
		{"5 KiB of cookies", strings.Repeat("Set-Cookie: a=1\r\n", 300), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWire(t, "", says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"+c.header+"\r\n{}"))
			g := headeredWorld(t, w)
			for range 2 {
				res := g.act("k", `{"service":"bare","action":"get"}`)
				switch {
				case c.fits && (res.status != 200 || res.body != "{}" || len(res.header) < strings.Count(c.header, "X-")):
					t.Errorf("%d %.200s with %d headers", res.status, res.body, len(res.header))
				case !c.fits && (res.status != 502 || res.code != "upstream_unreachable" || !strings.Contains(res.body, "header larger than 256 KiB") ||
					res.header.Get("X-Should-Retry") != "false" || res.header.Get("X-Fill") != ""):
					t.Errorf("%d %.300s", res.status, res.body)
				}
			}
			if n := g.inFlight("key:k"); n != 0 {
				t.Errorf("%d slots are taken", n)
			}
			if want := map[bool]int{true: 1, false: 2}[c.fits]; w.connections() != want {
				t.Errorf("two calls took %d connections, want %d", w.connections(), want)
			}
		})
	}
}

// TestHostNeverPicksTheUpstream: whatever an agent calls the gateway, the
// request goes to the service's address under the service's name.
func TestHostNeverPicksTheUpstream(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	evil := newWire(t, "", says(helloBytes))
	g := headeredWorld(t, w)
	body := `{"service":"bare","action":"get"}`
	address := evil.listener.Addr().String()
	for name, raw := range map[string]string{
		"host":                        strings.Replace(g.raw(body), "Host: gateway", "Host: "+address, 1),
		"absolute form":               strings.Replace(g.raw(body), "POST /v1/act", "POST http://"+address+"/v1/act", 1),
		"absolute form, other scheme": strings.Replace(g.raw(body), "POST /v1/act", "POST ftp://"+address+"/v1/act", 1),
		"headers":                     g.raw(body, "X-Forwarded-Host: "+address, "X-Host: "+address, "Forwarded: host="+address),
	} {
		if res, text := g.send(raw); res.StatusCode != 200 {
			t.Errorf("%s: %s %s", name, res.Status, text)
			continue
		}
		if got := withoutID(t, w); got[0] != "GET /x HTTP/1.1" || got[1] != "Host: "+w.listener.Addr().String() {
			t.Errorf("%s: %q", name, got[:2])
		}
	}
	left := g.limiterLeft("k")
	for name, raw := range map[string]string{
		"two":          g.raw(body, "Host: "+address),
		"two the same": g.raw(body, "Host: gateway"),
		"none":         strings.Replace(g.raw(body), "Host: gateway\r\n", "", 1),
		"not a host":   strings.Replace(g.raw(body), "Host: gateway", "Host: a b", 1),
	} {
		if res, text := g.send(raw); res.StatusCode != 400 {
			t.Errorf("%s: %s %s", name, res.Status, text)
		}
	}
	res, _ := g.send("CONNECT " + address + " HTTP/1.1\r\nHost: " + address + "\r\nAuthorization: Bearer " + g.keys["k"] + "\r\n\r\n")
	if res.StatusCode != 405 {
		t.Errorf("CONNECT: %s", res.Status)
	}
	if now := g.limiterLeft("k"); left-now > 1 { // CONNECT is a request
		t.Errorf("requests that are none cost %d tokens", left-now)
	}
	if evil.connections() != 0 || len(w.take()) != 0 {
		t.Error("somebody was called")
	}
}
