package storetest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/store"
)

func key(id string, digest byte) store.Key {
	return store.Key{ID: id, Digest: [32]byte{digest}, Services: []string{"*"}, Users: []string{"*"}, CreatedAt: noon}
}

func keysComeBackWhole(t *testing.T, a, b Store) {
	want := []store.Key{
		{
			ID: "full", Digest: [32]byte{1, 31: 9}, Retiring: &store.Retiring{Digest: [32]byte{5}, NotAfter: noon.Add(3)}, Services: []string{"b", "a"}, Actions: []string{"a.x*"},
			Users: []string{"z", "a\x00b", "ü\"'"}, Tenant: "acme", Limits: &store.Limits{RPS: 0.1, Burst: 3},
			User: "u", Space: "s", Org: "o", CreatedAt: noon, NotBefore: noon.Add(1), NotAfter: noon.Add(time.Hour), RevokedAt: noon.Add(2),
		},
		{ID: "none"},
		{ID: "off", Digest: [32]byte{2}, Limits: &store.Limits{}},
	}
	for _, k := range []store.Key{want[1], want[2], want[0]} {
		must(t, a.AddKey(t.Context(), k))
	}
	got, err := b.Keys(t.Context())
	must(t, err)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("by id, -want +got:\n%s", d)
	}
}

func keyOnce(t *testing.T, a, b Store) {
	must(t, a.AddKey(t.Context(), key("one", 1)))
	mustBe(t, b.AddKey(t.Context(), key("one", 2)), store.ErrExists)
	mustBe(t, b.AddKey(t.Context(), key("two", 1)), store.ErrExists)
	must(t, b.AddKey(t.Context(), key("two", 2)))
	must(t, a.RevokeKey(t.Context(), "one", noon))
	mustBe(t, a.AddKey(t.Context(), key("one", 3)), store.ErrExists)
	keys, err := a.Keys(t.Context())
	must(t, err)
	if len(keys) != 2 || keys[0].Digest[0] != 1 || keys[1].Digest[0] != 2 {
		t.Errorf("%+v", keys)
	}
}

func revoking(t *testing.T, a, b Store) {
	mustBe(t, a.RevokeKey(t.Context(), "none", noon), store.ErrNotFound)
	must(t, a.AddKey(t.Context(), key("one", 1)))
	must(t, a.AddKey(t.Context(), key("two", 2)))
	must(t, b.RevokeKey(t.Context(), "one", noon))
	must(t, a.RevokeKey(t.Context(), "one", noon.Add(time.Hour))) // stays as it was
	keys, err := a.Keys(t.Context())
	must(t, err)
	if !keys[0].RevokedAt.Equal(noon) || !keys[1].RevokedAt.IsZero() {
		t.Errorf("revoked at %v and %v", keys[0].RevokedAt, keys[1].RevokedAt)
	}
}

// rotating: a key has two secrets at most, none of them another's, and the older one
// as long as was said.
func rotating(t *testing.T, a, b Store) {
	ctx := t.Context()
	is := func(what string, digest, retiring byte, end time.Time) {
		t.Helper()
		keys, err := b.Keys(ctx)
		must(t, err)
		k := keys[0]
		var got byte
		var until time.Time
		if k.Retiring != nil {
			got, until = k.Retiring.Digest[0], k.Retiring.NotAfter
		}
		if k.Digest[0] != digest || got != retiring || !until.Equal(end) {
			t.Errorf("%s: the secrets are %d, and %d until %v; want %d, and %d until %v", what, k.Digest[0], got, until, digest, retiring, end)
		}
	}
	hour := noon.Add(time.Hour)
	mustBe(t, a.RotateKey(ctx, "one", [32]byte{2}, noon, hour), store.ErrNotFound)
	must(t, a.AddKey(ctx, key("one", 1)))
	must(t, a.AddKey(ctx, key("two", 7)))
	must(t, a.RotateKey(ctx, "one", [32]byte{2}, noon, hour))
	is("rotated", 2, 1, hour)
	mustBe(t, b.RotateKey(ctx, "one", [32]byte{3}, hour.Add(-1), hour.Add(1)), store.ErrTwoSecrets)
	for _, taken := range []byte{1, 2, 7} {
		mustBe(t, b.RotateKey(ctx, "one", [32]byte{taken}, hour, hour.Add(1)), store.ErrExists)
		mustBe(t, b.AddKey(ctx, key("three", taken)), store.ErrExists)
	}
	is("in vain", 2, 1, hour)
	must(t, b.RotateKey(ctx, "one", [32]byte{3}, hour, hour.Add(1)))
	is("once the older one had ended", 3, 2, hour.Add(1))
	must(t, b.RotateKey(ctx, "one", [32]byte{4}, hour, hour))
	is("with no time for the older ones", 4, 0, time.Time{})
	must(t, a.AddKey(ctx, key("three", 1))) // nobody has it
	must(t, a.RevokeKey(ctx, "one", noon))
	mustBe(t, a.RotateKey(ctx, "one", [32]byte{5}, hour, hour), store.ErrRevoked)
	is("of a revoked key", 4, 0, time.Time{})
}

func lastUses(t *testing.T, a, b Store) {
	ctx := t.Context()
	one, two := [32]byte{1}, [32]byte{2}
	must(t, a.SecretsUsed(ctx, map[[32]byte]time.Time{one: noon, two: noon.Add(time.Hour)}))
	must(t, b.SecretsUsed(ctx, map[[32]byte]time.Time{one: noon.Add(time.Minute), two: noon}))
	must(t, b.SecretsUsed(ctx, nil))
	want := map[[32]byte]time.Time{one: noon.Add(time.Minute), two: noon.Add(time.Hour)}
	got, err := a.LastUses(ctx)
	must(t, err)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if g, err := a.Generation(ctx); err != nil || g != 0 {
		t.Errorf("generation %d, %v: nobody has to act on a use", g, err)
	}
	must(t, a.AddKey(ctx, key("k", 1)))
	must(t, a.RotateKey(ctx, "k", [32]byte{3}, noon, noon.Add(1)))
	must(t, a.RotateKey(ctx, "k", [32]byte{4}, noon.Add(1), noon.Add(2)))
	delete(want, one) // a secret that is gone for good
	got, err = b.LastUses(ctx)
	must(t, err)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("after rotations, -want +got:\n%s", d)
	}
}
