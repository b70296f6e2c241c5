package main

import (
	"slices"

	"agentgw/internal/identity"
	"agentgw/internal/registry"
	"agentgw/internal/store"
)

// allKeys joins the registry's keys and the live ones of the state store. A
// stored key whose id or digest the registry has too is left out and named: the
// file is what the operator reads. It must not fail the whole, or a clash would
// keep every later revocation from taking effect.
func allKeys(static []*registry.Key, stored []store.Key) (keys []*identity.Key, shadowed []string) {
	ids, digests := map[string]bool{}, map[[32]byte]bool{}
	for _, k := range static {
		keys = append(keys, staticKey(k))
		ids[k.ID], digests[k.Digest] = true, true
		if k.Retiring != nil {
			digests[k.Retiring.Digest] = true
		}
	}
	for _, k := range stored {
		switch {
		case !k.RevokedAt.IsZero():
		case ids[k.ID] || digests[k.Digest] || k.Retiring != nil && digests[k.Retiring.Digest]:
			shadowed = append(shadowed, k.ID)
		default:
			keys = append(keys, storedKey(k))
		}
	}
	return keys, shadowed
}

func staticKey(k *registry.Key) *identity.Key {
	key := &identity.Key{
		ID: k.ID, Digest: k.Digest, Services: k.Services, Actions: k.Actions, Users: k.Users, Tenant: k.Tenant,
		User: k.User, Space: k.Space, Org: k.Org, NotBefore: k.NotBefore, NotAfter: k.NotAfter, Origin: k.Pos.String(),
	}
	if k.Retiring != nil {
		key.Retiring = &identity.Retiring{Digest: k.Retiring.Digest, NotAfter: k.Retiring.NotAfter}
	}
	if k.Rate != nil {
		key.Limits = &identity.Limits{RPS: k.Rate.RPS, Burst: k.Rate.Burst}
	}
	return key
}

func storedKey(k store.Key) *identity.Key {
	key := &identity.Key{
		ID: k.ID, Digest: k.Digest, Services: k.Services, Actions: k.Actions, Users: k.Users, Tenant: k.Tenant,
		User: k.User, Space: k.Space, Org: k.Org, CreatedAt: k.CreatedAt, NotBefore: k.NotBefore, NotAfter: k.NotAfter,
		Origin: "the state store",
	}
	if k.Retiring != nil {
		key.Retiring = &identity.Retiring{Digest: k.Retiring.Digest, NotAfter: k.Retiring.NotAfter}
	}
	if k.Limits != nil {
		key.Limits = &identity.Limits{RPS: k.Limits.RPS, Burst: k.Limits.Burst}
	}
	return key
}

// staticTwin is a key of the registry that has the id of k or a secret of it, and with
// which its holder gets in however little the store thinks of k; nil if there is none.
func (h home) staticTwin(k *store.Key) *registry.Key {
	if h.snapshot == nil || k == nil {
		return nil
	}
	secrets := [][32]byte{k.Digest}
	if k.Retiring != nil {
		secrets = append(secrets, k.Retiring.Digest)
	}
	for _, s := range h.snapshot.Keys {
		if s.ID == k.ID || slices.Contains(secrets, s.Digest) || s.Retiring != nil && slices.Contains(secrets, s.Retiring.Digest) {
			return s
		}
	}
	return nil
}
