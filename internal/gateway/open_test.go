package gateway_test

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"agentgw/internal/config"
)

// openRegistry has an open service in each dialect, and one that wants a key.
const openRegistry = `
version: 1
services:
  llm: {base_url: "%[1]s/up", allow_private: true, access: open, passthrough: true, actions: {get: {method: GET, path: "/get/{id}", params: {id: string}}}}
  claude: {base_url: "%[1]s/up", allow_private: true, access: open, passthrough: true, dialect: anthropic}
  plain: {base_url: "%[1]s/up", allow_private: true, access: open, dialect: native, actions: {get: {method: GET, path: "/get/{id}", params: {id: string}}, own: {method: GET, path: /own, params: {X-Auth-Token: {in: header, type: string}}}}}
  keyed: {base_url: "%[1]s/up", allow_private: true, passthrough: true, dialect: openai}
`

// callersHave is a setup whose callers of open services have that many calls a minute
// and at once; 0 of the latter is a minute's.
func callersHave(rpm float64, burst int) setup {
	return setup{registry: openRegistry, settings: func(s *config.Settings) {
		s.RateCallerRPM, s.RateCallerBurst = rpm, cmp.Or(burst, int(rpm))
	}}
}

// opened is a request for what stands below /proxy, by who has no key, with these
// header fields, each a name and a value.
func (w *world) opened(target string, header ...string) told {
	w.t.Helper()
	return w.relayedBy("", "GET", target, "", header...)
}

// TestAnOpenServiceWantsNoKey: its callers' own credentials go on to it as they came.
func TestAnOpenServiceWantsNoKey(t *testing.T) {
	var got http.Header
	w := setup{registry: openRegistry}.world(t, func(rw http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		hello(rw, r)
	}, everything("k"))
	w.opened("llm/models", "Authorization", "Bearer sk-mine", "X-Api-Key", "another", "Agentgate-Key", "what").want(t, "a stranger", 200, "", "")
	if got.Get("Authorization") != "Bearer sk-mine" || got.Get("X-Api-Key") != "another" || got.Get("Agentgate-Key") != "" {
		t.Error(got)
	}
	w.opened("keyed/models", "Authorization", "Bearer sk-mine").want(t, "a service that wants a key", 401, "unauthenticated", "")
	w.relayedBy("k", "GET", "llm/models", "", "X-Api-Key", "mine").want(t, "a key", 200, "", "")
	if got.Get("Authorization") != "" || got.Get("X-Api-Key") != "mine" {
		t.Error(got)
	}
}

// theAnswer is all that a client gets of an answer but for what is by chance: the time,
// the ids, and the receipt's hash.
func (got told) theAnswer() string {
	h, id := got.header.Clone(), got.header.Get("X-Request-Id")
	h.Del("Date")
	receipt := regexp.MustCompile(`^id="([0-9a-f]{32})", leaf=:[A-Za-z0-9+/]{43}=:$`)
	if m := receipt.FindStringSubmatch(h.Get("Agentgate-Receipt")); m != nil {
		h.Set("Agentgate-Receipt", "RECEIPT")
	}
	var b strings.Builder
	_ = h.Write(&b) // sorted
	return strings.ReplaceAll(fmt.Sprintf("%d\n%s\n%s", got.status, strings.ReplaceAll(b.String(), "\r", ""), got.body), id, "ID")
}

