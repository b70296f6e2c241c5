package receipts

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
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

// CheckParams has a report of a proof that holds say as well whether the call had
// these parameters, by the salt that was told of its receipt: the proof does not
// hold for them unless all its records that commit to parameters, and there are
// some, commit to these.
func (r *ProofReport) CheckParams(salt [SaltSize]byte, params []byte) {
	if r.Verdict != Holds {
		return
	}
	committed := 0
	for _, p := range r.Records {
		record, err := ParseRecord(p.Record)
		switch {
		case err != nil:
			r.Verdict, r.Why = Broken, err.Error()
			return
		case record.Params == nil:
			continue
		case record.Params.Alg != ParamsAlg:
			r.Verdict, r.Why = Broken, fmt.Sprintf("the parameters of a record are hashed by %q, which this program does not know", record.Params.Alg)
			return
		case !record.Params.Opens(salt, params):
			r.Verdict, r.Why = Broken, "the parameters, or the salt, are not those of the receipt"
			return
		}
		committed++
	}
	if committed == 0 {
		r.Verdict, r.Why = Broken, "no record here says anything of parameters"
		return
	}
	r.Why += ", and the call had these parameters"
	r.Proven = append(r.Proven, fmt.Sprintf("the call had these parameters, byte for byte: %s", count(committed, "record commits to them", "records commit to them")))
}
