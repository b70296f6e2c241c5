package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"agentgw/internal/config"
	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
)

// TestTokensOfOneSubjectAreOneOpenCaller: at one call a minute, whichever token he brings,
// which goes on to the service. A token that is not for this gateway is a secret like any.
func TestTokensOfOneSubjectAreOneOpenCaller(t *testing.T) {
	var upstream http.Header
	w, idp := withIssuer(t, `services: [keyed], user_claim: email`, callersHave(1, 0), func(rw http.ResponseWriter, r *http.Request) {
		upstream = r.Header.Clone()
		hello(rw, r)
	}, everything("k"))
	by := func(token string, header ...string) told {
		t.Helper()
		return w.opened("llm/x", append(header, "Authorization", "Bearer "+token)...)
	}
	first, second := w.token(idp, "alice", map[string]any{"n": 1}), w.token(idp, "alice", map[string]any{"n": 2})
	by(first).want(t, "one token", 200, "", "")
	if upstream.Get("Authorization") != "Bearer "+first {
		t.Errorf("the service got %q", upstream["Authorization"])
	}
	if got := by(second); got.status != 429 || got.code != "rate_limited" {
		t.Errorf("another of the same: %d %s", got.status, got.body)
	}
	by(second, "X-Api-Key", "sk-1").want(t, "with a key of the service's too", 429, "rate_limited", "")
	by(w.token(idp, "bob", nil)).want(t, "another subject", 200, "", "")
	// Elsewhere the same token is one like a key, with buckets of its own.
	w.opened("keyed/x", "Authorization", "Bearer "+second).want(t, "a service that wants a key", 403, "scope_denied", "")

	// Beside a key it is for the service alone.
	by(second, "Agentgate-Key", w.keys["k"]).want(t, "a key and a token", 200, "", "")
	if upstream.Get("Authorization") != "Bearer "+second {
		t.Errorf("the service got %q", upstream["Authorization"])
	}

	other := w.token(idp, "alice", map[string]any{"aud": "the service"})
	by(other).want(t, "a token for the service", 200, "", "")
	by(other).want(t, "the same", 429, "rate_limited", "")
	by(w.token(idp, "alice", map[string]any{"aud": "the service", "n": 1})).want(t, "another for the service", 200, "", "")

	name, callers := "oidc:"+idp.URL+"#alice", map[string]int{}
	for _, r := range w.ledger.all() {
		if r.Service != "llm" || r.Kind == receipts.KindIntent || r.Key == "k" {
			continue
		}
		callers[r.Caller]++
		if r.Tenant != "" || r.Principal != "" || strings.HasPrefix(r.Caller, "oidc:") != (r.Key == r.Caller) || strings.HasPrefix(r.Caller, "open:") && r.Key != "" {
			t.Errorf("%+v", r)
		}
	}
	if callers[name] != 3 || len(callers) != 4 {
		t.Errorf("%v", callers)
	}
}

// TestIdentityLimitsOfOpenCallers go by what a token says.
func TestIdentityLimitsOfOpenCallers(t *testing.T) {
	s := setup{registry: openRegistry + "identity_limits: {user: 2}\n", settings: func(*config.Settings) {}}
	w, idp := withIssuer(t, `user_claim: email`, s, hello)
	by := func(subject string) told {
		return w.opened("llm/x", "Authorization", "Bearer "+w.token(idp, subject, map[string]any{"email": "a@corp"}))
	}
	by("a-1").want(t, "first", 200, "", "")
	by("a-2").want(t, "second", 200, "", "")
	if got := by("a-3"); got.status != 429 || w.lastClosing().Limit != "user" {
		t.Errorf("%d %s, by %s", got.status, got.body, w.lastClosing().Limit)
	}
	for range 5 {
		w.opened("llm/x", "Authorization", "Bearer sk-1").want(t, "whom no issuer knows", 200, "", "")
	}
}

// TestAnIssuerThatIsGoneEndsNoOpenCall: what runs does so by the service's leave.
func TestAnIssuerThatIsGoneEndsNoOpenCall(t *testing.T) {
	up := newHeldStreams()
	w, idp := withIssuer(t, toAnybody, setup{registry: openLimits, settings: func(s *config.Settings) { s.StreamIdle, s.ClientStall = 0, 0 }}, up.serve)
	r := w.opening(t.Context(), "llm/stream", "")
	r.Header.Del("X-Api-Key")
	r.Header.Set("Authorization", "Bearer "+w.token(idp, "alice", nil))
	end := make(chan struct{})
	up.ends.Store("s", end)
	r.Header.Set("Idempotency-Key", "s")
	res, err := w.server.Client().Do(r)
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	defer func() { _ = res.Body.Close() }()
	w.use(openLimits)
	close(end)
	eventually(t, "it has ended", func() bool { return w.lastClosing().Kind == receipts.KindOutcome })
	if last := w.lastClosing(); last.Ending != receipts.Complete {
		t.Errorf("%+v", last)
	}
}

// TestStrangersDoNotCrowdOutWhomAnIssuerKnows: where they have filled their table, and
// share what one of them may have, his bucket is his own.
func TestStrangersDoNotCrowdOutWhomAnIssuerKnows(t *testing.T) {
	s := callersHave(1, 0)
	s.limiter = func(o *ratelimit.Options) { o.TableSize = 3 }
	w, idp := withIssuer(t, `services: [keyed]`, s, hello)
	for i := range 6 {
		if got := w.opened("llm/x", "X-Api-Key", fmt.Sprint("sk-", i)); (got.status == 200) != (i < 4) {
			t.Errorf("stranger %d: %d %s", i, got.status, got.body)
		}
	}
	alice := "Bearer " + w.token(idp, "alice", nil)
	w.opened("llm/x", "Authorization", alice).want(t, "whom the issuer knows", 200, "", "")
	w.opened("llm/x", "Authorization", alice).want(t, "the same", 429, "rate_limited", "")
}
