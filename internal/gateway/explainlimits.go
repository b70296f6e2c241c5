package gateway

import (
	"strings"

	"agentgw/internal/explain"
	"agentgw/internal/identity"
	"agentgw/internal/literal"
	"agentgw/internal/ratelimit"
	"agentgw/internal/registry"
	"agentgw/internal/tunnel"
)

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
