package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"agentgw/internal/config"
	"agentgw/internal/registry"
	"agentgw/internal/store"
	"agentgw/internal/vault"
)

// home is where keys, credentials and the like are kept, and what serve would
// find there.
type home struct {
	settings *config.Settings
	snapshot *registry.Snapshot // nil where there is no registry
	store    *store.Store
}

// staticKey returns the registry's key of that id, or nil.
func (h home) staticKey(id string) *registry.Key {
	if h.snapshot == nil {
		return nil
	}
	for _, k := range h.snapshot.Keys {
		if k.ID == id {
			return k
		}
	}
	return nil
}

// storedKey returns the store's key of that id, revoked or not, or nil.
func (h home) storedKey(ctx context.Context, id string) (*store.Key, error) {
	keys, err := h.store.Keys(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if k.ID == id {
			return &k, nil
		}
	}
	return nil, nil
}

// limits returns what a gateway would run with here, or why it would not
// start. Without a registry the settings alone decide.
func (h home) limits() (*registry.Effective, error) {
	snapshot := h.snapshot
	if snapshot == nil {
		snapshot = &registry.Snapshot{}
	}
	return snapshot.Effective(defaults(h.settings))
}

// withStore finds settings and registry as serve does, and opens the store that
// is there for do. It makes none: an empty list from a folder that was misspelt
// would be taken for the truth.
func (c *cli) withStore(cmd *cobra.Command, do func(ctx context.Context, at home) error) error {
	settings, snapshot, err := c.settingsWithoutRegistry(cmd)
	if err != nil {
		return err
	}
	if err := noState(settings); err != nil {
		return exit(exitCannotRun, err)
	}
	return c.inStore(cmd, home{settings: settings, snapshot: snapshot}, do)
}

// withNewStore is withStore for what may come before the first start of a
// gateway. A data folder that it makes, it tells of.
func (c *cli) withNewStore(cmd *cobra.Command, do func(ctx context.Context, at home) error) error {
	settings, snapshot, err := c.settingsWithoutRegistry(cmd)
	if err != nil {
		return err
	}
	if _, err := os.Stat(settings.DataDir); errors.Is(err, fs.ErrNotExist) && settings.DatabaseURL.Empty() {
		defer func() {
			if _, err := os.Stat(settings.DataDir); err == nil {
				fmt.Fprintf(c.stderr, "agentgw: made a new data folder %s\n", settings.DataDir)
			}
		}()
	}
	return c.inStore(cmd, home{settings: settings, snapshot: snapshot}, do)
}

func (c *cli) inStore(cmd *cobra.Command, at home, do func(ctx context.Context, at home) error) (err error) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background() // cobra's, if nobody gave it one
	}
	at.store, err = openStore(ctx, at.settings)
	if err != nil {
		return exit(exitCannotRun, err)
	}
	defer func() {
		if closing := at.store.Close(); err == nil && closing != nil {
			err = exit(exitCannotRun, closing)
		}
	}()
	return do(ctx, at)
}

// openStore opens the store that the settings name, of which an error names the setting
// and never holds the URL.
func openStore(ctx context.Context, settings *config.Settings) (*store.Store, error) {
	if settings.DatabaseURL.Empty() {
		return store.Open(ctx, settings.DataDir)
	}
	s, err := store.OpenPostgres(ctx, settings.DatabaseURL.Reveal())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", settings.Place("AGENTGATE_DATABASE_URL"), err)
	}
	return s, nil
}

// kekSource is where the vault key comes from. Beside a database that others share one
// that this process made would be nobody else's: it must be given.
func kekSource(settings *config.Settings) vault.KEKSource {
	source := vault.KEKSource{Value: settings.VaultKey, Previous: settings.VaultKeyPrevious}
	if settings.DatabaseURL.Empty() {
		source.Folder = settings.DataDir
	}
	return source
}

// noState is the error of a data folder without a state store, or nil. That of a database
// is found missing when it is opened.
func noState(settings *config.Settings) error {
	folder := settings.DataDir
	if !settings.DatabaseURL.Empty() {
		return nil
	}
	if err := noFolder(folder); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(folder, store.FileName)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: no %s there: has a gateway run with it (--data)?", folder, store.FileName)
	}
	return nil
}

// noFolder is the error of a data folder that is not there, or nil.
func noFolder(folder string) error {
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: no data folder there: has a gateway run with it (--data)?", folder)
	}
	return nil
}
