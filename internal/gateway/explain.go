package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/explain"
	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
	"agentgw/internal/registry"
	"agentgw/internal/rules"
)

// Levels tell how limits stand in a gateway that runs.
type Levels interface {
	Look(r *ratelimit.Ref, now int64) ratelimit.Entry
	Counted(r *ratelimit.Rule, partition string, now int64) (used int64, left time.Duration)
	Stats() ratelimit.Stats
}

// Explainer tells which limits calls meet that are decided by these, in the
// order of the pipeline and by the same functions. It makes no call, charges
// nobody and needs no gateway that runs. Safe for concurrent use.
type Explainer struct {
	Settings  *config.Settings
	Registry  *registry.Snapshot
	Effective *registry.Effective
	Rules     *rules.Set
	Vault     Vault // nil: whether there is a credential is not asked

	Levels Levels          // nil: nobody runs, and the answer has no levels
	Nanos  ratelimit.Clock // of Levels
	// Running is the gateway that runs, which knows since when limits have been in
	// force; nil where none has changed.
	Running *Gateway
}

// LimitsAre is whose the limits are: this process's, or those of all replicas.
func LimitsAre(s *config.Settings) string {
	if s.RedisURL.Empty() {
		return explain.PerProcess
	}
	return explain.Shared
}

// Explain answers for a call of key that comes at now, which may be that of a caller of
// an issuer. unserved is why the gateway does not take the key, as for one that was
// revoked; "": it does.
func (x Explainer) Explain(q explain.Question, key *identity.Key, unserved string, now time.Time) (explain.Answer, error) {
	a := explain.Answer{
		Key: key.ID, KeyFrom: key.Origin, Service: q.Service, Action: q.Action, User: q.User,
		LimitsAre: LimitsAre(x.Settings), Limits: []explain.Limit{}, Rules: []explain.Rule{},
	}
	var known []*identity.Key
	if key.Issuer == "" { // others are in no directory
		known = append(known, key)
	}
	keys, err := identity.NewDirectory(known)
	if err != nil {
		return a, err
	}
	v, err := newView(x.Settings, x.Registry, x.Effective, x.Rules, keys)
	if err != nil {
		return a, err
	}
	if x.Running != nil {
		v.date(x.Running.current.Load().limits(), x.Nanos.Nanos())
	}
	if key.Issuer == "" {
		key = keys.ByID(key.ID)
	}
	account := v.account(key)
	call := &Call{In: &http.Request{}, Key: key, Act: act{Service: q.Service, Action: q.Action, Principal: q.User, unmatched: q.Action == anyAction}}

	if why := whyNoKey(key, unserved, now); why != "" {
		a.Limits = append(a.Limits, x.address())
		a.Refused = refusalOf(1, refuse(Unauthenticated, unauthenticated), why, key.Origin)
		return a, nil
	}
	a.Limits = append(a.Limits, x.rate(2, account.key, account.key.Partition(), x.Effective.Key(ownRate(x.Registry, key))))
	for _, member := range []struct{ name, text string }{{"service", q.Service}, {"action", q.Action}, {"on_behalf_of", q.User}} {
		if err := nameable(member.name, member.text); err != nil {
			a.Refused = refusalOf(3, refuse(BadRequest, "%v", err), "no call can name that", "")
			return a, nil
		}
	}
	if x.Registry.Tunnels != nil && q.Service == registry.TunnelService {
		to, err := registry.ParseHostPort(q.Action)
		if err != nil {
			a.Refused = refusalOf(3, refuse(BadRequest, "%v", err), "a tunnel leads to HOST:PORT", "")
			return a, nil
		}
		call.Act.Action, call.Act.to, call.tunnel = to.String(), &to, &tunnelled{to: to, limit: tunnelLimit(x.Registry.Tunnels)}
	}
	service, action, refused := authorize(x.Registry, key, call.Act)
	if refused != nil {
		why, source := whyOutOfScope(x.Registry, key, q)
		if call.tunnel != nil {
			why, source = whyNoTunnel(x.Registry, key, call.Act)
		}
		a.Refused = refusalOf(4, refused, why, source)
		return a, nil
	}
	tenant := account.of(q.User)
	a.Tenant = tenant.Partition()
	a.Limits = append(a.Limits, x.admission(v, key, tenant, service)...)
	if call.tunnel != nil {
		a.Limits = append(a.Limits, x.tunnelBytes(call.tunnel.limit, account.key.Partition()))
	}
	a.Rules = append(a.Rules, x.rules(v, key, a.Tenant, q, action)...)
	if x.Levels != nil && x.Levels.Look(tenant, 0).Blocked {
		a.Refused = refusalOf(5, refuse(TenantBlocked, tenantBlocked), "an operator blocked "+a.Tenant+" in this process", "")
		return a, nil
	}
	if refused := undelegated(service); refused != nil {
		a.Refused = refusalOf(6, refused, "calls of this service bring a delegation, and none is asked about here", service.Pos.String())
		return a, nil
	}
	if x.Vault != nil {
		if _, refused := openCredential(x.Vault, call, service); refused != nil {
			a.Refused = refusalOf(7, refused, refused.Err.Error(), service.Credential.Pos.String())
		}
	}
	return a, nil
}

