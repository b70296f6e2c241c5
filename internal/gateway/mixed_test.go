package gateway_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/secret"
	"agentgw/internal/vault"
)

// ownSecret is the credential of a user, with a letter and a digit in every piece.
func ownSecret(user string) string {
	return fmt.Sprintf("s3cr3t-of-%s-%.40x", user, sha256.Sum256([]byte(user)))
}

// TestCredentialsAreNotMixedUp: many tenants call one service at once, each for a
// user with a credential of his own, which the service checks and repeats. No call
// has another's credential, no answer comes to another's call or shows anybody's,
// and every receipt is of its caller, also while the vault is read again.
func TestCredentialsAreNotMixedUp(t *testing.T) {
	const tenants, each = 8, 8
	calls := 12 // of each of 64
	if os.Getenv("DRILLS") == "full" {
		calls = 1600 // 102,400
	}
	kek, err := vault.ParseKEK(strings.Repeat("0", 64))
	if err != nil {
		t.Fatal(err)
	}
	v, err := vault.Load(t.Context(), &shelf{}, kek)
	if err != nil {
		t.Fatal(err)
	}
	var keys []*identity.Key
	for i := range tenants {
		user := fmt.Sprintf("user-%d", i)
		keys = append(keys, &identity.Key{ID: fmt.Sprintf("k%d", i), Services: []string{"*"}, Users: []string{user}, Limits: &identity.Limits{RPS: 100_000, Burst: 100_000}})
		if err := v.Set(t.Context(), vault.Ref{Service: "own", User: user}, vault.Form{}, secret.New(ownSecret(user)), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	var wrong atomic.Int64
	w := setup{
		registry: `
version: 1
services:
  own: {base_url: "%[1]s", allow_private: true, credential: {type: bearer, scope: user}, actions: {get: {method: GET, path: "/{user}/{nonce}", params: {user: string, nonce: string}}}}
`,
		vault:    v,
		settings: func(s *config.Settings) { s.RateTenantRPS, s.RateTenantBurst = 100_000, 100_000 },
	}.world(t, func(rw http.ResponseWriter, r *http.Request) {
		user, nonce, _ := strings.Cut(r.URL.Path[1:], "/")
		if r.Header.Get("Authorization") != "Bearer "+ownSecret(user) {
			wrong.Add(1)
		}
		rw.Header().Set("X-Echo", r.Header.Get("Authorization"))
		_, _ = fmt.Fprintf(rw, "%s %s %s", user, nonce, r.Header.Get("Authorization"))
	}, keys...)

	var agents sync.WaitGroup
	for i := range tenants * each {
		agents.Go(func() {
			key, user := fmt.Sprintf("k%d", i%tenants), fmt.Sprintf("user-%d", i%tenants)
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			stars := strings.Repeat("*", len(ownSecret(user)))
			for n := range calls {
				if i == 0 && n%8 == 0 { // for others in the middle of a call
					if err := v.Reload(t.Context()); err != nil {
						t.Error(err)
					}
				}
				nonce := fmt.Sprintf("%d-%d", i, n)
				res, err := transport.RoundTrip(w.request(t.Context(), key, fmt.Sprintf(`{"service":"own","action":"get","on_behalf_of":%q,"params":{"user":%q,"nonce":%q}}`, user, user, nonce)))
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if want := user + " " + nonce + " Bearer " + stars; err != nil || res.StatusCode != 200 || string(body) != want || res.Header.Get("X-Echo") != "Bearer "+stars {
					wrong.Add(1)
					t.Errorf("%d %q, want %q; %v", res.StatusCode, body, want, err)
					return
				}
			}
		})
	}
	agents.Wait()
	for _, r := range w.ledger.all() {
		if "k"+strings.TrimPrefix(r.Principal, "user-") != r.Key || r.Tenant != "human:"+r.Principal {
			t.Fatalf("a receipt of key %s, tenant %s, for %s", r.Key, r.Tenant, r.Principal)
		}
	}
	if n := len(w.ledger.all()); n != 2*tenants*each*calls || wrong.Load() != 0 {
		t.Errorf("%d records of %d calls, %d mismatches", n, tenants*each*calls, wrong.Load())
	}
}
