package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/store"
)

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
