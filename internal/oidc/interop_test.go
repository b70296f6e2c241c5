package oidc_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/oidc"
	"agentgw/internal/oidc/oidctest"
	"agentgw/internal/registry"
)

// provider is npm's oidc-provider.
type provider struct {
	*oidctest.Provider
	t *testing.T
}

func startProvider(t *testing.T) *provider {
	return &provider{oidctest.StartProvider(t, "../../interop/op.mjs"), t}
}

// rotate has the provider sign with a new key, and returns how often its keys were
// fetched so far.
func (p *provider) rotate() int {
	p.t.Helper()
	n, err := strconv.Atoi(p.Ask(""))
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *provider) token() string {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), "POST", p.URL+"/token", strings.NewReader(url.Values{
		"grant_type": {"client_credentials"}, "resource": {"urn:agentgate"}, "scope": {"github:read"},
	}.Encode()))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth("agent", url.QueryEscape("a secret of the test's"))
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var answer struct {
		Token  string `json:"access_token"`
		Error  string
		Detail string `json:"error_description"`
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || answer.Token == "" {
		p.t.Fatal(res.Status, err, answer.Error, answer.Detail)
	}
	return answer.Token
}

// TestOIDCProvider takes tokens of a provider that nobody here wrote, while it
// changes its key, and with it the algorithm, again and again: no valid one is
// refused, and the keys are fetched once for each.
func TestOIDCProvider(t *testing.T) {
	p := startProvider(t)
	s, err := registry.Parse("registry.yaml", []byte(`services: {github: {base_url: "https://api.example"}}
issuers:
  - issuer: `+p.URL+`
    audience: urn:agentgate
    allow_private: true
    azp: [agent]
    scopes: [{claim: scope, value: "github:read", services: [github]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, clock: clockwork.NewFakeClockAt(time.Now()), logged: new(logged)}
	w.tokens = oidc.NewIssuers(func(bool) *http.Transport { return http.DefaultTransport.(*http.Transport) }, w.clock, w.log()).Tokens(s.Issuers, nil)
	const rotations, each = 8, 25
	var taken, refused atomic.Int64
	load := func() *sync.WaitGroup {
		var wg sync.WaitGroup
		for range each {
			token := p.token()
			wg.Go(func() {
				k, err := w.caller(token)
				if err != nil || k.ID != "oidc:"+p.URL+"#agent" || len(k.Services) != 1 {
					refused.Add(1)
					t.Errorf("%+v, %v", k, err)
					return
				}
				taken.Add(1)
			})
		}
		return &wg
	}
	load().Wait()
	for i := range rotations {
		w.clock.Advance(31 * time.Second)
		if n := p.rotate(); n != i+1 {
			t.Errorf("before rotation %d the keys were fetched %d times", i+1, n)
		}
		load().Wait()
	}
	if n := p.rotate(); n != rotations+1 {
		t.Errorf("the keys were fetched %d times in all", n)
	}
	t.Logf("%d tokens taken, %d refused, over %d rotations", taken.Load(), refused.Load(), rotations)
}
