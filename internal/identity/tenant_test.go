package identity_test

import (
	"fmt"
	"testing"

	"agentgw/internal/identity"

	"pgregory.net/rapid"
)

func TestTenantOf(t *testing.T) {
	for _, c := range []struct {
		name            string
		key             identity.Key
		principal, want string
		max             int
	}{
		{"named", identity.Key{Tenant: "acme", Users: list("*")}, "u", "tenant:acme", 64},
		{"named beats listed", identity.Key{Tenant: "acme", Users: list("u")}, "u", "tenant:acme", 64},
		{"everybody", identity.Key{Users: list("*")}, "u", "key:ci-bot", 64},
		{"everybody, on nobody's behalf", identity.Key{Users: list("*")}, "", "key:ci-bot", 64},
		{"everybody among others", identity.Key{Users: list("u,*")}, "u", "key:ci-bot", 64},
		{"listed", identity.Key{Users: list("u-1,user-42")}, "user-42", "human:user-42", 64},
		{"listed, the last within", identity.Key{Users: list("a,b,c")}, "b", "human:b", 2},
		{"listed, the first beyond", identity.Key{Users: list("a,b,c")}, "c", "key:ci-bot:overflow", 2},
		{"a second mention takes no place", identity.Key{Users: list("a,a,b,c")}, "b", "human:b", 2},
		{"none of their own", identity.Key{Users: list("a")}, "a", "key:ci-bot:overflow", 0},
		{"not listed", identity.Key{Users: list("a")}, "z", "key:ci-bot:overflow", 64},
		{"nobody", identity.Key{Users: list("a")}, "", "key:ci-bot:overflow", 64},
		{"an empty name listed", identity.Key{Users: []string{""}}, "", "key:ci-bot:overflow", 64},
		{"no users", identity.Key{}, "a", "key:ci-bot:overflow", 64},
		{"a name with colons", identity.Key{Users: list("x:overflow")}, "x:overflow", "human:x:overflow", 64},
	} {
		c.key.ID = "ci-bot"
		for which, k := range map[string]*identity.Key{"plain": &c.key, "of a directory": directory(t, c.key).ByID("ci-bot")} {
			if got := k.TenantOf(c.principal, c.max); got.String() != c.want {
				t.Errorf("%s, %s: %s, want %s", c.name, which, got, c.want)
			}
		}
	}
}

// TestOneHumanIsOneTenant: two keys that act for the same human charge the same.
func TestOneHumanIsOneTenant(t *testing.T) {
	d := directory(t, identity.Key{ID: "a", Users: list("u,v")}, identity.Key{ID: "b", Users: list("w,u")})
	if one, two := d.ByID("a").TenantOf("u", 64), d.ByID("b").TenantOf("u", 64); one != two {
		t.Errorf("%s and %s", one, two)
	}
	if one, two := d.ByID("a").TenantOf("x", 64), d.ByID("b").TenantOf("x", 64); one == two {
		t.Errorf("two keys share the overflow %s", one)
	}
}

// TestRotationCreatesNothing: whatever a caller writes as the principal, a key
// has at most its cap of tenants and its overflow.
func TestRotationCreatesNothing(t *testing.T) {
	var users []string
	for i := range 200 {
		users = append(users, fmt.Sprint("user-", i))
	}
	k := directory(t, identity.Key{ID: "k", Users: users}).ByID("k")
	tenants := make(map[identity.Tenant]int)
	for i := range 5000 {
		tenants[k.TenantOf(fmt.Sprint("user-", i), 64)]++
	}
	if len(tenants) != 65 {
		t.Errorf("%d tenants, want 64 and the overflow", len(tenants))
	}
	if n := tenants[identity.NewTenant(identity.KindKey, "k:overflow")]; n != 5000-64 {
		t.Errorf("%d calls in the overflow", n)
	}
}

// TestTenantsPrintApart: no two tenants of any kinds print alike, whatever the
// names, since the text is what limits and records are kept under. A key's id
// has no colon; a human's name may hold anything.
func TestTenantsPrintApart(t *testing.T) {
	kind := rapid.SampledFrom([]string{identity.KindHuman, identity.KindKey, identity.KindTenant})
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[:/a\x00]{0,4}`)
		a := identity.NewTenant(kind.Draw(t, "kind"), name.Draw(t, "name"))
		b := identity.NewTenant(kind.Draw(t, "kind"), name.Draw(t, "name"))
		if (a == b) != (a.String() == b.String()) || (a == b) != (a.Kind == b.Kind && a.Name == b.Name) {
			t.Fatalf("%q and %q", a, b)
		}
	})
}

func TestTheHotPathAllocatesNothing(t *testing.T) {
	d := directory(t, identity.Key{ID: "k", Services: list("a,github"), Actions: list("a.*,git*.list_*"), Users: list("u,v,w")},
		identity.Key{ID: "named", Tenant: "acme", Users: list("u")})
	k, named := d.ByID("k"), d.ByID("named")
	n := testing.AllocsPerRun(100, func() {
		sink = k.TenantOf("v", 2).String() + ""
		sink = k.TenantOf("w", 2).String()
		sink = named.TenantOf("u", 64).String()
		if !k.Allows("github", "list_issues") || !k.AllowsUser("w") || k.AllowsEvery("github") {
			t.Error("scope")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

var sink string
