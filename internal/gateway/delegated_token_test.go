package gateway_test

import (
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/delegation"
	"agentgw/internal/identity"
	"agentgw/internal/oidc/oidctest"
	"agentgw/internal/receipts"
)

// delegatedTo is a world that trusts delegationRoot and takes tokens of two issuers; who
// has acme as the claim org is of the tenant of that name.
func delegatedTo(t *testing.T, upstream http.HandlerFunc) (w *world, ours, others *oidctest.IdP) {
	t.Helper()
	ours, others = oidctest.New(t), oidctest.New(t)
	const entry = toAnybody + `, limits: {rps: 1000, burst: 1000}, tenant_claim: org, tenants: {acme: acme}`
	both := entry + "}\n  - {issuer: " + others.URL + ", allow_private: true, audience: agentgate, " + entry
	w = takingTokens(t, ours, both, setup{registry: delegatedRegistry, settings: func(s *config.Settings) { s.StreamIdle = 0 }}, upstream, roomy("planner"))
	eventually(t, "the other issuer's keys are there", func() bool {
		return w.do(w.with(others.Token(w.clock.Now(), "first", nil), "{")).status != 401
	})
	w.trust(delegation.Revocations{})
	return w, ours, others
}

// bring is a call with a token and a delegation.
func (w *world) bring(token, body, chain string) told {
	w.t.Helper()
	r := w.with(token, body)
	r.Header.Set("Agentgate-Delegation", chain)
	return w.do(r)
}

// TestADelegatedCallWithAToken: a delegation to a caller of an issuer is good for that
// issuer's subject, whatever token he comes with, and for nobody else: no other subject,
// nobody of that name at another issuer, no key, and not in another tenant. It is handed
// on to others like him, and the receipts have each link.
func TestADelegatedCallWithAToken(t *testing.T) {
	w, ours, others := delegatedTo(t, hello)
	name := func(idp *oidctest.IdP, subject string) string { return identity.CallerID(idp.URL, subject) }
	inAcme := map[string]any{"org": "acme"}
	issue := func(agent, tenant string) string {
		token, _ := w.issue(func(g *delegation.Grant) { g.Agent, g.Tenant = agent, tenant })
		return token
	}
	root := issue(name(ours, "planner"), "acme")
	narrow := func(agent string) string {
		g := w.grantOf(agent)
		g.Depth, g.Thumbprint = 0, ""
		longer, _, err := delegation.Narrow(delegationHolder, root, g, w.clock.Now())
		if err != nil {
			t.Fatal(err)
		}
		return longer
	}
	toWorker, toKey := narrow(name(others, "worker")), narrow("planner")
	n := 0
	fresh := func(idp *oidctest.IdP, subject string, claims map[string]any) string {
		n++
		more := map[string]any{"n": n}
		for k, v := range claims {
			more[k] = v
		}
		return w.token(idp, subject, more)
	}
	linked := func(chain string, agents ...string) (list []string) {
		for i, link := range strings.Split(chain, ",") {
			sum := sha256.Sum256([]byte(link))
			list = append(list, base64.RawURLEncoding.EncodeToString(sum[:])+" agent:"+agents[i])
		}
		return list
	}
	good := linked(root, name(ours, "planner"))
	for _, c := range []struct {
		name, token, service, chain, reason string
		links                               []string
	}{
		{"his", fresh(ours, "planner", inAcme), "signed", root, "", good},
		{"his, with another token", fresh(ours, "planner", inAcme), "tools", root, "", good},
		{"another subject's", fresh(ours, "worker", inAcme), "signed", root, "wrong_agent", good},
		{"of his name in other letters", fresh(ours, "Planner", inAcme), "signed", root, "wrong_agent", good},
		{"of his name at another issuer", fresh(others, "planner", inAcme), "signed", root, "wrong_agent", good},
		{"his, in no tenant", fresh(ours, "planner", nil), "signed", root, "wrong_tenant", good},
		{"his, in another", fresh(ours, "planner", map[string]any{"org": "corp"}), "signed", root, "wrong_tenant", good},
		{"of no tenant, in one", fresh(ours, "planner", inAcme), "signed", issue(name(ours, "planner"), ""), "wrong_tenant", nil},
		{"of no tenant, in none that has a name", fresh(ours, "planner", map[string]any{"org": "corp"}), "signed", issue(name(ours, "planner"), ""), "", nil},
		{"to the subject without his issuer", fresh(ours, "planner", inAcme), "signed", issue("planner", "acme"), "wrong_agent", nil},
		{"handed on", fresh(others, "worker", inAcme), "signed", toWorker, "", linked(toWorker, name(ours, "planner"), name(others, "worker"))},
		{"handed on, by who handed it on", fresh(ours, "planner", inAcme), "signed", toWorker, "wrong_agent", linked(toWorker, name(ours, "planner"), name(others, "worker"))},
		{"handed on to a key, by its name's sake", fresh(ours, "planner", inAcme), "signed", toKey, "wrong_agent", nil},
	} {
		got := w.bring(c.token, plainCall(c.service, "alice"), c.chain)
		r := w.lastClosing()
		if c.reason == "" {
			got.want(t, c.name, 200, "", "")
		} else {
			got.want(t, c.name, 403, "delegation_invalid", "")
		}
		if r.Reason != c.reason || !strings.HasPrefix(r.Caller, "oidc:") || len(r.Chain) == 0 {
			t.Errorf("%s: the receipt says %q of %q, with %q", c.name, r.Reason, r.Caller, r.Chain)
		}
		for i, want := range c.links {
			if len(r.Chain) != len(c.links) || !strings.HasSuffix(r.Chain[i], " "+want) {
				t.Errorf("%s: the chain of the receipt is %q, want %q", c.name, r.Chain, c.links)
				break
			}
		}
	}
	w.withDelegation("planner", plainCall("signed", "alice"), root).want(t, "a key of the subject's name", 403, "delegation_invalid", "")
	w.do(w.with(fresh(ours, "planner", inAcme), plainCall("signed", "alice"))).want(t, "without one", 403, "delegation_required", "")
	w.bring(fresh(ours, "planner", inAcme), plainCall("signed", "bob"), root).want(t, "for another user", 403, "delegation_invalid", "")
	if n := w.inFlight("tenant:acme"); n != 0 {
		t.Errorf("%d slots are taken", n)
	}
}

