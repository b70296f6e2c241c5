package delegation

import (
	"errors"
	"strings"
	"time"
)

// MaxLife is the longest that a delegation may last.
const MaxLife = 24 * time.Hour

// Bounds of what a token may hold, so that what it takes to judge one is bounded by
// more than its size.
const (
	maxName    = 512 // bytes of a subject
	maxDetails = 64
	MaxActions = 128
)

// Claims are what one link says. See the package for the whole format.
type Claims struct {
	Issuer   string   `json:"iss"`
	Audience string   `json:"aud"`
	User     string   `json:"sub"` // "user:" and the human's name
	Tenant   string   `json:"tenant,omitempty"`
	Actor    Actor    `json:"act"`
	Confirm  *Confirm `json:"cnf,omitempty"` // nil: may not be handed on
	Details  []Detail `json:"authorization_details"`
	Depth    *int     `json:"del_depth"` // how many links may follow; never nil in a token
	Issued   int64    `json:"iat"`       // seconds since 1970, as the two below
	From     int64    `json:"nbf"`
	Until    int64    `json:"exp"` // the first second at which it is over
	ID       string   `json:"jti"`
	Parent   string   `json:"par,omitempty"` // SHA-256 of the link before; "" in the root
}

// Actor is who may use the link.
type Actor struct {
	Agent string `json:"sub"` // "agent:" and the caller's name
}

// Confirm names the key that may sign the next link.
type Confirm struct {
	Thumbprint string `json:"jkt"`
}

// Detail grants actions of one service (RFC 9396), under constraints on their
// parameters.
type Detail struct {
	Type        string                `json:"type"` // DetailType
	Service     string                `json:"service"`
	Actions     []string              `json:"actions"`
	Constraints map[string]Constraint `json:"constraints,omitempty"`
}

// DetailType is the type of every Detail.
const DetailType = "agent_action"

// What names begin with in a token.
const (
	userPrefix  = "user:"
	agentPrefix = "agent:"
)

// check judges what a link says by itself.
func (c *Claims) check(root bool) error {
	switch {
	case c.Issuer == "" || c.Audience == "":
		return errors.New("iss or aud is missing")
	case !isNamed(c.User, userPrefix):
		return errors.New("sub is not user: and a name")
	case !isNamed(c.Actor.Agent, agentPrefix):
		return errors.New("act.sub is not agent: and a name")
	case !isID(c.ID):
		return errors.New("jti is not 1 to 64 of A-Z a-z 0-9 . _ -")
	case c.Confirm != nil && !isHash(c.Confirm.Thumbprint):
		return errors.New("cnf.jkt is not a SHA-256 thumbprint")
	case root && c.Parent != "" || !root && !isHash(c.Parent):
		return errors.New("par is the SHA-256 of the link before, which a root has not")
	case c.Depth == nil || *c.Depth < 0 || *c.Depth >= MaxLinks:
		return errors.New("del_depth is not 0 to 3")
	case c.Issued <= 0 || c.From <= 0 || c.Until <= max(c.Issued, c.From):
		return errors.New("iat, nbf and exp are not times in order")
	case c.Until-min(c.Issued, c.From) > int64(MaxLife/time.Second):
		return errors.New("it lasts for more than 24 hours")
	case len(c.Details) == 0 || len(c.Details) > maxDetails:
		return errors.New("it grants nothing, or more than 64 details")
	}
	for i := range c.Details {
		if err := c.Details[i].check(); err != nil {
			return err
		}
	}
	return nil
}

func (d *Detail) check() error {
	switch {
	case d.Type != DetailType:
		return errors.New("a detail is not of type " + DetailType)
	case d.Service == "" || len(d.Actions) == 0 || len(d.Actions) > MaxActions:
		return errors.New("a detail names no service, or no actions, or more than 128")
	}
	for _, a := range d.Actions {
		if a == "" {
			return errors.New("a detail has an action without a name")
		}
	}
	for name, c := range d.Constraints {
		if name == "" || c.kind == "" {
			return errors.New("a constraint bounds nothing")
		}
	}
	return nil
}

// isNamed reports whether s is a prefix and a name without control characters.
func isNamed(s, prefix string) bool {
	return len(s) > len(prefix) && len(s) <= maxName && strings.HasPrefix(s, prefix) &&
		strings.IndexFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f }) < 0
}

// isID reports whether s can be a jti: it goes into records, commands and tables.
func isID(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return 0 < len(s) && len(s) <= 64
}

// isHash reports whether s is a SHA-256 in the one spelling of base64url.
func isHash(s string) bool {
	b, err := strict.DecodeString(s)
	return err == nil && len(b) == 32 && len(s) == 43
}
