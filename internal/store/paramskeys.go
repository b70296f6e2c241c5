package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// ErrTraces says that a change is done, and that bytes of what was there before
// may still be in the store's files: another process kept them from being
// cleaned. What was removed is to be taken for readable until somebody has done
// it again.
var ErrTraces = errors.New("removed, but its bytes may still be in the files of the store, which another process is reading; do it again")

// AddParamsKeys stores new keys of tenants in one step. ErrExists: some tenant has one
// in use, and the keys of the others are stored; read again and use those. It does not
// move the generation: nobody has to act on a key before he needs it, and then he
// finds it or is told ErrExists.
func (s *Store) AddParamsKeys(ctx context.Context, keys ...ParamsKey) error {
	var had []string
	err := s.transact(ctx, func(ctx context.Context, tx conn) error {
		for _, k := range keys {
			r, err := tx.exec(ctx, `INSERT INTO params_keys (id, tenant, wrapper, wrapped, created_at, removed_at)
				VALUES ($1, $2, $3, $4, $5, 0) ON CONFLICT DO NOTHING`, k.ID, k.Tenant, k.Wrapper, k.Wrapped, nanos(k.CreatedAt))
			if err = changed(r, err, ErrExists); errors.Is(err, ErrExists) {
				had = append(had, k.Tenant)
			} else if err != nil {
				return fmt.Errorf("params key of %q: %w", k.Tenant, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if had != nil {
		return fmt.Errorf("params keys of %q: %w", had, ErrExists)
	}
	return nil
}

// ParamsKeys returns every params key, removed ones too, by tenant and in the
// order in which they were made.
func (s *Store) ParamsKeys(ctx context.Context) ([]ParamsKey, error) {
	return list(ctx, s, func(row scan) (k ParamsKey, err error) {
		var created, removed int64
		err = row(&k.ID, &k.Tenant, &k.Wrapper, &k.Wrapped, &created, &removed)
		k.CreatedAt, k.RemovedAt = at(created), at(removed)
		return k, err
	}, `SELECT id, tenant, wrapper, wrapped, created_at, removed_at FROM params_keys ORDER BY tenant, rowid`)
}

// RemoveParamsKey removes the key that a tenant has in use, and its bytes from
// the files of the store; its row stays, without the key. It returns the row.
// ErrNotFound: the tenant has none in use; bytes of those before it are gone all
// the same. ErrTraces: removed, and not cleaned.
func (s *Store) RemoveParamsKey(ctx context.Context, tenant string, now time.Time) (ParamsKey, error) {
	k := ParamsKey{Tenant: tenant, RemovedAt: now}
	err := s.change(ctx, func(ctx context.Context, tx conn) error {
		var created int64
		err := tx.row(ctx, `UPDATE params_keys SET wrapped = NULL, removed_at = $1 WHERE tenant = $2 AND removed_at = 0
			RETURNING id, wrapper, created_at`, nanos(now), tenant)(&k.ID, &k.Wrapper, &created)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		k.CreatedAt = at(created)
		return err
	})
	if s.engine.clean != nil && (err == nil || errors.Is(err, ErrNotFound)) {
		err = errors.Join(err, s.engine.clean(ctx, s.db))
	}
	if err != nil {
		return k, fmt.Errorf("params key of %q: %w", tenant, err)
	}
	return k, nil
}

// cleanFiles moves all that was written into the database file, where secure_delete
// has put zeros over what was removed, and cuts the log of writes, which has the
// pages as they were before. It waits for readers for as long as for a writer.
func cleanFiles(ctx context.Context, db *sql.DB) error {
	var busy, pages, moved int
	if err := db.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &pages, &moved); err != nil {
		return errors.Join(ErrTraces, err)
	}
	if busy != 0 {
		return ErrTraces
	}
	return nil
}
