package vault

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/store"
)

// What OpenSalt and Shred refuse with.
var (
	// ErrShredded says that the key was deleted: nobody can make its salts again.
	ErrShredded = errors.New("the key that its salt came from was deleted")
	// ErrNoKey says that the store has never had such a key.
	ErrNoKey = errors.New("there is no such key in the state store")
)

// ParamsStore is what Salts needs of a store; see package store for the errors.
type ParamsStore interface {
	ParamsKeys(ctx context.Context) ([]store.ParamsKey, error)
	AddParamsKeys(ctx context.Context, keys ...store.ParamsKey) error
	RemoveParamsKey(ctx context.Context, tenant string, now time.Time) (store.ParamsKey, error)
}

// SaltSize is how many bytes a salt has.
const SaltSize = sha256.Size

// Salts makes the salt of each receipt, under which its parameters are hashed,
// from a key of its tenant:
//
//	salt = HMAC-SHA-256(the tenant's key, the receipt's id)
//
// so that no salt need be kept, one that is told opens one receipt, and all of a
// tenant's are closed for good when its key is deleted. A key is 32 random bytes,
// made when the tenant has its first receipt, and wrapped as a data key is, for
//
//	"agw/v1/params-key" || len||tenant || len||id
//
// The keys in use are held in memory, as many as there are tenants that have had a
// receipt: tenants are of the registry and of keys, and no caller can make one.
//
// Safe for concurrent use.
type Salts struct {
	store ParamsStore
	kek   KEK
	clock clockwork.Clock

	changing sync.Mutex // held over a read or a change of the store, lest an older one end last
	mu       sync.RWMutex
	inUse    map[string]*saltKey // by tenant
	wanted   map[string]bool     // tenants whose first receipt waits for the store
	failed   error               // why the newest key could not be kept; nil: it could
	failedAt time.Time

	// Changed, where set before the first Salt, is told once when keys can be kept no
	// more, with the reason, and once with nil when they can again. It MUST NOT block.
	Changed func(error)
}

// failureLasts is how long a failure to keep a key is one, if no tenant needs
// another: then nobody knows.
const failureLasts = time.Minute

// Healthy is nil while keys for new tenants can be kept, as far as it is known, and else
// why not: receipts of tenants that have a key are none the worse for it.
func (s *Salts) Healthy() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failed != nil && s.clock.Since(s.failedAt) < failureLasts {
		return fmt.Errorf("no key can be kept for the parameters of a tenant's first receipt: %w", s.failed)
	}
	return nil
}

func (s *Salts) note(err error) {
	s.mu.Lock()
	changed := (err == nil) != (s.failed == nil)
	s.failed, s.failedAt = err, s.clock.Now()
	s.mu.Unlock()
	if changed && s.Changed != nil {
		s.Changed(err)
	}
}

// saltKey is a tenant's key, ready to use.
type saltKey struct {
	id  string
	mu  sync.Mutex
	mac hash.Hash // under the key
}

// LoadSalts returns salts over s. ErrWrongKEK: its keys were wrapped by another
// vault key.
func LoadSalts(ctx context.Context, s ParamsStore, kek KEK, clock clockwork.Clock) (*Salts, error) {
	salts := &Salts{store: s, kek: kek, clock: clock, wanted: make(map[string]bool)}
	if err := salts.Reload(ctx); err != nil {
		return nil, err
	}
	return salts, nil
}

// Reload forgets the keys that were deleted since, for when the store's generation
// has moved. On an error all stay as they were.
func (s *Salts) Reload(ctx context.Context) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	return s.reloadLocked(ctx)
}

func (s *Salts) reloadLocked(ctx context.Context) error {
	rows, err := s.store.ParamsKeys(ctx)
	if err != nil {
		return err
	}
	s.mu.RLock()
	before := s.inUse
	s.mu.RUnlock()
	inUse := make(map[string]*saltKey)
	for _, row := range rows {
		if !row.RemovedAt.IsZero() {
			continue
		}
		if k := before[row.Tenant]; k != nil && k.id == row.ID {
			inUse[row.Tenant] = k
			continue
		}
		key, err := unwrapParamsKey(s.kek, row)
		if err != nil {
			return err
		}
		inUse[row.Tenant] = newSaltKey(row.ID, key)
	}
	s.mu.Lock()
	s.inUse = inUse
	s.mu.Unlock()
	return nil
}

// Salt returns the salt of a receipt of tenant, and the name of the key that it
// came from. Of a tenant that has no key yet it makes one, which waits for the
// store; every other time it waits for nothing.
func (s *Salts) Salt(tenant, receipt string) (salt [SaltSize]byte, key string, err error) {
	k := s.find(tenant)
	if k == nil {
		k, err = s.add(context.Background(), tenant)
		s.note(err)
		if err != nil { // a caller that hangs up has had a receipt all the same
			return salt, "", err
		}
	}
	return k.salt(receipt), k.id, nil
}

func (s *Salts) find(tenant string) *saltKey {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.inUse[tenant]
}

