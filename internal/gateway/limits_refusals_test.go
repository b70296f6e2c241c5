package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
)

// receiptID reads Agentgate-Receipt, or fails the test.
func (got told) receiptID(t *testing.T, what string) string {
	t.Helper()
	d, err := httpsfv.UnmarshalDictionary(got.header.Values("Agentgate-Receipt"))
	if err != nil {
		t.Fatalf("%s: Agentgate-Receipt %q: %v", what, got.header.Values("Agentgate-Receipt"), err)
	}
	member, _ := d.Get("id")
	item, _ := member.(httpsfv.Item)
	id, isString := item.Value.(string)
	if !isString || id == "" {
		t.Fatalf("%s: Agentgate-Receipt %q has no id", what, got.header.Values("Agentgate-Receipt"))
	}
	return id
}

// TestEveryRefusalHasOneShape: whatever refuses, the answer is a problem document
// that nobody keeps, with the code in body and header, the limit where one
// decided, a wait on every 429, and the id of a receipt that says the same.
func TestEveryRefusalHasOneShape(t *testing.T) {
	up := newHeldStreams()
	file := "tenants:\n  t: {rps: 0.001, burst: 1, max_inflight: 5}\n  one: {rps: 1000, burst: 2000, max_inflight: 1}\nservices:\n" +
		serviceLine("tools", "") + serviceLine("slow", "rate_limit: {rps: 0.001, burst: 1},") + serviceLine("narrow", "max_inflight: 1,") +
		serviceLine("keyed", "credential: {type: bearer},") + serviceLine("signed", "delegation: required,") +
		strings.Replace(serviceLine("guarded", ""), "allow_private: true,", "", 1) +
		strings.Replace(serviceLine("quick", ""), "allow_private: true,", "allow_private: true, timeout: 1s,", 1)
	reached := make(chan struct{}, 1)
	w := setup{registry: file, settings: func(s *config.Settings) { s.RateAuthPerMinute, s.MaxRequestBody, s.StreamIdle = 1, 1000, 0 }}.
		world(t, func(rw http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/get/away":
				http.Redirect(rw, r, "http://elsewhere.example/", http.StatusFound)
			case "/get/silent":
				reached <- struct{}{}
				<-r.Context().Done()
			default:
				up.serve(rw, r)
			}
		}, roomy("k"), roomy("blocked"), limited("poor", 0.001, 1), of("t", roomy("member")), of("one", roomy("single")),
			&identity.Key{ID: "scoped", Services: []string{"tools"}, Users: []string{"u"}})
	w.limiter.Block(ratelimit.Registered, "key:blocked")
	lone := setup{settings: func(s *config.Settings) { s.MaxInflight = 1 }}.world(t, up.serve, roomy("k"))

	act := func(key, body string) func() told { return func() told { return w.act(key, body) } }
	with := func(key, body string, change func(*http.Request)) func() told {
		return func() told {
			r := w.request(context.Background(), key, body)
			change(r)
			return w.do(r)
		}
	}
	held := func(key, service string, then func() told) func() told {
		return func() told {
			defer w.hold(up, key, streamCall(service, ""))()
			return then()
		}
	}
	second := func(first func() told) func() told { return func() told { first(); return first() } }
	param := func(id string) string { return strings.Replace(plainCall("tools", ""), `"1"`, `"`+id+`"`, 1) }
	failing := func(then func() told) func() told {
		return func() told {
			w.ledger.mu.Lock()
			w.ledger.fail = receipts.ErrUnavailable
			w.ledger.mu.Unlock()
			defer func() {
				w.ledger.mu.Lock()
				defer w.ledger.mu.Unlock()
				w.ledger.fail = nil
			}()
			return then()
		}
	}
	tested := map[string]bool{}
	for _, c := range []struct {
		name, code, limit string
		status            int
		call              func() told
	}{
		{"no key", "unauthenticated", "", 401, act("", "{")},
		{"no key again", "rate_limited", "address", 429, act("", "{")},
		{"two keys", "bad_request", "", 400, with("k", "{", func(r *http.Request) { r.Header.Set("X-Api-Key", w.keys["poor"]) })},
		{"key", "rate_limited", "key", 429, second(act("poor", plainCall("tools", "")))},
		{"invalid JSON", "bad_request", "", 400, act("k", "{")},
		{"another media type", "bad_request", "", 415, with("k", "{", func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") })},
		{"method", "method_not_allowed", "", 405, with("k", "", func(r *http.Request) { r.Method, r.Body, r.ContentLength = "GET", nil, 0 })},
		{"large body", "body_too_large", "", 413, act("k", strings.Repeat(" ", 1001))},
		{"service out of scope", "scope_denied", "", 403, act("scoped", plainCall("slow", "u"))},
		{"user out of scope", "scope_denied", "", 403, act("scoped", plainCall("tools", "v"))},
		{"no such service", "service_not_found", "", 404, act("k", plainCall("none", ""))},
		{"no such action", "action_not_found", "", 404, act("k", actBody("tools", "fly", "", ""))},
		{"tenant", "rate_limited", "tenant", 429, second(act("member", plainCall("tools", "")))},
		{"service", "rate_limited", "service", 429, second(act("k", plainCall("slow", "")))},
		{"slots of the tenant", "concurrency_limited", "tenant", 429, held("single", "tools", act("single", plainCall("tools", "")))},
		{"slots of the service", "concurrency_limited", "service", 429, held("single", "narrow", act("k", plainCall("narrow", "")))},
		{"slots of the process", "concurrency_limited", "process", 429, func() told {
			defer lone.hold(up, "k", streamCall("tools", ""))()
			return lone.act("k", plainCall("tools", ""))
		}},
		{"blocked tenant", "tenant_blocked", "", 403, act("blocked", plainCall("tools", ""))},
		{"no delegation", "delegation_required", "", 403, act("k", plainCall("signed", ""))},
		{"a delegation that is none", "delegation_invalid", "", 403, with("k", plainCall("tools", ""), func(r *http.Request) { r.Header.Set("Agentgate-Delegation", "x") })},
		{"no credential", "credential_missing", "", 403, act("k", plainCall("keyed", ""))},
		{"no parameter", "bad_params", "", 400, act("k", actBody("tools", "get", "", ""))},
		{"private address", "upstream_unreachable", "", 502, act("k", plainCall("guarded", ""))},
		{"redirect away", "upstream_redirect", "", 502, act("k", param("away"))},
		{"silent upstream", "upstream_timeout", "", 504, func() told {
			go func() {
				<-reached
				w.clock.Advance(time.Second)
			}()
			return w.act("k", strings.Replace(plainCall("quick", ""), `"1"`, `"silent"`, 1))
		}},
		{"a fault of ours", "internal", "", 500, act("k", plainCall("tools", "panic"))},
		{"no receipt", "receipt_unavailable", "", 503, failing(act("k", plainCall("tools", "")))},
	} {
		t.Run(c.name, func(t *testing.T) {
			tested[c.code] = true
			counted := func() int { return w.counted(c.code, c.limit) + lone.counted(c.code, c.limit) }
			before := counted()
			got := c.call()
			got.want(t, "refused", c.status, c.code, c.limit)
			if n := counted() - before; n != 1 {
				t.Errorf("metrics count it %d times", n)
			}
			got.fields(t)
			h := got.header
			if h.Get("Cache-Control") != "no-store" || h.Get("Content-Type") != "application/problem+json" || h.Get("X-Request-Id") == "" {
				t.Errorf("%v", h)
			}
			var p map[string]any
			if err := json.Unmarshal([]byte(got.body), &p); err != nil {
				t.Fatal(err)
			}
			quota := "about:blank"
			if c.status == 429 {
				quota = "https://iana.org/assignments/http-problem-types#quota-exceeded"
			}
			if p["type"] != quota || p["code"] != c.code || p["status"] != float64(c.status) || p["title"] == "" || len(p["detail"].(string)) < 20 {
				t.Errorf("%s", got.body)
			}
			if _, limit := p["limit"]; limit != (c.limit != "") {
				t.Errorf("a limit is named: %v in %s", limit, got.body)
			}
			if _, violated := p["violated-policies"]; violated != (c.status == 429) || (h.Get("Retry-After") != "") != (c.status == 429 || c.status == 503) {
				t.Errorf("violated-policies or Retry-After: %s, %v", got.body, h)
			}
			// Long waits, what no wait helps, and what may have been done already.
			hopeless := c.code == "rate_limited" && c.limit != "address" || slices.Contains([]string{"upstream_unreachable", "upstream_redirect", "upstream_timeout", "tenant_blocked", "internal"}, c.code)
			if (h.Get("X-Should-Retry") == "false") != hopeless {
				t.Errorf("x-should-retry: %q", h.Get("X-Should-Retry"))
			}
			if c.code == "receipt_unavailable" {
				if p["receipt"] != nil || h.Get("Agentgate-Receipt") != "" {
					t.Errorf("a receipt is named that could not be written: %s, %v", got.body, h)
				}
				return
			}
			id := got.receiptID(t, c.name)
			if p["receipt"] != id {
				t.Errorf("the receipt is %q in the header, %v in the body", id, p["receipt"])
			}
			records := append(w.ledger.all(), lone.ledger.all()...)
			last := records[slices.IndexFunc(records, func(r receipts.Record) bool { return r.ID == id && r.Kind != receipts.KindIntent })]
			if last.Code != c.code || last.Limit != c.limit || last.RequestID != h.Get("X-Request-Id") {
				t.Errorf("its record says %s %q, request %s", last.Code, last.Limit, last.RequestID)
			}
		})
	}

	w.gateway.Drain()
	got := w.act("k", plainCall("tools", ""))
	got.want(t, "draining", 503, "draining", "")
	if h := got.header; h.Get("Cache-Control") != "no-store" || h.Get("Content-Type") != "application/problem+json" || h.Get("Retry-After") == "" || h.Get("Agentgate-Receipt") != "" {
		t.Errorf("draining comes before there is an attempt: %v", h)
	}
	tested["draining"] = true
	for _, code := range []string{"unauthenticated", "rate_limited", "bad_request", "method_not_allowed", "body_too_large", "scope_denied", "service_not_found",
		"action_not_found", "concurrency_limited", "tenant_blocked", "delegation_invalid", "delegation_required", "credential_missing", "bad_params",
		"upstream_unreachable", "upstream_redirect", "upstream_timeout", "receipt_unavailable", "draining", "internal"} {
		if !tested[code] {
			t.Errorf("no refusal of %s was tried", code)
		}
	}
}

// TestRefusalsSayWhatToDo: the detail of a refusal by a limit names it, its value
// and what to do, in plain words.
func TestRefusalsSayWhatToDo(t *testing.T) {
	up := newHeldStreams()
	w := setup{registry: "tenants:\n  t: {rps: 0.5, burst: 3, max_inflight: 2}\nservices:\n" + serviceLine("tools", "")}.
		world(t, up.serve, of("t", limited("k", 20, 40)))
	detail := func() string {
		var p struct{ Detail string }
		_ = json.Unmarshal([]byte(w.act("k", plainCall("tools", "")).body), &p)
		return p.Detail
	}
	a, b := w.hold(up, "k", streamCall("tools", "")), w.hold(up, "k", streamCall("tools", ""))
	if got, want := detail(), "all 2 in-flight places of this tenant are taken; nothing was charged; call again when a call or stream has ended"; got != want {
		t.Errorf("%s", got)
	}
	a()
	b()
	w.act("k", plainCall("tools", ""))
	w.clock.Advance(123_800 * time.Microsecond)
	if got, want := detail(), "the tenant limit is a burst of 3 calls, refilled over 6s; wait 1.877s and call again"; got != want {
		t.Errorf("got %q, want %q (the wait rounded up)", got, want)
	}
}

// TestTheOneInFlightPlace: of one place it is not said that all are taken.
func TestTheOneInFlightPlace(t *testing.T) {
	up := newHeldStreams()
	w := setup{registry: "tenants:\n  t: {rps: 100, burst: 100, max_inflight: 1}\nservices:\n" + serviceLine("tools", "")}.
		world(t, up.serve, of("t", limited("k", 20, 40)))
	free := w.hold(up, "k", streamCall("tools", ""))
	defer free()
	var p struct{ Detail string }
	_ = json.Unmarshal([]byte(w.act("k", plainCall("tools", "")).body), &p)
	if want := "the one in-flight place of this tenant is taken; nothing was charged; call again when a call or stream has ended"; p.Detail != want {
		t.Errorf("got %q, want %q", p.Detail, want)
	}
}

// TestFieldsOnEveryAnswer: what is told of limits and of the receipt parses as
// structured fields, on answers of every form and on looks too.
func TestFieldsOnEveryAnswer(t *testing.T) {
	w := setup{registry: worldRegistry}.world(t, func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/get/empty":
			rw.WriteHeader(http.StatusNoContent)
		case "/get/unchanged":
			rw.WriteHeader(http.StatusNotModified)
		case "/get/failed":
			rw.WriteHeader(http.StatusInternalServerError)
		case "/get/moved":
			rw.Header().Set("Location", "/get/1")
			rw.WriteHeader(http.StatusFound)
		case "/get/early":
			rw.WriteHeader(http.StatusEarlyHints)
			hello(rw, r)
		case "/stream":
			rw.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(rw, "data: 1\n\n")
		default:
			hello(rw, r)
		}
	}, roomy("k"))
	client := w.server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for id, status := range map[string]int{"1": 200, "empty": 204, "unchanged": 304, "failed": 500, "moved": 302, "early": 200} {
		got := w.act("k", strings.Replace(plainCall("tools", ""), `"1"`, `"`+id+`"`, 1))
		got.want(t, id, status, "", "")
		if left := got.left(t); left["tenant"] == 0 || left["inflight"] != 31 || len(left) != 3 {
			t.Errorf("%s: %v", id, left)
		}
		got.receiptID(t, id)
	}
	got := w.act("k", streamCall("tools", ""))
	got.want(t, "a stream", 200, "", "")
	if len(got.fields(t)) != 3 {
		t.Errorf("a stream: %v", got.header)
	}
	got.receiptID(t, "a stream")
	for _, path := range []string{"/v1/whoami", "/v1/services", "/v1/services/tools", "/v1/services/none", "/v1/receipts/none", "/nowhere"} {
		r := w.request(context.Background(), "k", "")
		r.Method, r.URL.Path, r.Body, r.ContentLength = "GET", path, nil, 0
		got := w.do(r)
		if left := got.fields(t); len(left) != 1 || left["key"].quota == 0 || got.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v", path, got.status, got.header)
		}
		if got.header.Get("Agentgate-Receipt") != "" {
			t.Errorf("%s: a look has a receipt", path)
		}
	}
}

