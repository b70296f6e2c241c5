package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"agentgw/internal/delegation"
	"agentgw/internal/identity"
)

// relayedBy is a request by /proxy with a key.
func (w *world) relayedBy(key, method, target, body string, header ...string) told {
	w.t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, w.server.URL+"/proxy/"+target, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+w.keys[key])
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	return w.do(r)
}

// TestProxyOrder: a request that is faulty at every step is refused by the first, as an
// act is; with each fault taken away it is the next one's.
func TestProxyOrder(t *testing.T) {
	narrow := &identity.Key{ID: "narrow", Services: []string{"signed", "keyed", "guarded", "tools"}, Actions: []string{"*.get"}, Users: []string{"*"},
		Tenant: "small", Limits: &identity.Limits{RPS: 0.001, Burst: 3}}
	w := newWorld(t, hello, narrow)
	check := func(got told, status int, code, limit string) {
		t.Helper()
		if got.status != status || got.code != code || got.limit != limit {
			t.Errorf("got %d %s (limit %q), want %d %s (limit %q): %s", got.status, got.code, got.limit, status, code, limit, got.body)
		}
		if n := w.upstreamRequests(); n != 0 {
			t.Errorf("the upstream was called %d times", n)
		}
	}
	by := func(key, target string) told { return w.relayedBy(key, "GET", target, "") }
	check(by("", "payroll//get"), 401, "unauthenticated", "")
	check(by("narrow", "payroll//get"), 400, "bad_request", "")          // 1 of 3 tokens
	check(by("narrow", "payroll/get/1?evil=1"), 403, "scope_denied", "") // 2 of 3
	check(by("narrow", "signed/get/1?evil=1"), 403, "delegation_required", "")
	check(by("narrow", "payroll//get"), 429, "rate_limited", "key")
	w.clock.Advance(3000 * time.Second)
	check(by("narrow", "keyed/get/1?evil=1"), 403, "credential_missing", "")
	check(by("narrow", "guarded/get/1?evil=1"), 400, "bad_params", "")
	check(by("narrow", "signed/get/1?evil=1"), 429, "rate_limited", "tenant")
	w.clock.Advance(3000 * time.Second)
	check(by("narrow", "guarded/get/1"), 502, "upstream_unreachable", "")
	if got := by("narrow", "tools/get/1"); got.status != 200 || got.body != `{"hello":1}` {
		t.Errorf("with no fault left: %d %s", got.status, got.body)
	}
	if n := w.inFlight("tenant:small"); n != 0 {
		t.Errorf("%d slots are still taken", n)
	}
	var kinds []string
	for _, r := range w.ledger.all() {
		kinds = append(kinds, string(r.Kind)+":"+r.Code)
	}
	if want := []string{
		"refusal:unauthenticated", "refusal:bad_request", "refusal:scope_denied", "refusal:delegation_required", "refusal:rate_limited", "refusal:credential_missing",
		"refusal:bad_params", "refusal:rate_limited", "intent:", "outcome:upstream_unreachable", "intent:", "outcome:",
	}; !slices.Equal(kinds, want) {
		t.Errorf("records %q, want %q", kinds, want)
	}
}

// TestProxySharesTheSlot: acts and requests by /proxy are calls of one tenant, each of
// which takes a token and a slot of it, and is told so.
func TestProxySharesTheSlot(t *testing.T) {
	release := make(chan struct{})
	called := make(chan bool, 1)
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			send(rw, event)
			called <- true
			<-release
			return
		}
		hello(rw, r)
	}, of("small", roomy("k")))
	done := make(chan told, 1)
	go func() { done <- w.relayedBy("k", "GET", "tools/stream", "") }()
	soon(t, called)
	for _, got := range []told{w.relayedBy("k", "GET", "tools/get/1", ""), w.act("k", `{"service":"tools","action":"get","params":{"id":"1"}}`)} {
		got.want(t, "while the slot is taken", 429, "concurrency_limited", "tenant")
		if got.retryAfter(t) < time.Second || !strings.Contains(got.header.Get("Ratelimit-Policy"), `"inflight";q=1`) {
			t.Errorf("%v", got.header)
		}
	}
	close(release)
	got := soon(t, done)
	got.want(t, "the stream", 200, "", "")
	if left := got.left(t); left["tenant"] != 1 || left["inflight"] != 0 || got.header.Get("Agentgate-Receipt") == "" || got.header.Get("X-Request-Id") == "" {
		t.Errorf("%v", got.header)
	}
	w.relayedBy("k", "GET", "tools/get/1", "").want(t, "when it is free", 200, "", "")
	w.act("k", `{"service":"tools","action":"get","params":{"id":"1"}}`).want(t, "the tenant's tokens are used up", 429, "rate_limited", "tenant")
}

