package storetest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/store"
)

// delegationRoots: the newest comes first, one before it is kept, and of two who make
// the next one at once, one does.
func delegationRoots(t *testing.T, a, b Store) {
	root := func(i byte) store.Root {
		return store.Root{ID: string('a' + rune(i)), Wrapper: "w", Wrapped: []byte{i, 0}, CreatedAt: noon.Add(-time.Duration(i))}
	}
	mustBe(t, a.AddRoot(t.Context(), root(0), "a"), store.ErrConflict) // there is none
	must(t, a.AddRoot(t.Context(), root(0), ""))
	mustBe(t, b.AddRoot(t.Context(), root(1), ""), store.ErrConflict)
	must(t, b.AddRoot(t.Context(), root(1), "a"))
	mustBe(t, a.AddRoot(t.Context(), root(2), "a"), store.ErrConflict)
	must(t, a.AddRoot(t.Context(), root(2), "b"))
	got, err := b.Roots(t.Context())
	must(t, err)
	if d := cmp.Diff([]store.Root{root(2), root(1)}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// revokedDelegations: a token stays revoked since when it was, an agent or a user
// since the last time; what is long over goes.
func revokedDelegations(t *testing.T, a, b Store) {
	revoke := func(s Store, kind, name string, at time.Time) {
		t.Helper()
		must(t, s.RevokeDelegations(t.Context(), store.Revocation{Kind: kind, Name: name, RevokedAt: at}))
	}
	want := func(want ...store.Revocation) {
		t.Helper()
		got, err := b.Revocations(t.Context())
		must(t, err)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
	revoke(a, store.RevokedToken, "x", noon)
	revoke(b, store.RevokedToken, "x", noon.Add(time.Hour))
	revoke(a, store.RevokedUser, "x", noon)
	revoke(b, store.RevokedUser, "x", noon.Add(time.Hour))
	revoke(b, store.RevokedUser, "x", noon.Add(time.Minute))
	revoke(a, store.RevokedAgent, "ü\x00'", noon)
	want(store.Revocation{Kind: "agent", Name: "ü\x00'", RevokedAt: noon}, store.Revocation{Kind: "token", Name: "x", RevokedAt: noon},
		store.Revocation{Kind: "user", Name: "x", RevokedAt: noon.Add(time.Hour)})
	revoke(b, store.RevokedToken, "y", noon.Add(store.RevocationsKept))
	if got, err := a.Revocations(t.Context()); err != nil || len(got) != 4 {
		t.Errorf("%v, %v: kept too short", got, err)
	}
	late := noon.Add(store.RevocationsKept + 1)
	revoke(b, store.RevokedToken, "z", late)
	want(store.Revocation{Kind: "token", Name: "y", RevokedAt: late.Add(-1)}, store.Revocation{Kind: "token", Name: "z", RevokedAt: late},
		store.Revocation{Kind: "user", Name: "x", RevokedAt: noon.Add(time.Hour)})
	if err := a.RevokeDelegations(t.Context(), store.Revocation{Kind: "everything", Name: "x", RevokedAt: late}); err == nil {
		t.Error("an unknown kind was stored, and nobody would act on it")
	}
}
