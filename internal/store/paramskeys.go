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
func (s *SQLite) AddParamsKeys(ctx context.Context, keys ...ParamsKey) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // says ErrTxDone after Commit
	var had []string
	for _, k := range keys {
		r, err := tx.ExecContext(ctx, `INSERT INTO params_keys (id, tenant, wrapper, wrapped, created_at, removed_at)
			VALUES (?, ?, ?, ?, ?, 0) ON CONFLICT DO NOTHING`, k.ID, k.Tenant, k.Wrapper, k.Wrapped, nanos(k.CreatedAt))
		if err = changed(r, err, ErrExists); errors.Is(err, ErrExists) {
			had = append(had, k.Tenant)
		} else if err != nil {
			return fmt.Errorf("params key of %q: %w", k.Tenant, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	if had != nil {
		return fmt.Errorf("params keys of %q: %w", had, ErrExists)
	}
	return nil
}

// ParamsKeys returns every params key, removed ones too, by tenant and in the
// order in which they were made.
func (s *SQLite) ParamsKeys(ctx context.Context) ([]ParamsKey, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT id, tenant, wrapper, wrapped, created_at, removed_at FROM params_keys ORDER BY tenant, rowid`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err has told by then
	var all []ParamsKey
	for rows.Next() {
		var k ParamsKey
		var created, removed int64
		if err := rows.Scan(&k.ID, &k.Tenant, &k.Wrapper, &k.Wrapped, &created, &removed); err != nil {
			return nil, err
		}
		k.CreatedAt, k.RemovedAt = at(created), at(removed)
		all = append(all, k)
	}
	return all, rows.Err()
}

// RemoveParamsKey removes the key that a tenant has in use, and its bytes from
// the files of the store; its row stays, without the key. It returns the row.
// ErrNotFound: the tenant has none in use; bytes of those before it are gone all
// the same. ErrTraces: removed, and not cleaned.
func (s *SQLite) RemoveParamsKey(ctx context.Context, tenant string, now time.Time) (ParamsKey, error) {
	k := ParamsKey{Tenant: tenant, RemovedAt: now}
	err := s.change(ctx, func(tx *sql.Tx) error {
		var created int64
		err := tx.QueryRowContext(ctx, `UPDATE params_keys SET wrapped = NULL, removed_at = ? WHERE tenant = ? AND removed_at = 0
			RETURNING id, wrapper, created_at`, nanos(now), tenant).Scan(&k.ID, &k.Wrapper, &created)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		k.CreatedAt = at(created)
		return err
	})
	if err == nil || errors.Is(err, ErrNotFound) {
		err = errors.Join(err, s.clean(ctx))
	}
	if err != nil {
		return k, fmt.Errorf("params key of %q: %w", tenant, err)
	}
	return k, nil
}

// clean moves all that was written into the database file, where secure_delete
// has put zeros over what was removed, and cuts the log of writes, which has the
// pages as they were before. It waits for readers for as long as for a writer.
func (s *SQLite) clean(ctx context.Context) error {
	var busy, pages, moved int
	if err := s.db.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &pages, &moved); err != nil {
		return errors.Join(ErrTraces, err)
	}
	if busy != 0 {
		return ErrTraces
	}
	return nil
}