// TestEarlyHints: a 1xx reaches the agent at once and without what no answer may
// carry, and takes nothing of the gateway's with it.
func TestEarlyHints(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Set-Cookie", "session=1")
		for range 2 {
			rw.Header().Set("Link", "</style.css>; rel=preload")
			rw.WriteHeader(http.StatusEarlyHints)
		}
		rw.Header().Del("Link")
		hello(rw, r)
	}, everything("k"))
	var hints []string
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		hints = append(hints, fmt.Sprint(code, " ", http.Header(h)))
		return nil
	}})
	got := w.do(w.request(ctx, "k", plainCall("tools", "")))
	got.want(t, "the answer", 200, "", "")
	if want := "103 map[Link:[</style.css>; rel=preload]]"; !slices.Equal(hints, []string{want, want}) {
		t.Errorf("hints: %q", hints)
	}
	h := got.header
	if len(got.fields(t)) != 3 || h.Get("X-Request-Id") == "" || h.Get("Link") != "" || h.Get("Set-Cookie") != "" || got.body != `{"hello":1}` {
		t.Errorf("the answer: %v", h)
	}
	records := w.ledger.all()
	if last := records[len(records)-1]; last.Kind != receipts.KindOutcome || last.Status != 200 || last.ID != got.receiptID(t, "the answer") {
		t.Errorf("its outcome: %+v", last)
	}
}

