package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"
)

// AddKey stores a new key. ErrExists: the id or the digest is taken.
func (s *Store) AddKey(ctx context.Context, k Key) error {
	lists := make([]string, 0, 3)
	for _, list := range [][]string{k.Services, k.Actions, k.Users} {
		b, err := json.Marshal(append([]string{}, list...))
		if err != nil {
			return err
		}
		lists = append(lists, string(b))
	}
	var rps, burst any
	if k.Limits != nil {
		rps, burst = k.Limits.RPS, k.Limits.Burst
	}
	retiring, retiringEnd := k.Retiring.row()
	err := s.change(ctx, func(ctx context.Context, tx conn) error {
		if err := untaken(ctx, tx, k.Digest); err != nil {
			return err
		}
		r, err := tx.exec(ctx, `INSERT INTO keys
			(id, digest, services, actions, users, tenant, rps, burst, "user", space, org, created_at, not_before, not_after, revoked_at, retiring, retiring_not_after)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) ON CONFLICT DO NOTHING`,
			k.ID, k.Digest[:], lists[0], lists[1], lists[2], k.Tenant, rps, burst, k.User, k.Space, k.Org,
			nanos(k.CreatedAt), nanos(k.NotBefore), nanos(k.NotAfter), nanos(k.RevokedAt), retiring, retiringEnd)
		return changed(r, err, ErrExists)
	})
	if err != nil {
		return fmt.Errorf("key %q: %w", k.ID, err)
	}
	return nil
}

// Keys returns every key, revoked ones too, by id.
func (s *Store) Keys(ctx context.Context) ([]Key, error) {
	return list(ctx, s, func(row scan) (Key, error) {
		k, err := scanKey(row)
		if err != nil {
			err = fmt.Errorf("key %q: %w", k.ID, err)
		}
		return k, err
	}, `SELECT
		id, digest, services, actions, users, tenant, rps, burst, "user", space, org, created_at, not_before, not_after, revoked_at, retiring, retiring_not_after
		FROM keys ORDER BY id`)
}

func scanKey(row scan) (Key, error) {
	var (
		k                                       Key
		digest                                  []byte
		services, actions, users                string
		rps                                     sql.NullFloat64
		burst                                   sql.NullInt64
		createdAt, notBefore, notAfter, revoked int64
		retiring                                []byte
		retiringEnd                             int64
	)
	err := row(&k.ID, &digest, &services, &actions, &users, &k.Tenant, &rps, &burst,
		&k.User, &k.Space, &k.Org, &createdAt, &notBefore, &notAfter, &revoked, &retiring, &retiringEnd)
	if err != nil {
		return k, err
	}
	if copy(k.Digest[:], digest) != len(k.Digest) {
		return k, fmt.Errorf("its digest has %d bytes", len(digest))
	}
	if retiring != nil {
		k.Retiring = &Retiring{NotAfter: at(retiringEnd)}
		if copy(k.Retiring.Digest[:], retiring) != len(k.Retiring.Digest) {
			return k, fmt.Errorf("the digest of its older secret has %d bytes", len(retiring))
		}
	}
	for _, list := range []struct {
		text string
		into *[]string
	}{{services, &k.Services}, {actions, &k.Actions}, {users, &k.Users}} {
		if err := json.Unmarshal([]byte(list.text), list.into); err != nil {
			return k, err
		}
		if len(*list.into) == 0 {
			*list.into = nil
		}
	}
	if rps.Valid {
		k.Limits = &Limits{RPS: rps.Float64, Burst: int(burst.Int64)}
	}
	k.CreatedAt, k.NotBefore, k.NotAfter, k.RevokedAt = at(createdAt), at(notBefore), at(notAfter), at(revoked)
	return k, nil
}

// RevokeKey marks a key as revoked at now. ErrNotFound: there is no such key. A
// key that is revoked already stays revoked since when it was, and counts as
// done.
func (s *Store) RevokeKey(ctx context.Context, id string, now time.Time) error {
	err := s.change(ctx, func(ctx context.Context, tx conn) error {
		r, err := tx.exec(ctx, `UPDATE keys SET revoked_at = CASE revoked_at WHEN 0 THEN $1 ELSE revoked_at END WHERE id = $2`, nanos(now), id)
		return changed(r, err, ErrNotFound)
	})
	if err != nil {
		return fmt.Errorf("key %q: %w", id, err)
	}
	return nil
}

// nanos and at write and read a time; the zero time is 0.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func at(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
