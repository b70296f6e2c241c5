package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"agentgw/internal/identity"
	"agentgw/internal/literal"
	"agentgw/internal/registry"
	"agentgw/internal/store"
)

// keyRequest is what keys create was asked for, as text.
type keyRequest struct {
	id, services, users, actions, tenant string
	rps, burst, notBefore, expires       string
	user, space, org                     string

	given func(flag string) bool   // whether a flag was given at all
	named func(flag string) string // how a flag is called where it was given
}

// actionPattern is what a pattern over SERVICE.ACTION may consist of.
var actionPattern = regexp.MustCompile(`^[a-z0-9._:*-]+$`)

// longestLife keeps the end of a key within what the store's nanoseconds hold.
const longestLife = 100 * 365 * 24 * time.Hour

// key returns the key that was asked for, without its digest, or every mistake
// in the request at once. limits are what the gateway would run with.
func (r *keyRequest) key(at home, limits *registry.Effective, now time.Time) (store.Key, error) {
	var problems []error
	fail := func(flag string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", r.named(flag), err))
		}
	}
	k := store.Key{ID: r.id, Tenant: r.tenant, User: r.user, Space: r.space, Org: r.org, CreatedAt: now}
	var err error
	fail("id", r.checkID(at))
	k.Services, err = starOrNames(r.services)
	fail("services", errors.Join(err, checkServices(k.Services, at.snapshot)))
	k.Users, err = starOrNames(r.users)
	fail("users", err)
	if r.given("actions") {
		k.Actions, err = names(r.actions)
		fail("actions", errors.Join(err, checkActions(k, at.snapshot)))
	}
	if r.given("tenant") {
		fail("tenant", checkTenant(r.tenant, at.snapshot))
	}
	rate, err := r.rate()
	fail("rps", err)
	if err == nil {
		fail("rps", limits.CheckKey(rate))
	}
	if rate != nil {
		k.Limits = &store.Limits{RPS: rate.RPS, Burst: rate.Burst}
	}
	if r.given("not-before") {
		k.NotBefore, err = literal.Time(r.notBefore)
		fail("not-before", err)
	}
	if r.given("expires") {
		k.NotAfter, err = r.end(now)
		if err == nil && !k.NotBefore.Before(k.NotAfter) {
			err = errors.New("ends before it begins (not-before), and so would never be valid; it counts from now")
		}
		fail("expires", err)
	}
	return k, errors.Join(problems...)
}

func (r *keyRequest) checkID(at home) error {
	if !registry.IsID(r.id) {
		return fmt.Errorf("%s is not an id: a letter or digit, then up to 63 of a-z 0-9 . _ -", literal.Quote(r.id))
	}
	if static := at.staticKey(r.id); static != nil {
		return fmt.Errorf("key %q exists already, at %s", r.id, static.Pos)
	}
	return nil
}

// names reads a list with commas. Names are taken as they are, without the
// white space around them.
func names(list string) ([]string, error) {
	var all []string
	for name := range strings.SplitSeq(list, ",") {
		switch name = strings.TrimSpace(name); {
		case name == "":
			return nil, errors.New("holds an empty name")
		case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return nil, fmt.Errorf("%s holds a control character", literal.Quote(name))
		case slices.Contains(all, name):
			return nil, fmt.Errorf("%s is there twice", literal.Quote(name))
		}
		all = append(all, name)
	}
	return all, nil
}

// starOrNames reads a list in which * stands alone or not at all.
func starOrNames(list string) ([]string, error) {
	all, err := names(list)
	if err == nil && len(all) > 1 && slices.Contains(all, identity.Everything) {
		return nil, errors.New("* stands for all, and so stands alone")
	}
	return all, err
}

func checkServices(services []string, snapshot *registry.Snapshot) error {
	for _, name := range services {
		switch {
		case name == identity.Everything:
		case !registry.IsID(name):
			return fmt.Errorf("%s is not the name of a service", literal.Quote(name))
		case snapshot != nil && !snapshot.Knows(name):
			return fmt.Errorf("there is no service %q in %s", name, snapshot.File)
		}
	}
	return nil
}

func checkTenant(name string, snapshot *registry.Snapshot) error {
	switch {
	case !registry.IsID(name):
		return fmt.Errorf("%s is not the name of a tenant", literal.Quote(name))
	case snapshot != nil && snapshot.Tenants[name] == nil:
		return fmt.Errorf("there is no tenant %q in %s", name, snapshot.File)
	}
	return nil
}

// checkActions refuses a pattern that covers nothing of the key's services: a
// key that can do nothing is a typing mistake.
func checkActions(k store.Key, snapshot *registry.Snapshot) error {
	for _, p := range k.Actions {
		if !actionPattern.MatchString(p) {
			return fmt.Errorf("%s is no pattern: write SERVICE.ACTION, with * for any letters", literal.Quote(p))
		}
		if snapshot != nil && !covers(&identity.Key{Services: k.Services, Actions: []string{p}}, snapshot) {
			return fmt.Errorf("%s matches no declared action of these services: write SERVICE.ACTION, with * for any letters", literal.Quote(p))
		}
	}
	return nil
}

// covers reports whether the key may call anything that is declared.
func covers(k *identity.Key, snapshot *registry.Snapshot) bool {
	if snapshot.Tunnels != nil && k.AllowsService(registry.TunnelService) && (k.AllowsEvery(registry.TunnelService) || slices.ContainsFunc(k.Actions, namesTunnels)) {
		return true
	}
	for name, service := range snapshot.Services {
		if service.Passthrough && k.AllowsEvery(name) {
			return true
		}
		for action := range service.Actions {
			if k.Allows(name, action) {
				return true
			}
		}
	}
	return false
}

// namesTunnels reports whether a pattern is for tunnels. Which hosts below a star of the
// list it is for cannot be told.
func namesTunnels(pattern string) bool { return strings.HasPrefix(pattern, registry.TunnelService+".") }

// rate reads --rps and --burst; nil where neither was given.
func (r *keyRequest) rate() (*registry.Rate, error) {
	if !r.given("rps") {
		if r.given("burst") {
			return nil, errors.New("a burst without its rate limits nothing: give rps too")
		}
		return nil, nil
	}
	rps, err := literal.Decimal(r.rps)
	if err != nil {
		return nil, err
	}
	rate := &registry.Rate{RPS: rps}
	switch {
	case r.given("burst"):
		if rate.Burst, err = literal.Whole(r.burst); err != nil {
			return nil, fmt.Errorf("its burst: %w", err)
		}
	case rps > 0 && rps <= literal.MaxRPS:
		rate.Burst = literal.DefaultBurst(rps)
	}
	if err := literal.CheckRate(rate.RPS, rate.Burst); err != nil {
		return nil, err
	}
	if rate.Burst == 0 {
		rate.RPS = 0 // a burst of 0 switches the limit off like a rate of 0
	}
	return rate, nil
}

// end returns when the key is to expire.
func (r *keyRequest) end(now time.Time) (time.Time, error) {
	d, err := literal.Duration(r.expires)
	switch {
	case err != nil:
		return time.Time{}, err
	case d == 0:
		return time.Time{}, errors.New("a key that expires at once cannot be used; without --expires it is valid for ever")
	case d > longestLife:
		return time.Time{}, errors.New("over a hundred years; without --expires it is valid for ever")
	}
	return now.Add(d), nil
}
