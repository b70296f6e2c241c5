package oidc_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"agentgw/internal/identity"
)

// TestWhatClaimsGive: scope, tenant, owner identities and limits of callers.
func TestWhatClaimsGive(t *testing.T) {
	type m = map[string]any
	for _, c := range []struct {
		name, entry string
		claims      m
		want        string // "services actions users tenant user space org limits", or why not
	}{
		{"nothing said", `audience: agentgate`, nil, "[] [] [alice] oidc:@#alice alice - - -"},
		{"everything", `audience: agentgate, services: ["*"], users: ["*"], limits: {rps: 5}`, nil, "[*] [] [*] oidc:@#alice alice - - 5/5"},
		{"the entry's", `audience: agentgate, services: [github], actions: ["github.list_*"], users: [u-1, u-2]`, nil, "[github] [github.list_*] [u-1 u-2] oidc:@#alice alice - - -"},
		{"user by another claim", `audience: agentgate, user_claim: email`, m{"email": "a@corp"}, "[] [] [a@corp] oidc:@#alice a@corp - - -"},
		{"which is not there", `audience: agentgate, user_claim: email`, nil, "[] [] [] oidc:@#alice - - - -"},
		{"a user whose name is everybody", `audience: agentgate, user_claim: email`, m{"email": "*"}, "[] [] [] oidc:@#alice * - - -"},
		{"a list of users is none", `audience: agentgate, user_claim: email`, m{"email": []string{"a"}}, "a claim"},
		{"space and org", `audience: agentgate, space_claim: s, org_claim: "https://corp/org"`, m{"s": "lab", "https://corp/org": "acme"}, "[] [] [alice] oidc:@#alice alice lab acme -"},
		{"tenant by claim", `audience: agentgate, tenant_claim: org`, m{"org": "o-1"}, "[] [] [alice] oidc:@#o-1 alice - - -"},
		{"a named tenant", `audience: agentgate, tenant_claim: org, tenants: {o-1: acme}`, m{"org": "o-1"}, "[] [] [alice] tenant:acme alice - - -"},
		{"a value that is not named", `audience: agentgate, tenant_claim: org, tenants: {o-1: acme}`, m{"org": "O-1"}, "[] [] [alice] oidc:@#O-1 alice - - -"},
		{"no value", `audience: agentgate, tenant_claim: org, tenants: {o-1: acme, alice: acme}`, nil, "[] [] [alice] oidc:@#alice alice - - -"},
		{"an empty name is no value", `audience: agentgate, tenant_claim: org, tenants: {"": acme}`, nil, "[] [] [alice] oidc:@#alice alice - - -"},
		{"a tenant that is empty", `audience: agentgate, tenant_claim: org`, m{"org": ""}, "a claim"},
		{"a tenant that is a number", `audience: agentgate, tenant_claim: org`, m{"org": 7}, "a claim"},
		{"a tenant with a control byte", `audience: agentgate, tenant_claim: org`, m{"org": "a\x1b[2J"}, "a claim"},
		{"look-alikes are not the same", `audience: agentgate, tenant_claim: org, tenants: {corp: acme}`, m{"org": "ｃorp"}, "[] [] [alice] oidc:@#ｃorp alice - - -"},
		{"a dot at the end", `audience: agentgate, tenant_claim: org, tenants: {corp.example: acme}`, m{"org": "corp.example."}, "[] [] [alice] oidc:@#corp.example. alice - - -"},
		{"within a claim", `audience: agentgate, tenant_claim: /a~1b/c`, m{"a/b": m{"c": "o-1"}}, "[] [] [alice] oidc:@#o-1 alice - - -"},
		{"within no object", `audience: agentgate, tenant_claim: /a/b`, m{"a": "b"}, "[] [] [alice] oidc:@#alice alice - - -"},

		{"a scope", scoped, m{"groups": []string{"x", "dev"}}, "[github] [github.list_*] [*] oidc:@#alice alice - - 7/7"},
		{"the first that holds", scoped, m{"groups": []string{"ops", "dev"}}, "[github] [github.list_*] [*] oidc:@#alice alice - - 7/7"},
		{"another", scoped, m{"groups": []string{"ops"}}, "[*] [] [alice] oidc:@#alice alice - - -"},
		{"a single value", scoped, m{"groups": "ops"}, "[*] [] [alice] oidc:@#alice alice - - -"},
		{"a part of a value", scoped, m{"groups": []string{"op", "opsx", "dev ops"}}, "[search] [] [alice] oidc:@#alice alice - - -"},
		{"another case", scoped, m{"groups": []string{"Ops"}}, "[search] [] [alice] oidc:@#alice alice - - -"},
		{"many at's", scoped, m{"email": "a@evil@corp"}, "[search] [] [alice] oidc:@#alice alice - - -"},
		{"spaces part no claim", scoped, m{"groups": "x ops"}, "[search] [] [alice] oidc:@#alice alice - - -"},
		{"but scope", scoped, m{"scope": "openid read profile"}, "[github] [] [alice] oidc:@#alice alice - - -"},
		{"a role within", scoped, m{"realm_access": m{"roles": []string{"admin"}}}, "[*] [] [*] oidc:@#alice alice - - -"},

		{"a condition", conditional, m{"groups": []string{"x", "dev"}}, "[github] [github.list_*] [*] oidc:@#alice alice - - 7/7"},
		{"two claims", conditional, m{"groups": []string{"ops"}, "level": 3}, "[*] [] [alice] oidc:@#alice alice - - -"},
		{"one of the two", conditional, m{"groups": []string{"ops"}, "level": 2.5}, "[search] [] [alice] oidc:@#alice alice - - -"},
		{"a claim of one behind a condition", conditional, m{"groups": []string{}, "level": 0, "tier": "gold"}, "[github search] [] [alice] oidc:@#alice alice - - -"},
		{"no condition holds", conditional, m{"groups": []string{}, "level": 0}, "[search] [] [alice] oidc:@#alice alice - - -"},
		{"one that asks whether the claim is there", `audience: agentgate, services: [search], scopes: [{when: "claims.?groups.orValue([]).exists(g, g.startsWith('dev-'))", services: ["*"]}]`, nil, "[search] [] [alice] oidc:@#alice alice - - -"},
		{"a claim that is not there gives nothing", conditional, nil, "[] [] [alice] oidc:@#alice alice - - -"},
		{"nor one of another type", conditional, m{"groups": []string{"ops"}, "level": "3"}, "[] [] [alice] oidc:@#alice alice - - -"},
		{"nor one that is no list", conditional, m{"groups": 7}, "[] [] [alice] oidc:@#alice alice - - -"},
		{"nor too much work", conditional, m{"groups": slices.Repeat([]string{"x"}, 2500), "level": 0, "tier": "slow"}, "[] [] [alice] oidc:@#alice alice - - -"},
		{"a result that is neither", `audience: agentgate, services: [search], scopes: [{when: "claims.x", services: ["*"]}]`, m{"x": "true"}, "[] [] [alice] oidc:@#alice alice - - -"},
		{"of the token as it is", `audience: agentgate, services: [search], scopes: [{when: "claims.sub == 'alice' && claims.aud == 'agentgate' && claims.nested.deep[1] == null", services: ["*"]}]`, m{"nested": m{"deep": []any{1, nil}}}, "[*] [] [alice] oidc:@#alice alice - - -"},

		{"none of them", scoped, nil, "[search] [] [alice] oidc:@#alice alice - - -"},
	} {
		w := newWorld(t, c.entry)
		k, err := w.caller(w.idp.Token(noon, "alice", c.claims))
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = strings.ReplaceAll(shown(k), w.idp.URL, "@")
		}
		if got != c.want && !(err != nil && strings.Contains(got, c.want)) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if err == nil && (k.Issuer != w.idp.URL || k.ID != "oidc:"+w.idp.URL+"#alice") {
			t.Errorf("%s: %+v", c.name, k)
		}
	}
}

