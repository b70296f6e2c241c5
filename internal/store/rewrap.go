package store

import (
	"context"
	"fmt"
)

// RewrapDataKey puts k, wrapped anew, in the place of the same key as wrapped by
// was. ErrConflict: it is not wrapped by that one any more.
func (s *Store) RewrapDataKey(ctx context.Context, was string, k DataKey) error {
	err := s.change(ctx, func(ctx context.Context, tx conn) error {
		r, err := tx.exec(ctx, `UPDATE data_keys SET wrapper = $1, wrapped = $2 WHERE tenant = $3 AND number = $4 AND wrapper = $5`,
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
func (s *Store) RewrapParamsKey(ctx context.Context, was string, k ParamsKey) error {
	err := s.change(ctx, func(ctx context.Context, tx conn) error {
		r, err := tx.exec(ctx, `UPDATE params_keys SET wrapper = $1, wrapped = $2 WHERE id = $3 AND removed_at = 0 AND wrapper = $4`,
			k.Wrapper, k.Wrapped, k.ID, was)
		return changed(r, err, ErrConflict)
	})
	if err != nil {
		return fmt.Errorf("params key of %q: %w", k.Tenant, err)
	}
	return nil
}

// RewrapRoot is RewrapDataKey for a delegation root.
func (s *Store) RewrapRoot(ctx context.Context, was string, root Root) error {
	err := s.change(ctx, func(ctx context.Context, tx conn) error {
		r, err := tx.exec(ctx, `UPDATE delegation_roots SET wrapper = $1, wrapped = $2 WHERE id = $3 AND wrapper = $4`,
			root.Wrapper, root.Wrapped, root.ID, was)
		return changed(r, err, ErrConflict)
	})
	if err != nil {
		return fmt.Errorf("delegation root %q: %w", root.ID, err)
	}
	return nil
}
