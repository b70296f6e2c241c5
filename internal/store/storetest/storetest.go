// Package storetest is what every store owes its users, as a test suite: run it
// over an implementation to see whether it keeps the contract of package store.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jonboulle/clockwork"

	"agentgw/internal/store"
)

// Store is all that the program asks of a store.
type Store interface {
	AddKey(ctx context.Context, k store.Key) error
	Keys(ctx context.Context) ([]store.Key, error)
	RevokeKey(ctx context.Context, id string, now time.Time) error
	RotateKey(ctx context.Context, id string, digest [32]byte, now, until time.Time) error
	SecretsUsed(ctx context.Context, used map[[32]byte]time.Time) error
	LastUses(ctx context.Context) (map[[32]byte]time.Time, error)

	PutCredential(ctx context.Context, c store.Credential, by store.DataKey) error
	ResealCredential(ctx context.Context, was string, c store.Credential, by store.DataKey) error
	Credentials(ctx context.Context) ([]store.Credential, error)
	MarkCredential(ctx context.Context, c store.Credential, state string) error
	RemoveCredential(ctx context.Context, service, user string) error
	ClaimRenewal(ctx context.Context, service, user, owner string, now, until time.Time) error
	EndRenewal(ctx context.Context, service, user, owner string) error
	AddLink(ctx context.Context, l store.Link, now time.Time) error
	FindLink(ctx context.Context, digest [32]byte, now time.Time) (store.Link, error)
	TakeLink(ctx context.Context, digest [32]byte, now time.Time) (store.Link, error)
	AddDataKey(ctx context.Context, k store.DataKey) error
	DataKeys(ctx context.Context) ([]store.DataKey, error)
	RewrapDataKey(ctx context.Context, was string, k store.DataKey) error
	RewrapParamsKey(ctx context.Context, was string, k store.ParamsKey) error

	AddParamsKeys(ctx context.Context, keys ...store.ParamsKey) error
	ParamsKeys(ctx context.Context) ([]store.ParamsKey, error)
	RemoveParamsKey(ctx context.Context, tenant string, now time.Time) (store.ParamsKey, error)

	RewrapRoot(ctx context.Context, was string, r store.Root) error
	AddRoot(ctx context.Context, r store.Root, after string) error
	Roots(ctx context.Context) ([]store.Root, error)
	RevokeDelegations(ctx context.Context, r store.Revocation) error
	Revocations(ctx context.Context) ([]store.Revocation, error)

	Generation(ctx context.Context) (int64, error)
	Watch(ctx context.Context, clock clockwork.Clock, every time.Duration, onChange func(int64) error, onError func(error))
	Close() error
}

// Run runs the suite. open returns a fresh, empty state, as a function that
// opens it once more, as another process would.
func Run(t *testing.T, open func(t *testing.T) (again func() Store)) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, a, b Store)
	}{
		{"keys come back whole", keysComeBackWhole},
		{"a key is added once", keyOnce},
		{"revoking", revoking},
		{"rotating", rotating},
		{"last uses", lastUses},
		{"credentials by version", credentialVersions},
		{"the state of a credential is one version's", credentialStates},
		{"a credential is sealed anew", credentialOwners},
		{"one renews at a time", renewals},
		{"a link is good once", links},
		{"keys are wrapped anew", rewrapping},
		{"names are kept apart", namesApart},
		{"data keys", dataKeys},
		{"params keys", paramsKeys},
		{"delegation roots", delegationRoots},
		{"revoked delegations", revokedDelegations},
		{"the generation moves with each change alone", generation},
		{"two write at once", twoWriters},
		{"watching", watching},
		{"watching through failures", watchingFailures},
	} {
		t.Run(c.name, func(t *testing.T) {
			again := open(t)
			a, b := again(), again()
			t.Cleanup(func() { _, _ = a.Close(), b.Close() })
			c.test(t, a, b)
		})
	}
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

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

// sealedBy is a data key of a tenant, stored.
func sealedBy(t *testing.T, s Store, tenant string) store.DataKey {
	k := store.DataKey{Tenant: tenant, Number: 1, Wrapper: "w", Wrapped: []byte(tenant + " 1"), CreatedAt: noon}
	must(t, s.AddDataKey(t.Context(), k))
	return k
}

