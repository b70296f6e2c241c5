package oidc

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"errors"
	"slices"
	"strings"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// minRSA is the least size of an RSA key, in bits (RFC 7518 section 3.3); maxKeys
// the most keys that an issuer's set may have, a dozen times those of a large one.
const (
	minRSA  = 2048
	maxKeys = 200
)

var (
	errKeySet    = errors.New("it is not a JSON Web Key Set")
	errNoKeys    = errors.New("it has no key that a token may be signed with")
	errSignature = errors.New("its signature is of no key that the issuer publishes for it")
)

// key is a public key that an issuer signs with.
type key struct {
	kid    string
	alg    jose.SignatureAlgorithm // "": any that suits the key
	public crypto.PublicKey
}

// parseKeys reads a JSON Web Key Set (RFC 7517). A key that is of no use for
// tokens, or that cannot be read, is passed over, as section 5 there has it: an
// issuer may have others.
func parseKeys(b []byte) ([]key, error) {
	var set struct {
		Keys []jsontext.Value `json:"keys"`
	}
	if json.Unmarshal(b, &set) != nil || len(set.Keys) > maxKeys {
		return nil, errKeySet
	}
	var list []key
	for _, text := range set.Keys {
		if k, ok := parseKey(text); ok {
			list = append(list, k)
		}
	}
	if len(list) == 0 {
		return nil, errNoKeys
	}
	return list, nil
}

// parseKey reads one key, if it is one for verifying signatures. go-jose looks
// at neither use nor key_ops.
func parseKey(text []byte) (k key, ok bool) {
	var says struct {
		Use *string  `json:"use"`
		Ops []string `json:"key_ops"`
		Alg string   `json:"alg"`
		Kid string   `json:"kid"`
	}
	if json.Unmarshal(text, &says) != nil {
		return k, false
	}
	if says.Use != nil && *says.Use != "sig" || says.Ops != nil && !slices.Contains(says.Ops, "verify") {
		return k, false
	}
	k.kid, k.alg = says.Kid, jose.SignatureAlgorithm(says.Alg)
	if k.alg != "" && !slices.Contains(algorithms, k.alg) {
		return k, false
	}
	var jwk jose.JSONWebKey
	if jwk.UnmarshalJSON(text) != nil || !jwk.Valid() {
		return k, false
	}
	switch public := jwk.Key.(type) { // a private or a shared one is no key to trust
	case *rsa.PublicKey:
		ok = public.N.BitLen() >= minRSA && !isROCA(public.N)
	case *ecdsa.PublicKey, ed25519.PublicKey:
		ok = true
	}
	k.public = jwk.Key
	return k, ok
}

// signedBy checks that one of keys has signed t. A token without a kid may be of
// any of them.
func (t *token) signedBy(keys []key) error {
	jws, err := jose.ParseSignedCompact(t.text, []jose.SignatureAlgorithm{t.alg})
	if err != nil {
		return errShape
	}
	for _, k := range keys {
		if t.kid != "" && t.kid != k.kid || k.alg != "" && k.alg != t.alg {
			continue
		}
		if _, err := jws.Verify(k.public); err == nil && saltFits(t, k.public, jws.Signatures[0].Signature) {
			return nil
		}
	}
	return errSignature
}

// saltFits checks what go-jose leaves open: that the salt of a PS signature is as
// long as the hash (RFC 7518 section 3.5).
func saltFits(t *token, public crypto.PublicKey, signature []byte) bool {
	var hash crypto.Hash
	switch t.alg {
	case jose.PS256:
		hash = crypto.SHA256
	case jose.PS384:
		hash = crypto.SHA384
	case jose.PS512:
		hash = crypto.SHA512
	default:
		return true
	}
	h := hash.New()
	h.Write([]byte(t.text[:strings.LastIndexByte(t.text, '.')]))
	return rsa.VerifyPSS(public.(*rsa.PublicKey), hash, h.Sum(nil), signature, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}) == nil
}
