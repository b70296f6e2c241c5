package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/store"
)

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
