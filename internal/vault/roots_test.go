package vault_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentgw/internal/store"
	"agentgw/internal/vault"
)

func rootKEK(t *testing.T, digit string) vault.KEK {
	t.Helper()
	k, err := vault.ParseKEK(strings.Repeat(digit, 64))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestRootsAreMadeOnceAndRotated: the first who asks makes the root, all others have
// the same; after a rotation the one before it is still known, and none older.
func TestRootsAreMadeOnceAndRotated(t *testing.T) {
	folder, kek, now := t.TempDir(), rootKEK(t, "1"), time.Unix(1767225600, 0).UTC()
	s := openStore(t, folder)
	if roots, err := vault.LoadRoots(t.Context(), s, kek); err != nil || len(roots) != 0 {
		t.Fatalf("%d roots before there was one: %v", len(roots), err)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	ids := map[string]bool{}
	for range 8 {
		wg.Go(func() {
			r, err := vault.SigningRoot(context.Background(), s, kek, now)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			ids[r.ID] = true
		})
	}
	wg.Wait()
	first, err := vault.SigningRoot(t.Context(), openStore(t, folder), kek, now)
	if err != nil || len(ids) != 1 || !ids[first.ID] {
		t.Fatalf("%v, %v, %v", ids, first.ID, err)
	}
	message := []byte("message")
	signature, err := first.Sign(nil, message, crypto.Hash(0))
	if err != nil {
		t.Fatal(err)
	}
	var rotated []vault.Root
	for i := range 2 {
		r, err := vault.RotateRoot(t.Context(), s, kek, now.Add(time.Duration(i)))
		if err != nil {
			t.Fatal(err)
		}
		rotated = append(rotated, r)
		roots, err := vault.LoadRoots(t.Context(), s, kek)
		if err != nil || len(roots) != 2 || roots[0].ID != r.ID {
			t.Fatalf("%v, %v", roots, err)
		}
		if known := ed25519.Verify(roots[1].Public().(ed25519.PublicKey), message, signature); known != (i == 0) {
			t.Errorf("after rotation %d: what the first root signed holds: %v", i+1, known)
		}
	}
	if rotated[0].ID == rotated[1].ID || bytes.Equal(rotated[0].Public().(ed25519.PublicKey), rotated[1].Public().(ed25519.PublicKey)) {
		t.Error("a rotation changed nothing")
	}
}

// TestARootThatDoesNotOpenIsNone: of a lost vault key, a half-written row, or one that
// somebody put there who has no vault key, nothing is trusted and the error names it.
func TestARootThatDoesNotOpenIsNone(t *testing.T) {
	kek, now := rootKEK(t, "1"), time.Unix(1767225600, 0).UTC()
	s := openStore(t, t.TempDir())
	r, err := vault.SigningRoot(t.Context(), s, kek, now)
	if err != nil {
		t.Fatal(err)
	}
	if roots, err := vault.LoadRoots(t.Context(), s, rootKEK(t, "2")); !errors.Is(err, vault.ErrWrongKEK) || roots != nil || !strings.Contains(err.Error(), r.ID) {
		t.Errorf("another vault key: %v, %v", roots, err)
	}
	rows, err := s.Roots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	row := rows[0]
	for name, change := range map[string]func(*store.Root){
		"half written":      func(r *store.Root) { r.Wrapped = r.Wrapped[:len(r.Wrapped)/2] },
		"empty":             func(r *store.Root) { r.Wrapped = []byte{} },
		"a bit flipped":     func(r *store.Root) { r.Wrapped = bytes.Clone(r.Wrapped); r.Wrapped[20] ^= 1 },
		"of another name":   func(r *store.Root) { r.ID = "root-other" },
		"not by this key":   func(r *store.Root) { r.Wrapped = bytes.Repeat([]byte{7}, len(r.Wrapped)) },
		"a bare public key": func(r *store.Root) { r.Wrapped = make([]byte, 32) },
	} {
		t.Run(name, func(t *testing.T) {
			s, bad := openStore(t, t.TempDir()), row
			change(&bad)
			if err := s.AddRoot(t.Context(), bad, ""); err != nil {
				t.Fatal(err)
			}
			if roots, err := vault.LoadRoots(t.Context(), s, kek); !errors.Is(err, vault.ErrCorrupt) || roots != nil || !strings.Contains(err.Error(), bad.ID) {
				t.Errorf("%v, %v", roots, err)
			}
			if _, err := vault.SigningRoot(t.Context(), s, kek, now); !errors.Is(err, vault.ErrCorrupt) {
				t.Errorf("a root in place of the bad one: %v", err)
			}
		})
	}
}

// TestARootKeepsAMissingVaultKeyMissing: a fresh vault key could open no root.
func TestARootKeepsAMissingVaultKeyMissing(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	source := vault.KEKSource{Folder: folder}
	kek, err := vault.LoadKEK(t.Context(), source, s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := vault.SigningRoot(t.Context(), s, kek, time.Unix(1767225600, 0)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, vault.KEKFileName)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := vault.LoadKEK(t.Context(), source, s); err == nil || !strings.Contains(err.Error(), "the keys of delegations") {
		t.Errorf("error is %v", err)
	}
}
