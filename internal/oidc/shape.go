package oidc

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
)

// maxToken is the longest token that is looked at. Those of real issuers have a
// few KiB.
const maxToken = 16 << 10

// algorithms are those that a token may be signed with: the asymmetric ones. With
// a symmetric one whoever can verify can sign, and a public key could be taken for
// the secret (RFC 8725 section 2.1).
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// forbidden are members of a header that say where the key is, that something else
// must be understood, or that the token is another thing than a signed one.
var forbidden = []string{"crit", "b64", "jku", "jwk", "x5u", "x5c", "enc", "zip"}

// token is one that has the right shape. Nothing in it is true yet.
type token struct {
	text   string
	alg    jose.SignatureAlgorithm
	kid    string
	claims claims
}

// Why a token is refused before its signature is looked at.
var (
	errShape     = errors.New("it is not a signed token of three parts in canonical base64url")
	errLong      = errors.New("it is longer than 16 KiB")
	errHeader    = errors.New("its header is not one JSON object with each member once")
	errAlgorithm = errors.New("it is signed with no algorithm that is taken")
	errForbidden = errors.New("its header has a member that is not taken")
	errType      = errors.New("its typ is not that of a caller's token")
)

// parse reads the shape of a token. Every token has one spelling: what another
// reader would take as the same token is refused here, as go-jose, which is more
// lenient, would let it pass under any number of hashes.
func parse(text string) (*token, error) {
	t, payload, err := shape(text)
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(payload, &t.claims) != nil || t.claims == nil {
		return nil, errClaims
	}
	return t, nil
}

// shape reads all but what the payload says.
func shape(text string) (*token, []byte, error) {
	if len(text) > maxToken {
		return nil, nil, errLong
	}
	if strings.Count(text, ".") != 2 { // five parts are an encrypted one
		return nil, nil, errShape
	}
	header, rest, _ := strings.Cut(text, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	var parts [3][]byte
	for i, part := range [...]string{header, payload, signature} {
		b, err := base64.RawURLEncoding.Strict().DecodeString(part)
		if err != nil || len(b) == 0 || strings.ContainsAny(part, "\r\n") { // which the decoder skips
			return nil, nil, errShape
		}
		parts[i] = b
	}
	t := &token{text: text}
	if err := t.header(parts[0]); err != nil {
		return nil, nil, err
	}
	return t, parts[1], nil
}

func (t *token) header(b []byte) error {
	var members map[string]any
	if json.Unmarshal(b, &members) != nil {
		return errHeader
	}
	for _, name := range forbidden {
		if _, has := members[name]; has {
			return errForbidden
		}
	}
	alg, _ := members["alg"].(string)
	if t.alg = jose.SignatureAlgorithm(alg); !slices.Contains(algorithms, t.alg) {
		return errAlgorithm
	}
	typ, has := members["typ"]
	if name, ok := typ.(string); has && !(ok && callersType(name)) {
		return errType
	}
	kid, has := members["kid"]
	name, ok := kid.(string)
	if has && !ok || len(name) > maxName {
		return errHeader
	}
	t.kid = name
	return nil
}

// callersType reports whether typ is that of an ID token or an access token (RFC
// 9068 section 2.1). It is a media type of which application/ may be left out, and
// so without case (RFC 7515 section 4.1.9).
func callersType(typ string) bool {
	name := strings.TrimPrefix(strings.ToLower(typ), "application/")
	return name == "jwt" || name == "at+jwt"
}
