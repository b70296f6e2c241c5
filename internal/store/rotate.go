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
func (s *Store) RotateKey(ctx context.Context, id string, digest [32]byte, now, until time.Time) error {
	err := s.change(ctx, func(ctx context.Context, tx conn) error {
		var revokedAt, retiringEnd int64
		err := tx.row(ctx, `SELECT revoked_at, retiring_not_after FROM keys WHERE id = $1`, id)(&revokedAt, &retiringEnd)
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
		_, err = tx.exec(ctx, `DELETE FROM secret_uses WHERE digest = (SELECT retiring FROM keys WHERE id = $1)`, id)
		if err != nil {
			return err
		}
		if !stays {
			_, err = tx.exec(ctx, `UPDATE keys SET digest = $1, retiring = NULL, retiring_not_after = 0 WHERE id = $2`, digest[:], id)
			return err
		}
		_, err = tx.exec(ctx, `UPDATE keys SET digest = $1, retiring = digest, retiring_not_after = $2 WHERE id = $3`, digest[:], nanos(until), id)
		return err
	})
	if err != nil {
		return fmt.Errorf("key %q: %w", id, err)
	}
	return nil
}

// untaken is ErrExists where some key has the digest, as its newest secret's or its
// older one's: who has it would be two callers.
func untaken(ctx context.Context, tx conn, digest [32]byte) error {
	var n int
	err := tx.row(ctx, `SELECT count(*) FROM keys WHERE digest = $1 OR retiring = $1`, digest[:])(&n)
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
