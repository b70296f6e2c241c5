package gateway_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/oidc/oidctest"
	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
)

// withIssuer is a world that takes the tokens of an issuer under this entry.
func withIssuer(t *testing.T, entry string, s setup, upstream http.HandlerFunc, keys ...*identity.Key) (*world, *oidctest.IdP) {
	idp := oidctest.New(t)
	return takingTokens(t, idp, entry, s, upstream, keys...), idp
}

// takingTokens is withIssuer of an issuer that there is.
func takingTokens(t *testing.T, idp *oidctest.IdP, entry string, s setup, upstream http.HandlerFunc, keys ...*identity.Key) *world {
	s.registry = withEntry(idp, cmp.Or(s.registry, worldRegistry), entry)
	w := s.world(t, upstream, keys...)
	// The keys of the issuer are there when a token of it is known.
	eventually(t, "the issuer's keys are there", func() bool {
		return w.do(w.with(idp.Token(w.clock.Now(), "first", nil), "{")).status != 401
	})
	w.ledger.mu.Lock()
	w.ledger.records = nil
	w.ledger.mu.Unlock()
	return w
}

// withEntry is a registry with an issuer under this entry.
func withEntry(idp *oidctest.IdP, file, entry string) string {
	return file + "issuers:\n  - {issuer: " + idp.URL + ", allow_private: true, audience: agentgate, " + entry + "}\n"
}