// TestProxyDelegations: one that came bounds a request by the parameters that it has, and
// what is no action needs one that names all of it, without constraints.
func TestProxyDelegations(t *testing.T) {
	w := delegated(t, hello, func(s *setup) {
		s.registry = "tenants: {acme: {rps: 100, burst: 100}}\nservices:\n" + serviceLine("tools", "passthrough: true,") + serviceLine("signed", "delegation: required,")
	})
	only7, _ := w.issue(constrained(t, `{"const":"7"}`))
	whole, _ := w.issue(func(g *delegation.Grant) { g.Details[0].Actions = []string{"*"} })
	bounded, _ := w.issue(func(g *delegation.Grant) {
		constrained(t, `{"const":"7"}`)(g)
		g.Details[0].Actions = []string{"*"}
	})
	for _, c := range []struct {
		target, token string
		status        int
		code          string
	}{
		{"signed/get/7", "", 403, "delegation_required"},
		{"signed/get/7", only7, 200, ""},
		{"signed/get/%37", only7, 200, ""},
		{"signed/get/8", only7, 403, "delegation_invalid"},
		{"signed/get/%2F7", only7, 403, "delegation_invalid"},
		{"tools/elsewhere", only7, 403, "delegation_invalid"},
		{"tools/elsewhere", whole, 200, ""},
		{"tools/elsewhere", bounded, 403, "delegation_invalid"},
		{"tools/get/7", whole, 403, "delegation_invalid"},
	} {
		header := []string{"Agentgate-On-Behalf-Of", "alice"}
		if c.token != "" {
			header = append(header, "Agentgate-Delegation", c.token)
		}
		w.relayedBy("planner", "GET", c.target, "", header...).want(t, c.target, c.status, c.code, "")
	}
}

// TestProxyRules: rules see the parameters of an action, and of what is none its method, its
// path as sent, and the length that was told; bytes that were not told are counted as they come.
func TestProxyRules(t *testing.T) {
	w := setup{registry: "services:\n" + serviceLine("tools", "passthrough: true,") + `rules:
  - {name: per-id, key: "service + request.params.id", when: "has(request.params.id)", window: 1m, max: 2}
  - {name: per-path, key: "request.method + request.path", when: "action == '*'", window: 1m, max: 2}
  - {name: volume, key: service, when: "request.method == 'PUT'", count: bytes, window: 1m, max: 300000}
`}.world(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, roomy("k"))
	for i, id := range []string{"1", "%31", "2"} {
		w.relayedBy("k", "GET", "tools/get/"+id, "").want(t, fmt.Sprint("call ", i), 200, "", "")
	}
	w.relayedBy("k", "GET", "tools/get/1", "").want(t, "the third of 1", 429, "rate_limited", "per-id")
	w.act("k", plainCall("tools", "")).want(t, "an act of the same", 429, "rate_limited", "per-id")
	for _, path := range []string{"a", "a?b=1", "%61"} {
		w.relayedBy("k", "GET", "tools/"+path, "").want(t, path, 200, "", "")
	}
	w.relayedBy("k", "GET", "tools/a?c", "").want(t, "the third of /a", 429, "rate_limited", "per-path")
	w.relayedBy("k", "PUT", "tools/b", strings.Repeat("x", 200_000)).want(t, "a declared length", 200, "", "")
	w.relayedBy("k", "PUT", "tools/c", strings.Repeat("x", 200_000)).want(t, "more than is left", 429, "rate_limited", "volume")
	r, err := http.NewRequestWithContext(t.Context(), "PUT", w.server.URL+"/proxy/tools/d", io.MultiReader(strings.NewReader(strings.Repeat("x", 100_000))))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("x-api-key", w.keys["k"])
	w.do(r).want(t, "no declared length", 200, "", "")
	w.relayedBy("k", "PUT", "tools/e", "x").want(t, "one byte more", 429, "rate_limited", "volume")
}

// TestProxyKeepsTheCredential: what a service repeats of its credential is marked, in the
// header, in a stream, and behind a request that is not over.
func TestProxyKeepsTheCredential(t *testing.T) {
	w := setup{registry: proxyRegistry, vault: fullVault(t)}.world(t, func(rw http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(rw).EnableFullDuplex()
		rw.Header().Set("X-Seen", r.Header.Get("Authorization"))
		rw.Header().Set("Content-Type", "text/event-stream")
		send(rw, "data: "+r.Header.Get("Authorization")+"\n\n")
		_, _ = io.Copy(io.Discard, r.Body)
		send(rw, "data: "+r.Header.Get("Authorization")[:12])
		send(rw, r.Header.Get("Authorization")[12:]+"\n\n")
	}, tireless("k"))
	for _, body := range []string{"", strings.Repeat("x", 1000), strings.Repeat("x", 100_000)} {
		got := w.relayedBy("k", "GET", "bearer/stream", body, "Accept-Encoding", "gzip")
		if body != "" {
			got = w.relayedBy("k", "POST", "bearer/stream", body)
		}
		marked := "Bearer " + strings.Repeat("*", len("u:s3cr3t+&"))
		if got.status != 200 || got.body != "data: "+marked+"\n\ndata: "+marked+"\n\n" || got.header.Get("X-Seen") != marked {
			t.Errorf("%d %q %v", got.status, got.body, got.header)
		}
	}
}
