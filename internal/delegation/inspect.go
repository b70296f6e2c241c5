package delegation

import (
	"crypto/ed25519"
	"errors"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Shown is one link as it stands, whether it holds or not.
type Shown struct {
	Claims Claims
	Kid    string // of the root that signed it, "" for a child
	Signer string // thumbprint of the key that it brings, "" for a root
	Hash   string // of its text, as par and receipts have it
}

// Inspect returns what a chain says, and what Verify finds of it whoever sends it, for
// whatever. What cannot be read has no links.
func Inspect(field string, trust *Trust, uri string, now time.Time) ([]Shown, Verdict) {
	chain, v := verifyChain(field, trust, uri, now)
	if v.Holds && trust.Revoked.Has(&v.Chain) {
		f := revoked()
		f.link = len(chain) - 1
		v = f.verdict(v.Chain)
	}
	shown := make([]Shown, 0, len(chain))
	for i := range chain {
		t := &chain[i]
		s := Shown{Claims: t.claims, Kid: t.header.Kid, Hash: strict.EncodeToString(t.hash[:])}
		if t.header.JWK != nil {
			if key, ok := t.header.JWK.key(); ok {
				s.Signer = Thumbprint(key)
			}
		}
		shown = append(shown, s)
	}
	return shown, v
}

// ParseThumbprint checks a thumbprint as cnf.jkt has it.
func ParseThumbprint(s string) error {
	if !isHash(s) {
		return errors.New("is not the thumbprint of a key (RFC 7638): 43 characters of base64url")
	}
	return nil
}

// ParseJWK reads an Ed25519 key as a JWK (RFC 8037). private is nil of a public one.
func ParseJWK(text []byte) (public ed25519.PublicKey, private ed25519.PrivateKey, err error) {
	var k jose.JSONWebKey
	if err := k.UnmarshalJSON(text); err != nil {
		return nil, nil, errors.New("is no JWK")
	}
	switch key := k.Key.(type) {
	case ed25519.PublicKey:
		return key, nil, nil
	case ed25519.PrivateKey:
		return key.Public().(ed25519.PublicKey), key, nil
	}
	return nil, nil, errors.New("is a JWK of another kind than Ed25519")
}

// CheckID says why s cannot be the id of a token, or nil.
func CheckID(s string) error {
	if !isID(s) {
		return errors.New("is not the id of a token: 1 to 64 of A-Z a-z 0-9 . _ - (agentgw delegations inspect shows it as id)")
	}
	return nil
}