// add makes the tenant's key, or takes that which another call or process made at
// the same moment. Whoever is first makes those of all who wait: after a start with
// many new tenants each would wait for the disk behind all others.
func (s *Salts) add(ctx context.Context, tenant string) (*saltKey, error) {
	s.mu.Lock()
	s.wanted[tenant] = true
	s.mu.Unlock()
	s.changing.Lock()
	defer s.changing.Unlock()
	if k := s.find(tenant); k != nil {
		return k, nil
	}
	err := s.addWantedLocked(ctx, tenant)
	if errors.Is(err, store.ErrExists) {
		if err := s.reloadLocked(ctx); err != nil {
			return nil, err
		}
		if s.find(tenant) == nil {
			return nil, fmt.Errorf("%w, and was deleted at once", err)
		}
	} else if err != nil {
		return nil, err
	}
	return s.find(tenant), nil
}

// addWantedLocked makes the keys of all tenants that want one, of which tenant is one.
func (s *Salts) addWantedLocked(ctx context.Context, tenant string) error {
	s.mu.Lock()
	wanted := s.wanted
	s.wanted = make(map[string]bool)
	wanted[tenant] = true // it may have waited for one who failed
	var rows []store.ParamsKey
	made := make(map[string]*saltKey, len(wanted))
	for t := range wanted {
		if s.inUse[t] != nil {
			continue // made in between
		}
		row, key, err := newParamsKey(s.kek, t, s.clock.Now())
		if err != nil {
			s.mu.Unlock()
			return err
		}
		rows, made[t] = append(rows, row), newSaltKey(row.ID, key)
	}
	s.mu.Unlock()
	if err := s.store.AddParamsKeys(ctx, rows...); err != nil {
		return err
	}
	s.mu.Lock()
	maps.Copy(s.inUse, made)
	s.mu.Unlock()
	return nil
}

func newSaltKey(id string, key [kekSize]byte) *saltKey {
	return &saltKey{id: id, mac: hmac.New(sha256.New, key[:])}
}

func (k *saltKey) salt(receipt string) (salt [SaltSize]byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mac.Reset()
	k.mac.Write([]byte(receipt))
	k.mac.Sum(salt[:0])
	return salt
}

// newParamsKey makes a key of tenant, and the row that keeps it.
func newParamsKey(kek KEK, tenant string, now time.Time) (row store.ParamsKey, key [kekSize]byte, err error) {
	var id [8]byte
	if _, err := rand.Read(key[:]); err != nil {
		return row, key, err
	}
	if _, err := rand.Read(id[:]); err != nil {
		return row, key, err
	}
	row = store.ParamsKey{ID: hex.EncodeToString(id[:]), Tenant: tenant, Wrapper: kek.fingerprint(), CreatedAt: now}
	wrapping, err := newAEAD(kek.DeriveKey("wrap"))
	if err != nil {
		return row, key, err
	}
	row.Wrapped, err = seal(wrapping, nil, key[:], paramsContext(row))
	return row, key, err
}

func paramsContext(row store.ParamsKey) []byte {
	return appendField(appendField([]byte("agw/v1/params-key"), row.Tenant), row.ID)
}

func unwrapParamsKey(kek KEK, row store.ParamsKey) (key [kekSize]byte, err error) {
	b, err := kek.unwrap(row.Wrapper, row.Wrapped, paramsContext(row), "params key "+row.ID)
	if err != nil {
		return key, err
	}
	return [kekSize]byte(b), nil
}

// OpenSalt makes the salt of one receipt again, from the key of that name, which its
// record tells. It changes nothing. kek is asked for only where there is a key to
// unwrap. Errors: ErrShredded with the time at which, ErrNoKey, ErrWrongKEK,
// ErrCorrupt.
func OpenSalt(ctx context.Context, s ParamsStore, kek func() (KEK, error), tenant, key, receipt string) (salt [SaltSize]byte, err error) {
	rows, err := s.ParamsKeys(ctx)
	if err != nil {
		return salt, err
	}
	for _, row := range rows {
		if row.ID != key || row.Tenant != tenant {
			continue
		}
		if !row.RemovedAt.IsZero() {
			return salt, fmt.Errorf("%w (%s)", ErrShredded, row.RemovedAt.Format(time.RFC3339))
		}
		with, err := kek()
		if err != nil {
			return salt, err
		}
		opened, err := unwrapParamsKey(with, row)
		if err != nil {
			return salt, err
		}
		return newSaltKey(row.ID, opened).salt(receipt), nil
	}
	return salt, ErrNoKey
}

// Shred deletes the key that the salts of a tenant's receipts come from, for good.
// It needs no vault key. Running gateways forget it when they see that the store has
// moved, and make another for later receipts. ErrShredded with the time at which: the
// newest key, which is named, was deleted before, and none is in use. ErrNoKey: the
// tenant has never had one. store.ErrTraces: see there.
func Shred(ctx context.Context, s ParamsStore, tenant string, now time.Time) (key string, err error) {
	row, err := s.RemoveParamsKey(ctx, tenant, now)
	if !errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrTraces) {
		return row.ID, err
	}
	rows, err := s.ParamsKeys(ctx)
	if err != nil {
		return "", err
	}
	for _, row := range slices.Backward(rows) {
		if row.Tenant == tenant && !row.RemovedAt.IsZero() {
			return row.ID, fmt.Errorf("%w (%s)", ErrShredded, row.RemovedAt.Format(time.RFC3339))
		}
	}
	return "", ErrNoKey
}
