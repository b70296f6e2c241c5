package gateway

import (
	"errors"
	"sync/atomic"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/oidc"
	"agentgw/internal/ratelimit"
	"agentgw/internal/registry"
	"agentgw/internal/rules"
)

// view is everything that decides one call, as it stood when the call came, but for the
// caps of slots: those of the last view hold for every call. What
// a call is charged to is worked out with it, once, and kept beside each key with
// the place of its state in the limiter: a call looks nothing up by name. The
// state itself is the limiter's and outlives every view.
type view struct {
	settings *config.Settings
	registry *registry.Snapshot
	keys     *identity.Directory
	accounts []account // of each key, by its number in keys
	tokens   *oidc.Tokens
	holders  holders // of tokens
	services map[string]*service
	rates    int                       // of how many of them there are
	named    map[string]*ratelimit.Ref // the registry's tenants, by partition key
	tenants  map[string]*ratelimit.Ref // all that calls are charged to, by partition key
	failures dated                     // of authentication, for each client address
	callers  dated                     // for each caller of open services
	rules    *rules.Set
	windows  []*ratelimit.Rule // of each of the rules
	caps     *ratelimit.Caps
}

// service is the limits of one service.
type service struct {
	name   string
	slots  *ratelimit.Service
	limit  dated
	number int // among the services that have a rate
}

// Use makes the next call, and every one after it, be decided by these settings,
// this registry with its rules, and these keys. A call under way keeps what it began
// with, but for caps; and one whose key is gone is ended, wherever it is, or refused
// if its upstream was not called yet.
func (g *Gateway) Use(settings *config.Settings, snapshot *registry.Snapshot, effective *registry.Effective, set *rules.Set, keys *identity.Directory) error {
	v, err := newView(settings, snapshot, effective, set, keys)
	if err != nil {
		return err
	}
	old := g.current.Load()
	if old != nil && old.registry == snapshot { // keys alone are new, and what is known of tokens holds
		v.tokens = old.tokens
	} else {
		v.tokens = g.tokens.Tokens(snapshot.Issuers, set.Conditions())
	}
	was, now := map[limited]dated{}, g.nanos.Nanos()
	if old != nil {
		was = old.limits()
	}
	v.date(was, now)
	for of, limit := range v.limits() {
		if before, ok := was[of]; ok {
			g.limiter.Changed(of.table, of.kind, before.Limit, limit.Limit, now)
		}
	}
	g.current.Store(v)
	g.running.each(g.endWithSecret)
	g.limiter.Follow(v.caps)
	return nil
}

// secret is the one that came with a call, maybe under another view, as it stands in
// this one; nil where it is none of this view's, or not valid at now.
func (v *view) secret(call *Call, now time.Time) *identity.Secret {
	switch {
	case call.secret.Key.Open != "":
		// It is the service that lets him in, for as long as it is open.
		if !v.isOpen(call.secret.Key.Open) {
			return nil
		}
		return call.secret
	case call.secret.Key.Issuer != "" && !v.tokens.Serves(call.secret.Key):
		return nil
	case call.secret.Key.Issuer == "" && v != call.view:
		s := v.keys.Find(call.secret.Digest, now)
		if s == nil || s.Key.ID != call.secret.Key.ID { // the same text, that is another key by now: whose it was is gone
			return nil
		}
		return s
	}
	if !call.secret.ValidAt(now) { // without looking it up
		return nil
	}
	return call.secret
}

// endWithSecret has a call end when its secret does: at once, if that is gone from
// the view in force. It is asked of every call when it is added to those under way and
// whenever the view changes; whoever asks last has seen the newest view.
func (g *Gateway) endWithSecret(r *running) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.call.Key; k.Issuer != "" && k.Open == "" && !r.waits {
		// A token may be good for minutes, and is renewed where the caller is; what
		// it has begun goes on for as long as its issuer is one of ours.
		if !g.current.Load().tokens.Serves(r.call.Key) {
			r.cancel(errGone)
		}
		return
	}
	now := g.clock.Now()
	if s := g.current.Load().secret(r.call, now); s != nil {
		r.patience.until(now, s.End())
		return
	}
	r.cancel(errGone)
}

