package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"agentgw/internal/store"
)

// crowd is how many try the same thing at once, over two openings of the store.
const crowd = 16

// atOnce has a crowd try, each over one of the stores, and returns how many did; the others
// must have been refused with an error like that.
func atOnce(t *testing.T, a, b Store, refused error, try func(i int, s Store) error) (did int) {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	start := make(chan struct{})
	for i := range crowd {
		wg.Go(func() {
			<-start
			err := try(i, []Store{a, b}[i%2])
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				did++
			} else if !errors.Is(err, refused) {
				t.Errorf("number %d: %v, want success or %v", i, err, refused)
			}
		})
	}
	close(start)
	wg.Wait()
	return did
}

// oneOfACrowd: what only one may do one does, and the generation says so.
func oneOfACrowd(t *testing.T, a, b Store) {
	ctx := t.Context()
	by := sealedBy(t, a, "")
	c := store.Credential{Service: "s", Field: "f", Version: 1, Sealed: []byte{1}, UpdatedAt: noon}
	must(t, a.PutCredential(ctx, c, by))
	must(t, a.AddKey(ctx, key("rotated", 1)))
	must(t, a.AddRoot(ctx, store.Root{ID: "first", Wrapped: []byte{1}}, ""))
	must(t, a.AddParamsKeys(ctx, store.ParamsKey{ID: "p", Tenant: "gone", Wrapped: []byte{1}}))
	link := store.Link{Digest: [32]byte{1}, Service: "s", ExpiresAt: noon}
	must(t, a.AddLink(ctx, link, noon.Add(-1)))
	own := func(i int) [32]byte { return [32]byte{2, byte(i)} }
	for _, c := range []struct {
		what    string
		refused error
		moves   int64
		try     func(i int, s Store) error
	}{
		{"the next version of a credential", store.ErrConflict, 1, func(i int, s Store) error {
			next := c
			next.Version, next.Sealed = 2, []byte{byte(i)}
			return s.PutCredential(ctx, next, by)
		}},
		{"the first version of one", store.ErrConflict, 1, func(_ int, s Store) error {
			first := c
			first.User = "u"
			return s.PutCredential(ctx, first, by)
		}},
		{"its removal", store.ErrNotFound, 1, func(_ int, s Store) error { return s.RemoveCredential(ctx, "s", "u") }},
		{"a renewal", store.ErrConflict, 0, func(i int, s Store) error {
			return s.ClaimRenewal(ctx, "s", "", fmt.Sprint(i), noon, noon.Add(time.Minute))
		}},
		{"a renewal whose time is over", store.ErrConflict, 0, func(i int, s Store) error {
			return s.ClaimRenewal(ctx, "s", "", fmt.Sprint("later", i), noon.Add(time.Minute), noon.Add(time.Hour))
		}},
		{"a link", store.ErrNotFound, 0, func(_ int, s Store) error {
			_, err := s.TakeLink(ctx, link.Digest, noon.Add(-1))
			return err
		}},
		{"a key of an id", store.ErrExists, 1, func(i int, s Store) error { return s.AddKey(ctx, key("id", byte(100+i))) }},
		{"a key of a digest", store.ErrExists, 1, func(i int, s Store) error { return s.AddKey(ctx, key(fmt.Sprint("digest", i), 99)) }},
		{"a second secret", store.ErrTwoSecrets, 1, func(i int, s Store) error {
			return s.RotateKey(ctx, "rotated", own(i), noon, noon.Add(time.Hour))
		}},
		{"the next root", store.ErrConflict, 1, func(i int, s Store) error {
			return s.AddRoot(ctx, store.Root{ID: fmt.Sprint(i), Wrapped: []byte{1}}, "first")
		}},
		{"a data key of a number", store.ErrExists, 1, func(i int, s Store) error {
			return s.AddDataKey(ctx, store.DataKey{Tenant: "t", Number: 1, Wrapped: []byte{byte(i)}})
		}},
		{"the removal of a params key", store.ErrNotFound, 1, func(_ int, s Store) error {
			_, err := s.RemoveParamsKey(ctx, "gone", noon)
			return err
		}},
	} {
		before, err := a.Generation(ctx)
		must(t, err)
		if did := atOnce(t, a, b, c.refused, c.try); did != 1 {
			t.Errorf("%s: %d of a crowd had it", c.what, did)
		}
		if after, err := b.Generation(ctx); err != nil || after != before+c.moves {
			t.Errorf("%s: the generation moved by %d, %v", c.what, after-before, err)
		}
	}
}

// allOfACrowd: what all do in any order ends as it should, and none gets in another's way.
func allOfACrowd(t *testing.T, a, b Store) {
	ctx := t.Context()
	const tenants = 8
	if did := atOnce(t, a, b, store.ErrExists, func(i int, s Store) error {
		var keys []store.ParamsKey
		for n := range tenants { // each begins with another tenant
			n = (n + i) % tenants
			keys = append(keys, store.ParamsKey{ID: fmt.Sprint(i, "-", n), Tenant: fmt.Sprint(n), Wrapped: []byte{1}})
		}
		return s.AddParamsKeys(ctx, keys...)
	}); did == 0 {
		t.Error("nobody made the keys of all tenants, and all were at it")
	}
	if keys, err := b.ParamsKeys(ctx); err != nil || len(keys) != tenants {
		t.Errorf("%d params keys of %d tenants, %v", len(keys), tenants, err)
	}
	const secrets = 520 // more than one statement takes
	atOnce(t, a, b, nil, func(i int, s Store) error {
		if i < crowd-4 { // a file's writers wait for each other's disk
			return nil
		}
		used := map[[32]byte]time.Time{}
		for n := range secrets {
			used[[32]byte{byte(n), byte(n >> 8)}] = noon.Add(time.Duration(i))
		}
		return s.SecretsUsed(ctx, used)
	})
	uses, err := a.LastUses(ctx)
	must(t, err)
	for digest, at := range uses {
		if !at.Equal(noon.Add(crowd - 1)) {
			t.Fatalf("%x was used last at %v", digest[:2], at)
		}
	}
	if len(uses) != secrets {
		t.Errorf("%d uses of %d", len(uses), secrets)
	}
	atOnce(t, a, b, nil, func(i int, s Store) error {
		return s.RevokeDelegations(ctx, store.Revocation{Kind: store.RevokedUser, Name: "u", RevokedAt: noon.Add(time.Duration(i))})
	})
	revoked, err := b.Revocations(ctx)
	must(t, err)
	if len(revoked) != 1 || !revoked[0].RevokedAt.Equal(noon.Add(crowd-1)) {
		t.Errorf("%+v: the latest counts", revoked)
	}
}
