package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/freeport"
	"agentgw/internal/oidc/oidctest"
)

// accountServer is npm's oidc-provider.
type accountServer struct {
	*oidctest.Provider
	t *testing.T
}

// counted is what an accountServer has counted.
type counted struct {
	Codes, Renewed int // that yielded tokens
	Refused        int // requests for tokens
	Voided         int // grants
	Served         int // calls with an access token that is good
}

func startAccountServer(t *testing.T, redirect string) *accountServer {
	return &accountServer{oidctest.StartProvider(t, "../../interop/account.mjs", redirect), t}
}

// after has it do that, if anything, and returns what it has counted.
func (p *accountServer) after(do string) (c counted) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(p.Ask(do)), &c); err != nil {
		p.t.Fatal(err)
	}
	return c
}

// TestAnAccountAtOIDCProvider connects an account at an authorization server that
// nobody here wrote, which takes each refresh token once. Whenever the access token is
// a second from its end 200 calls come at once: one of them asks for another, and that
// server takes it of all. Were a refresh token shown twice, it would void them all:
// that it does is seen at the end.
func TestAnAccountAtOIDCProvider(t *testing.T) {
	listen := freeport.Address(t)
	p := startAccountServer(t, "http://"+listen+"/oauth/mail/callback")
	b := newBench(t, "")
	said, s := connectable(t, b, fmt.Sprintf(`version: 1
server: {listen: %q, public_url: "http://%[1]s", rate_key_rps: 0, rate_tenant_rps: 0, tenant_max_inflight: 0}
services:
  mail:
    base_url: %[2]s
    allow_private: true
    credential: {type: oauth2, scope: user, authorize_url: %[2]s/auth, token_url: %[2]s/token, issuer: %[2]s, client_id: gw, scopes: [openid], allow_private: true}
    actions: {read: {method: GET, path: /me}}
`, listen, p.URL))
	call := func() (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+listen+"/v1/act", strings.NewReader(`{"service":"mail","action":"read","on_behalf_of":"alice"}`))
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		r.Header.Set("Authorization", "Bearer "+s.firstKey.Reveal())
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = res.Body.Close() }()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body)
	}
	if status, text, _ := newBrowser(t).open(b.link()); status != 200 {
		t.Fatalf("%d %s\n%s", status, text, said.String())
	}
	const life, calls = 10 * time.Second, 200
	come := time.Now() // the token, or just before
	want := counted{Codes: 1}
	for round := range 2 {
		eventually(t, "the token has a second left", func() bool { return time.Since(come) > life-time.Second })
		var wg sync.WaitGroup
		for range calls {
			wg.Go(func() {
				if status, body := call(); status != 200 || !strings.Contains(body, "alice") {
					t.Errorf("round %d: %d %s", round+1, status, body)
				}
			})
		}
		wg.Wait()
		come = time.Now()
		want.Renewed, want.Served = want.Renewed+1, want.Served+calls
		if d := cmp.Diff(want, p.after("")); d != "" {
			t.Fatalf("round %d: -want +got:\n%s\n%s", round+1, d, said.String())
		}
	}
	eventually(t, "the token has a second left", func() bool { return time.Since(come) > life-time.Second })
	status, body := call() // with what the refresh token yields that came of two
	come = time.Now()
	want.Renewed, want.Served = want.Renewed+1, want.Served+1
	if d := cmp.Diff(want, p.after("")); status != 200 || d != "" {
		t.Errorf("a third time: %d %s, -want +got:\n%s", status, body, d)
	}
	want.Refused, want.Voided = 1, 1
	if d := cmp.Diff(want, p.after("replay")); d != "" {
		t.Errorf("a spent refresh token: -want +got:\n%s", d)
	}
	eventually(t, "the token has ended", func() bool { return time.Since(come) > 5*time.Second })
	for range 2 { // it is not asked again of what it has refused for good
		if status, body := call(); status != 403 || !strings.Contains(body, `"credential_missing"`) {
			t.Errorf("of a grant that is void: %d %s", status, body)
		}
	}
	want.Refused++
	if d := cmp.Diff(want, p.after("")); d != "" {
		t.Errorf("of a grant that is void: -want +got:\n%s", d)
	}
}
