package vault

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"agentgw/internal/secret"
	"agentgw/internal/store"
)

// KEKFileName is the file in the data folder that a vault key is kept in where
// none is given.
const KEKFileName = "vault-key"

// KEKSource tells where the vault key comes from.
type KEKSource struct {
	Value  secret.Text // AGENTGATE_VAULT_KEY, or what its file holds; empty: not given
	Folder string      // the data folder; "" where the key must be given
	// Previous is the key before this one, while there is something that it wrapped:
	// AGENTGATE_VAULT_KEY_PREVIOUS, or what its file holds; empty: none.
	Previous secret.Text
}

// KEKStore is what tells whether a store holds anything that a vault key wrapped.
type KEKStore interface {
	DataKeys(ctx context.Context) ([]store.DataKey, error)
	ParamsKeys(ctx context.Context) ([]store.ParamsKey, error)
	Roots(ctx context.Context) ([]store.Root, error)
}

// anyWrapped says what s holds that a vault key wrapped, "" where nothing.
func anyWrapped(ctx context.Context, s KEKStore) (string, error) {
	keys, err := s.DataKeys(ctx)
	if err != nil {
		return "", err
	}
	if len(keys) > 0 {
		return "the stored credentials", nil
	}
	params, err := s.ParamsKeys(ctx)
	for _, k := range params {
		if k.RemovedAt.IsZero() {
			return "the parameters of receipts", nil
		}
	}
	if err != nil {
		return "", err
	}
	roots, err := s.Roots(ctx)
	if len(roots) > 0 {
		return "the keys of delegations", nil
	}
	return "", err
}

// LoadKEK returns the vault key: the given one, else that of Folder/vault-key,
// which it makes (mode 0600) if it does not exist and s holds nothing yet that was
// wrapped by one. A missing file beside wrapped keys is an error, not a first start:
// a fresh key could open nothing, and would stand in the place that the lost one is
// to be restored to. Where several hosts share the store the key must be given. A key
// that is Guessable is refused, but for the one before.
func LoadKEK(ctx context.Context, source KEKSource, s KEKStore) (KEK, error) {
	k, err := loadKEK(ctx, source, s)
	if err != nil || source.Previous.Empty() {
		return k, err
	}
	previous, err := ParseKEK(source.Previous.Reveal())
	if err != nil {
		return KEK{}, fmt.Errorf("AGENTGATE_VAULT_KEY_PREVIOUS %w", err)
	}
	return k.After(previous), nil
}

func loadKEK(ctx context.Context, source KEKSource, s KEKStore) (KEK, error) {
	if !source.Value.Empty() {
		k, err := drawnKEK(source.Value.Reveal())
		if err != nil {
			return KEK{}, fmt.Errorf("AGENTGATE_VAULT_KEY %w", err)
		}
		return k, nil
	}
	if source.Folder == "" {
		return KEK{}, errors.New("AGENTGATE_VAULT_KEY is not set")
	}
	path := filepath.Join(source.Folder, KEKFileName)
	removeUnfinished(source.Folder)
	k, err := readKEK(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	wrapped, err := anyWrapped(ctx, s)
	if err != nil {
		return KEK{}, err
	}
	if wrapped != "" {
		return KEK{}, fmt.Errorf("%s is missing, and %s cannot be opened without it: restore it, or set AGENTGATE_VAULT_KEY", path, wrapped)
	}
	for range 10 {
		// Another process that makes the key at this moment may have taken away
		// what this one had written; one of them gets it done.
		if err = makeKEK(path); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return KEK{}, fmt.Errorf("making the vault key: %w", err)
	}
	return readKEK(path)
}

// unfinished begins the names of files that become a vault key.
const unfinished = ".vault-key-"

// removeUnfinished takes away what a process that was killed while it made the
// key has left. A key that was put in place is a link of its own and stays.
func removeUnfinished(folder string) {
	left, _ := os.ReadDir(folder) // where it cannot be read the key cannot either
	for _, f := range left {
		if strings.HasPrefix(f.Name(), unfinished) {
			_ = os.Remove(filepath.Join(folder, f.Name())) // it is in nobody's way
		}
	}
}

func readKEK(path string) (KEK, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return KEK{}, err
	}
	k, err := drawnKEK(string(b))
	if err != nil {
		return KEK{}, fmt.Errorf("%s %w", path, err)
	}
	return k, nil
}

// drawnKEK reads a vault key that was drawn at random.
func drawnKEK(text string) (KEK, error) {
	k, err := ParseKEK(text)
	if err == nil {
		err = k.Guessable()
	}
	return k, err
}

// makeKEK writes a fresh key beside path and links it there, so that a process
// that starts at the same moment finds no file or a whole one. Where another
// was first, its key stays.
func makeKEK(path string) error {
	var key [kekSize]byte
	if _, err := rand.Read(key[:]); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), unfinished) // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // the link stays
	_, err = fmt.Fprintln(f, hex.EncodeToString(key[:]))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