// TestOneAuthorOfRateLimit: an upstream's RateLimit fields are not mixed into the
// gateway's, which the old syntax would make unreadable as a whole; a 429 of the
// upstream's own passes as it is.
func TestOneAuthorOfRateLimit(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("RateLimit", "limit=5000, remaining=4999, reset=60")
		rw.Header().Set("RateLimit-Policy", "5000;w=3600")
		rw.Header().Set("X-RateLimit-Remaining", "4999")
		rw.Header().Set("Retry-After", "17")
		rw.Header().Set("Content-Type", "text/plain")
		if r.URL.Path == "/get/busy" {
			rw.WriteHeader(http.StatusTooManyRequests)
		}
		_, _ = fmt.Fprint(rw, "as it is")
	}, everything("k"))
	got := w.act("k", plainCall("tools", ""))
	got.want(t, "an answer", 200, "", "")
	if left := got.left(t); left["key"] != 39 || len(left) != 3 || got.header.Get("X-RateLimit-Remaining") != "4999" {
		t.Errorf("%v", got.header)
	}
	got = w.act("k", strings.Replace(plainCall("tools", ""), `"1"`, `"busy"`, 1))
	got.want(t, "the upstream's own refusal", 429, "", "")
	h := got.header
	if got.body != "as it is" || !slices.Equal(h.Values("RateLimit"), []string{"limit=5000, remaining=4999, reset=60"}) ||
		!slices.Equal(h.Values("RateLimit-Policy"), []string{"5000;w=3600"}) || h.Get("Retry-After") != "17" || h.Get("X-Should-Retry") != "" || h.Get("Content-Type") != "text/plain" {
		t.Errorf("%q %v", got.body, h)
	}
}
