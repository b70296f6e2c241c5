package vault_test

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"agentgw/internal/secret"
	"agentgw/internal/vault"
)

func TestTheFirstStartMakesAKey(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	source := vault.KEKSource{Folder: folder}
	first, err := vault.LoadKEK(t.Context(), source, s)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "vault-key")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if left, err := filepath.Glob(filepath.Join(folder, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	again, err := vault.LoadKEK(t.Context(), source, s)
	if err != nil || again.Reveal() != first.Reveal() || len(first.Reveal()) != 32 {
		t.Errorf("the second start has another key, or: %v", err)
	}
	other, err := vault.LoadKEK(t.Context(), vault.KEKSource{Folder: t.TempDir()}, s)
	if err != nil || other.Reveal() == first.Reveal() {
		t.Errorf("another folder has the same key, or: %v", err)
	}
}

// TestManyFirstStarts: processes that start together all take the one key.
func TestManyFirstStarts(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	var mu sync.Mutex
	keys := make(map[string]bool)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			k, err := vault.LoadKEK(t.Context(), vault.KEKSource{Folder: folder}, s)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			keys[k.Reveal()] = true
		})
	}
	wg.Wait()
	if len(keys) != 1 {
		t.Errorf("%d keys", len(keys))
	}
}

func TestALostKeyIsNotReplaced(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	set(t, load(t, s, "0"), vault.Ref{Service: "github"}, "canary")
	path := filepath.Join(folder, "vault-key")
	_, err := vault.LoadKEK(t.Context(), vault.KEKSource{Folder: folder}, s)
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error is %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a key was made in its place: %v", err)
	}
}

func TestGivenKeys(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	k, err := vault.LoadKEK(t.Context(), vault.KEKSource{Value: secret.New(hex.EncodeToString([]byte("what nobody would draw by chance")) + "\n"), Folder: folder}, s)
	if err != nil || k.Reveal() != "what nobody would draw by chance" {
		t.Errorf("a given key: %v", err)
	}
	if _, err := os.Stat(filepath.Join(folder, "vault-key")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was made beside a given key: %v", err)
	}
	_, err = vault.LoadKEK(t.Context(), vault.KEKSource{Value: secret.New("canary"), Folder: folder}, s)
	if err == nil || !strings.Contains(err.Error(), "AGENTGATE_VAULT_KEY") || strings.Contains(err.Error(), "canary") {
		t.Errorf("a bad key: %v", err)
	}
	if _, err = vault.LoadKEK(t.Context(), vault.KEKSource{}, s); err == nil || !strings.Contains(err.Error(), "AGENTGATE_VAULT_KEY") {
		t.Errorf("no key and no folder: %v", err)
	}
	path := filepath.Join(folder, "vault-key")
	for _, bad := range []string{"", "canary\n", strings.Repeat("61", 31)} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = vault.LoadKEK(t.Context(), vault.KEKSource{Folder: folder}, s)
		if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "canary") {
			t.Errorf("a file that holds %q: %v", bad, err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != bad {
			t.Errorf("the file was replaced: %v", err)
		}
	}
}

// TestAGuessableKeyIsRefused: those that stand in examples, however they come; one
// that is to be replaced is taken once more, beside another.
func TestAGuessableKeyIsRefused(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	counting := make([]byte, 32)
	for i := range counting {
		counting[i] = byte(i)
	}
	drawn := hex.EncodeToString([]byte("what nobody would draw by chance"))
	for _, weak := range []string{
		strings.Repeat("0", 64), strings.Repeat("ab", 32), strings.Repeat("0123456789abcdef", 4), strings.Repeat("deadbeef", 8),
		hex.EncodeToString(counting), strings.Repeat("A", 43) + "=", base64.StdEncoding.EncodeToString([]byte(strings.Repeat("password", 4))),
	} {
		_, err := vault.LoadKEK(t.Context(), vault.KEKSource{Value: secret.New(weak), Folder: folder}, s)
		if !errors.Is(err, vault.ErrKEKGuessable) || strings.Contains(err.Error(), weak) {
			t.Errorf("given %s: %v", weak, err)
		}
		if _, err := vault.LoadKEK(t.Context(), vault.KEKSource{Value: secret.New(drawn), Previous: secret.New(weak), Folder: folder}, s); err != nil {
			t.Errorf("%s before another: %v", weak, err)
		}
		path := filepath.Join(folder, "vault-key")
		if err := os.WriteFile(path, []byte(weak+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := vault.LoadKEK(t.Context(), vault.KEKSource{Folder: folder}, s); !errors.Is(err, vault.ErrKEKGuessable) || !strings.Contains(err.Error(), path) {
			t.Errorf("in the file, %s: %v", weak, err)
		}
	}
}

// TestAKilledFirstStartLeavesNothing: what it had written of a key is taken away
// by the next, whether or not the key was put in place.
func TestAKilledFirstStartLeavesNothing(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	for _, when := range []string{"before the key", "beside the key"} {
		left := filepath.Join(folder, ".vault-key-123")
		if err := os.WriteFile(left, []byte("half a"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := vault.LoadKEK(t.Context(), vault.KEKSource{Folder: folder}, s); err != nil {
			t.Error(when, err)
		}
		if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: left behind: %v", when, err)
		}
	}
}
