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
	// name, such as AGENTGATE_RATE_KEY_RPS: see config.Settings. Nil: all are
	// defaults.
	Source func(setting string) string
}

// Limits is what holds for one key, tenant or service, and where each number
// comes from: a place in the file, alone or with the name of the setting there,
// or "environment", "flag" or "default" and the setting's name; "" where nobody
// gives it and there is no setting for it.
type Limits struct {
	RPS         float64 // 0: no rate limit
	Burst       int     // 0 where RPS is
	MaxInflight int     // 0: no cap

	RPSFrom, BurstFrom, MaxInflightFrom string

	BurstDefaulted bool // a rate was given alone; Burst is max(1, ceil(RPS)), from the same place
}

// Effective answers which limits hold for whom. It is immutable.
type Effective struct {
	snapshot *Snapshot
	key      Limits
	tenant   Limits
	charged  string // what makes a disabled key limit wrong: a tenant rate that is on, and where from
}

const (
	settingKeyRPS      = "AGENTGATE_RATE_KEY_RPS"
	settingKeyBurst    = "AGENTGATE_RATE_KEY_BURST"
	settingTenantRPS   = "AGENTGATE_RATE_TENANT_RPS"
	settingTenantBurst = "AGENTGATE_RATE_TENANT_BURST"
	settingTenantSlots = "AGENTGATE_TENANT_MAX_INFLIGHT"
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
	e := &Effective{snapshot: s}
	e.key = d.limits(d.KeyRPS, d.KeyBurst, d.KeyBurstDefaulted, settingKeyRPS, settingKeyBurst)
	e.tenant = d.limits(d.TenantRPS, d.TenantBurst, d.TenantBurstDefaulted, settingTenantRPS, settingTenantBurst)
	e.tenant.MaxInflight, e.tenant.MaxInflightFrom = d.TenantMaxInflight, d.from(settingTenantSlots)

	var problems Problems
	setting := func(name, format string, args ...any) {
		place, there := cutLast(d.from(name))
		problems = append(problems, NewProblem(ParsePosition(place), there, fmt.Sprintf(format, args...)))
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
			at, name := k.Rate.Pos, "rps"
			if k.Rate.RPS != 0 {
				at, name = k.Rate.BurstPos, "burst"
			}
			problems = append(problems, NewProblem(at, fmt.Sprintf("keys[%d].limits.%s", i, name), err.Error()))
		}
	}
	for i := range s.Issuers {
		for n, g := range s.Issuers[i].Grants() {
			if err := e.CheckKey(g.Rate); err != nil {
				path := fmt.Sprintf("issuers[%d].scopes[%d].limits", i, n)
				if g == &s.Issuers[i].Grant {
					path = fmt.Sprintf("issuers[%d].limits", i)
				}
				problems = append(problems, NewProblem(g.Rate.Pos, path, err.Error()))
			}
		}
	}
	if len(problems) > 0 {
		problems.Sort()
		return nil, problems
	}
	return e, nil
}

// from is where a setting's value comes from and its name: of a default too,
// since that name is what an operator has to know to change it.
func (d Defaults) from(setting string) string {
	source := d.Source(setting)
	if !strings.Contains(source, " ") {
		source += " " + setting
	}
	return source
}

// cutLast parts a setting's place from its name there. A place may hold spaces,
// as paths do; a name holds none.
func cutLast(source string) (place, name string) {
	i := strings.LastIndexByte(source, ' ')
	return source[:i], source[i+1:]
}

// limits is what two settings say.
func (d Defaults) limits(rps float64, burst int, defaulted bool, rpsSetting, burstSetting string) Limits {
	l := Limits{RPS: rps, Burst: burst, RPSFrom: d.from(rpsSetting), BurstFrom: d.from(burstSetting), BurstDefaulted: defaulted}
	if defaulted {
		l.BurstFrom = l.RPSFrom
	}
	return l.normal()
}

// limits is what the file says.
func (r *Rate) limits() Limits {
	l := Limits{RPS: r.RPS, Burst: r.Burst, RPSFrom: r.Pos.String(), BurstFrom: r.BurstPos.String(), BurstDefaulted: r.BurstDefaulted}
	return l.normal()
}

// normal applies the rule that a burst of 0 disables a limit like a rate of 0.
func (l Limits) normal() Limits {
	if l.RPS == 0 || l.Burst == 0 {
		l.RPS, l.Burst, l.BurstDefaulted = 0, 0, false
	}
	return l
}

// tenantRate names a tenant rate that is on, or returns "".
func (e *Effective) tenantRate() string {
	if e.tenant.RPS > 0 {
		// In the environment it has the same name.
		from := strings.TrimSuffix(e.tenant.RPSFrom, " "+settingTenantRPS)
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
	return override.limits()
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
		l = t.Rate.limits()
		l.MaxInflight, l.MaxInflightFrom = e.tenant.MaxInflight, e.tenant.MaxInflightFrom
	}
	if t.MaxInflight != nil {
		l.MaxInflight, l.MaxInflightFrom = *t.MaxInflight, t.MaxInflightPos.String()
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
	l := Limits{}
	if s.Rate != nil {
		l = s.Rate.limits()
	}
	l.MaxInflight, l.MaxInflightFrom = s.MaxInflight, s.MaxInflightPos.String()
	return l
}
