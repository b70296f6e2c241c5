package vault

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"agentgw/internal/oauth"
	"agentgw/internal/redact"
	"agentgw/internal/secret"
)

// The types of credentials, by where they go in a request.
const (
	TypeNone   = "none"
	TypeBearer = "bearer" // Authorization: Bearer SECRET
	TypeBasic  = "basic"  // Authorization: Basic, the secret being user:password
	TypeHeader = "header" // NAME: SECRET
	TypeQuery  = "query"  // ?NAME=SECRET
	TypeOAuth2 = "oauth2" // Authorization: Bearer, a token that is renewed by itself
)

// Form tells how a service wants its credential.
type Form struct {
	Type    string // one of the types; "" is none
	Name    string // of the header or the query parameter
	PerUser bool   // each user's own; never the shared one in its place
	Host    string // of the service, which a credential is put on requests to alone; "": any
	OAuth2  *OAuth2
}

// OAuth2 is what an oauth2 service's tokens come from.
type OAuth2 struct {
	oauth.Client      // without its secret, which is in the vault
	OfItself     bool // a token of the client's own, on nobody's behalf
	AllowPrivate bool // the token endpoint may have a private address
}

// Host is that of the token endpoint, which a client's secret and a refresh token are for.
func (o *OAuth2) Host() string {
	u, err := url.Parse(o.TokenURL)
	if err != nil {
		return ""
	}
	return Host(u)
}

// Host is the host of a URL as credentials are bound to it: without the port, and
// in lower case.
func Host(u *url.URL) string { return strings.ToLower(u.Hostname()) }

// Credential is what Apply puts on a request. The zero value puts nothing on
// it. It prints as [redacted], and there is no way to its secret but Apply.
type Credential struct {
	form     Form
	secret   secret.Text
	redactor redact.Redactor
}

// Redactor returns what keeps the credential out of the answer to the request that
// it is on. It is empty where the credential puts nothing on one, or a secret that
// is too short to be told from other text.
func (c Credential) Redactor() redact.Redactor { return c.redactor }

// Apply puts the credential on r: exactly one header, whatever r had under that
// name, or one query parameter after those that are there, whose bytes stay as
// they are. ErrHost: r goes to another host than that of the form, and has nothing
// on it. Whoever sends r must not follow a redirect with it.
func (c Credential) Apply(r *http.Request) error {
	if c.form.Host != "" && (r.URL == nil || Host(r.URL) != c.form.Host) {
		return ErrHost
	}
	switch c.form.Type {
	case TypeBearer, TypeOAuth2:
		setHeader(r, "Authorization", "Bearer "+c.secret.Reveal())
	case TypeBasic:
		setHeader(r, "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(c.secret.Reveal())))
	case TypeHeader:
		setHeader(r, c.form.Name, c.secret.Reveal())
	case TypeQuery:
		pair := encodeQuery(c.form.Name) + "=" + encodeQuery(c.secret.Reveal())
		if r.URL.RawQuery != "" {
			pair = r.URL.RawQuery + "&" + pair
		}
		// A URL may be shared between requests; the secret must not be.
		u := *r.URL
		u.RawQuery = pair
		r.URL = &u
	}
	return nil
}

// setHeader replaces the header however its name was spelled: http.Header.Set
// leaves a twin of another case alone, and the upstream would choose between
// the two.
func setHeader(r *http.Request, name, value string) {
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	for have := range r.Header {
		if strings.EqualFold(have, name) {
			delete(r.Header, have)
		}
	}
	r.Header.Set(name, value)
}

// encodeQuery writes a space as %20, which every parser of queries reads; '+'
// is a space to those of forms only.
func encodeQuery(s string) string {
	return strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
}

// String returns [redacted].
func (c Credential) String() string { return c.secret.String() }

// GoString returns [redacted].
func (c Credential) GoString() string { return c.secret.GoString() }

// Format prints [redacted] for every verb.
func (c Credential) Format(f fmt.State, verb rune) { c.secret.Format(f, verb) }

// MarshalJSON returns "[redacted]".
func (c Credential) MarshalJSON() ([]byte, error) { return c.secret.MarshalJSON() }

// check tells why a secret cannot serve in this form, without the secret.
//
// A control byte in a header would end it early or make it invalid; it is mostly
// a second line end, or a file that is not what was meant. In a query it is
// encoded like anything else, so a PEM block can go there. In a form that is not
// known yet it might be for a header.
func (f Form) check(s string) error {
	switch f.Type {
	case TypeNone, "", TypeBearer, TypeHeader, TypeQuery, TypeOAuth2:
	case TypeBasic:
		if !strings.Contains(s, ":") {
			return fmt.Errorf("%w: a basic credential is user:password", ErrUnfit)
		}
	default:
		return fmt.Errorf("%w: credentials of type %q are not known", ErrUnfit, f.Type)
	}
	if s == "" {
		return fmt.Errorf("%w: it is empty", ErrUnfit)
	}
	for i := range len(s) {
		if (s[i] < 0x20 || s[i] == 0x7f) && f.Type != TypeQuery {
			return fmt.Errorf("%w: byte %d is a control character (0x%02x)", ErrUnfit, i+1, s[i])
		}
	}
	return nil
}
