package store

import (
	"context"
	"time"
)

// ClaimRenewal makes owner the one who may renew a credential's tokens until that
// time, or longer if it is already. ErrConflict: another is, whose time is not over
// at now. Times are those of processes whose clocks agree, to within a few seconds.
func (s *Store) ClaimRenewal(ctx context.Context, service, user, owner string, now, until time.Time) error {
	return s.once(ctx, ErrConflict, `INSERT INTO renewals (tenant, service, "user", owner, until) VALUES ('', $1, $2, $3, $4)
		ON CONFLICT (tenant, service, "user") DO UPDATE SET owner = excluded.owner, until = excluded.until
		WHERE renewals.owner = excluded.owner OR renewals.until <= $5`,
		service, user, owner, nanos(until), nanos(now))
}

// EndRenewal gives a claim of owner back; another's stays as it is.
func (s *Store) EndRenewal(ctx context.Context, service, user, owner string) error {
	return s.once(ctx, nil, `DELETE FROM renewals WHERE service = $1 AND "user" = $2 AND owner = $3`, service, user, owner)
}
