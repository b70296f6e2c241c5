package main

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"agentgw/internal/admin"
	"agentgw/internal/explain"
	"agentgw/internal/gateway"
	"agentgw/internal/ratelimit"
)

// operations are what operators may see and do, for package admin.
type operations struct{ *server }

func (o operations) Ready() error { return o.ready() }

func (o operations) Config() admin.Config { return o.live.config() }

func (o operations) Reload() error {
	if o.live.read == nil {
		return errors.New("this gateway was not started from a file")
	}
	return o.live.reload(o.background, true)
}

func (o operations) Explain(ctx context.Context, q explain.Question) (explain.Answer, error) {
	stored, err := o.store.Keys(ctx)
	if err != nil {
		return explain.Answer{}, err
	}
	return o.live.rules().explain(q, stored, o.clock.Now(), gateway.Explainer{Levels: o.limiter, Nanos: o.nanos})
}

func (o operations) Tenants() []admin.Tenant {
	var list []admin.Tenant
	o.limiter.Each(ratelimit.Registered, ratelimit.KindTenant, o.nanos.Nanos(), func(e ratelimit.Entry) bool {
		t := admin.Tenant{ID: e.Partition, InFlight: e.InFlight, Cap: e.Cap, Blocked: e.Blocked, Overflow: e.Overflow}
		if !e.Limit.Unlimited() {
			t.RPS, t.Burst, t.Remaining = perSecond(e.Limit), e.Limit.Burst, e.Remaining
		}
		list = append(list, t)
		return true
	})
	for _, id := range o.limiter.BlockedTenants(ratelimit.Registered) {
		if !slices.ContainsFunc(list, func(t admin.Tenant) bool { return t.ID == id }) {
			list = append(list, admin.Tenant{ID: id, Blocked: true})
		}
	}
	slices.SortStableFunc(list, func(a, b admin.Tenant) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// perSecond is a limit's rate, to a thousandth: what was asked for was rounded
// to whole nanoseconds a token.
func perSecond(l ratelimit.Limit) float64 { return math.Round(1e12/float64(l.Interval)) / 1e3 }

// Block has the limiter refuse first, so that no call can be admitted after the
// running ones were ended.
func (o operations) Block(tenant string) int {
	o.limiter.Block(ratelimit.Registered, tenant)
	ended := o.gateway.Block(tenant)
	o.log.Warn("an operator blocked a tenant", "tenant", tenant, "calls_ended", ended)
	return ended
}

func (o operations) Unblock(tenant string) {
	o.gateway.Unblock(tenant)
	o.limiter.Unblock(ratelimit.Registered, tenant)
	o.log.Warn("an operator unblocked a tenant", "tenant", tenant)
}
