package identity_test

import (
	"strings"
	"testing"

	"agentgw/internal/identity"

	"pgregory.net/rapid"
)

// TestCallersAreApart: two callers of issuers are known by one name exactly if issuer
// and subject are equal, and two of their tenants are one exactly if issuer and value
// are; and neither is ever a key, a person or a named tenant. A registry takes no
// issuer with a fragment, and no subject or value that is empty or has a control byte.
func TestCallersAreApart(t *testing.T) {
	issuer := rapid.StringMatching(`https://[a:]{1,2}(/[a:/]{0,3})?`)
	name := rapid.StringMatching(`[:/#a*]{1,4}`)
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) (issuerOf, subject, tenant string) {
			return issuer.Draw(t, label+" issuer"), name.Draw(t, label+" subject"), name.Draw(t, label+" tenant")
		}
		i1, s1, t1 := draw("one")
		i2, s2, t2 := draw("two")
		if rapid.Bool().Draw(t, "shift") && strings.Contains(s1, "#") {
			// The likeliest collision: what stands before a border in one stands behind it in the other.
			before, after, _ := strings.Cut(s1, "#")
			i2, s2 = i1+"/"+before, after
		}
		if same := i1 == i2 && s1 == s2; same != (identity.CallerID(i1, s1) == identity.CallerID(i2, s2)) {
			t.Fatalf("%q %q and %q %q are both %q", i1, s1, i2, s2, identity.CallerID(i1, s1))
		}
		tenantOf := func(issuer, subject, value string) identity.Tenant {
			return identity.NewCaller(identity.Key{ID: identity.CallerID(issuer, subject), Issuer: issuer, Users: []string{"*"}}, value).Key.TenantOf("u", 64)
		}
		a, b := tenantOf(i1, s1, t1), tenantOf(i2, s2, t2)
		if same := i1 == i2 && t1 == t2; same != (a == b) || same != (a.String() == b.String()) {
			t.Fatalf("%q of %q and %q of %q are %q and %q", t1, i1, t2, i2, a, b)
		}
		for _, kind := range []string{identity.KindHuman, identity.KindKey, identity.KindTenant} {
			if other := identity.NewTenant(kind, s1); other.String() == a.String() || other.String() == identity.CallerID(i1, s1) {
				t.Fatalf("%q is a %s, too", a, kind)
			}
		}
	})
}
