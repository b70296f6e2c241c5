package vault

import (
	"context"
	"time"

	"agentgw/internal/store"
)

// SetAsBefore stores a secret as programs did that had one data key for everybody.
func (v *Vault) SetAsBefore(ctx context.Context, ref Ref, text string, now time.Time) error {
	return v.SealUnder(ctx, ref, secretField, noTenant, text, now)
}

// SetRefreshAsBefore is SetAsBefore of an account.
func (v *Vault) SetRefreshAsBefore(ctx context.Context, ref Ref, form Form, refresh string, now time.Time) error {
	return v.SealUnder(ctx, ref, tokenField, noTenant, record{Refresh: refresh, Host: form.OAuth2.Host()}.text(), now)
}

// SealUnder stores a row that is sealed, in its place, under the data key of tenant.
func (v *Vault) SealUnder(ctx context.Context, ref Ref, name, tenant, text string, now time.Time) error {
	k, err := v.sealing(ctx, tenant, now)
	if err != nil {
		return err
	}
	row := store.Credential{Service: ref.Service, User: ref.User, Field: name, Version: 1, UpdatedAt: now}
	if err := k.seal(&row, text); err != nil {
		return err
	}
	if err := v.store.PutCredential(ctx, row, k.row); err != nil {
		return err
	}
	return v.Reload(ctx)
}

// Wanting is how many tenants wait for their key.
func (s *Salts) Wanting() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.wanted)
}