// with is a call with a token.
func (w *world) with(token, body string) *http.Request {
	r := w.request(context.Background(), "", body)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

func (w *world) token(idp *oidctest.IdP, subject string, claims map[string]any) string {
	return idp.Token(w.clock.Now(), subject, claims)
}

const toAnybody = `services: ["*"], users: ["*"]`

// TestACallWithAToken goes the way of one with a key, and leaves the issuer's word
// for who called in the receipt; the token goes nowhere.
func TestACallWithAToken(t *testing.T) {
	var upstream http.Header
	w, idp := withIssuer(t, `services: [tools], actions: ["tools.get"], org_claim: org, tenant_claim: org`, setup{level: slog.LevelDebug}, func(rw http.ResponseWriter, r *http.Request) {
		upstream = r.Header.Clone()
		hello(rw, r)
	})
	token := w.token(idp, "alice", map[string]any{"org": "o-1"})
	w.do(w.with(token, plainCall("tools", "alice"))).want(t, "a call", 200, "", "")
	w.do(w.with(token, actBody("tools", "stream", "alice", ""))).want(t, "another action", 403, "scope_denied", "")
	w.do(w.with(token, plainCall("tools", "bob"))).want(t, "for another", 403, "scope_denied", "")
	w.do(w.with(token, plainCall("tools", ""))).want(t, "for nobody", 403, "scope_denied", "")
	w.do(w.with(token, plainCall("payroll", "alice"))).want(t, "a service that there is not", 403, "scope_denied", "")
	caller, tenant := "oidc:"+idp.URL+"#alice", "oidc:"+idp.URL+"#o-1"
	records := w.ledger.all()
	if len(records) != 6 {
		t.Fatalf("%d records", len(records))
	}
	for _, r := range records {
		if r.Caller != caller || r.Key != caller || r.Tenant != tenant || strings.Contains(fmt.Sprint(r), token[:40]) {
			t.Errorf("%+v", r)
		}
	}
	if upstream == nil || strings.Contains(fmt.Sprint(upstream), token[:40]) || strings.Contains(w.logged.String(), token[:40]) {
		t.Error("the token got out")
	}
}

// TestEveryBadTokenIsTheSame401: not one byte tells what was wrong with a token, or
// that the issuer is down.
func TestEveryBadTokenIsTheSame401(t *testing.T) {
	w, idp := withIssuer(t, toAnybody, setup{level: slog.LevelDebug, settings: func(s *config.Settings) { s.RateAuthPerMinute = 1000 }}, hello)
	shape := func(got told) string {
		h := got.header.Clone()
		for _, name := range []string{"Date", "X-Request-Id", "Agentgate-Receipt"} {
			h.Del(name)
		}
		body := got.body
		if at := strings.Index(body, `"receipt"`); at >= 0 {
			body = body[:at]
		}
		return fmt.Sprint(got.status, h, body)
	}
	want := shape(w.act("", plainCall("tools", "u")))
	stranger := oidctest.NewSigner(t, "unknown")
	for name, token := range map[string]string{
		"none": "", "no token": "x", "expired": w.token(idp, "a", map[string]any{"exp": 1}), "aud": w.token(idp, "a", map[string]any{"aud": "other"}),
		"issuer": w.token(idp, "a", map[string]any{"iss": "https://other.example"}), "key": stranger.Sign(nil, idp.Claims(w.clock.Now(), "a", nil)),
		"a claim": w.token(idp, "", nil), "dots": strings.Repeat(".", 15000),
	} {
		if got := shape(w.do(w.with(token, plainCall("tools", "u")))); got != want {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
	}
	if !strings.Contains(w.logged.String(), "its aud is not the issuer's audience alone") {
		t.Error("the log does not say why")
	}
}

// TestAKeyBesideAToken: two callers in one request are none; what is not valid
// beside one that is does not count.
func TestAKeyBesideAToken(t *testing.T) {
	w, idp := withIssuer(t, toAnybody, setup{}, hello, everything("k"))
	both := func(token string) told {
		r := w.with(token, plainCall("tools", "u"))
		r.Header.Set("X-Api-Key", w.keys["k"])
		return w.do(r)
	}
	both(w.token(idp, "alice", nil)).want(t, "both", 400, "bad_request", "")
	both(w.token(idp, "alice", map[string]any{"aud": "other"})).want(t, "a token for others", 200, "", "")
	r := w.with(w.token(idp, "alice", nil), plainCall("tools", "u"))
	r.Header.Set("X-Api-Key", "sk-another-vendor")
	w.do(r).want(t, "another vendor's key", 200, "", "")
	r = w.request(context.Background(), "", plainCall("tools", "u"))
	r.Header.Set("X-Api-Key", w.token(idp, "alice", nil))
	w.do(r).want(t, "a token where only keys stand", 401, "unauthenticated", "")
}

// TestCallersKeepTheirLimitsAcrossTokens: the bucket is the caller's, whatever token
// he comes with, and stands in a table where registered keys are not.
func TestCallersKeepTheirLimitsAcrossTokens(t *testing.T) {
	w, idp := withIssuer(t, toAnybody+`, limits: {rps: 1, burst: 3}, tenant_claim: org, tenants: {o-9: small}`, setup{}, hello)
	for i := range 3 {
		w.do(w.with(w.token(idp, "alice", map[string]any{"n": i}), plainCall("tools", "u"))).want(t, "within", 200, "", "")
	}
	w.do(w.with(w.token(idp, "alice", map[string]any{"n": 9}), plainCall("tools", "u"))).want(t, "beyond", 429, "rate_limited", "key")
	w.do(w.with(w.token(idp, "bob", nil), plainCall("tools", "u"))).want(t, "another", 200, "", "")
	// Of one tenant, however many callers.
	for i, want := range []int{200, 200, 429} {
		got := w.do(w.with(w.token(idp, fmt.Sprint("c-", i), map[string]any{"org": "o-9"}), plainCall("tools", "u")))
		if got.status != want {
			t.Errorf("call %d of tenant small: %d %s", i, got.status, got.body)
		}
	}
	// The bucket at a service is the caller's too.
	w.do(w.with(w.token(idp, "carol", nil), plainCall("slow", "u"))).want(t, "at slow", 200, "", "")
	w.do(w.with(w.token(idp, "carol", map[string]any{"n": 1}), plainCall("slow", "u"))).want(t, "again", 429, "rate_limited", "service")
	st := w.limiter.Stats()
	if n := st.Tables[ratelimit.Callers].Entries; n == 0 {
		t.Error("nobody is in the table of callers")
	}
	for name := range w.entries(ratelimit.KindKey) {
		t.Errorf("%s is among the registered", name)
	}
	for name := range w.entries(ratelimit.KindTenant) {
		if name != "tenant:small" {
			t.Errorf("%s is among the registered", name)
		}
	}
}

// TestCallersCrowdOutNoKey: hundreds of callers of an issuer leave the
// registered where they were.
func TestCallersCrowdOutNoKey(t *testing.T) {
	w, idp := withIssuer(t, toAnybody, setup{limiter: func(o *ratelimit.Options) { o.TableSize = 64 }}, hello,
		&identity.Key{ID: "k", Services: []string{"*"}, Users: []string{"*"}, Limits: &identity.Limits{RPS: 1, Burst: 2}})
	w.act("k", plainCall("tools", "u")).want(t, "the key", 200, "", "")
	w.act("k", plainCall("tools", "u")).want(t, "the key", 200, "", "")
	for i := range 300 {
		w.do(w.with(w.token(idp, fmt.Sprint("c-", i), nil), plainCall("tools", "u")))
	}
	w.act("k", plainCall("tools", "u")).want(t, "the key's bucket", 429, "rate_limited", "key")
	if n := w.limiter.Stats().Tables[ratelimit.Callers].Entries; n > 64+8 {
		t.Errorf("%d callers are kept", n)
	}
}

// TestIdentityLimitsOfCallers: what a claim says is what identity limits go by.
func TestIdentityLimitsOfCallers(t *testing.T) {
	w, idp := withIssuer(t, toAnybody+`, user_claim: email, org_claim: org`, setup{registry: worldRegistry + "identity_limits: {user: 2, org: 3}\n"}, hello)
	call := func(sub, email, org string) told {
		return w.do(w.with(w.token(idp, sub, map[string]any{"email": email, "org": org}), plainCall("tools", "u")))
	}
	call("a-1", "a@corp", "x").want(t, "first", 200, "", "")
	call("a-2", "a@corp", "x").want(t, "second", 200, "", "")
	call("a-1", "a@corp", "y").want(t, "third of the user", 429, "rate_limited", "user")
	call("b", "b@corp", "x").want(t, "third of the org", 200, "", "")
	call("b", "b@corp", "x").want(t, "fourth of the org", 429, "rate_limited", "org")
}

// TestWhoamiOfACaller tells what the token's claims have given.
func TestWhoamiOfACaller(t *testing.T) {
	w, idp := withIssuer(t, `services: [tools]`, setup{}, hello)
	r := w.with(w.token(idp, "alice", nil), "")
	r.Method, r.Body, r.ContentLength = "GET", http.NoBody, 0
	r.URL.Path = "/v1/whoami"
	got := w.do(r)
	for _, part := range []string{`"id":"oidc:` + idp.URL + `#alice"`, `"services":["tools"]`, `"users":["alice"]`, `"limit":"key"`, `"limit":"tenant"`} {
		if !strings.Contains(got.body, part) {
			t.Errorf("no %s in %s", part, got.body)
		}
	}
}

// TestATokenThatExpiresWhileItsCallWaits is not one to call an upstream with.
func TestATokenThatExpiresWhileItsCallWaits(t *testing.T) {
	streams := newHeldStreams()
	w, idp := withIssuer(t, toAnybody, setup{settings: func(s *config.Settings) {
		s.TenantMaxInflight, s.TenantQueue, s.TenantQueueWait, s.StreamIdle = 1, 5, time.Hour, 0
	}}, streams.serve)
	w.keys["t"] = w.token(idp, "alice", map[string]any{"exp": w.clock.Now().Add(24 * time.Hour).Unix()})
	finish := w.hold(streams, "t", streamCall("tools", "u"))
	w.keys["short"] = w.token(idp, "alice", map[string]any{"n": 1})
	answer := make(chan told, 1)
	go func() { answer <- w.act("short", plainCall("tools", "u")) }()
	eventually(t, "it waits", func() bool { return w.limiter.Stats().Waiting == 1 })
	w.clock.Advance(6 * time.Minute)
	if got := <-answer; got.status != 401 {
		t.Errorf("%d %s", got.status, got.body)
	}
	finish()
}

// TestAStreamOutlivesItsToken, but not its issuer's entry: when the registry has
// another audience there, or none of that issuer, it is ended.
func TestAStreamOutlivesItsToken(t *testing.T) {
	streams := newHeldStreams()
	w, idp := withIssuer(t, toAnybody, setup{settings: func(s *config.Settings) { s.StreamIdle = 0 }}, streams.serve)
	w.keys["t"] = w.token(idp, "alice", nil)
	finish := w.hold(streams, "t", streamCall("tools", "u"))
	w.hold(streams, "t", streamCall("tools", "u"))
	w.clock.Advance(time.Hour)
	w.act("t", plainCall("tools", "u")).want(t, "a new call", 401, "unauthenticated", "")
	w.use(withEntry(idp, worldRegistry, toAnybody)) // an operator has changed keys, or something else
	finish()
	w.use(strings.Replace(withEntry(idp, worldRegistry, toAnybody), "audience: agentgate", "audience: another", 1))
	eventually(t, "the stream is ended", func() bool {
		records := w.ledger.all()
		return records[len(records)-1].Ending == receipts.Revoked
	})
}

// TestAStreamEndsWithItsClient: when the registry lists clients, and not any more that
// to which the token was issued, or none to which it was.
func TestAStreamEndsWithItsClient(t *testing.T) {
	for _, claims := range []map[string]any{{"azp": "cli"}, {"client_id": "cli"}, nil} {
		streams := newHeldStreams()
		entry := toAnybody
		if claims != nil {
			entry += ", azp: [cli, web]"
		}
		w, idp := withIssuer(t, toAnybody, setup{settings: func(s *config.Settings) { s.StreamIdle = 0 }}, streams.serve)
		w.keys["t"] = w.token(idp, "alice", claims)
		w.use(withEntry(idp, worldRegistry, entry))
		finish := w.hold(streams, "t", streamCall("tools", "u"))
		w.hold(streams, "t", streamCall("tools", "u"))
		w.use(withEntry(idp, worldRegistry, entry+", org_claim: org")) // which says nothing of clients
		finish()
		w.use(withEntry(idp, worldRegistry, toAnybody+", azp: [web]"))
		w.act("t", plainCall("tools", "u")).want(t, "a new call", 401, "unauthenticated", "")
		eventually(t, "the stream is ended", func() bool {
			for _, r := range w.ledger.all() {
				if r.Ending == receipts.Revoked {
					return true
				}
			}
			return false
		})
	}
}
