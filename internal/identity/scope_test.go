package identity_test

import (
	"strings"
	"testing"

	"agentgw/internal/identity"

	"pgregory.net/rapid"
)

func TestActionsInScope(t *testing.T) {
	for _, c := range []struct {
		services, actions string
		service, action   string
		want              bool
	}{
		{"github", "", "github", "list_issues", true},
		{"github", "", "search", "query", false},
		{"", "", "github", "list_issues", false},
		{"*", "", "anything", "at_all", true},
		{"github", "github.list_*", "github", "list_issues", true},
		{"github", "github.list_*", "github", "list_", true},
		{"github", "github.list_*", "github", "create_issue", false},
		{"github", "github.list_*", "github", "relist_issues", false},
		{"*", "github.list_*", "search", "list_x", false},
		{"github", "search.*", "github", "list_issues", false},
		{"github", "*", "github", "list_issues", true},
		{"github", "*", "search", "query", false},
		{"*", "*.list_*", "gitlab", "list_issues", true},
		{"*", "*.list_*", "gitlab", "create", false},
		{"github", "nothing.x,github.create_*", "github", "create_issue", true},
		{"*", "git*.*", "gitlab", "x", true},
		{"*", "git*.*", "hg", "x", false},
		{"*", "*.*_issue*", "a", "list_issues", true},
		{"*", "*.*_issue*", "a", "issues", false},
		// A name may hold a dot, and a star must not reach over the joint.
		{"*", "github.*", "github.admin", "delete", false},
		{"*", "github.admin.*", "github.admin", "delete", true},
		{"*", "github.issues.*", "github", "issues.create", true},
		{"*", "github.*", "github", "issues.create", true},
		{"*", "git*", "github", "x", true}, // no dot: the star holds the joint
		{"*", "github", "github", "x", false},
		{"*", "github.", "github", "", true},
		{"*", "GitHub.*", "github", "x", false},
		{"*", "github.lis?_*", "github", "list_x", false},
		{"*", "github.[a-z]*", "github", "list", false},
	} {
		k := &identity.Key{Services: list(c.services), Actions: list(c.actions)}
		if got := k.Allows(c.service, c.action); got != c.want {
			t.Errorf("services %q, actions %q: %s.%s allowed: %v", c.services, c.actions, c.service, c.action, got)
		}
	}
}

func TestWholeServiceInScope(t *testing.T) {
	for _, c := range []struct {
		services, actions, service string
		want                       bool
	}{
		{"github", "", "github", true},
		{"github", "", "search", false},
		{"github", "github.*", "github", true},
		{"github", "github.**", "github", true},
		{"github", "*", "github", true},
		{"github", "*.*", "github", true},
		{"*", "git*", "github", true},
		{"github", "github.list_*", "github", false},
		{"github", "github.*_x", "github", false},
		{"github", "github.", "github", false},
		{"github", "*b", "github", false},
		{"*", "github.*", "github.admin", false},
		{"*", "github.admin.*", "github", false}, // only actions that begin with admin.
		{"search", "github.*", "github", false},
	} {
		k := &identity.Key{Services: list(c.services), Actions: list(c.actions)}
		if got := k.AllowsEvery(c.service); got != c.want {
			t.Errorf("services %q, actions %q: %s.* allowed: %v", c.services, c.actions, c.service, got)
		}
	}
}

// TestEveryMeansEach: what covers a whole service covers each action of it.
func TestEveryMeansEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[ab][ab.]{0,3}`)
		k := &identity.Key{
			Services: []string{"*"},
			Actions:  rapid.SliceOfN(rapid.StringMatching(`[ab.*]{1,6}`), 1, 3).Draw(t, "actions"),
		}
		service, action := name.Draw(t, "service"), name.Draw(t, "action")
		if k.AllowsEvery(service) && !k.Allows(service, action) {
			t.Fatalf("%q covers %s.* but not %s.%s", k.Actions, service, service, action)
		}
		// A pattern without a star is the two names and nothing else.
		for _, p := range k.Actions {
			only := &identity.Key{Services: k.Services, Actions: []string{p}}
			if !strings.Contains(p, "*") && only.Allows(service, action) != (p == service+"."+action) {
				t.Fatalf("%q and %s.%s", p, service, action)
			}
		}
	})
}

func TestUsersInScope(t *testing.T) {
	for _, c := range []struct {
		users, user string
		want        bool
	}{
		{"*", "anybody", true},
		{"*", "", true},
		{"alice,bob", "bob", true},
		{"alice,bob", "carol", false},
		{"alice,bob", "", false},
		{"alice,bob", "Alice", false},
		{"alice,bob", "alice ", false},
		{"alice,bob", "*", false},
		{"", "alice", false},
		{"", "", false},
		{"caf\u00e9", "cafe\u0301", false}, // NFC and NFD are two names
		{"a@corp", "a@evil@corp", false},
		{"alice,*", "bob", true},
	} {
		k := identity.Key{ID: "k", Users: list(c.users)}
		for which, key := range map[string]*identity.Key{"plain": &k, "of a directory": directory(t, k).ByID("k")} {
			if got := key.AllowsUser(c.user); got != c.want {
				t.Errorf("%s: users %q: %q allowed: %v", which, c.users, c.user, got)
			}
		}
	}
	// An empty name in the list is still nobody.
	if k := (&identity.Key{Users: []string{""}}); k.AllowsUser("") {
		t.Error("an empty name in the list lets calls on nobody's behalf through")
	}
}

func TestWildcards(t *testing.T) {
	k := &identity.Key{Services: []string{"a"}, Users: []string{"u"}}
	if k.AllServices() || k.AllUsers() {
		t.Error("a narrow key counts as one for everything")
	}
	k = &identity.Key{Services: []string{"*"}, Users: []string{"*"}}
	if !k.AllServices() || !k.AllUsers() {
		t.Error("a key for everything does not count as one")
	}
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}
