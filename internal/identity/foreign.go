package identity

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
)

// KindOpen begins the name of who came to an open service without a key and without a
// token of an issuer. It is no kind of tenant: such callers have none.
const KindOpen = "open"

// Anonymous is what every caller of an open service is known by who brings no
// credential that tells one from another.
const Anonymous = KindOpen + ":anonymous"

// ErrTwoCredentials says that a credential of a caller's own came twice: whichever the
// service goes by, the gateway might have meant the other.
var ErrTwoCredentials = errors.New("more than one Authorization or x-api-key header")

// Pseudonyms names callers whom somebody else's credential stands for, without telling
// anything of it: by
//
//	"open:" || hex(HMAC-SHA-256(key, credential)), the first 16 bytes of it
//
// Without the key nobody can tell a credential from its name, nor try whether a name is
// that of one that he has. The zero value is of no use.
type Pseudonyms struct{ key [32]byte }

// NewPseudonyms returns those under a key of 256 bits, which names the same callers the
// same for as long as it is the same.
func NewPseudonyms(key [32]byte) *Pseudonyms { return &Pseudonyms{key} }

// Caller returns the name of who comes with h to a service that checks credentials of
// its own: by the token in Authorization: Bearer, else by X-Api-Key, and by the same
// secret in either as the same. Who brings neither is Anonymous, as is who brings a
// password (Basic) or anything else, of which it is not known what in it is secret.
//
// ErrUnauthenticated: where credentials stand there is what is spelled like a gateway
// key. It is for the caller to have looked for valid ones before; any other belongs to
// nobody else either, and must not be sent on.
func (p *Pseudonyms) Caller(h http.Header) (string, error) {
	authorization, keys := h["Authorization"], h["X-Api-Key"]
	if len(authorization) > 1 || len(keys) > 1 {
		return "", ErrTwoCredentials
	}
	var credential string
	for _, value := range authorization {
		if Carries(value) {
			return "", ErrUnauthenticated
		}
		credential, _ = bearer(value)
	}
	for _, name := range keyHeaders {
		for _, value := range h[name] {
			if HasKey(value) {
				return "", ErrUnauthenticated
			}
		}
	}
	for _, value := range keys {
		if credential == "" {
			credential = trimSpace(value)
		}
	}
	if credential == "" {
		return Anonymous, nil
	}
	return p.of(credential), nil
}

// Carries reports whether a field value has a gateway key in it, with whatever checksum,
// also where it is the password of one who comes with Basic.
func Carries(value string) bool { return HasKey(value) || HasKey(basic(value)) }

// basic returns the name and the password of an Authorization value (RFC 7617), with or
// without the padding, and as far as it can be read.
func basic(value string) string {
	const scheme = "basic "
	if value = trimSpace(value); len(value) < len(scheme) || !strings.EqualFold(value[:len(scheme)], scheme) {
		return ""
	}
	b, _ := base64.RawStdEncoding.DecodeString(strings.Trim(value[len(scheme):], " ="))
	return string(b)
}

func (p *Pseudonyms) of(credential string) string {
	mac := hmac.New(sha256.New, p.key[:])
	mac.Write([]byte(credential))
	return KindOpen + ":" + hex.EncodeToString(mac.Sum(nil)[:16])
}
