package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// PutCredential stores a credential of version 1 where there is none, or puts
// one of version n+1 in the place of version n, whichever tenant's key that was sealed
// under. by is the data key that c is sealed under. ErrConflict: there is another
// version by now, or that key is not there as it was read.
func (s *SQLite) PutCredential(ctx context.Context, c Credential, by DataKey) error {
	return s.change(ctx, func(tx *sql.Tx) error {
		if err := holds(ctx, tx, by); err != nil {
			return err
		}
		var r sql.Result
		var err error
		if c.Version == 1 {
			r, err = tx.ExecContext(ctx, `INSERT INTO credentials (tenant, service, user, field, version, sealed, updated_at, host, state)
				VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
				c.Tenant, c.Service, c.User, c.Field, c.Sealed, nanos(c.UpdatedAt), c.Host, c.State)
		} else {
			r, err = tx.ExecContext(ctx, `UPDATE credentials SET tenant = ?, version = ?, sealed = ?, updated_at = ?, host = ?, state = ?
				WHERE service = ? AND user = ? AND field = ? AND version = ?`,
				c.Tenant, c.Version, c.Sealed, nanos(c.UpdatedAt), c.Host, c.State, c.Service, c.User, c.Field, c.Version-1)
		}
		return changed(r, err, ErrConflict)
	})
}

// holds is ErrConflict unless a data key is there as it was read.
func holds(ctx context.Context, tx *sql.Tx, k DataKey) error {
	var one int
	err := tx.QueryRowContext(ctx, `SELECT 1 FROM data_keys WHERE tenant = ? AND number = ? AND wrapped = ?`, k.Tenant, int64(k.Number), k.Wrapped).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrConflict
	}
	return err
}

// ResealCredential puts c, which is sealed under the data key by, in the place of the
// same version as sealed under a key of the tenant was. ErrConflict as PutCredential,
// and where another process has done it.
func (s *SQLite) ResealCredential(ctx context.Context, was string, c Credential, by DataKey) error {
	return s.change(ctx, func(tx *sql.Tx) error {
		if err := holds(ctx, tx, by); err != nil {
			return err
		}
		r, err := tx.ExecContext(ctx, `UPDATE credentials SET tenant = ?, sealed = ?
			WHERE service = ? AND user = ? AND field = ? AND version = ? AND tenant = ?`,
			c.Tenant, c.Sealed, c.Service, c.User, c.Field, c.Version, was)
		return changed(r, err, ErrConflict)
	})
}

// MarkCredential puts a credential that is at that version into a state, in which it
// stays until it is put anew. ErrConflict: it is at another by now, or gone.
func (s *SQLite) MarkCredential(ctx context.Context, c Credential, state string) error {
	return s.change(ctx, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, `UPDATE credentials SET state = ? WHERE service = ? AND user = ? AND field = ? AND version = ?`,
			state, c.Service, c.User, c.Field, c.Version)
		return changed(r, err, ErrConflict)
	})
}

// Credentials returns every credential, by service, user and field.
func (s *SQLite) Credentials(ctx context.Context) ([]Credential, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT tenant, service, user, field, version, sealed, updated_at, host, state
		FROM credentials ORDER BY service, user, field`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err has told by then
	var all []Credential
	for rows.Next() {
		var c Credential
		var updated int64
		if err := rows.Scan(&c.Tenant, &c.Service, &c.User, &c.Field, &c.Version, &c.Sealed, &updated, &c.Host, &c.State); err != nil {
			return nil, err
		}
		c.UpdatedAt = at(updated)
		all = append(all, c)
	}
	return all, rows.Err()
}

// RemoveCredential removes every field of a credential, and the data keys of a tenant
// that has none left. ErrNotFound: there is none.
func (s *SQLite) RemoveCredential(ctx context.Context, service, user string) error {
	return s.change(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, `DELETE FROM credentials WHERE service = ? AND user = ? RETURNING tenant`, service, user)
		if err != nil {
			return err
		}
		tenants := map[string]bool{}
		for rows.Next() {
			var tenant string
			if err := rows.Scan(&tenant); err != nil {
				return errors.Join(err, rows.Close())
			}
			tenants[tenant] = true
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
		if len(tenants) == 0 {
			return ErrNotFound
		}
		for tenant := range tenants {
			if _, err := tx.ExecContext(ctx, `DELETE FROM data_keys WHERE tenant = ?
				AND NOT EXISTS (SELECT 1 FROM credentials WHERE credentials.tenant = data_keys.tenant)`, tenant); err != nil {
				return err
			}
		}
		return nil
	})
}

// AddDataKey stores a data key under a number that the tenant has not used.
// ErrExists: another process was first; use its key.
func (s *SQLite) AddDataKey(ctx context.Context, k DataKey) error {
	err := s.change(ctx, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, `INSERT INTO data_keys (tenant, number, wrapper, wrapped, created_at)
			VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			k.Tenant, int64(k.Number), k.Wrapper, k.Wrapped, nanos(k.CreatedAt))
		return changed(r, err, ErrExists)
	})
	if err != nil {
		return fmt.Errorf("data key %d: %w", k.Number, err)
	}
	return nil
}

// DataKeys returns every data key, by tenant and number.
func (s *SQLite) DataKeys(ctx context.Context) ([]DataKey, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT tenant, number, wrapper, wrapped, created_at FROM data_keys ORDER BY tenant, number`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err has told by then
	var all []DataKey
	for rows.Next() {
		var k DataKey
		var created int64
		if err := rows.Scan(&k.Tenant, &k.Number, &k.Wrapper, &k.Wrapped, &created); err != nil {
			return nil, err
		}
		k.CreatedAt = at(created)
		all = append(all, k)
	}
	return all, rows.Err()
}
