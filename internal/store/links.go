package store

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// AddLink stores a link, and forgets those that have expired at now. ErrExists:
// there is one of that digest.
func (s *SQLite) AddLink(ctx context.Context, l Link, now time.Time) error {
	if _, err := s.db.ExecContext(ctx, `DELETE FROM links WHERE expires_at <= ?`, nanos(now)); err != nil {
		return err
	}
	r, err := s.db.ExecContext(ctx, `INSERT INTO links (digest, service, user, expires_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		l.Digest[:], l.Service, l.User, nanos(l.ExpiresAt))
	return changed(r, err, ErrExists)
}

// FindLink returns the link of a digest. ErrNotFound: there is none, or it has
// expired at now.
func (s *SQLite) FindLink(ctx context.Context, digest [32]byte, now time.Time) (Link, error) {
	return s.link(ctx, `SELECT service, user, expires_at FROM links WHERE digest = ? AND expires_at > ?`, digest, now)
}

// TakeLink is FindLink, and forgets the link: of many that take it one finds it.
func (s *SQLite) TakeLink(ctx context.Context, digest [32]byte, now time.Time) (Link, error) {
	return s.link(ctx, `DELETE FROM links WHERE digest = ? AND expires_at > ? RETURNING service, user, expires_at`, digest, now)
}

func (s *SQLite) link(ctx context.Context, statement string, digest [32]byte, now time.Time) (Link, error) {
	l := Link{Digest: digest}
	var expires int64
	err := s.db.QueryRowContext(ctx, statement, digest[:], nanos(now)).Scan(&l.Service, &l.User, &expires)
	if errors.Is(err, sql.ErrNoRows) {
		return Link{}, ErrNotFound
	}
	l.ExpiresAt = at(expires)
	return l, err
}
