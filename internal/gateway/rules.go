package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"

	"agentgw/internal/identity"
	"agentgw/internal/literal"
	"agentgw/internal/ratelimit"
	"agentgw/internal/registry"
	"agentgw/internal/rules"
)

// newWindows makes the limiter's side of each rule.
func newWindows(set *rules.Set) []*ratelimit.Rule {
	list := make([]*ratelimit.Rule, len(set.Rules()))
	for i, r := range set.Rules() {
		list[i] = ratelimit.NewRule(r.Name, r.Of, r.Window, r.Observe).OnStoreFailure(ratelimit.PolicyOf(r.OnStoreFailure))
	}
	return list
}

// uses asks rules what a call means to them.
func (g *Gateway) uses(call *Call, action *registry.Action, tenant string, which asks) []ratelimit.Use {
	list := call.view.rules.Rules()
	if len(list) == 0 {
		return nil
	}
	k, a := call.Key, call.Act
	method, path := call.asked(action)
	c := &rules.Call{
		Caller: call.account.key.Partition(), Tenant: tenant, Service: a.Service, Action: a.Action, ClientIP: limitedAs(call.Address),
		Org: k.Org, Space: k.Space, User: k.User, Principal: a.Principal,
		ID: call.RequestID, Method: method, Path: path, Bytes: a.size, Params: a.Params,
	}
	uses := make([]ratelimit.Use, 0, len(list))
	for i, r := range list {
		if !which.about(r) {
			continue
		}
		charge, applies := r.Charge(c)
		for _, fault := range charge.Faults {
			if r.FaultDue(g.clock.Now()) {
				g.log.Warn("an expression of a rule has no result for a call, which is limited all the same", "rule", r.Name, "member", fault.Part, "reason", fault.Why, "request", call.RequestID)
			}
		}
		if applies {
			uses = append(uses, ratelimit.Use{Rule: call.view.windows[i], Partition: charge.Partition, Count: charge.Count, Max: charge.Max})
		}
	}
	return uses
}

// asked is what a call is for: the method and the path of its action, or, where it has
// none, those of the request.
func (call *Call) asked(action *registry.Action) (method, path string) {
	switch {
	case call.tunnel != nil:
		return call.In.Method, ""
	case action == nil:
		return call.In.Method, call.proxied.path
	}
	return action.Method, action.Path()
}

// limitedAs is what an address is to a rule. One that is not known is not nothing,
// which would be to no rule's account.
func limitedAs(a netip.Addr) string {
	p := identity.LimitPrefix(a)
	switch {
	case !p.IsValid():
		return "unknown"
	case p.IsSingleIP():
		return p.Addr().String()
	}
	return p.String()
}

// showObserved tells operators of the rules that would have refused a call that
// was admitted, had they not been there to observe.
func (g *Gateway) showObserved(call *Call) {
	for i := range call.uses {
		u := &call.uses[i]
		if !u.Refused() {
			continue
		}
		g.observed(u.Rule.Name())
		for _, r := range call.view.rules.Rules() {
			if r.Name == u.Rule.Name() && r.ObservedDue(g.clock.Now()) {
				reading := u.Reading()
				g.log.LogAttrs(context.WithoutCancel(call.In.Context()), slog.LevelInfo, "a rule that observes would have refused a call",
					slog.String("rule", r.Name), slog.Int64("max", reading.Quota), slog.String("window", literal.Span(r.Window)),
					slog.String("key", call.Key.ID), slog.String("request", call.RequestID))
			}
		}
	}
}

// flowing are those of uses that count the bytes of the answer too. A rule that
// would have refused the call, had it not been there to observe, counts nothing of
// it: it would not have flowed.
func (call *Call) flowing() (list []*ratelimit.Use) {
	add := func(uses []ratelimit.Use) {
		for i := range uses {
			for _, r := range call.view.rules.Rules() {
				if r.Bytes() && r.Name == uses[i].Rule.Name() && !uses[i].Refused() {
					list = append(list, &uses[i])
				}
			}
		}
	}
	add(call.uses)
	if call.part != nil {
		add(call.part.shared)
	}
	return list
}

// counting is what counts the bytes of a call that flow, for the rules that do; nil
// where there are none, or they are not to count.
func (g *Gateway) counting(call *Call, count bool) func(n int64) {
	flowing := call.flowing()
	if len(flowing) == 0 || !count {
		return nil
	}
	return func(n int64) {
		for _, u := range flowing {
			g.limiter.Count(u, n, g.nanos.Nanos())
		}
	}
}

// refusing names the rules that refused a call.
func refusing(uses []ratelimit.Use) (names []string) {
	for i := range uses {
		if uses[i].Refused() && !uses[i].Rule.Observes() {
			names = append(names, uses[i].Rule.Name())
		}
	}
	return names
}

// deciding is the level of the rule that decided.
func deciding(uses []ratelimit.Use, rule string) ratelimit.Reading {
	for i := range uses {
		if uses[i].Rule.Name() == rule {
			return uses[i].Reading()
		}
	}
	return ratelimit.Reading{}
}

// ruleRefusal puts the refusal of the rule that decided into words.
func ruleRefusal(call *Call, v ratelimit.Verdict) string {
	var u ratelimit.Use
	for i := range call.uses {
		if call.uses[i].Rule.Name() == v.Rule {
			u = call.uses[i]
		}
	}
	of, name := "", "the rule "+v.Rule
	for _, r := range call.view.rules.Rules() {
		if r.Name == v.Rule {
			of = r.Of
			if r.Identity {
				name = "the identity limit " + v.Rule
			}
		}
	}
	most, window := counted(u.Reading().Quota, of), literal.Span(u.Rule.Window())
	switch {
	case u.Max < 0:
		return name + " cannot tell how much it allows this call, from what was sent with it"
	case u.Max == 0:
		return name + " allows this call nothing"
	case v.Never:
		return fmt.Sprintf("%s allows %s in each %s, and this call alone is more: however long you wait, it will be refused", name, most, window)
	}
	return fmt.Sprintf("%s allows %s in each %s, and they are used up; %s", name, most, window, whatToDo(v, u.Reading().Next))
}

// counted is an amount of what a rule counts.
func counted(n int64, of string) string {
	switch of {
	case registry.CountRequests:
		return plural(n, "call")
	case registry.CountBytes:
		return plural(n, "byte")
	}
	return fmt.Sprintf("%d of what it counts", n)
}

func plural(n int64, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}
