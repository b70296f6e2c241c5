package registry

import (
	"fmt"
	"strings"

	"agentgw/internal/literal"
)

// Defaults are the limits that hold where the registry says nothing.
type Defaults struct {
	KeyRPS            float64
	KeyBurst          int
	TenantRPS         float64
	TenantBurst       int
	TenantMaxInflight int

	// Whether these bursts follow from their rates.
	KeyBurstDefaulted, TenantBurstDefaulted bool

	// Source says where a setting's value comes from, by the setting's full
	// name, such as AGENTGATE_RATE_KEY_RPS. Nil: nobody knows.
	Source func(setting string) string
}

// Limits is what holds for one key, tenant or service.
type Limits struct {
	RPS         float64 // 0: no rate limit
	Burst       int     // 0 where RPS is
	MaxInflight int     // 0: no cap
	Source      string  // where the rate comes from: a place in the file, or a setting's source

	BurstDefaulted bool // a rate was given alone; Burst is max(1, ceil(RPS))
}

// Effective answers which limits hold for whom. It is immutable.
type Effective struct {
	snapshot *Snapshot
	defaults Defaults
	key      Limits
	tenant   Limits
	charged  string // what makes a disabled key limit wrong: a tenant rate that is on, and where from
}

const (
	settingKeyRPS      = "AGENTGATE_RATE_KEY_RPS"
	settingKeyBurst    = "AGENTGATE_RATE_KEY_BURST"
	settingTenantRPS   = "AGENTGATE_RATE_TENANT_RPS"
	settingTenantBurst = "AGENTGATE_RATE_TENANT_BURST"
)

// Effective joins the file with the defaults. The error is Problems: limits
// that must not be run with.
//
// A key without a limit is refused while any tenant rate is on. The key's
// bucket is what a key pays from before it is known what it may do; without
// it, a stranger with a valid key could knock at other people's doors as
// often as he likes for nothing.
func (s *Snapshot) Effective(d Defaults) (*Effective, error) {
	if d.Source == nil {
		d.Source = func(string) string { return "default" }
	}
	e := &Effective{snapshot: s, defaults: d}
	e.key = limits(d.KeyRPS, d.KeyBurst, d.Source(settingKeyRPS), d.KeyBurstDefaulted)
	e.tenant = limits(d.TenantRPS, d.TenantBurst, d.Source(settingTenantRPS), d.TenantBurstDefaulted)
	e.tenant.MaxInflight = d.TenantMaxInflight

	var problems Problems
	setting := func(name, format string, args ...any) {
		// A source is a place and the setting's name there, or a place alone.
		place, there, found := strings.Cut(d.Source(name), " ")
		if !found {
			there = name
		}
		at := ParsePosition(place)
		problems = append(problems, Problem{File: at.File, Line: at.Line, Column: at.Column, Path: there, What: fmt.Sprintf(format, args...)})
	}
	if err := literal.CheckRate(e.key.RPS, e.key.Burst); err != nil {
		setting(settingKeyBurst, "%v", err)
	}
	if err := literal.CheckRate(e.tenant.RPS, e.tenant.Burst); err != nil {
		setting(settingTenantBurst, "%v", err)
	}
	e.charged = e.tenantRate()
	if e.key.RPS == 0 && e.charged != "" {
		name := settingKeyRPS
		if d.KeyRPS != 0 {
			name = settingKeyBurst
		}
		setting(name, "0 disables the key limit while a tenant rate is on: %s", e.charged)
	}
	for i, k := range s.Keys {
		if err := e.CheckKey(k.Rate); err != nil && k.Rate != nil {
			problems = append(problems, Problem{
				File: k.Rate.Pos.File, Line: k.Rate.Pos.Line, Column: k.Rate.Pos.Column,
				Path: fmt.Sprintf("keys[%d].limits.rps", i), What: err.Error(),
			})
		}
	}
	if len(problems) > 0 {
		problems.Sort()
		return nil, problems
	}
	return e, nil
}

// limits applies the rule that a burst of 0 disables a limit like a rate of 0.
func limits(rps float64, burst int, source string, defaulted bool) Limits {
	if rps == 0 || burst == 0 {
		return Limits{Source: source}
	}
	return Limits{RPS: rps, Burst: burst, Source: source, BurstDefaulted: defaulted}
}

// tenantRate names a tenant rate that is on, or returns "".
func (e *Effective) tenantRate() string {
	if e.tenant.RPS > 0 {
		// In the environment it has the same name.
		from := strings.TrimSuffix(e.tenant.Source, " "+settingTenantRPS)
		return fmt.Sprintf("%s is %s (%s)", settingTenantRPS, literal.Number(e.tenant.RPS), from)
	}
	for _, name := range sortedNames(e.snapshot.Tenants) {
		if r := e.snapshot.Tenants[name].Rate; r != nil && !r.Disabled() {
			return fmt.Sprintf("tenants.%s.rps is %s (%s)", name, literal.Number(r.RPS), r.Pos)
		}
	}
	return ""
}

// CheckKey says whether a key may have this limit; nil is the default's. It is
// for keys that are not in the file.
func (e *Effective) CheckKey(override *Rate) error {
	if override == nil {
		return nil
	}
	if err := literal.CheckRate(override.RPS, override.Burst); err != nil {
		return err
	}
	if override.Disabled() && e.charged != "" {
		return fmt.Errorf("0 disables the key's limit while a tenant rate is on: %s", e.charged)
	}
	return nil
}

// Key returns the limits of a key with that limit of its own, or nil.
func (e *Effective) Key(override *Rate) Limits {
	if override == nil {
		return e.key
	}
	return limits(override.RPS, override.Burst, override.Pos.String(), override.BurstDefaulted)
}

// Tenant returns the limits of a named tenant. A name that is not in the
// registry, such as "", has the defaults.
func (e *Effective) Tenant(name string) Limits {
	t := e.snapshot.Tenants[name]
	if t == nil {
		return e.tenant
	}
	l := e.tenant
	if t.Rate != nil {
		l = limits(t.Rate.RPS, t.Rate.Burst, t.Rate.Pos.String(), t.Rate.BurstDefaulted)
		l.MaxInflight = e.tenant.MaxInflight
	}
	if t.MaxInflight != nil {
		l.MaxInflight = *t.MaxInflight
	}
	return l
}

// Service returns the limits of a service: its rate for each key, its cap for
// all of them. A service that is not there has none.
func (e *Effective) Service(name string) Limits {
	s := e.snapshot.Services[name]
	if s == nil {
		return Limits{}
	}
	l := Limits{MaxInflight: s.MaxInflight}
	if s.Rate != nil {
		l.RPS, l.Burst, l.Source, l.BurstDefaulted = s.Rate.RPS, s.Rate.Burst, s.Rate.Pos.String(), s.Rate.BurstDefaulted
	}
	return l
}