// TestARevokedHolderOfATokenLosesHisStreams: what is revoked of a caller of an issuer
// ends what he runs by delegations, and nothing of who has his name elsewhere.
func TestARevokedHolderOfATokenLosesHisStreams(t *testing.T) {
	up := newHeldStreams()
	w, ours, others := delegatedTo(t, up.serve)
	open := func(idp *oidctest.IdP) io.ReadCloser {
		t.Helper()
		chain, _ := w.issue(func(g *delegation.Grant) { g.Agent = identity.CallerID(idp.URL, "planner") })
		r := w.with(w.token(idp, "planner", map[string]any{"org": "acme"}), streamCall("tools", "alice"))
		r.Header.Set("Agentgate-Delegation", chain)
		r.Header.Set("Idempotency-Key", idp.URL)
		up.ends.Store(idp.URL, make(chan struct{}))
		res, err := w.server.Client().Do(r)
		if err != nil || res.StatusCode != 200 {
			t.Fatal(res, err)
		}
		t.Cleanup(func() { _ = res.Body.Close() })
		return res.Body
	}
	his, namesake := open(ours), open(others)
	w.trust(delegation.Revocations{Agents: map[string]time.Time{"planner": w.clock.Now(), identity.CallerID(ours.URL, "planner"): w.clock.Now()}})
	if _, err := io.ReadAll(his); err == nil {
		t.Error("the stream looks whole")
	}
	eventually(t, "its outcome", func() bool { return w.lastClosing().Kind == receipts.KindOutcome })
	if r := w.lastClosing(); r.Ending != receipts.Revoked || r.Caller != identity.CallerID(ours.URL, "planner") || len(r.Chain) != 1 {
		t.Errorf("%+v", r)
	}
	if n := w.inFlight("tenant:acme"); n != 1 {
		t.Errorf("%d streams run on, want the namesake's", n)
	}
	_ = namesake.Close()
}
