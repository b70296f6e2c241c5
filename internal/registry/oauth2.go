package registry

import (
	"slices"
	"strings"
)

// oauth2Members are the members of a credential that are for oauth2 alone.
var oauth2Members = []string{"flow", "authorize_url", "token_url", "issuer", "client_id", "client_auth", "scopes", "authorize_params", "token_params", "allow_private"}

// oauth2 reads where the tokens of an oauth2 credential come from. What is missing is
// named; no value is quoted, as in credential.
func (r *reader) oauth2(o *object) *OAuth2 {
	found := len(r.problems)
	c := &OAuth2{
		Flow:         r.choice(o, "flow", FlowAuthorizationCode, FlowClientCredentials),
		ClientAuth:   r.choice(o, "client_auth", "basic", "post", "none"),
		AllowPrivate: r.choice(o, "allow_private", "false", "true") == "true", // as of a boolean the value would be quoted
	}
	unknown := len(r.problems) > found
	c.TokenURL = r.endpoint(o, "token_url", c.AllowPrivate)
	if m, ok := o.need("client_id"); ok {
		c.ClientID = r.text(m)
	}
	if m, ok := o.get("scopes"); ok {
		c.Scopes = r.texts(m)
	}
	c.TokenParams = r.askedFor(o, "token_params")
	switch {
	case unknown: // nor is it known what belongs to it
	case c.Flow == FlowAuthorizationCode:
		c.AuthorizeURL = r.endpoint(o, "authorize_url", c.AllowPrivate)
		c.AuthorizeParams = r.askedFor(o, "authorize_params")
		if _, ok := o.get("issuer"); ok {
			c.Issuer = r.endpoint(o, "issuer", c.AllowPrivate)
		}
	default:
		for _, name := range []string{"authorize_url", "authorize_params", "issuer"} {
			if m, ok := o.get(name); ok {
				r.fail(m.key, m.path, "is for people who connect an account; this client has tokens of its own")
			}
		}
		if c.ClientAuth == "none" {
			if m, ok := o.get("client_auth"); ok {
				r.fail(m.value, m.path, "a client without a secret is given no token of its own")
			}
		}
	}
	return c
}

// protocol are the parameters that the gateway gives itself.
var protocol = []string{
	"response_type", "client_id", "client_secret", "redirect_uri", "scope", "state", "code", "code_challenge",
	"code_challenge_method", "code_verifier", "grant_type", "refresh_token",
}

// askedFor reads what a server wants besides what the protocol gives it.
func (r *reader) askedFor(o *object, name string) map[string]string {
	m, ok := o.get(name)
	if !ok {
		return nil
	}
	params := map[string]string{}
	for _, p := range r.entries(m.value, m.path) {
		if slices.Contains(protocol, strings.ToLower(p.name)) {
			r.fail(p.key, p.path, "is for the gateway to give")
		}
		params[p.name] = r.text(p)
	}
	return params
}

// endpoint reads an address of an authorization server. What goes there is secret,
// and so it goes by TLS, but to a server on a network of one's own.
func (r *reader) endpoint(o *object, name string, private bool) string {
	m, ok := o.need(name)
	if !ok {
		return ""
	}
	text := r.text(m)
	if text == "" {
		return ""
	}
	if _, err := parseURL(text); err != nil { // which may quote the host
		r.fail(m.value, m.path, "is not a URL of http:// or https://, a host, perhaps a port and a path, and nothing else")
	} else if strings.HasPrefix(text, "http://") && !private {
		r.fail(m.value, m.path, "is http://, by which anybody on the way can read it; with allow_private: true that is taken")
	}
	return text
}
