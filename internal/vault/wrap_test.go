package vault_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/store"
	"agentgw/internal/vault"
)

func kekOf(t *testing.T, digit string) vault.KEK {
	t.Helper()
	k, err := vault.ParseKEK(strings.Repeat(digit, 64))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestAnotherVaultKey takes the place of one: both open while both are given, all is
// wrapped anew, and then the old one opens nothing and the new one all.
func TestAnotherVaultKey(t *testing.T) {
	s := openStore(t, t.TempDir())
	set(t, load(t, s, "0"), vault.Ref{Service: "github"}, "canary")
	salts, err := vault.LoadSalts(t.Context(), s, kekOf(t, "0"), clockwork.NewFakeClockAt(noon))
	if err != nil {
		t.Fatal(err)
	}
	salt, _, err := salts.Salt("tenant:a", "receipt")
	if err != nil {
		t.Fatal(err)
	}
	root, err := vault.SigningRoot(t.Context(), s, kekOf(t, "0"), noon)
	if err != nil {
		t.Fatal(err)
	}
	opens := func(k vault.KEK) error {
		v, err := vault.Load(t.Context(), s, k)
		if err != nil {
			return err
		}
		if got := sent(t, v, vault.Ref{Service: "github"}, bearer); got != "Bearer canary" {
			t.Errorf("it sends %q", got)
		}
		fresh, err := vault.LoadSalts(t.Context(), s, k, clockwork.NewFakeClockAt(noon))
		if err != nil {
			return err
		}
		if again, _, err := fresh.Salt("tenant:a", "receipt"); err != nil || again != salt {
			t.Errorf("another salt, %v", err)
		}
		roots, err := vault.LoadRoots(t.Context(), s, k)
		if err == nil && (len(roots) != 1 || roots[0].ID != root.ID) {
			t.Errorf("the roots are %v", roots)
		}
		return err
	}
	old, next := kekOf(t, "0"), kekOf(t, "1")
	both := next.After(old)
	if err := opens(both); err != nil {
		t.Errorf("both, before: %v", err)
	}
	if _, err := vault.Rewrap(t.Context(), s, next); !errors.Is(err, vault.ErrWrongKEK) || !strings.Contains(err.Error(), "give that one as AGENTGATE_VAULT_KEY_PREVIOUS, or") {
		t.Errorf("without the old one: %v", err)
	}
	// Half of it, as of one that was broken off.
	set(t, must1(t)(vault.Load(t.Context(), s, both)), vault.Ref{Service: "jira"}, "another")
	for i, want := range []int{3, 0} {
		if done, err := vault.Rewrap(t.Context(), s, both); err != nil || done != want {
			t.Errorf("%d: %d keys, %v", i, done, err)
		}
	}
	for name, k := range map[string]vault.KEK{"both": both, "the new one": next, "the new one and a third": next.After(kekOf(t, "2"))} {
		if err := opens(k); err != nil {
			t.Errorf("%s, after: %v", name, err)
		}
	}
	for name, k := range map[string]vault.KEK{"the old one": old, "the old one after a third": old.After(kekOf(t, "2"))} {
		if err := opens(k); !errors.Is(err, vault.ErrWrongKEK) {
			t.Errorf("%s, after: %v", name, err)
		}
	}
}

// overtaken is a store in which another process is always first to wrap a key anew.
type overtaken struct{ *store.Store }

func (overtaken) RewrapDataKey(context.Context, string, store.DataKey) error {
	return store.ErrConflict
}

// TestKeysThatOthersChangeMeanwhile are left to them, and keep none of the rest from
// being wrapped anew: one that another process has wrapped, and one that was shredded.
func TestKeysThatOthersChangeMeanwhile(t *testing.T) {
	s := openStore(t, t.TempDir())
	set(t, load(t, s, "0"), vault.Ref{Service: "github"}, "canary")
	salts, err := vault.LoadSalts(t.Context(), s, kekOf(t, "0"), clockwork.NewFakeClockAt(noon))
	if err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"tenant:a", "tenant:b"} {
		if _, _, err := salts.Salt(tenant, "receipt"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := vault.Shred(t.Context(), s, "tenant:a", noon); err != nil {
		t.Fatal(err)
	}
	both := kekOf(t, "1").After(kekOf(t, "0"))
	if done, err := vault.Rewrap(t.Context(), overtaken{s}, both); done != 1 || err != nil { // tenant:b's
		t.Errorf("%d keys, %v", done, err)
	}
	if done, err := vault.Rewrap(t.Context(), s, both); done != 1 || err != nil {
		t.Errorf("then %d keys, %v", done, err)
	}
}

// TestChangesUnderAnotherVaultKey: a vault whose key another has taken the place of
// says so, and goes on with what is stored: what is removed is gone, and what is
// replaced is not sent as it was.
func TestChangesUnderAnotherVaultKey(t *testing.T) {
	s := openStore(t, t.TempDir())
	old := load(t, s, "0")
	kept, removed, replaced := vault.Ref{Service: "kept"}, vault.Ref{Service: "removed"}, vault.Ref{Service: "replaced"}
	for _, ref := range []vault.Ref{kept, removed, replaced} {
		set(t, old, ref, "canary")
	}
	both := kekOf(t, "1").After(kekOf(t, "0"))
	if _, err := vault.Rewrap(t.Context(), s, both); err != nil {
		t.Fatal(err)
	}
	if err := old.Reload(t.Context()); !errors.Is(err, vault.ErrWrongKEK) {
		t.Errorf("rewrapped: %v", err)
	}
	if err := vault.Remove(t.Context(), s, removed); err != nil {
		t.Fatal(err)
	}
	set(t, must1(t)(vault.Load(t.Context(), s, both)), replaced, "another")
	person := vault.Ref{Service: "kept", User: "new"}
	set(t, must1(t)(vault.Load(t.Context(), s, both)), person, "under a key that is not known")
	if err := old.Reload(t.Context()); !errors.Is(err, vault.ErrWrongKEK) {
		t.Errorf("changed: %v", err)
	}
	if got := sent(t, old, kept, bearer); got != "Bearer canary" {
		t.Errorf("what stayed: %q", got)
	}
	if _, err := old.Open(t.Context(), removed, bearer); !errors.Is(err, vault.ErrMissing) {
		t.Errorf("what was removed: %v", err)
	}
	if got := sent(t, old, replaced, bearer); got != "Bearer another" {
		t.Errorf("what was replaced: %q", got)
	}
	if _, err := old.Open(t.Context(), person, vault.Form{Type: vault.TypeBearer, PerUser: true}); !errors.Is(err, vault.ErrCorrupt) {
		t.Errorf("what a key of another vault key sealed: %v", err)
	}
}

func must1(t *testing.T) func(v *vault.Vault, err error) *vault.Vault {
	return func(v *vault.Vault, err error) *vault.Vault {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
