package gateway_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"agentgw/internal/config"
	"agentgw/internal/oidc/oidctest"
)

// TestNobodyIsAskedWhetherATokenIsActive: an issuer may offer to say of any token
// whether it is good (RFC 7662). It is not asked, so nothing that it would say lets in
// a token that is not signed by a key of its: an opaque one, a forged one, one of
// another audience.
func TestNobodyIsAskedWhetherATokenIsActive(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"nothing":       func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) },
		"active a text": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"active":"true"}`)) },
		"not active":    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"active":false}`)) },
		"active": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"active":true,"sub":"alice","aud":"agentgate"}`))
		},
		"a fault": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"a page": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte("<html>"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				answer(w, r)
			}))
			defer server.Close()
			idp := oidctest.New(t)
			idp.Describe(func(w http.ResponseWriter, _ *http.Request) {
				_ = json.NewEncoder(w).Encode(map[string]any{
					"issuer": idp.URL, "jwks_uri": idp.URL + "/keys",
					"introspection_endpoint": server.URL, "introspection_endpoint_auth_methods_supported": []string{"none"}, "userinfo_endpoint": server.URL,
				})
			})
			w := takingTokens(t, idp, toAnybody, setup{settings: func(s *config.Settings) { s.RateAuthPerMinute = 1000 }}, hello)
			before := w.upstreamRequests()
			for what, token := range map[string]string{
				"opaque":           "2YotnFZFEjr1zCsicMWpAA",
				"opaque with dots": "a.b.c",
				"forged":           oidctest.NewSigner(t, idp.Signer().Kid).Sign(nil, idp.Claims(w.clock.Now(), "alice", nil)),
				"for another":      w.token(idp, "alice", map[string]any{"aud": "other"}),
				"encrypted":        "eyJhbGciOiJSU0EtT0FFUCIsImVuYyI6IkEyNTZHQ00ifQ" + strings.Repeat(".e30", 4),
			} {
				w.do(w.with(token, plainCall("tools", "u"))).want(t, what, 401, "unauthenticated", "")
			}
			w.do(w.with(w.token(idp, "alice", nil), plainCall("tools", "u"))).want(t, "a good one", 200, "", "")
			if n := w.upstreamRequests() - before; n != 1 || asked.Load() != 0 || idp.Asked() == 0 {
				t.Errorf("the service was called %d times; somebody asked about a token %d times; the issuer was asked for its endpoints %d times", n, asked.Load(), idp.Asked())
			}
		})
	}
}
