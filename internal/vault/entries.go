package vault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentgw/internal/store"
)

// Entry is what may be known of a stored credential.
type Entry struct {
	Ref
	UpdatedAt time.Time
}

// Entries returns what s holds, by service and user. It needs no vault key.
func Entries(ctx context.Context, s Store) ([]Entry, error) {
	rows, err := s.Credentials(ctx)
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, row := range rows {
		if row.Tenant == noTenant && row.Field == secretField {
			all = append(all, Entry{Ref: Ref{row.Service, row.User}, UpdatedAt: row.UpdatedAt})
		}
	}
	return all, nil
}

// Remove removes a credential from s, which needs no vault key either: a
// credential whose key is lost can still be cleared away. A Vault over s drops
// it when it reloads. ErrMissing: there is none.
func Remove(ctx context.Context, s Store, ref Ref) error {
	err := s.RemoveCredential(ctx, noTenant, ref.Service, ref.User)
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%s: %w", ref, ErrMissing)
	}
	return err
}
