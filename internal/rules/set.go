package rules

import (
	"fmt"
	"time"

	"agentgw/internal/registry"
)

// Set is the rules of one registry, and the conditions of its issuers. It is immutable
// and safe for concurrent use. The zero Set and nil have none.
type Set struct {
	rules      []*Rule
	conditions Conditions
}

// Rule is one of them.
type Rule struct {
	Name   string
	Window time.Duration
	// Of is what it counts: registry.CountRequests, registry.CountBytes or the text
	// of an expression.
	Of      string
	Observe bool // refuses nothing
	// Identity: one of identity_limits. Those and the rules without Cost are
	// charged once for a batch of calls, the others for each of them.
	Identity, Cost bool
	OnStoreFailure string // what becomes of shared counts while their store is away
	Pos            registry.Position

	owner      func(*Call) string // the key of an identity limit
	key, when  *expression        // key: nil of an identity limit; when: nil is always
	max, count *expression        // nil: most, and 1 or the bytes
	most       int64
	sees       []string // the variables that its expressions look at, sorted
	names      []Name
	complaints complaints
}

// Rules lists them, in the order of the file; identity limits come first. The
// slice must not be changed.
func (s *Set) Rules() []*Rule {
	if s == nil {
		return nil
	}
	return s.rules
}

// Conditions are those of the scopes of its issuers.
func (s *Set) Conditions() Conditions {
	if s == nil {
		return nil
	}
	return s.conditions
}

// Sees lists the variables that decide whom a call is counted for and under which
// maximum, by name. The slice must not be changed.
func (r *Rule) Sees() []string { return r.sees }

// Most is the maximum, where it is a number.
func (r *Rule) Most() int64 { return r.most }

// Bytes reports whether the rule counts bytes, of which the answer's come later.
func (r *Rule) Bytes() bool { return r.Of == registry.CountBytes }

// Compile makes the Set of a registry. The error is registry.Problems: every
// mistake in its expressions. Of a registry that was read in part, it looks at what
// could be read.
func Compile(s *registry.Snapshot) (*Set, error) {
	if s == nil {
		return nil, nil
	}
	set := &Set{rules: identity(s.IdentityLimits)}
	var problems registry.Problems
	for i, r := range s.Rules {
		c := compiler{path: fmt.Sprintf("rules[%d]", i)}
		rule := c.rule(r)
		problems = append(problems, c.problems...)
		if r.Max != "" || r.Most > 0 { // else it is switched off
			set.rules = append(set.rules, rule)
		}
	}
	of, wrong := conditions(s)
	set.conditions, problems = of, append(problems, wrong...)
	if len(problems) > 0 {
		problems.Sort()
		return nil, problems
	}
	return set, nil
}

// identity makes the rules of identity_limits: calls a second for whoever owns the
// key.
func identity(l registry.IdentityLimits) (list []*Rule) {
	for _, of := range []struct {
		name  string
		most  int64
		pos   registry.Position
		owner func(*Call) string
	}{
		{"user", l.User, l.UserPos, func(c *Call) string { return c.User }},
		{"space", l.Space, l.SpacePos, func(c *Call) string { return c.Space }},
		{"org", l.Org, l.OrgPos, func(c *Call) string { return c.Org }},
	} {
		if of.most > 0 {
			list = append(list, &Rule{
				Name: of.name, Window: time.Second, Of: registry.CountRequests, Identity: true, OnStoreFailure: "open",
				Pos: of.pos, owner: of.owner, most: of.most, sees: []string{of.name},
			})
		}
	}
	return list
}
