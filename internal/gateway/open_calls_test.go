package gateway_test

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/receipts"
)

// TestOpenCallsHaveReceipts, each of them, with a name for the caller that is not his
// credential, which stands nowhere else either.
func TestOpenCallsHaveReceipts(t *testing.T) {
	const secret = "sk-secret-one"
	s := callersHave(1, 0)
	s.level = slog.LevelDebug
	w := s.world(t, hello)
	w.opened("llm/x?q=1", "Authorization", "Bearer "+secret).want(t, "a call", 200, "", "")
	got := w.opened("claude/x", "X-Api-Key", secret)
	got.want(t, "the next", 429, "rate_limited", "")
	w.opened("llm/x", "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("me:"+secret))).want(t, "nobody", 200, "", "")
	w.opened("llm//x", "X-Api-Key", secret).want(t, "a path that is none", 400, "bad_request", "")
	records := w.ledger.all()
	const one = "open:d2e4b22998fca2a7361beb15af00ecbd" // see TestPseudonyms
	want := []receipts.Record{
		{Kind: receipts.KindIntent, Caller: one, Service: "llm", Action: "*", Decision: receipts.Allowed},
		{Kind: receipts.KindOutcome, Caller: one, Service: "llm", Action: "*", Decision: receipts.Allowed, Status: 200},
		{Kind: receipts.KindRefusal, Caller: one, Service: "claude", Action: "*", Decision: receipts.Refused, Status: 429, Code: "rate_limited", Limit: "caller"},
		{Kind: receipts.KindIntent, Caller: identity.Anonymous, Service: "llm", Action: "*", Decision: receipts.Allowed},
		{Kind: receipts.KindOutcome, Caller: identity.Anonymous, Service: "llm", Action: "*", Decision: receipts.Allowed, Status: 200},
		{Kind: receipts.KindRefusal, Caller: one, Decision: receipts.Refused, Status: 400, Code: "bad_request"},
	}
	if len(records) != len(want) {
		t.Fatalf("%d records, want %d", len(records), len(want))
	}
	for i, r := range records {
		if text := fmt.Sprintf("%+v", r); strings.Contains(text, secret) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte("me:"+secret))) {
			t.Errorf("record %d has the credential: %s", i, text)
		}
		told := receipts.Record{Kind: r.Kind, Tenant: r.Tenant, Caller: r.Caller, Key: r.Key, Principal: r.Principal, Service: r.Service, Action: r.Action, Decision: r.Decision, Status: r.Status, Code: r.Code, Limit: r.Limit}
		if fmt.Sprint(told) != fmt.Sprint(want[i]) {
			t.Errorf("record %d:\n%+v\nwant\n%+v", i, told, want[i])
		}
	}
	if text := w.logged.String(); strings.Contains(text, secret) || !strings.Contains(text, one) {
		t.Errorf("the log has the credential, or not who was refused: %s", text)
	}
	if text := fmt.Sprint(got.header, got.body); strings.Contains(text, secret) || strings.Contains(text, one) {
		t.Errorf("the answer has what is the operator's to know: %s", text)
	}
}

