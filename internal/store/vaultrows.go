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
func (s *Store) PutCredential(ctx context.Context, c Credential, by DataKey) error {
	return s.change(ctx, func(ctx context.Context, tx conn) error {
		if err := holds(ctx, tx, by); err != nil {
			return err
		}
		var r sql.Result
		var err error
		if c.Version == 1 {
			r, err = tx.exec(ctx, `INSERT INTO credentials (tenant, service, "user", field, version, sealed, updated_at, host, state)
				VALUES ($1, $2, $3, $4, 1, $5, $6, $7, $8) ON CONFLICT DO NOTHING`,
				c.Tenant, c.Service, c.User, c.Field, c.Sealed, nanos(c.UpdatedAt), c.Host, c.State)
		} else {
			r, err = tx.exec(ctx, `UPDATE credentials SET tenant = $1, version = $2, sealed = $3, updated_at = $4, host = $5, state = $6
				WHERE service = $7 AND "user" = $8 AND field = $9 AND version = $10`,
				c.Tenant, c.Version, c.Sealed, nanos(c.UpdatedAt), c.Host, c.State, c.Service, c.User, c.Field, c.Version-1)
		}
		return changed(r, err, ErrConflict)
	})
}

// holds is ErrConflict unless a data key is there as it was read.
func holds(ctx context.Context, tx conn, k DataKey) error {
	var one int
	err := tx.row(ctx, `SELECT 1 FROM data_keys WHERE tenant = $1 AND number = $2 AND wrapped = $3`, k.Tenant, int64(k.Number), k.Wrapped)(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrConflict
	}
	return err
}

// ResealCredential puts c, which is sealed under the data key by, in the place of the
// same version as sealed under a key of the tenant was. ErrConflict as PutCredential,
// and where another process has done it.
func (s *Store) ResealCredential(ctx context.Context, was string, c Credential, by DataKey) error {
	return s.change(ctx, func(ctx context.Context, tx conn) error {
		if err := holds(ctx, tx, by); err != nil {
			return err
		}
		r, err := tx.exec(ctx, `UPDATE credentials SET tenant = $1, sealed = $2
			WHERE service = $3 AND "user" = $4 AND field = $5 AND version = $6 AND tenant = $7`,
			c.Tenant, c.Sealed, c.Service, c.User, c.Field, c.Version, was)
		return changed(r, err, ErrConflict)
	})
}

// MarkCredential puts a credential that is at that version into a state, in which it
// stays until it is put anew. ErrConflict: it is at another by now, or gone.
func (s *Store) MarkCredential(ctx context.Context, c Credential, state string) error {
	return s.change(ctx, func(ctx context.Context, tx conn) error {
		r, err := tx.exec(ctx, `UPDATE credentials SET state = $1 WHERE service = $2 AND "user" = $3 AND field = $4 AND version = $5`,
			state, c.Service, c.User, c.Field, c.Version)
		return changed(r, err, ErrConflict)
	})
}

// Credentials returns every credential, by service, user and field.
func (s *Store) Credentials(ctx context.Context) ([]Credential, error) {
	return list(ctx, s, func(row scan) (c Credential, err error) {
		var updated int64
		err = row(&c.Tenant, &c.Service, &c.User, &c.Field, &c.Version, &c.Sealed, &updated, &c.Host, &c.State)
		c.UpdatedAt = at(updated)
		return c, err
	}, `SELECT tenant, service, "user", field, version, sealed, updated_at, host, state
		FROM credentials ORDER BY service, "user", field`)
}

// RemoveCredential removes every field of a credential, and the data keys of a tenant
// that has none left. ErrNotFound: there is none.
func (s *Store) RemoveCredential(ctx context.Context, service, user string) error {
	return s.change(ctx, func(ctx context.Context, tx conn) error {
		tenants := map[string]bool{}
		err := tx.each(ctx, func(row scan) error {
			var tenant string
			err := row(&tenant)
			tenants[tenant] = true
			return err
		}, `DELETE FROM credentials WHERE service = $1 AND "user" = $2 RETURNING tenant`, service, user)
		if err != nil {
			return err
		}
		if len(tenants) == 0 {
			return ErrNotFound
		}
		for tenant := range tenants {
			if _, err := tx.exec(ctx, `DELETE FROM data_keys WHERE tenant = $1
				AND NOT EXISTS (SELECT 1 FROM credentials WHERE credentials.tenant = data_keys.tenant)`, tenant); err != nil {
				return err
			}
		}
		return nil
	})
}

// AddDataKey stores a data key under a number that the tenant has not used.
// ErrExists: another process was first; use its key.
func (s *Store) AddDataKey(ctx context.Context, k DataKey) error {
	err := s.change(ctx, func(ctx context.Context, tx conn) error {
		r, err := tx.exec(ctx, `INSERT INTO data_keys (tenant, number, wrapper, wrapped, created_at)
			VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`,
			k.Tenant, int64(k.Number), k.Wrapper, k.Wrapped, nanos(k.CreatedAt))
		return changed(r, err, ErrExists)
	})
	if err != nil {
		return fmt.Errorf("data key %d: %w", k.Number, err)
	}
	return nil
}

// DataKeys returns every data key, by tenant and number.
func (s *Store) DataKeys(ctx context.Context) ([]DataKey, error) {
	return list(ctx, s, func(row scan) (k DataKey, err error) {
		var created int64
		err = row(&k.Tenant, &k.Number, &k.Wrapper, &k.Wrapped, &created)
		k.CreatedAt = at(created)
		return k, err
	}, `SELECT tenant, number, wrapper, wrapped, created_at FROM data_keys ORDER BY tenant, number`)
}