func refusalOf(step int, e *Error, why, source string) *explain.Refusal {
	return &explain.Refusal{Step: step, Code: string(e.Code), Status: e.status(), Detail: e.Message, Why: why, Source: source}
}

// whyNoKey is why step 1 refuses the key, or "".
func whyNoKey(key *identity.Key, unserved string, now time.Time) string {
	switch {
	case unserved != "":
		return unserved
	case key.ValidAt(now):
		return ""
	case now.Before(key.NotBefore):
		return "the key is not valid before " + key.NotBefore.UTC().Format(time.RFC3339)
	}
	return "the key expired on " + key.NotAfter.UTC().Format(time.RFC3339)
}

// whyNoTunnel is whyOutOfScope for a tunnel.
func whyNoTunnel(in *registry.Snapshot, key *identity.Key, a act) (why, source string) {
	switch {
	case !key.AllowsService(registry.TunnelService):
		return "the key's services are " + listed(key.Services), key.Origin
	case !in.Tunnels.Allows(*a.to):
		return "tunnels.allow has " + listed(in.Tunnels.Allow), in.Tunnels.Pos.String()
	case !key.Allows(registry.TunnelService, a.Action):
		return "the key's actions are " + listed(key.Actions), key.Origin
	}
	return "the key's users are " + listed(key.Users), key.Origin
}

// whyOutOfScope says of a call that authorize refused what the agent is not told,
// and where to look.
func whyOutOfScope(in *registry.Snapshot, key *identity.Key, q explain.Question) (why, source string) {
	service := in.Services[q.Service]
	switch {
	case service == nil:
		return fmt.Sprintf("the registry has no service %q", q.Service), in.File
	case !key.AllowsService(q.Service):
		return "the key's services are " + listed(key.Services), key.Origin
	case q.Action == anyAction && !service.Passthrough:
		return fmt.Sprintf("the path is none of the declared actions of %s, and the service has no passthrough: true", q.Service), service.Pos.String()
	case q.Action == anyAction && !key.AllowsEvery(q.Service):
		return fmt.Sprintf("what is none of the declared actions wants a key for %s.*, and the key's actions are %s", q.Service, listed(key.Actions)), key.Origin
	case q.Action != anyAction && service.Actions[q.Action] == nil:
		return fmt.Sprintf("the service %s has no action %q", q.Service, q.Action), service.Pos.String()
	case q.Action != anyAction && !key.Allows(q.Service, q.Action):
		return "the key's actions are " + listed(key.Actions), key.Origin
	}
	return "the key's users are " + listed(key.Users), key.Origin
}

// listed names the first of a list, which may be thousands.
func listed(names []string) string {
	const shown = 10
	if len(names) == 0 {
		return "none"
	}
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
