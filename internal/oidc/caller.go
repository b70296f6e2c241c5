package oidc

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"agentgw/internal/identity"
	"agentgw/internal/registry"
)

// ErrCaller and ErrClaims are what Explained refuses with: no caller of these issuers
// has that name; and no token of his could say that.
var (
	ErrCaller = errors.New("is no caller of an issuer of the registry (oidc:ISSUER#SUBJECT)")
	ErrClaims = errors.New("are not one JSON object, each member once, that a token of this caller could have")
)

// Explained returns what a caller, by the name that he is known by, would be given for
// a token with these claims, which are JSON and may be empty: for explaining, as no
// token is looked at and nothing is verified. It is good at any time.
func Explained(entries []registry.Issuer, conditions Conditions, name, says string) (*identity.Key, error) {
	for n := range entries {
		e := &entries[n]
		subject, ok := strings.CutPrefix(name, identity.CallerID(e.Issuer, ""))
		if !ok || !nameable(subject) {
			continue
		}
		c := claims{}
		if says != "" && json.Unmarshal([]byte(says), &c) != nil || c == nil {
			return nil, ErrClaims
		}
		for claim, want := range map[string]any{"iss": e.Issuer, "sub": subject} {
			if has, ok := c[claim]; ok && has != want {
				return nil, fmt.Errorf("%w: its %s is another", ErrClaims, claim)
			}
			c[claim] = want
		}
		s, err := (&issuer{entry: e, conditions: conditions}).caller(c, time.Time{})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrClaims, err)
		}
		s.Key.NotAfter = time.Time{}
		return s.Key, nil
	}
	return nil, ErrCaller
}

// caller is who c is of, with the scope that the registry gives to such claims:
// that of the first of the entry's scopes that holds, else the entry's own. Without
// services that is no scope at all. Who is given no users acts for nobody but
// himself. A caller is known by issuer and subject: tokens come and go.
func (i *issuer) caller(c claims, expiry time.Time) (*identity.Secret, error) {
	subject, err := c.subject()
	if err != nil {
		return nil, err
	}
	client, _ := c.client()
	var names [4]string
	for n, claim := range [...]string{i.entry.TenantClaim, i.entry.UserClaim, i.entry.SpaceClaim, i.entry.OrgClaim} {
		if names[n], err = c.name(claim); err != nil {
			return nil, err
		}
	}
	tenant, user, space, org := names[0], names[1], names[2], names[3]
	grant, named := i.grant(c), ""
	if tenant != "" {
		named = i.entry.Tenants[tenant]
	}
	k := identity.Key{
		ID: identity.CallerID(i.entry.Issuer, subject), Issuer: i.entry.Issuer, Audience: i.entry.Audience, Client: client,
		Services: grant.Services, Actions: grant.Actions, Users: grant.Users,
		Tenant: named, User: user, Space: space, Org: org,
		NotAfter: expiry.Add(Leeway), Origin: grant.Pos.String(),
	}
	if k.Users == nil && user != "" && user != identity.Everything { // which is no name, and would be everybody's
		k.Users = []string{user}
	}
	if r := grant.Rate; r != nil {
		k.Limits = &identity.Limits{RPS: r.RPS, Burst: r.Burst}
	}
	if tenant == "" {
		tenant = subject
	}
	return identity.NewCaller(k, tenant), nil
}

// grant is what such claims are given. Where the condition of a scope has no result
// that is nothing: what comes behind it may be for those alone of whom it does not hold.
func (i *issuer) grant(c claims) *registry.Grant {
	for n := range i.entry.Scopes {
		s := &i.entry.Scopes[n]
		holds := false
		if s.When == "" {
			holds = c.holds(s.Claim, s.Value)
		} else {
			var err error
			if holds, err = i.conditions.Holds(s, c); err != nil {
				return &registry.Grant{Pos: s.WhenPos}
			}
		}
		if holds {
			return &s.Grant
		}
	}
	return &i.entry.Grant
}
