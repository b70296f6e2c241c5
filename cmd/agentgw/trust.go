package main

import (
	"context"
	"crypto/ed25519"
	"time"

	"agentgw/internal/delegation"
	"agentgw/internal/identity"
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
// key of that id. So is one whose key, or whose issuer, the registry has no more.
func readTrust(ctx context.Context, s *store.Store, kek vault.KEK, snapshot *registry.Snapshot) (*delegation.Trust, error) {
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
		t.Revoked.Known = agents(snapshot, keys)
	}
	return t, nil
}

// agents are those that there are: keys, of the registry and of the store, and whoever
// comes with a token of one of the registry's issuers.
func agents(snapshot *registry.Snapshot, stored []store.Key) func(name string) bool {
	ids, issuers := map[string]bool{}, map[string]bool{}
	for _, k := range stored {
		ids[k.ID] = true
	}
	for _, k := range snapshot.Keys {
		ids[k.ID] = true
	}
	for _, i := range snapshot.Issuers {
		issuers[i.Issuer] = true
	}
	return func(name string) bool {
		if issuer, _, ok := identity.ParseCallerID(name); ok {
			return issuers[issuer]
		}
		return ids[name]
	}
}
