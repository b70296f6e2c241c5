package gateway_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/identity"
)

const dialectsRegistry = `
version: 1
tenants:
  minute: {rps: 100, burst: 100}
services:
  openai: {base_url: "%[1]s", allow_private: true, passthrough: true, dialect: openai}
  anthropic: {base_url: "%[1]s", allow_private: true, passthrough: true, dialect: anthropic}
  native: {base_url: "%[1]s", allow_private: true, passthrough: true}
  gone: {base_url: "http://127.0.0.1:1", passthrough: true, dialect: openai}
  away: {base_url: "http://127.0.0.1:1", allow_private: true, passthrough: true, dialect: anthropic, credential: {type: bearer}}
`

// perMinute is a key of one call a minute.
func perMinute(id string) *identity.Key {
	return &identity.Key{ID: id, Services: []string{"openai", "anthropic", "native", "gone", "away"}, Users: []string{"*"}, Tenant: "minute", Limits: &identity.Limits{RPS: 1.0 / 60, Burst: 2}}
}

// TestRefusalsInADialect: the body of a refusal, byte for byte, and what its clients read
// besides: at one call a minute, of which one half has passed.
func TestRefusalsInADialect(t *testing.T) {
	const over = "the key limit is a burst of 2 calls, refilled over 2m; wait 30s and call again"
	for _, c := range []struct{ target, body, requestID string }{
		{"openai/v1/chat/completions", `{"error":{"message":"` + over + `","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`, ""},
		{"anthropic/x", `{"type":"error","error":{"type":"rate_limit_error","message":"` + over + `"},"request_id":"req_ID"}`, "req_ID"},
		{"openai/v1/messages", `{"type":"error","error":{"type":"rate_limit_error","message":"` + over + `"},"request_id":"req_ID"}`, "req_ID"},
		{"openai/v1/messages/count_tokens?a=1", `{"type":"error","error":{"type":"rate_limit_error","message":"` + over + `"},"request_id":"req_ID"}`, "req_ID"},
	} {
		w := setup{registry: dialectsRegistry}.world(t, hello, perMinute("k"))
		for range 2 {
			if got := w.relayedBy("k", "POST", c.target, "{}"); got.status != 200 || got.header.Get("X-Ratelimit-Limit-Requests") != "" || got.header.Get("Request-Id") != "" {
				t.Fatalf("%s: %d %v", c.target, got.status, got.header)
			}
		}
		w.clock.Advance(30 * time.Second)
		got := w.relayedBy("k", "POST", c.target, "{}")
		h, id := got.header, got.header.Get("X-Request-Id")
		if want := strings.ReplaceAll(c.body, "ID", id); got.status != 429 || got.body != want || id == "" {
			t.Errorf("%s: %d %s\nwant %s", c.target, got.status, got.body, want)
		}
		if want := strings.ReplaceAll(c.requestID, "ID", id); h.Get("Request-Id") != want {
			t.Errorf("%s: request-id %q, want %q", c.target, h.Get("Request-Id"), want)
		}
		for name, want := range map[string]string{
			"Content-Type": "application/json", "Agentgate-Code": "rate_limited", "Cache-Control": "no-store", "X-Ratelimit-Limit-Requests": "2", "X-Ratelimit-Remaining-Requests": "0",
			"X-Ratelimit-Reset-Requests": "1m30s", "X-Should-Retry": "",
		} {
			if h.Get(name) != want {
				t.Errorf("%s: %s is %q, want %q", c.target, name, h.Get(name), want)
			}
		}
		if after := got.retryAfter(t); after < 30*time.Second || after > 36*time.Second || h.Get("Agentgate-Receipt") == "" {
			t.Errorf("%s: %v", c.target, h)
		}
		if n := w.upstreamRequests(); n != 2 {
			t.Errorf("%s: the service saw %d requests", c.target, n)
		}
	}
}

// TestEveryRefusalIsInTheDialect: whatever step refuses, and none of the service's own.
func TestEveryRefusalIsInTheDialect(t *testing.T) {
	w := setup{registry: dialectsRegistry, settings: func(s *config.Settings) { s.MaxRequestBody = 10 }}.world(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusNotFound)
	}, tireless("k"), perMinute("some"))
	for _, c := range []struct {
		key, method, target, body string
		status                    int
		kind, code                string
	}{
		{"", "GET", "openai/x", "", 401, "authentication_error", "invalid_api_key"},
		{"", "GET", "anthropic/x", "", 401, "authentication_error", ""},
		{"k", "GET", "openai//x", "", 400, "invalid_request_error", "bad_request"},
		{"k", "TRACE", "openai/x", "", 405, "invalid_request_error", "method_not_allowed"},
		{"k", "POST", "openai/x", "12345678901", 413, "request_too_large", "body_too_large"},
		{"k", "POST", "anthropic/x", "12345678901", 413, "request_too_large", ""},
		{"k", "GET", "gone/x", "", 502, "api_error", "upstream_unreachable"},
		{"k", "GET", "away/x", "", 403, "permission_error", ""},
	} {
		got := w.relayedBy(c.key, c.method, c.target, c.body)
		want := `"type":"` + c.kind + `"`
		if c.code != "" {
			want += `,"param":null,"code":"` + c.code + `"}}`
		}
		if got.status != c.status || !strings.Contains(got.body, want) || got.header.Get("Content-Type") != "application/json" || got.header.Get("X-Ratelimit-Limit-Requests") != "" {
			t.Errorf("%s %s: %d %s %v, want %s", c.method, c.target, got.status, got.body, got.header, want)
		}
	}
	if got := w.relayedBy("k", "GET", "native//v1/messages", ""); got.header.Get("Content-Type") != "application/problem+json" || got.header.Get("Request-Id") != "" {
		t.Errorf("native: %v %s", got.header, got.body)
	}
	if got := w.relayedBy("k", "GET", "openai/x", ""); got.status != 404 || got.body != "" || got.header.Get("Agentgate-Code") != "" {
		t.Errorf("the service's own: %d %v %s", got.status, got.header, got.body)
	}
	if got := w.act("k", `{"service":"openai","action":"none"}`); got.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("an act: %v %s", got.header, got.body)
	}
}
