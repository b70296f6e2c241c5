package vault

import (
	"bytes"
	"context"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"agentgw/internal/store"
)

// ErrWrongKEK says that the store's data keys were wrapped by another vault key.
var ErrWrongKEK = errors.New("the vault key is not the one that the state store was sealed under")

const lastDataKey = 255 // key_id is one byte

// ring is the unwrapped data keys of each tenant, by number.
type ring map[string]map[byte]dataKey

// dataKey is one that was unwrapped, and as what it was.
type dataKey struct {
	row  store.DataKey
	aead cipher.AEAD // nil: there is none
}

// newest returns the tenant's data key of the highest number.
func (r ring) newest(tenant string) (k dataKey) {
	for n, a := range r[tenant] {
		if n > k.row.Number {
			k = a
		}
	}
	return k
}

func wrapContext(tenant string, number byte) []byte {
	return append(appendField([]byte("agw/v1/data-key"), tenant), number)
}

// unwrapAll unwraps every data key. One that does not open is an error: a vault
// that could open some of its rows would hide a lost key until it is needed. What is
// in before and has not changed is taken from there: there is a key for each person
// who has a credential, and the store is read anew whenever anything in it moves.
func unwrapAll(kek KEK, keys []store.DataKey, before ring) (ring, error) {
	r := make(ring)
	for _, k := range keys {
		opened := before[k.Tenant][k.Number]
		if opened.aead == nil || !bytes.Equal(opened.row.Wrapped, k.Wrapped) {
			b, err := kek.unwrap(k.Wrapper, k.Wrapped, wrapContext(k.Tenant, k.Number), fmt.Sprint("data key ", k.Number))
			if err != nil {
				return nil, err
			}
			if opened.aead, err = newAEAD([32]byte(b)); err != nil {
				return nil, err
			}
		}
		if r[k.Tenant] == nil {
			r[k.Tenant] = make(map[byte]dataKey)
		}
		r[k.Tenant][k.Number] = dataKey{k, opened.aead}
	}
	return r, nil
}

// addDataKey makes the tenant's next data key. Where another process makes one
// at the same moment, that one counts: the caller reads the store again.
func addDataKey(ctx context.Context, s Store, kek KEK, tenant string, after byte, now time.Time) error {
	if after == lastDataKey {
		return errors.New("every data key number is used up")
	}
	var key [kekSize]byte
	if _, err := rand.Read(key[:]); err != nil {
		return err
	}
	wrapping, err := newAEAD(kek.DeriveKey("wrap"))
	if err != nil {
		return err
	}
	number := after + 1
	wrapped, err := seal(wrapping, nil, key[:], wrapContext(tenant, number))
	if err != nil {
		return err
	}
	err = s.AddDataKey(ctx, store.DataKey{
		Tenant: tenant, Number: number, Wrapper: kek.fingerprint(), Wrapped: wrapped, CreatedAt: now,
	})
	if errors.Is(err, store.ErrExists) {
		return nil
	}
	return err
}
