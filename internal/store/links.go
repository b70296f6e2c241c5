package store

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// AddLink stores a link, and forgets those that have expired at now. ErrExists:
// there is one of that digest.
func (s *Store) AddLink(ctx context.Context, l Link, now time.Time) error {
	if err := s.once(ctx, nil, `DELETE FROM links WHERE expires_at <= $1`, nanos(now)); err != nil {
		return err
	}
	return s.once(ctx, ErrExists, `INSERT INTO links (digest, service, "user", expires_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`,
		l.Digest[:], l.Service, l.User, nanos(l.ExpiresAt))
}

// FindLink returns the link of a digest. ErrNotFound: there is none, or it has
// expired at now.
func (s *Store) FindLink(ctx context.Context, digest [32]byte, now time.Time) (Link, error) {
	return s.link(ctx, `SELECT service, "user", expires_at FROM links WHERE digest = $1 AND expires_at > $2`, digest, now)
}

// TakeLink is FindLink, and forgets the link: of many that take it one finds it.
func (s *Store) TakeLink(ctx context.Context, digest [32]byte, now time.Time) (Link, error) {
	return s.link(ctx, `DELETE FROM links WHERE digest = $1 AND expires_at > $2 RETURNING service, "user", expires_at`, digest, now)
}

func (s *Store) link(ctx context.Context, statement string, digest [32]byte, now time.Time) (Link, error) {
	l := Link{Digest: digest}
	err := s.ask(ctx, s.engine.changing, func(ctx context.Context, c conn) error {
		var expires int64
		err := c.row(ctx, statement, digest[:], nanos(now))(&l.Service, &l.User, &expires)
		l.ExpiresAt = at(expires)
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return Link{}, ErrNotFound
	}
	return l, err
}
