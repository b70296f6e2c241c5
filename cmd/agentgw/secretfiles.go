package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"agentgw/internal/admin"
	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/registry"
	"agentgw/internal/secret"
	"agentgw/internal/store"
	"agentgw/internal/vault"
)

// makeFirstKey makes one key for everything when there is none at all: a
// gateway that nobody can call helps nobody.
func (s *server) makeFirstKey(snapshot *registry.Snapshot) error {
	if !s.settings.DatabaseURL.Empty() {
		return nil // of several that start at once each would make one
	}
	stored, err := s.store.Keys(s.background)
	if err != nil || len(stored) > 0 || len(snapshot.Keys) > 0 {
		return err
	}
	text, digest := identity.NewKey()
	s.firstKeyFile = filepath.Join(s.settings.DataDir, "first-key")
	// The file first: a key in the store that nobody has would be lost for ever.
	if err := writeSecret(s.firstKeyFile, text.Reveal()); err != nil {
		return err
	}
	s.firstKey = text
	return s.store.AddKey(s.background, store.Key{
		ID: "first", Digest: digest, Services: []string{"*"}, Users: []string{"*"}, CreatedAt: s.clock.Now(),
	})
}

// adminToken is the operators' token: the one that is set, else the one in the
// data folder, which a first start makes.
func adminToken(settings *config.Settings) (secret.Text, error) {
	if !settings.AdminToken.Empty() {
		if err := checkAdminToken(settings); err != nil {
			return secret.Text{}, fmt.Errorf("%s: %w", settings.Place("AGENTGATE_ADMIN_TOKEN"), err)
		}
		return settings.AdminToken, nil
	}
	file := filepath.Join(settings.DataDir, "admin-token")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		text = []byte(rand.Text() + rand.Text())
		err = writeSecret(file, string(text))
	}
	if err != nil {
		return secret.Text{}, err
	}
	token := secret.New(strings.TrimSpace(string(text)))
	if err := admin.CheckToken(token, settings.Exposed()); err != nil {
		return secret.Text{}, fmt.Errorf("%s: the operators' token %w; delete the file to have another made", file, err)
	}
	return token, nil
}

// checkAdminToken judges the token that is set.
func checkAdminToken(settings *config.Settings) error {
	if err := admin.CheckToken(settings.AdminToken, settings.Exposed()); err != nil {
		return fmt.Errorf("%w; leave it unset to have one made, or give what this prints: openssl rand -hex 32", err)
	}
	return nil
}

// writeSecret puts a file with this one line in place, whole or not at all, and
// readable by its owner alone, whatever stood there before. The caller holds the
// lock of the data folder. What a crash leaves behind the next call takes away.
func writeSecret(path, text string) error {
	unfinished := path + ".new"
	if err := os.Remove(unfinished); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(unfinished, path)
}

// looseSecrets names the secrets of the data folder that others than its owner
// may read or write. They are served all the same: nobody is helped by a gateway
// that does not start.
func looseSecrets(folder string) (list []error) {
	for _, name := range []string{vault.KEKFileName, "admin-token", "receipt-signing-key", "receipt-signing-key.next", "first-key"} {
		path := filepath.Join(folder, name)
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
			list = append(list, fmt.Errorf("%s has mode %04o: make it 0600", path, info.Mode().Perm()))
		}
	}
	return list
}
