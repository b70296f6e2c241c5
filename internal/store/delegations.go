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
func (s *SQLite) AddRoot(ctx context.Context, r Root, after string) error {
	err := s.change(ctx, func(tx *sql.Tx) error {
		var newest string
		err := tx.QueryRowContext(ctx, `SELECT id FROM delegation_roots ORDER BY rowid DESC LIMIT 1`).Scan(&newest)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if newest != after {
			return ErrConflict
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO delegation_roots (id, wrapper, wrapped, created_at) VALUES (?, ?, ?, ?)`,
			r.ID, r.Wrapper, r.Wrapped, nanos(r.CreatedAt)); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM delegation_roots WHERE rowid NOT IN
			(SELECT rowid FROM delegation_roots ORDER BY rowid DESC LIMIT ?)`, RootsKept)
		return err
	})
	if err != nil {
		return fmt.Errorf("delegation root %q: %w", r.ID, err)
	}
	return nil
}

// Roots returns the delegation roots, the newest first.
func (s *SQLite) Roots(ctx context.Context) ([]Root, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT id, wrapper, wrapped, created_at FROM delegation_roots ORDER BY rowid DESC`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err has told by then
	var all []Root
	for rows.Next() {
		var r Root
		var created int64
		if err := rows.Scan(&r.ID, &r.Wrapper, &r.Wrapped, &created); err != nil {
			return nil, err
		}
		r.CreatedAt = at(created)
		all = append(all, r)
	}
	return all, rows.Err()
}

// RevocationsKept is how long a revocation of a delegation is kept: much longer than a
// delegation may last, so that no clock that is set back brings one to life again.
const RevocationsKept = 7 * 24 * time.Hour

// RevokeDelegations stores what was taken back, and forgets what was so long ago that
// it decides nothing any more. Of a token that was revoked before, nothing changes; of
// an agent or a user the later time counts.
func (s *SQLite) RevokeDelegations(ctx context.Context, r Revocation) error {
	err := s.change(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO revocations (kind, name, revoked_at) VALUES (?, ?, ?)
			ON CONFLICT DO UPDATE SET revoked_at = max(revoked_at, excluded.revoked_at) WHERE kind <> 'token'`,
			r.Kind, r.Name, nanos(r.RevokedAt))
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM revocations WHERE revoked_at < ?`, nanos(r.RevokedAt.Add(-RevocationsKept)))
		return err
	})
	if err != nil {
		return fmt.Errorf("revocation of %s %q: %w", r.Kind, r.Name, err)
	}
	return nil
}

// Revocations returns all that was taken back of delegations, by kind and name.
func (s *SQLite) Revocations(ctx context.Context) ([]Revocation, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT kind, name, revoked_at FROM revocations ORDER BY kind, name`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err has told by then
	var all []Revocation
	for rows.Next() {
		var r Revocation
		var revoked int64
		if err := rows.Scan(&r.Kind, &r.Name, &revoked); err != nil {
			return nil, err
		}
		r.RevokedAt = at(revoked)
		all = append(all, r)
	}
	return all, rows.Err()
}
