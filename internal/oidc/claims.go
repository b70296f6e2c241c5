package oidc

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Leeway is by how much the clock of an issuer may differ from ours.
const Leeway = 60 * time.Second

// maxName is the most bytes of a name that a caller is known by (OpenID Connect
// Core 1.0 section 2 allows a subject as many).
const maxName = 255

// claims are the payload of a token. Numbers are float64.
type claims map[string]any

// Why a token is refused for what it says.
var (
	errClaims   = errors.New("its payload is not one JSON object with each member once")
	errIssuer   = errors.New("its iss is no issuer of the registry")
	errAudience = errors.New("its aud is not the issuer's audience alone")
	errParty    = errors.New("it was issued to another client than those that azp lists")
	errSubject  = errors.New("its sub is missing, or is no text of 1 to 255 bytes without control characters")
	errExpired  = errors.New("it has expired")
	errEarly    = errors.New("its time has not come: see nbf and iat")
	errTimes    = errors.New("its exp is missing, or exp, nbf or iat is not a time")
	errBound    = errors.New("it is bound to a key of its holder's (cnf), of which nothing here is a proof")
	errEvents   = errors.New("it tells of events, and of no caller")
	errClaim    = errors.New("a claim that the registry names is there and is no text of 1 to 255 bytes without control characters")
)

// issuer is whose token it claims to be.
func (c claims) issuer() string {
	s, _ := c["iss"].(string)
	return s
}

// subject is whom the issuer says that the token is of.
func (c claims) subject() (string, error) {
	s, ok := c["sub"].(string)
	if !ok || !nameable(s) {
		return "", errSubject
	}
	return s, nil
}

// audience checks that the token is for us and for nobody else.
func (c claims) audience(ours string) error {
	switch aud := c["aud"].(type) {
	case string:
		if aud == ours {
			return nil
		}
	case []any:
		if len(aud) == 1 && aud[0] == ours {
			return nil
		}
	}
	return errAudience
}

// client is to whom the token was issued: azp, or client_id of an access token (RFC
// 9068 section 2.2); "" where it does not say.
func (c claims) client() (client string, ok bool) {
	azp, has := c["azp"]
	if !has {
		azp, has = c["client_id"]
	}
	client, ok = azp.(string)
	return client, ok || !has
}

// party checks that, where the registry lists who it may be.
func (c claims) party(allowed []string) error {
	client, ok := c.client()
	if !ok || !listed(allowed, client) {
		return errParty
	}
	return nil
}

func listed(allowed []string, client string) bool {
	return len(allowed) == 0 || slices.Contains(allowed, client)
}

// times checks that the token is of now, and returns when it expires.
func (c claims) times(now time.Time) (expiry time.Time, err error) {
	exp, has, ok := c.date("exp")
	if !has || !ok {
		return expiry, errTimes
	}
	nbf, hasNbf, ok1 := c.date("nbf")
	iat, hasIat, ok2 := c.date("iat")
	switch {
	case !ok1 || !ok2:
		return expiry, errTimes
	case !now.Before(exp.Add(Leeway)):
		return expiry, errExpired
	case hasNbf && now.Add(Leeway).Before(nbf), hasIat && now.Add(Leeway).Before(iat):
		return expiry, errEarly
	}
	return exp, nil
}

// date reads a NumericDate (RFC 7519 section 2): seconds, of which there may be
// fractions.
func (c claims) date(name string) (at time.Time, has, ok bool) {
	v, has := c[name]
	if !has {
		return at, false, true
	}
	seconds, ok := v.(float64)
	if !ok || !(seconds >= 0 && seconds < 253402300800) { // the year 10000
		return at, true, false
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9)), true, true
}

// unbound checks that the token needs no proof, and is one of a caller.
func (c claims) unbound() error {
	if _, has := c["cnf"]; has {
		return errBound
	}
	if _, has := c["events"]; has {
		return errEvents
	}
	return nil
}

// name reads a claim that names somebody: "" where there is none, or no claim is
// asked for.
func (c claims) name(claim string) (string, error) {
	v, has := c.at(claim)
	if !has {
		return "", nil
	}
	s, ok := v.(string)
	if !ok || !nameable(s) {
		return "", errClaim
	}
	return s, nil
}

// holds reports whether a claim is value, or a list with it. The value of scope is
// a list with spaces in between (RFC 9068 section 2.2.3).
func (c claims) holds(claim, value string) bool {
	switch v, _ := c.at(claim); v := v.(type) {
	case string:
		return v == value || claim == "scope" && slices.Contains(strings.Split(v, " "), value)
	case []any:
		return slices.Contains(v, any(value))
	}
	return false
}

// at finds a claim by its name, or by a pointer into it (RFC 6901) where the name
// begins with a slash: /realm_access/roles.
func (c claims) at(claim string) (any, bool) {
	if claim == "" {
		return nil, false
	}
	if claim[0] != '/' {
		v, has := c[claim]
		return v, has
	}
	var v any = map[string]any(c)
	for step := range strings.SplitSeq(claim[1:], "/") {
		in, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = in[unescape.Replace(step)]; !ok {
			return nil, false
		}
	}
	return v, true
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// nameable reports whether a text may stand as a name in partition keys, receipts
// and logs. It is never mended: two names that differ in a byte are two.
func nameable(s string) bool {
	if s == "" || len(s) > maxName || !utf8.ValidString(s) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 })
}
