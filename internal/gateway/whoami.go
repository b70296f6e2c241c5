package gateway

import (
	"maps"
	"slices"

	"agentgw/internal/ratelimit"
	"agentgw/internal/rules"
)

// level is one limit of a key and what is left of it. A limit that is off has none.
type level struct {
	Limit       string `json:"limit"`                  // as RateLimit-Policy names it
	OnBehalfOf  string `json:"on_behalf_of,omitempty"` // of a person's tenant
	Service     string `json:"service,omitempty"`      // of the key's bucket at a service
	Burst       int64  `json:"burst,omitempty"`
	Max         int64  `json:"max,omitempty"`          // of an identity limit
	Window      string `json:"window,omitempty"`       // likewise
	MaxInflight int64  `json:"max_inflight,omitempty"` // of slots
	Remaining   int64  `json:"remaining"`
}

// whoami tells a key what it is and what is left of its limits. Looking takes no
// token but the one that the request itself has cost.
func (g *Gateway) whoami(call *Call) map[string]any {
	k := call.Key
	me := map[string]any{
		"id": k.ID, "services": k.Services, "actions": k.Actions, "users": k.Users, "tenant": k.Tenant,
		"limits": append(g.levels(call), g.identityLevels(call)...),
	}
	for name, owner := range map[string]string{"user": k.User, "space": k.Space, "org": k.Org} {
		if owner != "" {
			me[name] = owner
		}
	}
	return me
}

// identityLevels reads the limits that the key shares with its owners' others. What
// other rules mean to a call, only the call shows.
func (g *Gateway) identityLevels(call *Call) (list []level) {
	k, now := call.Key, g.nanos.Nanos()
	for i, r := range call.view.rules.Rules() {
		charge, applies := rules.Charge{}, false
		if r.Identity {
			charge, applies = r.Charge(&rules.Call{User: k.User, Space: k.Space, Org: k.Org})
		}
		if applies {
			used, _ := g.limiter.Counted(call.view.windows[i], charge.Partition, now)
			list = append(list, level{Limit: r.Name, Max: charge.Max, Window: r.Window.String(), Remaining: max(0, charge.Max-used)})
		}
	}
	return list
}

// levels reads the limits of the caller's key: its own, those of the tenants that
// its calls are charged to, and those of the services in its scope.
func (g *Gateway) levels(call *Call) []level {
	var list []level
	now := g.nanos.Nanos()
	add := func(r *ratelimit.Ref, of level) {
		bucket, slots := g.limiter.Peek(r, now)
		if bucket.Quota > 0 {
			of.Limit, of.Burst, of.Remaining = policy(bucket.Kind), bucket.Quota, bucket.Remaining
			list = append(list, of)
		}
		if slots.Quota > 0 {
			of.Limit, of.Burst, of.MaxInflight, of.Remaining = policy(slots.Kind), 0, slots.Quota, slots.Remaining
			list = append(list, of)
		}
	}
	a := call.account
	add(a.key, level{})
	for _, user := range slices.Sorted(maps.Keys(a.principals)) {
		add(a.principals[user], level{OnBehalfOf: user})
	}
	if slices.ContainsFunc(call.Key.Users, func(user string) bool { return a.principals[user] == nil }) {
		add(a.tenant, level{})
	}
	for _, name := range slices.Sorted(maps.Keys(call.view.services)) {
		if bucket := a.at(call.view.services[name], call.Key); bucket != nil && call.Key.AllowsService(name) {
			add(bucket, level{Service: name})
		}
	}
	return list
}
