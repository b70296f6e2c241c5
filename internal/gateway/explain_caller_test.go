package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/explain"
	"agentgw/internal/identity"
	"agentgw/internal/oidc"
	"agentgw/internal/registry"
	"agentgw/internal/rules"
)

// TestExplainAgreesWithACallersCall: of every call that somebody makes with a token, the
// answer for his name and claims says the code and status that it ends with, whom it is
// charged to, and every policy that its answer tells of, with the same numbers; and for
// him stands nobody in the limiter before he has come.
func TestExplainAgreesWithACallersCall(t *testing.T) {
	const entry = `services: [plain], users: ["*"], tenant_claim: org, tenants: {o-1: team}, scopes: [` +
		`{claim: groups, value: dev, services: [plain, limited], actions: ["limited.*"], users: ["*"], limits: {rps: 1, burst: 9}}, ` +
		`{when: "claims.level > 2", services: ["*"]}]`
	w, idp := withIssuer(t, entry, setup{registry: explainedRegistry, vault: holds{{Service: "personal", User: "ann"}: true}}, hello)
	file := withEntry(idp, explainedRegistry, entry)
	x := w.explainer(file)
	x.Vault = holds{{Service: "personal", User: "ann"}: true}
	set, err := rules.Compile(x.Registry)
	if err != nil {
		t.Fatal(err)
	}
	x.Rules = set
	calls, refusals := 0, map[string]int{}
	for _, claims := range []map[string]any{
		{"level": 0}, {"groups": []string{"dev"}}, {"level": 3}, {"level": 3, "org": "o-1"}, {"level": 3, "org": "o-2"}, {"level": "3"}, {},
	} {
		says, err := json.Marshal(claims)
		if err != nil {
			t.Fatal(err)
		}
		for _, service := range []string{"plain", "limited", "keyed", "personal", "signed", "none"} {
			for _, user := range []string{"", "ann", "eve"} {
				calls++
				name := identity.CallerID(idp.URL, "ann")
				key, err := oidc.Explained(x.Registry.Issuers, set.Conditions(), name, string(says))
				if err != nil {
					t.Fatal(err)
				}
				q := explain.Question{Key: name, Service: service, Action: "get", User: user, Claims: string(says)}
				a, err := x.Explain(q, key, "", w.clock.Now())
				if err != nil {
					t.Fatal(err)
				}
				got := w.do(w.with(w.token(idp, "ann", claims), actBody(service, "get", user, "")))
				records := w.ledger.all()
				record := records[len(records)-1]
				w.clock.Advance(time.Minute) // everything is full again
				status, code := 200, ""
				if a.Refused != nil {
					status, code = a.Refused.Status, a.Refused.Code
					if a.Refused.Why == "" || !strings.Contains(got.body, fmt.Sprintf(`"detail":%q`, a.Refused.Detail)) {
						t.Errorf("%+v: why %q, told %q: %s", q, a.Refused.Why, a.Refused.Detail, got.body)
					}
				}
				refusals[code]++
				if got.status != status || got.code != code {
					t.Errorf("%+v: explained as %d %s, got %d %s", q, status, code, got.status, got.code)
				}
				if a.Tenant != "" && record.Tenant != a.Tenant {
					t.Errorf("%+v: explained as charged to %s, was to %s", q, a.Tenant, record.Tenant)
				}
				explained, told := map[string]int64{}, map[string]int64{}
				for _, l := range a.Limits {
					if !l.Off && l.Step > 1 {
						explained[l.Policy] = int64(l.Burst + l.MaxInflight)
					}
					if l.Step == 2 && (l.ChargedTo != name || strings.Contains(string(says), "dev") && l.Source == "" || !strings.HasPrefix(a.KeyFrom, "registry.yaml:")) {
						t.Errorf("%+v: %+v, from %s", q, l, a.KeyFrom)
					}
				}
				for policy, g := range got.fields(t) {
					told[policy] = g.quota
				}
				if diff := cmp.Diff(told, explained); diff != "" {
					t.Errorf("%+v: the policies that are told (-) and explained (+):\n%s", q, diff)
				}
			}
		}
	}
	for _, code := range []string{"", "scope_denied", "service_not_found", "credential_missing", "delegation_required"} {
		if refusals[code] == 0 {
			t.Errorf("of %d calls none ended with %q: %v", calls, code, refusals)
		}
	}
}

// TestCallersThatCannotBeExplained: a name is of an issuer as it is spelled in the
// registry, and claims are those that a token of his could have.
func TestCallersThatCannotBeExplained(t *testing.T) {
	s, err := registry.Parse("registry.yaml", []byte("issuers: [{issuer: \"https://idp.example\", audience: a, user_claim: email}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, claims string
		err          error
	}{
		{"oidc:https://idp.example#alice", ``, nil},
		{"oidc:https://idp.example#a#b", `{"sub":"a#b","iss":"https://idp.example","email":"a@b"}`, nil},
		{"oidc:https://idp.example#", ``, oidc.ErrCaller},
		{"oidc:https://idp.example", ``, oidc.ErrCaller},
		{"oidc:https://idp.example/#alice", ``, oidc.ErrCaller},
		{"oidc:https://IDP.example#alice", ``, oidc.ErrCaller},
		{"oidc:https://other.example#alice", ``, oidc.ErrCaller},
		{"oidc:https://idp.example#al\x00ice", ``, oidc.ErrCaller},
		{"https://idp.example#alice", ``, oidc.ErrCaller},
		{"oidc:https://idp.example#alice", `null`, oidc.ErrClaims},
		{"oidc:https://idp.example#alice", `[]`, oidc.ErrClaims},
		{"oidc:https://idp.example#alice", `{"a":1`, oidc.ErrClaims},
		{"oidc:https://idp.example#alice", `{"a":1,"a":1}`, oidc.ErrClaims},
		{"oidc:https://idp.example#alice", `{"sub":"bob"}`, oidc.ErrClaims},
		{"oidc:https://idp.example#alice", `{"iss":"https://other.example"}`, oidc.ErrClaims},
		{"oidc:https://idp.example#alice", `{"email":7}`, oidc.ErrClaims},
	} {
		if k, err := oidc.Explained(s.Issuers, nil, c.name, c.claims); !errors.Is(err, c.err) || err == nil && (k.ID != c.name || !k.ValidAt(time.Unix(0, 0))) {
			t.Errorf("%q, %s: %v, %v", c.name, c.claims, k, err)
		}
	}
}
