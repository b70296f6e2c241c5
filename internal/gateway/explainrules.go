package gateway

import (
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"agentgw/internal/explain"
	"agentgw/internal/identity"
	"agentgw/internal/literal"
	"agentgw/internal/registry"
	"agentgw/internal/rules"
)

// rules are those of the registry: what each means to a call of key, as far as
// that can be told of one that was not made.
func (x Explainer) rules(v *view, key *identity.Key, tenant string, q explain.Question, action *registry.Action) (list []explain.Rule) {
	call := &rules.Call{
		Caller: v.account(key).key.Partition(), Tenant: tenant, Service: q.Service, Action: q.Action,
		Org: key.Org, Space: key.Space, User: key.User, Principal: q.User,
	}
	switch {
	case action != nil:
		call.Method, call.Path = action.Method, action.Path()
	case q.Service == registry.TunnelService && x.Registry.Tunnels != nil:
		call.Method = http.MethodConnect
	} // else it is by /proxy, and none of the declared ones
	if addr, err := netip.ParseAddr(q.ClientIP); err == nil {
		call.ClientIP = limitedAs(addr)
	}
	compiled := map[string]int{}
	for i, r := range v.rules.Rules() {
		compiled[r.Name] = i
		if r.Identity {
			e := explain.Rule{
				Step: 5, Name: r.Name, Key: r.Name, Window: literal.Span(r.Window), Max: strconv.FormatInt(r.Most(), 10), Count: r.Of,
				Mode: registry.ModeEnforce, OnStoreFailure: r.OnStoreFailure, Source: r.Pos.String(),
			}
			list = append(list, x.applied(e, v, i, call))
		}
	}
	for _, r := range x.Registry.Rules {
		e := explain.Rule{
			Step: 5, Name: r.Name, Key: r.Key, Window: literal.Span(r.Window), Max: r.Max, Count: r.Count, When: r.When, Cost: r.Cost,
			Mode: r.Mode, OnStoreFailure: r.OnStoreFailure, Source: r.Pos.String(), Applies: "no: a max of 0 switches it off",
		}
		if e.Max == "" {
			e.Max = strconv.FormatInt(r.Most, 10)
		}
		if i, on := compiled[r.Name]; on {
			e = x.applied(e, v, i, call)
		}
		list = append(list, e)
	}
	return list
}

// applied completes e, of the i-th rule that is on.
func (x Explainer) applied(e explain.Rule, v *view, i int, call *rules.Call) explain.Rule {
	r := v.rules.Rules()[i]
	if unknown := undecided(r, call); len(unknown) > 0 {
		e.Applies = "depends on " + strings.Join(unknown, ", ")
		return e
	}
	charge, applies := r.Charge(call)
	switch {
	case applies:
	case r.Identity:
		e.Applies = "no: the key has no " + r.Name
		return e
	case e.When == "":
		e.Applies = "no: its key is null or empty"
		return e
	default:
		e.Applies = "no: its when does not hold, or its key is null or empty"
		return e
	}
	e.Applies = "yes, as " + rules.Shown(charge.Partition)
	if x.Levels != nil {
		used, left := x.Levels.Counted(v.windows[i], charge.Partition, x.Nanos.Nanos())
		e.Level = &explain.RuleLevel{Counted: used, Max: max(0, charge.Max), EndsMS: left.Milliseconds()}
	}
	return e
}

// undecided are the variables that r looks at and that only a call has.
func undecided(r *rules.Rule, call *rules.Call) []string {
	return slices.DeleteFunc(slices.Clone(r.Sees()), func(name string) bool {
		switch name {
		case "client_ip":
			return call.ClientIP != ""
		case "request.method", "request.path":
			return call.Method != ""
		case "request.id", "request.bytes", "request.params":
			return false
		case "principal_or_ip":
			return call.Principal != "" || call.ClientIP != ""
		}
		return true
	})
}
