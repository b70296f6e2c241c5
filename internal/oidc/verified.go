package oidc

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"agentgw/internal/identity"
)

const (
	maxVerified = 10_000           // tokens of one registry that are remembered
	verifiedFor = 60 * time.Second // at most, and no longer than a token lasts
)

// verified remembers tokens that were found to be good, and whose they are, under
// the hash of the whole token, in which the issuer is. Under a part of it two
// tokens could be one (CVE-2026-35030). What was refused is not remembered: it may
// be good tomorrow, and strangers could fill the memory with it. It belongs to one
// registry, so that a caller's scope is always that of the registry in force. Safe
// for concurrent use.
type verified struct {
	mu   sync.Mutex
	seen *simplelru.LRU[[sha256.Size]byte, verifiedToken]
}

type verifiedToken struct {
	caller *identity.Secret
	until  time.Time
}

func newVerified() *verified {
	seen, _ := simplelru.NewLRU[[sha256.Size]byte, verifiedToken](maxVerified, nil) // the size is above 0
	return &verified{seen: seen}
}

func (v *verified) get(hash [sha256.Size]byte, now time.Time) *identity.Secret {
	v.mu.Lock()
	defer v.mu.Unlock()
	t, ok := v.seen.Get(hash)
	if !ok || !now.Before(t.until) {
		return nil
	}
	return t.caller
}

func (v *verified) put(hash [sha256.Size]byte, caller *identity.Secret, expiry, now time.Time) {
	until := now.Add(verifiedFor)
	if expiry.Before(until) {
		until = expiry
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen.Add(hash, verifiedToken{caller, until})
}
