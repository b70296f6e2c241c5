package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// RotateKey gives a key a new secret at now. The one that it has retires: it is valid
// until then, or, if that is not after now, no more. A secret that has retired before
// and is still valid then is gone with it.
//
// ErrNotFound: there is no such key. ErrRevoked: it was revoked. ErrTwoSecrets: an
// older secret is valid still, and this one was to be as well. ErrExists: the digest
// is taken.
func (s *SQLite) RotateKey(ctx context.Context, id string, digest [32]byte, now, until time.Time) error {
	err := s.change(ctx, func(tx *sql.Tx) error {
		var revokedAt, retiringEnd int64
		err := tx.QueryRowContext(ctx, `SELECT revoked_at, retiring_not_after FROM keys WHERE id = ?`, id).Scan(&revokedAt, &retiringEnd)
		stays := until.After(now)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return ErrNotFound
		case err != nil:
			return err
		case revokedAt != 0:
			return ErrRevoked
		case stays && retiringEnd > now.UnixNano():
			return ErrTwoSecrets
		}
		if err := untaken(ctx, tx, digest); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM secret_uses WHERE digest = (SELECT retiring FROM keys WHERE id = ?)`, id)
		if err != nil {
			return err
		}
		if !stays {
			_, err = tx.ExecContext(ctx, `UPDATE keys SET digest = ?, retiring = NULL, retiring_not_after = 0 WHERE id = ?`, digest[:], id)
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE keys SET digest = ?, retiring = digest, retiring_not_after = ? WHERE id = ?`, digest[:], nanos(until), id)
		return err
	})
	if err != nil {
		return fmt.Errorf("key %q: %w", id, err)
	}
	return nil
}

// untaken is ErrExists where some key has the digest, as its newest secret's or its
// older one's: who has it would be two callers.
func untaken(ctx context.Context, tx *sql.Tx, digest [32]byte) error {
	var n int
	err := tx.QueryRowContext(ctx, `SELECT count(*) FROM keys WHERE digest = ?1 OR retiring = ?1`, digest[:]).Scan(&n)
	if err == nil && n > 0 {
		return ErrExists
	}
	return err
}

// row is how a row has r; nil is none.
func (r *Retiring) row() (digest any, end int64) {
	if r == nil {
		return nil, 0
	}
	return r.Digest[:], nanos(r.NotAfter)
}
