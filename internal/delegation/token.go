package delegation

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
)

// What is asked of a chain before anything of it is read.
const (
	MaxLinks = 4
	MaxBytes = 8 << 10 // of the header's value
)

const (
	mediaType = "agent-delegation+jwt"
	algorithm = "EdDSA"
)

// header is the protected header of a token. A root has a kid, any other a jwk.
type header struct {
	Typ string `json:"typ"`
	Alg string `json:"alg"`
	Kid string `json:"kid,omitempty"`
	JWK *jwk   `json:"jwk,omitempty"`
}

// jwk is an Ed25519 public key (RFC 8037), in these three members alone.
type jwk struct {
	Kty string `json:"kty"`
	Crv string `json:"crv"`
	X   string `json:"x"`
}

// token is one link, its form checked. Its signature is not yet.
type token struct {
	header header
	claims Claims
	jws    *jose.JSONWebSignature
	hash   [sha256.Size]byte // of its text
}

// strict is base64 as RFC 7515 writes it, in its one spelling: no padding, no line
// ends, and no bits set that no byte needs.
var strict = base64.RawURLEncoding.Strict()

// readChain takes the value of the header apart. What it returns has the right form,
// every link of it, and nothing else about it is known.
func readChain(field string) ([]token, *fault) {
	if len(field) > MaxBytes {
		return nil, &fault{Malformed, 0, "it is longer than 8 KiB"}
	}
	texts := strings.SplitN(field, ",", MaxLinks+1)
	if len(texts) > MaxLinks {
		return nil, &fault{Malformed, MaxLinks, "it has more than four links"}
	}
	chain := make([]token, len(texts))
	for i, text := range texts {
		if i > 0 {
			text = strings.TrimLeft(text, " ")
		}
		t, err := readToken(text, i == 0)
		if err != nil {
			return nil, &fault{Malformed, i, err.Error()}
		}
		chain[i] = t
	}
	return chain, nil
}

// readToken reads one link. go-jose takes spaces, padding and stray bits for nothing,
// so that many texts would be one token; all of that is refused before it is asked.
func readToken(text string, root bool) (token, error) {
	t := token{hash: sha256.Sum256([]byte(text))}
	parts := strings.SplitN(text, ".", 4)
	if len(parts) != 3 {
		return t, errors.New("it has not three parts")
	}
	var decoded [3][]byte
	for i, part := range parts {
		b, err := strict.DecodeString(part)
		if err != nil || strings.ContainsAny(part, "\r\n") { // which package base64 passes over
			return t, errors.New("it is not in the one spelling of base64url")
		}
		decoded[i] = b
	}
	if len(decoded[2]) != ed25519.SignatureSize {
		return t, errors.New("its signature has not 64 bytes")
	}
	if err := json.Unmarshal(decoded[0], &t.header, json.RejectUnknownMembers(true)); err != nil {
		return t, errors.New("its header is not of a delegation")
	}
	if err := t.header.check(root); err != nil {
		return t, err
	}
	if err := json.Unmarshal(decoded[1], &t.claims, json.RejectUnknownMembers(true)); err != nil {
		return t, errors.New("its claims are not those of a delegation")
	}
	if err := t.claims.check(root); err != nil {
		return t, err
	}
	var err error
	if t.jws, err = jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{jose.EdDSA}); err != nil {
		return t, errors.New("it is not a JWS that EdDSA signs")
	}
	return t, nil
}

func (h *header) check(root bool) error {
	switch {
	case h.Typ != mediaType:
		return errors.New("its typ is not " + mediaType)
	case h.Alg != algorithm:
		return errors.New("its alg is not " + algorithm)
	case root && (h.Kid == "" || h.JWK != nil):
		return errors.New("a root has a kid and brings no key")
	case !root && (h.Kid != "" || h.JWK == nil):
		return errors.New("a link behind the root has its key as jwk, and no kid")
	case !root && (h.JWK.Kty != "OKP" || h.JWK.Crv != "Ed25519"):
		return errors.New("its key is not of Ed25519")
	}
	return nil
}

// key is the public key that the link brings.
func (j *jwk) key() (ed25519.PublicKey, bool) {
	b, err := strict.DecodeString(j.X)
	return b, err == nil && len(b) == ed25519.PublicKeySize && !strings.ContainsAny(j.X, "\r\n")
}

// signedBy reports whether key signed the token.
func (t *token) signedBy(key ed25519.PublicKey) bool {
	_, err := t.jws.Verify(verifier(key))
	return err == nil
}

// verifier is the one kind of key that go-jose is given, and all that it does: with
// one of another kind no algorithm would be another.
type verifier ed25519.PublicKey

var errSignature = errors.New("the signature does not hold")

// VerifyPayload implements jose.OpaqueVerifier. payload is what was signed: the first
// two parts of the token with the dot between.
func (v verifier) VerifyPayload(payload, signature []byte, alg jose.SignatureAlgorithm) error {
	if alg != jose.EdDSA || len(v) != ed25519.PublicKeySize || !ed25519.Verify(ed25519.PublicKey(v), payload, signature) {
		return errSignature
	}
	return nil
}

// Thumbprint names a public key (RFC 7638), as cnf.jkt does.
func Thumbprint(key ed25519.PublicKey) string {
	// The members of the key in this order and without a space are what is hashed.
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + strict.EncodeToString(key) + `"}`))
	return strict.EncodeToString(sum[:])
}