// TestAnOpenCallerOverTheLimit: at one call a minute, the answer to the second, every
// byte of it, in the dialect of the service and of its path; the service sees nothing of
// it, and nobody else is in its way.
func TestAnOpenCallerOverTheLimit(t *testing.T) {
	const (
		over  = "each caller of open services may make a burst of 1 call, refilled over 1m; wait 1m0s and call again"
		lines = `Agentgate-Code: rate_limited
Agentgate-Receipt: RECEIPT
Cache-Control: no-store
Content-Length: %d
Content-Type: application/json
`
		waits = `Retry-After: 60
Retry-After-Ms: 60000
X-Ratelimit-Limit-Requests: 1
X-Ratelimit-Remaining-Requests: 0
X-Ratelimit-Reset-Requests: 1m0s
X-Request-Id: ID

`
		openai    = "429\n" + lines + waits + `{"error":{"message":"` + over + `","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`
		anthropic = "429\n" + lines + "Request-Id: req_ID\n" + waits + `{"type":"error","error":{"type":"rate_limit_error","message":"` + over + `"},"request_id":"req_ID"}`
	)
	const bearer, apiKey = "Authorization", "X-Api-Key"
	for _, c := range []struct {
		target, field, want string
		length              int
	}{
		{"llm/chat/completions", bearer, openai, 191},
		{"llm/chat/completions", apiKey, openai, 191},
		{"llm/v1/messages", apiKey, anthropic, 210},
		{"llm/v1/messages/count_tokens", apiKey, anthropic, 210},
		{"llm/v1/messages/batches", apiKey, openai, 191},
		{"claude/anything", apiKey, anthropic, 210},
	} {
		w := callersHave(1, 0).world(t, hello)
		credential := func(text string) []string {
			if c.field == bearer {
				text = "Bearer " + text
			}
			return []string{c.field, text}
		}
		mine := credential("sk-mine")
		w.opened(c.target, mine...).want(t, "the first call", 200, "", "")
		got := w.opened(c.target, mine...)
		if want := fmt.Sprintf(c.want, c.length); got.theAnswer() != want {
			t.Errorf("%s by %s:\n%s\nwant:\n%s", c.target, c.field, got.theAnswer(), want)
		}
		if n := w.upstreamRequests(); n != 1 {
			t.Errorf("%s: the service saw %d requests", c.target, n)
		}
		w.opened(c.target, credential("sk-another")...).want(t, "another credential", 200, "", "")
		w.opened(c.target).want(t, "none", 200, "", "")
		w.clock.Advance(time.Minute - time.Nanosecond)
		if got := w.opened(c.target, mine...); got.status != 429 || got.header.Get("Retry-After") != "1" || got.header.Get("X-Ratelimit-Reset-Requests") != "1ms" {
			t.Errorf("a nanosecond before: %d %v", got.status, got.header)
		}
		w.clock.Advance(time.Nanosecond)
		w.opened(c.target, mine...).want(t, "as it was told", 200, "", "")
	}
	w := callersHave(1, 0).world(t, hello)
	w.opened("plain/get/1").want(t, "a native one", 200, "", "")
	got := w.opened("plain/get/1")
	got.want(t, "a native one", 429, "rate_limited", "caller")
	if got.header.Get("Content-Type") != "application/problem+json" || got.header.Get("RateLimit-Policy") != "" || fmt.Sprint(got.violated()) != "[caller]" {
		t.Errorf("%v %s", got.header, got.body)
	}
}

// TestWhatAnOpenCallerIsToldOfTheBurst: how long until all of it is back, and what
// clients are to do about a wait that is longer than they make.
func TestWhatAnOpenCallerIsToldOfTheBurst(t *testing.T) {
	w := callersHave(0.5, 3).world(t, hello)
	for range 3 {
		w.opened("llm/x").want(t, "within", 200, "", "")
	}
	w.clock.Advance(30 * time.Second)
	got := w.opened("llm/x")
	h := got.header
	for name, want := range map[string]string{
		"X-Ratelimit-Limit-Requests": "3", "X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Reset-Requests": "5m30s", "X-Should-Retry": "false",
	} {
		if h.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, h.Get(name), want)
		}
	}
	if after := got.retryAfter(t); after < 90*time.Second || after > 108*time.Second {
		t.Errorf("Retry-After is %v", after)
	}
}