const scoped = `audience: agentgate, services: [search], scopes: [` +
	`{claim: groups, value: dev, services: [github], actions: ["github.list_*"], users: ["*"], limits: {rps: 7}}, ` +
	`{claim: groups, value: ops, services: ["*"]}, {claim: email, value: "a@corp", services: ["*"]}, {claim: scope, value: read, services: [github]}, ` +
	`{claim: /realm_access/roles, value: admin, services: ["*"], users: ["*"]}]`

// conditional has a default that gives less than nothing would be: what has no result
// must not come down to it.
const conditional = `audience: agentgate, services: [search], scopes: [` +
	`{when: "'dev' in claims.groups", services: [github], actions: ["github.list_*"], users: ["*"], limits: {rps: 7}}, ` +
	`{when: "'ops' in claims.groups && claims.level >= 3", services: ["*"]}, {claim: tier, value: gold, services: [github, search]}, ` +
	`{when: "has(claims.tier) && claims.groups.exists(g, claims.groups.exists(h, h == g + 'y'))", services: ["*"]}]`

func shown(k *identity.Key) string {
	list := func(l []string) string { return "[" + strings.Join(l, " ") + "]" }
	text := list(k.Services) + " " + list(k.Actions) + " " + list(k.Users) + " " + k.TenantOf("anybody", 64).String()
	for _, s := range []string{k.User, k.Space, k.Org} {
		if s == "" {
			s = "-"
		}
		text += " " + s
	}
	if k.Limits == nil {
		return text + " -"
	}
	return text + fmt.Sprintf(" %v/%d", k.Limits.RPS, k.Limits.Burst)
}
