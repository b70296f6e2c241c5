package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// RootsKept is how many delegation roots there are at most: the newest, and the one
// before it.
const RootsKept = 2

// AddRoot stores a new delegation root, which is the newest from then on, and removes
// those that are more than RootsKept. after is the newest root that the caller knows,
// "" for none. ErrConflict: there is a newer one; read again.
func (s *Store) AddRoot(ctx context.Context, r Root, after string) error {
	err := s.change(ctx, func(ctx context.Context, tx conn) error {
		var newest string
		err := tx.row(ctx, `SELECT id FROM delegation_roots ORDER BY rowid DESC LIMIT 1`)(&newest)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if newest != after {
			return ErrConflict
		}
		if _, err := tx.exec(ctx, `INSERT INTO delegation_roots (id, wrapper, wrapped, created_at) VALUES ($1, $2, $3, $4)`,
			r.ID, r.Wrapper, r.Wrapped, nanos(r.CreatedAt)); err != nil {
			return err
		}
		_, err = tx.exec(ctx, `DELETE FROM delegation_roots WHERE rowid NOT IN
			(SELECT rowid FROM delegation_roots ORDER BY rowid DESC LIMIT $1)`, RootsKept)
		return err
	})
	if err != nil {
		return fmt.Errorf("delegation root %q: %w", r.ID, err)
	}
	return nil
}

// Roots returns the delegation roots, the newest first.
func (s *Store) Roots(ctx context.Context) ([]Root, error) {
	return list(ctx, s, func(row scan) (r Root, err error) {
		var created int64
		err = row(&r.ID, &r.Wrapper, &r.Wrapped, &created)
		r.CreatedAt = at(created)
		return r, err
	}, `SELECT id, wrapper, wrapped, created_at FROM delegation_roots ORDER BY rowid DESC`)
}

// RevocationsKept is how long a revocation of a delegation is kept: much longer than a
// delegation may last, so that no clock that is set back brings one to life again.
const RevocationsKept = 7 * 24 * time.Hour

// RevokeDelegations stores what was taken back, and forgets what was so long ago that
// it decides nothing any more. Of a token that was revoked before, nothing changes; of
// an agent or a user the later time counts.
func (s *Store) RevokeDelegations(ctx context.Context, r Revocation) error {
	err := s.change(ctx, func(ctx context.Context, tx conn) error {
		_, err := tx.exec(ctx, `INSERT INTO revocations (kind, name, revoked_at) VALUES ($1, $2, $3)
			ON CONFLICT (kind, name) DO UPDATE SET revoked_at = excluded.revoked_at
			WHERE revocations.kind <> 'token' AND revocations.revoked_at < excluded.revoked_at`,
			r.Kind, r.Name, nanos(r.RevokedAt))
		if err != nil {
			return err
		}
		_, err = tx.exec(ctx, `DELETE FROM revocations WHERE revoked_at < $1`, nanos(r.RevokedAt.Add(-RevocationsKept)))
		return err
	})
	if err != nil {
		return fmt.Errorf("revocation of %s %q: %w", r.Kind, r.Name, err)
	}
	return nil
}

// Revocations returns all that was taken back of delegations, by kind and name.
func (s *Store) Revocations(ctx context.Context) ([]Revocation, error) {
	return list(ctx, s, func(row scan) (r Revocation, err error) {
		var revoked int64
		err = row(&r.Kind, &r.Name, &revoked)
		r.RevokedAt = at(revoked)
		return r, err
	}, `SELECT kind, name, revoked_at FROM revocations ORDER BY kind, name`)
}
