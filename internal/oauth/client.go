package oauth

import (
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strings"

	"agentgw/internal/secret"
)

// How a client proves who it is to a token endpoint (RFC 6749 section 2.3.1).
const (
	AuthBasic = "basic" // in Authorization
	AuthPost  = "post"  // in the body, for endpoints that take nothing else
	AuthNone  = "none"  // a public client, which has no secret
)

// Client is what an authorization server knows this gateway as.
type Client struct {
	AuthorizeURL string
	TokenURL     string
	ID           string
	Secret       secret.Text // empty with AuthNone
	Auth         string      // one of the three; "" is AuthBasic
	Scopes       []string
	// What a server wants besides, in its address and in each request for tokens.
	// They do not take the place of what the protocol sends.
	AuthorizeParams, TokenParams map[string]string
}

// Authorization is one person's way to the authorization server and back.
type Authorization struct {
	Redirect string // exactly as registered there
	State    string // comes back as it was sent
	Verifier string // 43 to 128 characters (RFC 7636 section 4.1); its hash goes along
}

// AuthorizeAt returns where to send a person's browser.
func (c Client) AuthorizeAt(a Authorization) string {
	challenge := sha256.Sum256([]byte(a.Verifier))
	query := more(c.AuthorizeParams, url.Values{
		"response_type":         {"code"},
		"client_id":             {c.ID},
		"redirect_uri":          {a.Redirect},
		"state":                 {a.State},
		"code_challenge":        {base64.RawURLEncoding.EncodeToString(challenge[:])},
		"code_challenge_method": {"S256"},
	})
	if len(c.Scopes) > 0 {
		query.Set("scope", strings.Join(c.Scopes, " "))
	}
	return c.AuthorizeURL + "?" + query.Encode()
}

// more adds params to values, but for those that are there.
func more(params map[string]string, values url.Values) url.Values {
	for name, value := range params {
		if !values.Has(name) {
			values.Set(name, value)
		}
	}
	return values
}
