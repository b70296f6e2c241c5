package store

import (
	"context"
	"fmt"
	"time"
)

// SecretsUsed notes when secrets were used last, by their digests: those of keys of
// the registry file too. Of two times the later counts, whichever process brought it.
// Nobody has to act on it: the generation stays.
func (s *SQLite) SecretsUsed(ctx context.Context, used map[[32]byte]time.Time) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // says ErrTxDone after Commit
	note, err := tx.PrepareContext(ctx, `INSERT INTO secret_uses (digest, used_at) VALUES (?, ?)
		ON CONFLICT (digest) DO UPDATE SET used_at = max(used_at, excluded.used_at)`)
	if err != nil {
		return err
	}
	defer func() { _ = note.Close() }()
	for digest, when := range used {
		if _, err := note.ExecContext(ctx, digest[:], nanos(when)); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// LastUses returns when each secret was used last, by digest, as far as it was noted.
func (s *SQLite) LastUses(ctx context.Context) (map[[32]byte]time.Time, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT digest, used_at FROM secret_uses`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err has told by then
	uses := map[[32]byte]time.Time{}
	for rows.Next() {
		var digest []byte
		var when int64
		if err := rows.Scan(&digest, &when); err != nil {
			return nil, err
		}
		if len(digest) != 32 {
			return nil, fmt.Errorf("a digest of %d bytes among the uses", len(digest))
		}
		uses[[32]byte(digest)] = at(when)
	}
	return uses, rows.Err()
}
