package vault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentgw/internal/store"
)

// ResealStore is what Reseal needs of a store; see package store for the errors.
type ResealStore interface {
	Store
	ResealCredential(ctx context.Context, was string, c store.Credential, by store.DataKey) error
}

// Reseal seals each person's credentials under a data key of that person's, where an
// earlier version of this program has left them under the key of those that are shared,
// and counts them. It goes row by row, and a row stays the version that it is: one that
// was broken off has done no harm and goes on where it was, a credential that another
// process changes meanwhile is left to it, and a token that is renewed meanwhile is not
// lost. What does not open is passed over; the error tells of each. It is done when it
// returns 0.
func Reseal(ctx context.Context, s ResealStore, kek KEK, now time.Time) (done int, err error) {
	v, err := Load(ctx, s, kek)
	if err != nil {
		return 0, err
	}
	for of, row := range v.rows.Load().rows {
		if row.Tenant == of.tenant() {
			continue
		}
		switch failed := v.reseal(ctx, s, of, row, now); {
		case failed == nil:
			done++
		case errors.Is(failed, ErrCorrupt):
			err = errors.Join(err, fmt.Errorf("%s: %w", of.Ref, failed))
		case !errors.Is(failed, store.ErrConflict):
			return done, errors.Join(err, failed)
		}
	}
	return done, err
}

func (v *Vault) reseal(ctx context.Context, s ResealStore, of field, row store.Credential, now time.Time) error {
	text, err := v.rows.Load().keys.openRow(row)
	if err != nil {
		return err
	}
	k, err := v.sealing(ctx, of.tenant(), now)
	if err != nil {
		return err
	}
	was := row.Tenant
	if err := k.seal(&row, text); err != nil {
		return err
	}
	return s.ResealCredential(ctx, was, row, k.row)
}
