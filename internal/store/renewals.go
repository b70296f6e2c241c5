package store

import (
	"context"
	"time"
)

// ClaimRenewal makes owner the one who may renew a credential's tokens until that
// time, or longer if it is already. ErrConflict: another is, whose time is not over
// at now. Times are those of processes that share a clock, as on one machine.
func (s *SQLite) ClaimRenewal(ctx context.Context, service, user, owner string, now, until time.Time) error {
	r, err := s.db.ExecContext(ctx, `INSERT INTO renewals (tenant, service, user, owner, until) VALUES ('', ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET owner = excluded.owner, until = excluded.until WHERE owner = excluded.owner OR until <= ?`,
		service, user, owner, nanos(until), nanos(now))
	return changed(r, err, ErrConflict)
}

// EndRenewal gives a claim of owner back; another's stays as it is.
func (s *SQLite) EndRenewal(ctx context.Context, service, user, owner string) error {
	_, err := s.db.ExecContext(ctx, `DELETE FROM renewals WHERE service = ? AND user = ? AND owner = ?`,
		service, user, owner)
	return err
}
