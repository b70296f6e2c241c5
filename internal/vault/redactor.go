package vault

import (
	"strings"

	"agentgw/internal/redact"
)

// redacted is a row in a form, which may change while the row stays.
type redacted struct {
	Ref
	credentialType string
}

// redactor returns what redacts the text of a row, made when it is needed first.
func (c *contents) redactor(ref Ref, credentialType, text string) redact.Redactor {
	key := redacted{ref, credentialType}
	if r, ok := c.redactors.Load(key); ok {
		return r.(redact.Redactor)
	}
	r := newRedactor(credentialType, text)
	c.redactors.Store(key, r)
	return r
}

// newRedactor is what redacts a secret of that type. Of a basic credential the
// user's name is no secret, and answers may be full of it; a password too short to
// be found alone is found with it, as it goes out.
func newRedactor(credentialType, text string) redact.Redactor {
	if credentialType == TypeBasic {
		_, password, _ := strings.Cut(text, ":")
		return redact.New(password, text)
	}
	return redact.New(text, "")
}
