package vault

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"

	"agentgw/internal/secret"
)

const kekSize = 32

// KEK is the vault key: 256 bits from which every other key comes. The zero
// value is no key, and derives none. It prints as [redacted].
type KEK struct {
	secret.Text      // the 32 bytes
	previous    *KEK // see After; or nil
}

// ErrKEKText is what ParseKEK refuses with. It does not hold the text.
var ErrKEKText = errors.New("is not 32 bytes in hexadecimal (64 digits) or base64 (43 characters, or 44 with the padding)")

// ParseKEK reads a vault key: 64 hexadecimal digits of either case, or base64
// in the standard or the URL alphabet, padded or not. One trailing line end is
// dropped.
func ParseKEK(text string) (KEK, error) {
	text = trimLineEnd(text)
	if len(text) == hex.EncodedLen(kekSize) {
		if b, err := hex.DecodeString(text); err == nil {
			return KEK{Text: secret.New(string(b))}, nil
		}
	}
	// A line break within is skipped by package base64; here it is a mistake.
	if strings.ContainsAny(text, "\r\n") {
		return KEK{}, ErrKEKText
	}
	trimmed := strings.TrimSuffix(text, "=")
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if b, err := encoding.Strict().DecodeString(trimmed); err == nil && len(b) == kekSize {
			return KEK{Text: secret.New(string(b))}, nil
		}
	}
	return KEK{}, ErrKEKText
}

// ErrKEKGuessable is what Guessable refuses with.
var ErrKEKGuessable = errors.New("is one that anybody would try; take what this prints: openssl rand -hex 32 (where credentials are stored already, give the old one as AGENTGATE_VAULT_KEY_PREVIOUS, and run agentgw credentials rewrap)")

// Guessable refuses a key that nobody drew at random: at most eight bytes over and
// over, or a row of them that counts up or down.
func (k KEK) Guessable() error {
	key := k.Reveal()
	period := strings.Index((key + key)[1:], key) + 1
	counts := true
	for i := 2; i < len(key); i++ {
		counts = counts && key[i]-key[i-1] == key[1]-key[0]
	}
	if period <= kekSize/4 || counts {
		return ErrKEKGuessable
	}
	return nil
}

// DeriveKey returns the 256-bit key for the purpose that label names. The same
// vault key and label always give the same key, and no key tells anything of
// another. It panics on the zero KEK: a key that anybody can derive would be
// taken for a secret.
func (k KEK) DeriveKey(label string) [32]byte {
	if k.Empty() {
		panic("vault: a key derived from no vault key")
	}
	b, err := hkdf.Key(sha256.New, []byte(k.Reveal()), nil, "agw/v1/"+label, kekSize)
	if err != nil {
		panic("vault: HKDF refuses 32 bytes: " + err.Error()) // only over 255 hashes, or in FIPS mode under 14 bytes of key
	}
	return [32]byte(b)
}

// fingerprint names the key without telling it.
func (k KEK) fingerprint() string {
	id := k.DeriveKey("fingerprint")
	return hex.EncodeToString(id[:8])
}

// trimLineEnd drops one "\n" or "\r\n" from the end.
func trimLineEnd(s string) string {
	if s, found := strings.CutSuffix(s, "\n"); found {
		return strings.TrimSuffix(s, "\r")
	}
	return s
}
