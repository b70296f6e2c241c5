package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/explain"
	"agentgw/internal/identity"
	"agentgw/internal/literal"
	"agentgw/internal/ratelimit"
	"agentgw/internal/registry"
	"agentgw/internal/rules"
	"agentgw/internal/tunnel"
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

// admission is step 5, in the order in which its limits are reported.
func (x Explainer) admission(v *view, key *identity.Key, tenant *ratelimit.Ref, service *registry.Service) []explain.Limit {
	ofTenant, ofService := x.Effective.Tenant(key.Tenant), x.Effective.Service(service.Name)
	if ofService.RPSFrom == "" {
		ofService.RPSFrom = service.Pos.String()
	}
	if ofService.MaxInflightFrom == "" {
		ofService.MaxInflightFrom = service.Pos.String()
	}
	bucket := v.account(key).at(v.services[service.Name], key)
	limits := []explain.Limit{
		x.rate(5, tenant, tenant.Partition(), ofTenant),
		x.rate(5, bucket, v.account(key).key.Partition()+" at "+service.Name, ofService),
	}
	limits[1].Limit, limits[1].Policy = ratelimit.KindService.String(), policy(ratelimit.KindService)

	slots := func(kind ratelimit.Kind, chargedTo string, most int, source string, inFlight func() int64) {
		l := explain.Limit{
			Step: 5, Limit: kind.String(), Policy: policy(kind), ChargedTo: chargedTo, Off: most == 0, MaxInflight: most, Source: source,
		}
		if kind != ratelimit.KindTenantSlots && !l.Off {
			l.Weight, l.WeightSource = x.weight(key.Tenant)
		}
		if x.Levels != nil {
			l.Level = slotsLevel(inFlight(), most)
		}
		limits = append(limits, l)
	}
	slots(ratelimit.KindTenantSlots, tenant.Partition(), ofTenant.MaxInflight, ofTenant.MaxInflightFrom, func() int64 {
		return x.Levels.Look(tenant, x.Nanos.Nanos()).InFlight
	})
	slots(ratelimit.KindServiceSlots, "service:"+service.Name, ofService.MaxInflight, ofService.MaxInflightFrom, func() int64 {
		for _, s := range x.Levels.Stats().Services {
			if s.Name == service.Name {
				return s.InFlight
			}
		}
		return 0 // nobody has called it yet
	})
	slots(ratelimit.KindProcessSlots, "the process", x.Settings.MaxInflight, x.source("AGENTGATE_MAX_INFLIGHT"), func() int64 {
		return x.Levels.Stats().Process.InFlight
	})
	return append(limits, x.queue(tenant))
}

// queue is where calls wait that find no slot.
func (x Explainer) queue(tenant *ratelimit.Ref) explain.Limit {
	const most, wait = "AGENTGATE_TENANT_QUEUE", "AGENTGATE_TENANT_QUEUE_WAIT"
	q := explain.Limit{Step: 5, Limit: "tenant", Policy: "queue", ChargedTo: tenant.Partition(), Source: x.source(most)}
	switch {
	case x.Settings.TenantQueue == 0:
		q.Off = true
	case x.Settings.TenantQueueWait == 0:
		q.Off, q.Source = true, x.source(wait)
	default:
		q.MaxQueued, q.Wait, q.WaitSource = x.Settings.TenantQueue, literal.Span(x.Settings.TenantQueueWait), x.source(wait)
	}
	if x.Levels != nil {
		waiting := x.Levels.Look(tenant, x.Nanos.Nanos()).Waiting
		q.Level = &explain.Level{Queued: &waiting}
	}
	return q
}

// weight is that of a named tenant, or of any other.
func (x Explainer) weight(tenant string) (weight int, source string) {
	if t := x.Registry.Tenants[tenant]; t != nil {
		return t.Weight, t.WeightPos.String()
	}
	return 1, ""
}

// rate is a bucket: that of r, which is nil where the limit is off.
func (x Explainer) rate(step int, r *ratelimit.Ref, chargedTo string, l registry.Limits) explain.Limit {
	e := explain.Limit{
		Step: step, ChargedTo: chargedTo, Off: l.RPS == 0, RPS: l.RPS, Burst: l.Burst, BurstDefaulted: l.BurstDefaulted,
		Source: l.RPSFrom, BurstSource: l.BurstFrom,
	}
	if e.BurstSource == e.Source || e.BurstDefaulted {
		e.BurstSource = ""
	}
	if r != nil {
		e.Limit, e.Policy = r.Kind().String(), policy(r.Kind())
		if x.Levels != nil && !e.Off {
			left := x.Levels.Look(r, x.Nanos.Nanos()).Remaining
			e.Level = &explain.Level{Remaining: &left}
		}
	}
	return e
}

// address is what a refusal of step 1 is charged to.
func (x Explainer) address() explain.Limit {
	n := x.Settings.RateAuthPerMinute
	return explain.Limit{
		Step: 1, Limit: ratelimit.KindAddress.String(), Policy: policy(ratelimit.KindAddress), ChargedTo: "the client's address",
		Off: n == 0, RPS: float64(n) / 60, Burst: n, Source: x.source("AGENTGATE_RATE_AUTH_PER_MINUTE"),
	}
}

// source is where a setting comes from, and its name: of a default too.
func (x Explainer) source(setting string) string {
	source := x.Settings.Source(setting)
	if !strings.Contains(source, " ") {
		source += " " + setting
	}
	return source
}

func slotsLevel(inFlight int64, most int) *explain.Level {
	l := &explain.Level{InFlight: &inFlight}
	if most > 0 {
		left := max(0, int64(most)-inFlight)
		l.Remaining = &left
	}
	return l
}

// ownRate is the limit of the key's own with its place, or nil.
func ownRate(in *registry.Snapshot, key *identity.Key) *registry.Rate {
	for _, k := range in.Keys {
		if k.ID == key.ID && k.Pos.String() == key.Origin {
			return k.Rate
		}
	}
	for i := range in.Issuers {
		for _, g := range in.Issuers[i].Grants() {
			if key.Issuer == in.Issuers[i].Issuer && g.Pos.String() == key.Origin {
				return g.Rate
			}
		}
	}
	if key.Limits == nil {
		return nil
	}
	at := registry.Position{File: key.Origin}
	return &registry.Rate{RPS: key.Limits.RPS, Burst: key.Limits.Burst, Pos: at, BurstPos: at}
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

// whyOutOfScope says of a call that authorize refused what the agent is not told,
// and where to look.
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

// tunnelBytes is what a caller's tunnels may carry.
func (x Explainer) tunnelBytes(l tunnel.Limit, caller string) explain.Limit {
	kind := ratelimit.KindTunnelBytes
	e := explain.Limit{Step: 5, Limit: kind.String(), Policy: policy(kind), ChargedTo: caller, Off: l.Bytes <= 0, Source: x.Registry.Tunnels.Pos.String()}
	if e.Off {
		return e
	}
	e.Bytes, e.Window, e.Source = l.Bytes, literal.Span(l.Window), x.Registry.Tunnels.BytesPos.String()
	if x.Running != nil {
		left := x.Running.budgets.Standing(caller, l, x.Nanos.Nanos()).Left
		e.Level = &explain.Level{Remaining: &left}
	}
	return e
}

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
