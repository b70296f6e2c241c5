package main

import (
	"context"
	"crypto/ed25519"
	"time"

	"agentgw/internal/delegation"
	"agentgw/internal/registry"
	"agentgw/internal/store"
	"agentgw/internal/vault"
)

// trust has delegations be verified by the roots and revocations that the store holds
// now. Where one cannot be read nothing changes.
func (l *live) trust(ctx context.Context, r rules) error {
	t, err := readTrust(ctx, l.store, l.kek, r.snapshot)
	if err == nil {
		l.gateway.TrustDelegations(t)
	}
	return err
}

// readTrust returns what delegations are verified by. An agent whose key was revoked
// is gone, with all that was handed on through it; but not where the registry has a
// key of that id.
func readTrust(ctx context.Context, s *store.SQLite, kek vault.KEK, snapshot *registry.Snapshot) (*delegation.Trust, error) {
	roots, err := vault.LoadRoots(ctx, s, kek)
	if err != nil {
		return nil, err
	}
	revocations, err := s.Revocations(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := s.Keys(ctx)
	if err != nil {
		return nil, err
	}
	t := &delegation.Trust{Roots: map[string]ed25519.PublicKey{}, Revoked: delegation.Revocations{
		IDs: map[string]bool{}, Agents: map[string]time.Time{}, Users: map[string]time.Time{}, Gone: map[string]bool{},
	}}
	for _, r := range roots {
		t.Roots[r.ID] = r.Public().(ed25519.PublicKey)
	}
	for _, r := range revocations {
		switch r.Kind {
		case store.RevokedToken:
			t.Revoked.IDs[r.Name] = true
		case store.RevokedAgent:
			t.Revoked.Agents[r.Name] = r.RevokedAt
		case store.RevokedUser:
			t.Revoked.Users[r.Name] = r.RevokedAt
		}
	}
	for _, k := range keys {
		if !k.RevokedAt.IsZero() {
			t.Revoked.Gone[k.ID] = true
		}
	}
	if snapshot != nil {
		for _, k := range snapshot.Keys {
			delete(t.Revoked.Gone, k.ID)
		}
	}
	return t, nil
}