func credentialVersions(t *testing.T, a, b Store) {
	by := sealedBy(t, a, "")
	c := store.Credential{Service: "s", User: "u", Field: "secret", Version: 1, Sealed: []byte{1, 0, 2}, UpdatedAt: noon}
	second := c
	second.Version, second.Sealed = 2, []byte("two")
	mustBe(t, a.PutCredential(t.Context(), second, by), store.ErrConflict) // of none
	must(t, a.PutCredential(t.Context(), c, by))
	mustBe(t, b.PutCredential(t.Context(), c, by), store.ErrConflict) // there is one
	must(t, b.PutCredential(t.Context(), second, by))
	mustBe(t, a.PutCredential(t.Context(), second, by), store.ErrConflict) // there is that one
	third := second
	third.Version = 4
	mustBe(t, a.PutCredential(t.Context(), third, by), store.ErrConflict) // skips one
	got, err := a.Credentials(t.Context())
	must(t, err)
	if d := cmp.Diff([]store.Credential{second}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	must(t, a.RemoveCredential(t.Context(), "s", "u"))
	mustBe(t, b.RemoveCredential(t.Context(), "s", "u"), store.ErrNotFound)
	mustBe(t, b.PutCredential(t.Context(), c, by), store.ErrConflict) // its data key went with the last that it sealed
	by = sealedBy(t, b, "")
	must(t, a.PutCredential(t.Context(), c, by))
}

// credentialOwners: the key that a credential is sealed under may become another
// tenant's, of the same version, once; and nothing is put that a key seals which is not
// there as it was read.
func credentialOwners(t *testing.T, a, b Store) {
	shared, own := sealedBy(t, a, ""), sealedBy(t, a, "human:u")
	c := store.Credential{Service: "s", User: "u", Field: "token", Version: 1, Sealed: []byte{1}, UpdatedAt: noon, Host: "h", State: "broken"}
	must(t, a.PutCredential(t.Context(), c, shared))
	moved := c
	moved.Tenant, moved.Sealed = own.Tenant, []byte{2}
	other := own
	other.Wrapped = []byte("another")
	mustBe(t, b.ResealCredential(t.Context(), "", moved, other), store.ErrConflict)
	later := moved
	later.Version = 2
	mustBe(t, b.ResealCredential(t.Context(), "", later, own), store.ErrConflict) // which is not there
	must(t, b.ResealCredential(t.Context(), "", moved, own))
	mustBe(t, a.ResealCredential(t.Context(), "", moved, own), store.ErrConflict) // has been done
	stand := func(want ...store.Credential) {
		t.Helper()
		got, err := a.Credentials(t.Context())
		must(t, err)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
	stand(moved)
	first := c
	first.Tenant = "human:v"
	mustBe(t, a.PutCredential(t.Context(), first, sealedBy(t, a, "human:v")), store.ErrConflict) // one, whoever's key it is under
	mustBe(t, a.PutCredential(t.Context(), later, other), store.ErrConflict)
	back := later
	back.Tenant, back.State = "", ""
	must(t, a.PutCredential(t.Context(), back, shared)) // the next version, under another key than the one before
	stand(back)

	// A tenant's keys go with the last that they seal, and no other's.
	more := c
	more.User = "w"
	must(t, a.PutCredential(t.Context(), more, shared))
	must(t, a.RemoveCredential(t.Context(), "s", "u"))
	stand(more)
	keys, err := b.DataKeys(t.Context())
	must(t, err)
	if len(keys) != 3 {
		t.Errorf("%d data keys are left", len(keys))
	}
	must(t, a.RemoveCredential(t.Context(), "s", "w"))
	keys, err = b.DataKeys(t.Context())
	must(t, err)
	if len(keys) != 2 || keys[0].Tenant == "" {
		t.Errorf("the keys of the last one are left: %v", keys)
	}
}

func credentialStates(t *testing.T, a, b Store) {
	by := sealedBy(t, a, "")
	c := store.Credential{Service: "s", User: "u", Field: "token", Version: 1, Sealed: []byte{1}, UpdatedAt: noon, Host: "a.example"}
	must(t, a.PutCredential(t.Context(), c, by))
	must(t, b.MarkCredential(t.Context(), c, "broken"))
	marked := c
	marked.State = "broken"
	stands := func(want store.Credential) {
		t.Helper()
		got, err := a.Credentials(t.Context())
		must(t, err)
		if d := cmp.Diff([]store.Credential{want}, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
	stands(marked)
	next := c
	next.Version, next.Host = 2, "c.example"
	must(t, a.PutCredential(t.Context(), next, by)) // as whom it was put is not broken
	mustBe(t, b.MarkCredential(t.Context(), c, "broken"), store.ErrConflict)
	other := next
	other.User = "v"
	mustBe(t, b.MarkCredential(t.Context(), other, "broken"), store.ErrConflict)
	stands(next)
}

func renewals(t *testing.T, a, b Store) {
	claim := func(s Store, user, owner string, now, until time.Time) error {
		return s.ClaimRenewal(t.Context(), "s", user, owner, now, until)
	}
	end := noon.Add(25 * time.Second)
	must(t, claim(a, "u", "one", noon, end))
	must(t, claim(b, "v", "two", noon, end)) // another credential
	mustBe(t, claim(b, "u", "two", end.Add(-1), end.Add(time.Hour)), store.ErrConflict)
	must(t, claim(a, "u", "one", noon, end.Add(1))) // longer
	mustBe(t, claim(b, "u", "two", end, end.Add(time.Hour)), store.ErrConflict)
	must(t, claim(b, "u", "two", end.Add(1), end.Add(time.Hour))) // its time is over
	must(t, a.EndRenewal(t.Context(), "s", "u", "one"))           // which is not its own any more
	mustBe(t, claim(a, "u", "one", end.Add(1), end.Add(time.Hour)), store.ErrConflict)
	must(t, b.EndRenewal(t.Context(), "s", "u", "two"))
	must(t, claim(a, "u", "one", noon, end))
}

func links(t *testing.T, a, b Store) {
	l := store.Link{Digest: [32]byte{1}, Service: "s", User: "u", ExpiresAt: noon}
	short := store.Link{Digest: [32]byte{2}, Service: "s", ExpiresAt: noon.Add(-time.Minute)}
	must(t, a.AddLink(t.Context(), short, noon.Add(-time.Hour)))
	must(t, a.AddLink(t.Context(), l, noon.Add(-time.Hour)))
	mustBe(t, b.AddLink(t.Context(), l, noon.Add(-time.Hour)), store.ErrExists)
	got, err := b.FindLink(t.Context(), l.Digest, noon.Add(-1))
	must(t, err)
	if d := cmp.Diff(l, got); d != "" {
		t.Errorf("found, -want +got:\n%s", d)
	}
	for what, take := range map[string]func(ctx context.Context, digest [32]byte, now time.Time) (store.Link, error){"find": b.FindLink, "take": b.TakeLink} {
		if _, err := take(t.Context(), l.Digest, noon); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s one that has expired: %v", what, err)
		}
	}
	got, err = b.TakeLink(t.Context(), l.Digest, noon.Add(-1))
	must(t, err)
	if d := cmp.Diff(l, got); d != "" {
		t.Errorf("taken, -want +got:\n%s", d)
	}
	_, err = a.TakeLink(t.Context(), l.Digest, noon.Add(-1))
	mustBe(t, err, store.ErrNotFound)
	must(t, a.AddLink(t.Context(), l, short.ExpiresAt)) // which forgets the short one
	_, err = a.FindLink(t.Context(), short.Digest, noon.Add(-time.Hour))
	mustBe(t, err, store.ErrNotFound)
}

func rewrapping(t *testing.T, a, b Store) {
	d := store.DataKey{Tenant: "t", Number: 3, Wrapper: "old", Wrapped: []byte{1}, CreatedAt: noon}
	other := store.DataKey{Tenant: "t", Number: 4, Wrapper: "old", Wrapped: []byte{1}, CreatedAt: noon}
	p := store.ParamsKey{ID: "p", Tenant: "t", Wrapper: "old", Wrapped: []byte{2}, CreatedAt: noon}
	must(t, a.AddDataKey(t.Context(), d))
	must(t, a.AddDataKey(t.Context(), other))
	must(t, a.AddParamsKeys(t.Context(), p))
	root := store.Root{ID: "r", Wrapper: "old", Wrapped: []byte{5}, CreatedAt: noon}
	must(t, a.AddRoot(t.Context(), root, ""))
	before, err := a.Generation(t.Context())
	must(t, err)
	d.Wrapper, d.Wrapped, p.Wrapper, p.Wrapped = "new", []byte{3}, "new", []byte{4}
	must(t, b.RewrapDataKey(t.Context(), "old", d))
	must(t, b.RewrapParamsKey(t.Context(), "old", p))
	root.Wrapper, root.Wrapped = "new", []byte{6}
	must(t, b.RewrapRoot(t.Context(), "old", root))
	mustBe(t, a.RewrapRoot(t.Context(), "old", root), store.ErrConflict)
	mustBe(t, a.RewrapDataKey(t.Context(), "old", d), store.ErrConflict)
	mustBe(t, a.RewrapParamsKey(t.Context(), "old", p), store.ErrConflict)
	if after, err := a.Generation(t.Context()); err != nil || after != before+3 {
		t.Errorf("the generation went from %d to %d, %v", before, after, err)
	}
	keys, err := a.DataKeys(t.Context())
	must(t, err)
	params, err := a.ParamsKeys(t.Context())
	must(t, err)
	roots, err := b.Roots(t.Context())
	must(t, err)
	if d := cmp.Diff([]store.DataKey{d, other}, keys) + cmp.Diff([]store.ParamsKey{p}, params) + cmp.Diff([]store.Root{root}, roots); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	_, err = a.RemoveParamsKey(t.Context(), "t", noon)
	must(t, err)
	mustBe(t, b.RewrapParamsKey(t.Context(), "new", p), store.ErrConflict) // there is nothing left of it
}

func namesApart(t *testing.T, a, _ Store) {
	names := [][3]string{
		{"s", "", "f"}, {"s", "u", "f"}, {"s", "u", "g"}, {"s:u", "", "f"}, {"S", "u", "f"},
		{"s", "u ", "f"}, {"s", "u\x00v", "f"}, {"s", "U", "f"},
	}
	by := sealedBy(t, a, "")
	for _, n := range names {
		must(t, a.PutCredential(t.Context(), store.Credential{Service: n[0], User: n[1], Field: n[2], Version: 1, Sealed: []byte(fmt.Sprint(n))}, by))
	}
	must(t, a.RemoveCredential(t.Context(), "s", "u")) // both of its fields
	got, err := a.Credentials(t.Context())
	must(t, err)
	if len(got) != len(names)-2 {
		t.Errorf("%d rows are left of %d", len(got), len(names))
	}
	for _, c := range got {
		if string(c.Sealed) != fmt.Sprint([3]string{c.Service, c.User, c.Field}) {
			t.Errorf("%q holds another row's bytes", c.User)
		}
	}
}

func dataKeys(t *testing.T, a, b Store) {
	want := []store.DataKey{
		{Tenant: "", Number: 1, Wrapper: "w", Wrapped: []byte{1}, CreatedAt: noon},
		{Tenant: "", Number: 255, Wrapper: "w", Wrapped: []byte{2}, CreatedAt: noon},
		{Tenant: "t", Number: 1, Wrapper: "v", Wrapped: []byte{3}, CreatedAt: noon},
	}
	for i := range want {
		must(t, a.AddDataKey(t.Context(), want[len(want)-1-i]))
	}
	taken := want[0]
	taken.Wrapped = []byte{9}
	mustBe(t, b.AddDataKey(t.Context(), taken), store.ErrExists)
	got, err := b.DataKeys(t.Context())
	must(t, err)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// paramsKeys: a tenant has one key in use, whoever makes it; a removed one leaves
// its row and makes room for another.
func paramsKeys(t *testing.T, a, b Store) {
	one := store.ParamsKey{ID: "1", Tenant: "tenant:a", Wrapper: "w", Wrapped: []byte{1, 0, 2}, CreatedAt: noon}
	two, other := one, one
	two.ID, two.Wrapped = "2", []byte{3}
	other.ID, other.Tenant = "3", "tenant:A"
	must(t, a.AddParamsKeys(t.Context(), one))
	must(t, b.AddParamsKeys(t.Context(), other))
	mustBe(t, b.AddParamsKeys(t.Context(), two), store.ErrExists) // it has one
	again := other
	again.Tenant = "tenant:b"
	mustBe(t, a.AddParamsKeys(t.Context(), again), store.ErrExists) // so is the id
	removed, err := b.RemoveParamsKey(t.Context(), "tenant:a", noon.Add(1))
	must(t, err)
	gone := one
	gone.Wrapped, gone.RemovedAt = nil, noon.Add(1)
	if d := cmp.Diff(gone, removed); d != "" {
		t.Errorf("removed, -want +got:\n%s", d)
	}
	_, err = a.RemoveParamsKey(t.Context(), "tenant:a", noon.Add(2))
	mustBe(t, err, store.ErrNotFound)
	mustBe(t, a.AddParamsKeys(t.Context(), one), store.ErrExists) // an id is of one key for ever
	must(t, a.AddParamsKeys(t.Context(), two))
	got, err := b.ParamsKeys(t.Context())
	must(t, err)
	if d := cmp.Diff([]store.ParamsKey{other, gone, two}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

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

func generation(t *testing.T, a, b Store) {
	ctx := t.Context()
	c := store.Credential{Service: "s", Field: "f", Version: 1, Sealed: []byte{1}}
	by, resealed := store.DataKey{Number: 1, Wrapped: []byte{1}}, c
	resealed.Sealed = []byte{2}
	must(t, a.AddKey(ctx, key("rotated", 8)))
	for _, step := range []struct {
		name string
		do   func() error
		err  error
	}{
		{"add", func() error { return a.AddKey(ctx, key("one", 1)) }, nil},
		{"add again", func() error { return a.AddKey(ctx, key("one", 1)) }, store.ErrExists},
		{"revoke", func() error { return b.RevokeKey(ctx, "one", noon) }, nil},
		{"rotate", func() error { return a.RotateKey(ctx, "rotated", [32]byte{9}, noon, noon.Add(1)) }, nil},
		{"rotate none", func() error { return a.RotateKey(ctx, "none", [32]byte{10}, noon, noon) }, store.ErrNotFound},
		{"revoke none", func() error { return b.RevokeKey(ctx, "none", noon) }, store.ErrNotFound},
		{"data key", func() error { return a.AddDataKey(ctx, by) }, nil},
		{"put", func() error { return a.PutCredential(ctx, c, by) }, nil},
		{"put again", func() error { return b.PutCredential(ctx, c, by) }, store.ErrConflict},
		{"reseal", func() error { return b.ResealCredential(ctx, "", resealed, by) }, nil},
		{"reseal none", func() error { return b.ResealCredential(ctx, "t", resealed, by) }, store.ErrConflict},
		{"remove", func() error { return b.RemoveCredential(ctx, "s", "") }, nil},
		{"remove none", func() error { return b.RemoveCredential(ctx, "s", "") }, store.ErrNotFound},
		{"remove a params key", func() error {
			must(t, a.AddParamsKeys(ctx, store.ParamsKey{ID: "p", Tenant: "t", Wrapped: []byte{1}}))
			if g, err := a.Generation(ctx); err != nil || g != 8 {
				t.Errorf("%d, %v: nobody has to act on a new params key", g, err)
			}
			_, err := b.RemoveParamsKey(ctx, "t", noon)
			return err
		}, nil},
		{"add a root", func() error { return a.AddRoot(ctx, store.Root{ID: "r", Wrapped: []byte{1}}, "") }, nil},
		{"add a root behind none", func() error { return b.AddRoot(ctx, store.Root{ID: "s", Wrapped: []byte{1}}, "") }, store.ErrConflict},
		{"revoke delegations", func() error {
			return a.RevokeDelegations(ctx, store.Revocation{Kind: store.RevokedToken, Name: "t", RevokedAt: noon})
		}, nil},
		{"remove no params key", func() error { _, err := a.RemoveParamsKey(ctx, "t", noon); return err }, store.ErrNotFound},
	} {
		before, err := b.Generation(ctx)
		must(t, err)
		mustBe(t, step.do(), step.err)
		after, err := a.Generation(ctx)
		must(t, err)
		if moved := after - before; moved != 1 && step.err == nil || moved != 0 && step.err != nil {
			t.Errorf("%s: the generation moved by %d", step.name, moved)
		}
	}
}

func twoWriters(t *testing.T, a, b Store) {
	const each = 25
	var wg sync.WaitGroup
	for w, s := range []Store{a, b} {
		wg.Go(func() {
			for i := range each {
				if err := s.AddKey(context.Background(), key(fmt.Sprintf("k%d-%d", w, i), byte(w*each+i))); err != nil {
					t.Errorf("writer %d: %v", w, err)
				}
			}
		})
	}
	wg.Wait()
	keys, err := a.Keys(t.Context())
	must(t, err)
	moved, err := b.Generation(t.Context())
	must(t, err)
	if len(keys) != 2*each || moved != 2*each {
		t.Errorf("%d keys, generation %d", len(keys), moved)
	}
}

func watching(t *testing.T, a, b Store) {
	ctx, cancel := context.WithCancel(t.Context())
	clock := clockwork.NewFakeClockAt(noon)
	must(t, a.AddKey(t.Context(), key("before", 1)))
	seen := make(chan int64, 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Watch(ctx, clock, 0, func(g int64) error { seen <- g; return nil }, func(err error) { t.Errorf("watching: %v", err) })
	}()
	if g := <-seen; g != 1 {
		t.Errorf("the first look saw %d", g)
	}
	must(t, clock.BlockUntilContext(t.Context(), 1))
	must(t, b.AddKey(t.Context(), key("k", 2)))
	must(t, b.RevokeKey(t.Context(), "k", noon))
	clock.Advance(store.DefaultPoll)
	if g := <-seen; g != 3 {
		t.Errorf("the second look saw %d", g)
	}
	if store.DefaultPoll > 1500*time.Millisecond {
		t.Errorf("a look every %v is too late for two seconds", store.DefaultPoll)
	}
	// A look that finds nothing new says nothing: the next word is of the change.
	clock.Advance(store.DefaultPoll)
	must(t, b.AddKey(t.Context(), key("l", 3)))
	clock.Advance(store.DefaultPoll)
	if g := <-seen; g != 4 {
		t.Errorf("the next change was seen as %d", g)
	}
	cancel()
	<-done
	if len(seen) != 0 {
		t.Errorf("%d words too many", len(seen))
	}
}

func watchingFailures(t *testing.T, a, _ Store) {
	ctx, cancel := context.WithCancel(t.Context())
	clock := clockwork.NewFakeClockAt(noon)
	refusals := 1
	failure := errors.New("cannot take it over")
	seen, failed, done := make(chan int64, 10), make(chan error, 10), make(chan struct{})
	go func() {
		defer close(done)
		a.Watch(ctx, clock, time.Second, func(g int64) error {
			if refusals > 0 {
				refusals--
				return failure
			}
			seen <- g
			return nil
		}, func(err error) { failed <- err })
	}()
	mustBe(t, <-failed, failure)
	must(t, clock.BlockUntilContext(t.Context(), 1))
	clock.Advance(time.Second)
	if g := <-seen; g != 0 { // the same generation once more
		t.Errorf("after the failure %d was seen", g)
	}
	must(t, a.Close())
	clock.Advance(time.Second)
	if err := <-failed; err == nil {
		t.Error("a closed store was asked with success")
	}
	cancel()
	<-done
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustBe(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
}
