package identity

import (
	"errors"
	"net/http"
	"strings"
	"time"
)

// What Authenticate refuses with.
var (
	// ErrUnauthenticated says that no valid key came. It is one value with
	// one text whatever was wrong, so that nobody learns whether a key was
	// missing, misspelled, unknown, revoked or out of its time.
	ErrUnauthenticated = errors.New("no valid gateway key")
	// ErrTwoKeys says that two different valid keys came: whichever the
	// gateway took, the caller might have meant the other.
	ErrTwoKeys = errors.New("two different gateway keys in one request")
	// ErrKeyAndToken says that a valid key and a valid token came, likewise.
	ErrKeyAndToken = errors.New("a gateway key and an OpenID Connect token in one request")
	// ErrTwoHeaders says that a valid key came in a request with two Authorization
	// lines, which two programs on the way may read differently.
	ErrTwoHeaders = errors.New("more than one Authorization header")
)

// keyHeaders are the headers that hold a key and nothing else, spelled as
// net/http spells them in a header map.
var keyHeaders = [...]string{"X-Api-Key", "Agentgate-Key"}

// Authenticate returns the secret that h carries and that is valid at now, from
// Authorization: Bearer, X-Api-Key or Agentgate-Key. Whatever is not a valid
// key beside one is not looked at: tools do send another vendor's stale key
// along. The same key in several headers is one key, in both its secrets too; the
// first of them counts.
func (d *Directory) Authenticate(h http.Header, now time.Time) (*Secret, error) {
	authorization := h["Authorization"]
	var found *Secret
	take := func(text string) (clash bool) {
		digest, ok := ParseKey(text)
		if !ok {
			return false
		}
		s := d.Find(digest, now)
		switch {
		case s == nil:
			return false
		case found == nil:
			found = s
			return false
		}
		return s.Key != found.Key
	}
	for _, value := range authorization {
		if token, ok := bearer(value); ok {
			take(token)
		}
	}
	for _, name := range keyHeaders {
		for _, value := range h[name] {
			if take(trimSpace(value)) {
				return nil, ErrTwoKeys
			}
		}
	}
	switch {
	case found == nil:
		return nil, ErrUnauthenticated
	case len(authorization) > 1:
		return nil, ErrTwoHeaders
	}
	return found, nil
}

// Token returns what stands in Authorization: Bearer and is no gateway key.
func Token(h http.Header) (text string, ok bool) {
	authorization := h["Authorization"]
	if len(authorization) != 1 {
		return "", false
	}
	text, ok = bearer(authorization[0])
	return text, ok && !LooksLikeKey(text)
}

// bearer returns the token of an Authorization value: the scheme in any case,
// one or more spaces, the rest byte for byte (RFC 9110 section 11.4, RFC 6750
// section 2.1). A tab is not a space.
func bearer(value string) (token string, ok bool) {
	value = trimSpace(value)
	const scheme = "bearer"
	if len(value) <= len(scheme) || !strings.EqualFold(value[:len(scheme)], scheme) || value[len(scheme)] != ' ' {
		return "", false
	}
	return strings.TrimLeft(value[len(scheme):], " "), true
}

// trimSpace takes off the white space around a field value, which is not part
// of it (RFC 9110 section 5.5). HTTP/1 has done so by now, HTTP/2 has not.
func trimSpace(value string) string { return strings.Trim(value, " \t") }
