package receipts

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
)

// ParamsAlg names how the hashes of parameters are made (FORMAT.md, section 3.6).
const ParamsAlg = "agentgate-params-v1"

// SaltSize is how many bytes the salt of a receipt has.
const SaltSize = sha256.Size

// ParamsHash commits to a call's parameters without showing them. Whoever is
// told the salt can check parameters against it; nobody else learns anything,
// however few there are to guess among.
type ParamsHash struct {
	Alg  string // how Hash was made: ParamsAlg
	Hash string
	Key  string // names the key that the salt came from; "" in logs of before there were several
}

// HashParams commits to params, the bytes as they were sent, under the salt of
// their receipt, which came from the key of that name.
func HashParams(salt [SaltSize]byte, key string, params []byte) *ParamsHash {
	return &ParamsHash{Alg: ParamsAlg, Hash: hashParams(salt, params), Key: key}
}

// Opens reports whether p is of these bytes under this salt. A hash made in a way
// that this program does not know is of none.
func (p *ParamsHash) Opens(salt [SaltSize]byte, params []byte) bool {
	return p.Alg == ParamsAlg && subtle.ConstantTimeCompare([]byte(p.Hash), []byte(hashParams(salt, params))) == 1
}

func hashParams(salt [SaltSize]byte, params []byte) string {
	mac := hmac.New(sha256.New, salt[:])
	mac.Write(params)
	var sum [sha256.Size]byte
	return base64.RawURLEncoding.EncodeToString(mac.Sum(sum[:0]))
}