// TestWhoIsOneOpenCaller: whoever is the same has one bucket over all open services, and
// whoever is another has another.
func TestWhoIsOneOpenCaller(t *testing.T) {
	for _, c := range []struct {
		name          string
		first, second []string
		same          bool
		anonymous     bool
	}{
		{"a secret as bearer and as x-api-key", []string{"Authorization", "Bearer sk-1"}, []string{"X-Api-Key", "sk-1"}, true, false},
		{"a bearer with whatever x-api-key", []string{"Authorization", "Bearer sk-1"}, []string{"Authorization", "bearer  sk-1", "X-Api-Key", "sk-2"}, true, false},
		{"two bearers of one beginning", []string{"Authorization", "Bearer " + strings.Repeat("s", 300) + "1"}, []string{"Authorization", "Bearer " + strings.Repeat("s", 300) + "2"}, false, false},
		{"two of x-api-key", []string{"X-Api-Key", "sk-1"}, []string{"X-Api-Key", "SK-1"}, false, false},
		{"nobody and nobody", nil, nil, true, true},
		{"nobody and Basic", nil, []string{"Authorization", "Basic YTpi"}, true, true},
		{"one Basic and another", []string{"Authorization", "Basic YTpi"}, []string{"Authorization", "Basic YTpj"}, true, true},
		{"an agent and its cookie", nil, []string{"Cookie", "session=1"}, true, true},
		{"nobody and somebody", nil, []string{"X-Api-Key", "sk-1"}, false, false},
	} {
		w := callersHave(1, 0).world(t, hello)
		w.opened("llm/x", c.first...).want(t, c.name, 200, "", "")
		got := w.opened("claude/x", c.second...)
		if limited := got.status == 429; limited != c.same || !limited && got.status != 200 {
			t.Errorf("%s: %d %s", c.name, got.status, got.body)
		}
		if want := "all callers without a bearer token or an x-api-key of their own together may make"; got.status == 429 && c.anonymous != strings.Contains(got.body, want) {
			t.Errorf("%s: told %s", c.name, got.body)
		}
	}
}

// TestWithoutACallerLimit: no answer has a field that the service has not set, and none
// of the service's own is another.
func TestWithoutACallerLimit(t *testing.T) {
	service := http.Header{"X-Ratelimit-Limit-Requests": {"500"}, "X-Ratelimit-Remaining-Requests": {"499"}, "X-Ratelimit-Reset-Requests": {"120ms"}, "Retry-After": {"7"}}
	for _, with := range []http.Header{{}, service} {
		w := setup{registry: openRegistry}.world(t, func(rw http.ResponseWriter, r *http.Request) {
			for name, values := range with {
				rw.Header()[name] = values
			}
			hello(rw, r)
		})
		for i := range 10 {
			got := w.opened("llm/x", "Authorization", "Bearer sk-1")
			got.want(t, "a call", 200, "", "")
			h := got.header
			for _, ours := range []string{"Agentgate-Receipt", "X-Request-Id", "Date", "Content-Length", "Content-Type"} {
				if h.Get(ours) == "" {
					t.Errorf("call %d has no %s", i, ours)
				}
				h.Del(ours)
			}
			if fmt.Sprint(h) != fmt.Sprint(with) {
				t.Errorf("call %d: %v, want %v", i, h, with)
			}
		}
		for _, table := range w.limiter.Stats().Tables {
			if table.Entries != 0 {
				t.Errorf("%+v", table)
			}
		}
	}
}

// TestAServicesOwn429 passes as it is.
func TestAServicesOwn429(t *testing.T) {
	w := callersHave(5, 0).world(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Retry-After", "3")
		rw.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(rw, "mine")
	})
	got := w.opened("llm/x")
	if got.status != 429 || got.body != "mine" || got.header.Get("Agentgate-Code") != "" || got.header.Get("X-Ratelimit-Limit-Requests") != "" || got.header.Get("Retry-After") != "3" {
		t.Errorf("%d %v %s", got.status, got.header, got.body)
	}
}