// inForce are the caps of v, for all calls once v is in use.
func (v *view) inForce() *ratelimit.Caps {
	return &ratelimit.Caps{
		Process: int64(v.settings.MaxInflight),
		Tenant:  v.tenant,
		Service: func(s *ratelimit.Service) *ratelimit.Service {
			if now := v.services[s.Name()]; now != nil {
				return now.slots
			}
			return nil
		},
	}
}

// newView works out what calls are decided by.
func newView(settings *config.Settings, snapshot *registry.Snapshot, effective *registry.Effective, set *rules.Set, keys *identity.Directory) (*view, error) {
	v := &view{
		settings: settings, registry: snapshot, keys: keys, rules: set, windows: newWindows(set),
		services: make(map[string]*service, len(snapshot.Services)), named: make(map[string]*ratelimit.Ref, len(snapshot.Tenants)),
		tenants: map[string]*ratelimit.Ref{},
	}
	perMinute := int64(settings.RateAuthPerMinute)
	failures, err := ratelimit.Every(time.Minute, perMinute, perMinute)
	v.failures.Limit = failures
	callers, errOfCallers := ratelimit.PerMinute(settings.RateCallerRPM, int64(settings.RateCallerBurst))
	v.callers.Limit = callers
	problems := []error{err, errOfCallers}
	limit := func(l registry.Limits) ratelimit.Limit {
		made, err := ratelimit.NewLimit(l.RPS, int64(l.Burst))
		problems = append(problems, err)
		return made
	}

	for name, declared := range snapshot.Services {
		l := effective.Service(name)
		s := &service{name: name, slots: ratelimit.NewService(name, int64(l.MaxInflight)).OnStoreFailure(ratelimit.PolicyOf(declared.OnStoreFailure)), limit: dated{Limit: limit(l)}, number: v.rates}
		if !s.limit.Unlimited() {
			v.rates++
		}
		v.services[name] = s
	}
	if snapshot.Tunnels != nil {
		v.services[registry.TunnelService] = &service{name: registry.TunnelService, slots: ratelimit.NewService(registry.TunnelService, 0)}
	}

	tenants := map[identity.Tenant]*ratelimit.Ref{}
	tenant := func(t identity.Tenant) *ratelimit.Ref {
		if r := tenants[t]; r != nil {
			return r
		}
		named := ""
		if t.Kind == identity.KindTenant {
			named = t.Name
		}
		l := effective.Tenant(named)
		tenants[t] = ratelimit.NewTenant(ratelimit.Registered, t.String(), limit(l), int64(l.MaxInflight))
		if n := snapshot.Tenants[named]; n != nil {
			tenants[t].Weighing(n.Weight)
		}
		v.tenants[t.String()] = tenants[t]
		return tenants[t]
	}

	for name := range snapshot.Tenants {
		t := identity.NewTenant(identity.KindTenant, name)
		v.named[t.String()] = tenant(t)
	}
	for _, k := range keys.Keys() {
		var own *registry.Rate
		if k.Limits != nil {
			own = &registry.Rate{RPS: k.Limits.RPS, Burst: k.Limits.Burst}
		}
		others := k.TenantOf("", settings.KeyMaxPrincipals)
		a := account{
			key:     ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, "key:"+k.ID, limit(effective.Key(own))),
			tenant:  tenant(others),
			buckets: make([]atomic.Pointer[ratelimit.Ref], v.rates),
		}
		for _, user := range k.Users {
			if t := k.TenantOf(user, settings.KeyMaxPrincipals); t != others {
				if a.principals == nil {
					a.principals = map[string]*ratelimit.Ref{}
				}
				a.principals[user] = tenant(t)
			}
		}
		v.accounts = append(v.accounts, a)
	}
	v.holders = holders{tenant: limit(effective.Tenant("")), slots: int64(effective.Tenant("").MaxInflight), key: limit(effective.Key(nil))}
	for i := range snapshot.Issuers {
		for _, grant := range snapshot.Issuers[i].Grants() {
			if r := grant.Rate; r != nil {
				v.holders.own(identity.Limits{RPS: r.RPS, Burst: r.Burst}, limit(effective.Key(r)))
			}
		}
	}
	v.caps = v.inForce()
	return v, errors.Join(problems...)
}
