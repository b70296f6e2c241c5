package vault

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
)

const (
	nonceSize = 12
	tagSize   = 16
)

// place is what a sealed text is bound to.
type place struct {
	tenant, service, user, field string
	version                      int64
	host                         string // "": any
}

func (p place) additionalData() []byte {
	ad := append(make([]byte, 0, 128), "agw/v1"...) // names longer than that cost a second allocation
	for _, s := range []string{p.tenant, p.service, p.user, p.field} {
		ad = appendField(ad, s)
	}
	ad = binary.BigEndian.AppendUint64(ad, uint64(p.version)) //nolint:gosec // a bit pattern, not a number
	if p.host != "" {
		ad = appendField(ad, p.host)
	}
	return ad
}

func appendField(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s))) //nolint:gosec // names are far below 4 GiB
	return append(b, s...)
}

// newAEAD returns AES-256-GCM under key.
func newAEAD(key [32]byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// seal returns nonce || ciphertext || tag, after what prefix holds.
func seal(aead cipher.AEAD, prefix, plaintext, ad []byte) ([]byte, error) {
	nonce := make([]byte, nonceSize)
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	out := append(append(make([]byte, 0, len(prefix)+nonceSize+len(plaintext)+tagSize), prefix...), nonce...)
	return aead.Seal(out, nonce, plaintext, ad), nil
}

var errShort = errors.New("too short to be sealed")

// open undoes seal; sealed is without the prefix.
func open(aead cipher.AEAD, sealed, ad []byte) ([]byte, error) {
	if len(sealed) < nonceSize+tagSize {
		return nil, errShort
	}
	return aead.Open(nil, sealed[:nonceSize], sealed[nonceSize:], ad)
}
