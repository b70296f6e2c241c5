package delegation

import (
	"crypto/ed25519"

	"github.com/go-jose/go-jose/v4"
)

// VerifyPayload is the one place where a signature is verified.
func VerifyPayload(key ed25519.PublicKey, payload, signature []byte) error {
	return verifier(key).VerifyPayload(payload, signature, jose.EdDSA)
}

// CompareDecimals and IsDecimal are arithmetic.
var (
	CompareDecimals = compareDecimals
	IsDecimal       = isDecimal
)