// TestNoGatewayKeyGoesToAnOpenService: a valid one says who calls and stays here, what is
// spelled like one is refused where it stands for the caller, and left out elsewhere.
func TestNoGatewayKeyGoesToAnOpenService(t *testing.T) {
	var mu sync.Mutex
	var got http.Header
	s := callersHave(1, 0)
	s.settings = func(s *config.Settings) { s.RateCallerRPM, s.RateCallerBurst, s.RateAuthPerMinute = 1, 1, 1000 }
	w := s.world(t, func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		got = r.Header.Clone()
		mu.Unlock()
		hello(rw, r)
	}, everything("k"), &identity.Key{ID: "old", Services: []string{"*"}, Users: []string{"*"}, NotAfter: time.Unix(1, 0)})
	stranger, _ := identity.NewKey()
	valid, unknown := w.keys["k"], stranger.Reveal()
	basic := func(key string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+key))
	}
	for name, header := range map[string][]string{
		"unknown":                 {"Authorization", "Bearer " + unknown},
		"expired":                 {"Authorization", "Bearer " + w.keys["old"]},
		"mistyped":                {"X-Api-Key", unknown[:52] + string('0'+(unknown[52]-'0'+1)%10)},
		"beside a credential":     {"Authorization", "Bearer sk-1", "X-Api-Key", unknown},
		"in the gateway's header": {"Authorization", "Bearer sk-1", "Agentgate-Key", unknown},
		"without a scheme":        {"Authorization", unknown},
		"in a longer text":        {"Authorization", "Bearer " + unknown + "x"},
		"as a password":           {"Authorization", basic(unknown)},
		"a valid one as password": {"Authorization", basic(valid)},
	} {
		w.opened("llm/x", header...).want(t, name, 401, "unauthenticated", "")
	}
	if n := w.upstreamRequests(); n != 0 {
		t.Errorf("the service saw %d requests", n)
	}
	for name, header := range map[string][]string{
		"as bearer":                             {"Authorization", "Bearer " + valid, "X-Api-Key", "mine"},
		"as x-api-key":                          {"X-Api-Key", valid, "Authorization", "Bearer mine"},
		"in the gateway's header":               {"Agentgate-Key", valid, "Authorization", "Bearer mine", "X-Api-Key", "mine"},
		"twice":                                 {"Agentgate-Key", valid, "X-Api-Key", valid, "Authorization", "Bearer mine"},
		"beside an unknown one":                 {"Agentgate-Key", valid, "X-Api-Key", unknown, "Authorization", "Bearer mine"},
		"beside a password":                     {"Agentgate-Key", valid, "X-Api-Key", "mine", "Authorization", basic(unknown)},
		"and elsewhere, as no credential of it": {"Agentgate-Key", valid, "X-Api-Key", "mine", "X-Goog-Api-Key", unknown, "X-Odd", "a " + unknown + " b", "Api-Key", valid},
	} {
		res := w.opened("llm/x", header...)
		res.want(t, name, 200, "", "")
		mu.Lock()
		text := fmt.Sprint(got)
		mu.Unlock()
		for _, v := range got {
			for _, v := range v {
				b, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(v, "Basic "))
				text += string(b)
			}
		}
		if strings.Contains(text, "agw_") || !strings.Contains(text, "mine") {
			t.Errorf("%s: the service got %s", name, text)
		}
		if res.header.Get("RateLimit-Policy") == "" { // and goes by the key's limits, not by a caller's
			t.Errorf("%s: %v", name, res.header)
		}
	}
	for _, r := range w.ledger.all() {
		if r.Decision == receipts.Allowed && (r.Key != "k" || r.Tenant != "key:k" || r.Caller != "key:k") {
			t.Errorf("%+v", r)
		}
	}
}

// TestCredentialsGoOn to an open service, of all kinds and byte for byte, and no cookie;
// to one that is not open none does.
func TestCredentialsGoOn(t *testing.T) {
	sent := []string{"Authorization", "AWS4-HMAC-SHA256 Credential=a/b, Signature=c", "X-Api-Key", "a\xc3\xa9b", "Api-Key", "azure", "X-Goog-Api-Key", "goog",
		"X-Auth-Token", "auth", "X-Access-Token", "access", "Private-Token", "private"}
	var got http.Header
	w := setup{registry: openRegistry}.world(t, func(rw http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		hello(rw, r)
	}, everything("k"))
	for target, all := range map[string]bool{"llm/x": true, "keyed/x": false} {
		header := append([]string{"Cookie", "session=1", "Proxy-Authorization", "Basic YTpi"}, sent...)
		if !all {
			header = append(header, "Agentgate-Key", w.keys["k"])
		}
		w.opened(target, header...).want(t, target, 200, "", "")
		for i := 0; i < len(sent); i += 2 {
			if v, ok := got[textproto.CanonicalMIMEHeaderKey(sent[i])]; ok != all || all && (len(v) != 1 || v[0] != sent[i+1]) {
				t.Errorf("%s: %s is %q", target, sent[i], v)
			}
		}
		if got["Cookie"] != nil || got["Proxy-Authorization"] != nil {
			t.Errorf("%s: %v", target, got)
		}
	}
	// And beside a key in an act, unless the action itself says what is there.
	body := `{"service":"llm","action":"get","params":{"id":"1"}}`
	r := w.request(t.Context(), "k", body)
	r.Header.Set("X-Api-Key", "mine")
	r.Header.Set("Cookie", "session=1")
	w.do(r).want(t, "an act with a key", 200, "", "")
	if got.Get("X-Api-Key") != "mine" || got.Get("Authorization") != "" || got.Get("Cookie") != "" {
		t.Error(got)
	}
	r = w.request(t.Context(), "k", `{"service":"plain","action":"own","params":{"X-Auth-Token":"the action's"}}`)
	r.Header.Set("X-Auth-Token", "mine")
	r.Header.Set("X-Api-Key", "of this connection")
	r.Header.Set("Connection", "X-Api-Key")
	w.do(r).want(t, "an act that says what is there", 200, "", "")
	if got.Get("X-Auth-Token") != "the action's" || got.Get("X-Api-Key") != "" {
		t.Error(got)
	}
	// A batch may be for many services, and does not say for which.
	r = w.batchRequest("k", `{"calls":[`+body+`]}`)
	r.Header.Set("X-Api-Key", "mine")
	if got = nil; len(w.results(w.do(r))) != 1 || got == nil || got.Get("X-Api-Key") != "" {
		t.Errorf("in a batch: %v", got)
	}
	r = w.request(t.Context(), "", body)
	r.Header.Set("Authorization", "Bearer sk-1")
	w.do(r).want(t, "an act without a key", 401, "unauthenticated", "")
}

