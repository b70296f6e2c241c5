package vault

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"time"

	"agentgw/internal/secret"
	"agentgw/internal/store"
)

// RootStore is what roots need of a store; see package store for the errors.
type RootStore interface {
	Roots(ctx context.Context) ([]store.Root, error)
	AddRoot(ctx context.Context, r store.Root, after string) error
}

// Root is a key that delegations are signed with: an Ed25519 key that its ID names in
// what it signs. Its 32-byte seed is wrapped as a data key is, for
//
//	"agw/v1/delegation-root" || len||id
//
// so that whoever can write to the store, and has no vault key, can make none that is
// trusted. It is a crypto.Signer, and there is no function that returns the key.
type Root struct {
	ID        string
	CreatedAt time.Time
	seed      secret.Text
}

// LoadRoots returns the roots of the store, the newest first. One that does not open
// is an error: a gateway that trusted the other alone would refuse what it should not.
func LoadRoots(ctx context.Context, s RootStore, kek KEK) ([]Root, error) {
	rows, err := s.Roots(ctx)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	roots := make([]Root, 0, len(rows))
	for _, row := range rows {
		seed, err := kek.unwrap(row.Wrapper, row.Wrapped, rootContext(row.ID), "delegation root "+row.ID)
		if err != nil {
			return nil, err
		}
		roots = append(roots, Root{ID: row.ID, CreatedAt: row.CreatedAt, seed: secret.New(string(seed))})
	}
	return roots, nil
}

// SigningRoot returns the root that signs, and makes it if there is none.
func SigningRoot(ctx context.Context, s RootStore, kek KEK, now time.Time) (Root, error) {
	for {
		roots, err := LoadRoots(ctx, s, kek)
		if err != nil {
			return Root{}, err
		}
		if len(roots) > 0 {
			return roots[0], nil
		}
		made, err := addRoot(ctx, s, kek, "", now)
		if err == nil || !errors.Is(err, store.ErrConflict) { // else another process has made one
			return made, err
		}
	}
}

// RotateRoot makes another root, which signs from then on. What the one before it
// signed stays good; what those before that one signed does not.
func RotateRoot(ctx context.Context, s RootStore, kek KEK, now time.Time) (Root, error) {
	roots, err := LoadRoots(ctx, s, kek)
	if err != nil {
		return Root{}, err
	}
	newest := ""
	if len(roots) > 0 {
		newest = roots[0].ID
	}
	return addRoot(ctx, s, kek, newest, now)
}

func addRoot(ctx context.Context, s RootStore, kek KEK, after string, now time.Time) (Root, error) {
	var seed [ed25519.SeedSize]byte
	var id [8]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return Root{}, err
	}
	if _, err := rand.Read(id[:]); err != nil {
		return Root{}, err
	}
	wrapping, err := newAEAD(kek.DeriveKey("wrap"))
	if err != nil {
		return Root{}, err
	}
	r := Root{ID: "root-" + hex.EncodeToString(id[:]), CreatedAt: now, seed: secret.New(string(seed[:]))}
	wrapped, err := seal(wrapping, nil, seed[:], rootContext(r.ID))
	if err != nil {
		return Root{}, err
	}
	return r, s.AddRoot(ctx, store.Root{ID: r.ID, Wrapper: kek.fingerprint(), Wrapped: wrapped, CreatedAt: now}, after)
}

func rootContext(id string) []byte { return appendField([]byte("agw/v1/delegation-root"), id) }

func (r Root) key() ed25519.PrivateKey { return ed25519.NewKeyFromSeed([]byte(r.seed.Reveal())) }

// Public returns the ed25519.PublicKey that verifies what the root signs.
func (r Root) Public() crypto.PublicKey { return r.key().Public() }

// Sign implements crypto.Signer: it signs a message that is not hashed.
func (r Root) Sign(random io.Reader, message []byte, opts crypto.SignerOpts) ([]byte, error) {
	return r.key().Sign(random, message, opts)
}
