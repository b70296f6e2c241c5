package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"agentgw/internal/oidc/oidctest"
)

// bearing sends a call with a token, and returns its status.
func (m *measured) bearing(token, body string) int {
	m.t.Helper()
	r, err := http.NewRequest("POST", "http://"+m.agentsListener.Addr().String()+"/v1/act", strings.NewReader(body))
	if err != nil {
		m.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// TestAnIssuerThatDoesNotAnswer keeps no gateway from starting, and none of its
// callers is let in; keys are served all the while. When it answers, they are.
func TestAnIssuerThatDoesNotAnswer(t *testing.T) {
	idp := oidctest.New(t)
	answers := make(chan struct{})
	idp.Describe(func(w http.ResponseWriter, _ *http.Request) {
		<-answers
		_, _ = io.WriteString(w, `{"issuer":"`+idp.URL+`","jwks_uri":"`+idp.URL+`/keys"}`)
	})
	m := measure(t, measuredUpstream(nil), measuredRegistry+issuerEntry(idp, `services: ["*"], users: ["*"]`))
	get := `{"service":"tools","action":"get"}`
	if got := m.status("POST", "/v1/act", m.keys["bot"], get); got != 200 {
		t.Errorf("a key: %d", got)
	}
	early := make(chan int, 1)
	go func() { early <- m.bearing(idp.Token(time.Now(), "alice", nil), get) }()
	select {
	case got := <-early:
		t.Errorf("a token was answered with %d before its issuer was", got)
	case <-time.After(50 * time.Millisecond): // it waits for the issuer
	}
	close(answers)
	if got := <-early; got != 200 {
		t.Errorf("a token: %d", got)
	}
}

// TestAnIssuerOnAPrivateAddress is not asked, unless the registry says that it may
// be: its tokens are 401.
func TestAnIssuerOnAPrivateAddress(t *testing.T) {
	idp := oidctest.New(t)
	entry := strings.NewReplacer("http://", "https://", "allow_private: true, ", "").Replace(issuerEntry(idp, `services: ["*"]`))
	m := measure(t, measuredUpstream(nil), measuredRegistry+entry)
	claims := map[string]any{"iss": strings.Replace(idp.URL, "http://", "https://", 1)}
	if got := m.bearing(idp.Token(time.Now(), "alice", claims), `{"service":"tools","action":"get"}`); got != 401 {
		t.Error(got)
	}
	if !strings.Contains(m.log.String(), "private, loopback or link-local") || idp.Asked() > 0 {
		t.Errorf("asked %d times; the log: %s", idp.Asked(), m.log.String())
	}
}

// TestExplainOfACallerWhoHasCalled: the API answers for him as for a key, with what he
// has left, by the name that his receipts have and by what his token says.
func TestExplainOfACallerWhoHasCalled(t *testing.T) {
	idp := oidctest.New(t)
	m := measure(t, measuredUpstream(nil), measuredRegistry+issuerEntry(idp, `scopes: [{when: "'dev' in claims.groups", services: [tools], users: ["*"], limits: {rps: 0.01, burst: 9}}]`))
	for range 2 {
		if got := m.bearing(idp.Token(time.Now(), "alice", map[string]any{"groups": []string{"dev"}}), `{"service":"tools","action":"get"}`); got != 200 {
			t.Fatal(got)
		}
	}
	explained := func(claims string) string {
		t.Helper()
		query := url.Values{"key": {"oidc:" + idp.URL + "#alice"}, "service": {"tools"}, "action": {"get"}, "claims": {claims}}
		r, err := http.NewRequest("GET", "http://"+m.operatorsListener.Addr().String()+"/admin/v1/limits/explain?"+query.Encode(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+m.adminToken.Reveal())
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(res.StatusCode, " ", string(body))
	}
	if got := explained(`{"groups":["dev"]}`); !strings.HasPrefix(got, "200 ") || !strings.Contains(got, `"charged_to":"oidc:`+idp.URL+`#alice","off":false,"rps":0.01,"burst":9,`) || !strings.Contains(got, `"level":{"remaining":7}`) {
		t.Errorf("%s", got)
	}
	if got := explained(`{"groups":["ops"]}`); !strings.Contains(got, `"code":"scope_denied"`) {
		t.Errorf("%s", got)
	}
	if got := explained(`{"groups":`); !strings.HasPrefix(got, "400 ") || !strings.Contains(got, `"name":"claims"`) {
		t.Errorf("%s", got)
	}
}

// TestOperatorsSeeAndBlockCallers: a tenant that an issuer names is one like others.
func TestOperatorsSeeAndBlockCallers(t *testing.T) {
	idp := oidctest.New(t)
	m := measure(t, measuredUpstream(nil), measuredRegistry+issuerEntry(idp, `services: ["*"], users: ["*"], tenant_claim: org`))
	get := `{"service":"tools","action":"get"}`
	token := func(sub, org string) string {
		return idp.Token(time.Now(), sub, map[string]any{"org": org})
	}
	for _, org := range []string{"o-1", "o-2"} {
		if got := m.bearing(token("alice", org), get); got != 200 {
			t.Fatalf("%s: %d", org, got)
		}
	}
	tenant := "oidc:" + idp.URL + "#o-1"
	operate := func(method, path string) string {
		r, err := http.NewRequest(method, "http://"+m.operatorsListener.Addr().String()+"/admin/v1/tenants"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+m.adminToken.Reveal())
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		b, _ := io.ReadAll(res.Body)
		return fmt.Sprint(res.StatusCode, " ", string(b))
	}
	quoted, _ := json.Marshal(tenant)
	if got := operate("GET", ""); !strings.Contains(got, string(quoted)) {
		t.Errorf("no %s among %s", quoted, got)
	}
	if got := operate("POST", "/"+url.PathEscape(tenant)+"/block"); !strings.HasPrefix(got, "200") {
		t.Error(got)
	}
	for org, want := range map[string]int{"o-1": 403, "o-2": 200} {
		if got := m.bearing(token("bob", org), get); got != want {
			t.Errorf("%s after the block: %d", org, got)
		}
	}
	if got := operate("POST", "/"+url.PathEscape(tenant)+"/unblock"); !strings.HasPrefix(got, "200") {
		t.Error(got)
	}
	if got := m.bearing(token("bob", "o-1"), get); got != 200 {
		t.Errorf("after the block: %d", got)
	}
}

func issuerEntry(idp *oidctest.IdP, rest string) string {
	return "issuers:\n  - {issuer: " + idp.URL + ", allow_private: true, audience: agentgate, " + rest + "}\n"
}
