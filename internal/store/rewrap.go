package store

import (
	"context"
	"database/sql"
	"fmt"
)

// RewrapDataKey puts k, wrapped anew, in the place of the same key as wrapped by
// was. ErrConflict: it is not wrapped by that one any more.
func (s *SQLite) RewrapDataKey(ctx context.Context, was string, k DataKey) error {
	err := s.change(ctx, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, `UPDATE data_keys SET wrapper = ?, wrapped = ? WHERE tenant = ? AND number = ? AND wrapper = ?`,
			k.Wrapper, k.Wrapped, k.Tenant, int64(k.Number), was)
		return changed(r, err, ErrConflict)
	})
	if err != nil {
		return fmt.Errorf("data key %d: %w", k.Number, err)
	}
	return nil
}

// RewrapParamsKey is RewrapDataKey for a params key that is in use. ErrConflict
// where it was removed, too.
func (s *SQLite) RewrapParamsKey(ctx context.Context, was string, k ParamsKey) error {
	err := s.change(ctx, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, `UPDATE params_keys SET wrapper = ?, wrapped = ? WHERE id = ? AND removed_at = 0 AND wrapper = ?`,
			k.Wrapper, k.Wrapped, k.ID, was)
		return changed(r, err, ErrConflict)
	})
	if err != nil {
		return fmt.Errorf("params key of %q: %w", k.Tenant, err)
	}
	return nil
}

// RewrapRoot is RewrapDataKey for a delegation root.
func (s *SQLite) RewrapRoot(ctx context.Context, was string, root Root) error {
	err := s.change(ctx, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, `UPDATE delegation_roots SET wrapper = ?, wrapped = ? WHERE id = ? AND wrapper = ?`,
			root.Wrapper, root.Wrapped, root.ID, was)
		return changed(r, err, ErrConflict)
	})
	if err != nil {
		return fmt.Errorf("delegation root %q: %w", root.ID, err)
	}
	return nil
}