// TestTheScopeOfAnOpenCaller is the service, and nobody's behalf.
func TestTheScopeOfAnOpenCaller(t *testing.T) {
	w := setup{registry: openRegistry}.world(t, hello)
	w.opened("plain/get/1").want(t, "an action", 200, "", "")
	w.opened("plain/other").want(t, "none of its actions", 404, "action_not_found", "")
	w.opened("llm/other").want(t, "where the rest is let pass", 200, "", "")
	w.opened("plain/get/1", "Agentgate-On-Behalf-Of", "alice").want(t, "for somebody", 403, "scope_denied", "")
	w.opened("plain/get/1?more=1").want(t, "with what it does not take", 400, "bad_params", "")
	w.opened("nowhere/x").want(t, "no service", 401, "unauthenticated", "")
	w.opened("plain/get/1", "Agentgate-Delegation", "a.b.c").want(t, "with a delegation", 403, "delegation_invalid", "")
	r, err := http.NewRequest("GET", w.server.URL+"/proxy/plain/get/1", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header["Authorization"] = []string{"Bearer a", "Bearer b"}
	w.do(r).want(t, "two credentials", 400, "bad_request", "")
	for _, target := range []string{"/v1/services", "/v1/whoami", "/v1/receipts/1"} {
		r, err := http.NewRequest("GET", w.server.URL+target, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.do(r).want(t, target, 401, "unauthenticated", "")
	}
}

// TestAnOpenCallIsRefusedByTheFirstStep: at one call that is left, faults in the order of
// the steps, none of which takes it.
func TestAnOpenCallIsRefusedByTheFirstStep(t *testing.T) {
	w := callersHave(1, 0).world(t, hello)
	unknown, _ := identity.NewKey()
	for _, c := range []struct {
		target string
		status int
		code   string
	}{
		{"plain//other?more=1", 400, "bad_request"},
		{"plain/other?more=1", 404, "action_not_found"},
		{"plain/get/1", 200, ""}, // takes the token
		{"plain//get/1", 400, "bad_request"},
		{"plain/get/1?more=1", 429, "rate_limited"}, // before what is wrong with the parameters
	} {
		if got := w.opened(c.target); got.status != c.status || got.code != c.code {
			t.Errorf("%s: %d %s, want %d %s", c.target, got.status, got.code, c.status, c.code)
		}
		if got := w.opened(c.target, "X-Api-Key", unknown.Reveal()); got.status != 401 {
			t.Errorf("%s: %d %s", c.target, got.status, got.code)
		}
	}
}

// TestPagesGetNothingOfAnOpenService that a browser may send without being asked; with a
// credential, which no page has by itself, and where a service says that it may, a page is
// a caller like any.
func TestPagesGetNothingOfAnOpenService(t *testing.T) {
	w := setup{registry: openRegistry}.world(t, hello)
	host := strings.TrimPrefix(w.server.URL, "http://")
	for _, c := range []struct {
		method string
		header []string
		status int
	}{
		{"POST", []string{"Origin", "http://evil.example"}, 403},
		{"POST", []string{"Origin", "null"}, 403},
		{"GET", []string{"Origin", "http://" + host + ".evil.example"}, 403},
		{"POST", []string{"Origin", "http://evil.example/" + host}, 403},
		{"GET", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"GET", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"POST", []string{"Origin", "http://evil.example", "Authorization", "Basic YTpi"}, 403}, // which a browser keeps
		{"POST", []string{"Origin", "http://evil.example", "Cookie", "session=1"}, 403},
		{"POST", []string{"Origin", "http://evil.example", "Authorization", "Bearer sk-1"}, 200},
		{"POST", []string{"Origin", "http://evil.example", "X-Api-Key", "sk-1"}, 200},
		{"OPTIONS", []string{"Origin", "http://evil.example", "Access-Control-Request-Method", "POST"}, 200},
		{"POST", []string{"Origin", "http://" + host}, 200},
		{"POST", []string{"Origin", "http://LOCALHOST", "Host", "localhost"}, 200}, // RFC 9110, section 4.2.3
		{"POST", []string{"Origin", "http://localhost.evil.example", "Host", "localhost"}, 403},
		{"GET", []string{"Sec-Fetch-Site", "none"}, 200},
		{"GET", []string{"Sec-Fetch-Site", "same-origin"}, 200},
		{"GET", nil, 200},
	} {
		got := w.relayedBy("", c.method, "llm/x", "", c.header...)
		if got.status != c.status || got.status == 403 && (got.code != "scope_denied" || !strings.Contains(got.body, "permission_error")) {
			t.Errorf("%s %v: %d %s %s, want %d", c.method, c.header, got.status, got.code, got.body, c.status)
		}
	}
}
