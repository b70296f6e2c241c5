package gateway

import (
	"errors"
	"maps"
	"net/http"
	"slices"

	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
)

// Tenants are all that a call can be charged to now, and those that the registry
// names, by partition key, under the limits in force. The map must not be changed.
func (g *Gateway) Tenants() map[string]*ratelimit.Ref { return g.current.Load().tenants }

// NamedTenants are those that the registry names, by partition key. The map must
// not be changed.
func (g *Gateway) NamedTenants() map[string]*ratelimit.Ref { return g.current.Load().named }

// KeyAccount is a key, and what its calls are charged to besides their tenant.
type KeyAccount struct {
	ID       string
	Key      *ratelimit.Ref
	Services []ServiceAccount // that the key may call and that have a rate, by name
}

// ServiceAccount is the bucket of one key at one service.
type ServiceAccount struct {
	Name   string
	Bucket *ratelimit.Ref
}

// KeysOf are the keys, by id, that have calls charged to a tenant, named by its
// partition key.
func (g *Gateway) KeysOf(tenant string) (list []KeyAccount) {
	v := g.current.Load()
	services := slices.Sorted(maps.Keys(v.services))
	for _, k := range v.keys.Keys() {
		a := v.account(k)
		if !a.chargedTo(tenant, k) {
			continue
		}
		held := KeyAccount{ID: k.ID, Key: a.key}
		for _, name := range services {
			if bucket := a.at(v.services[name], k); bucket != nil && k.AllowsService(name) {
				held.Services = append(held.Services, ServiceAccount{name, bucket})
			}
		}
		list = append(list, held)
	}
	return list
}

// chargedTo reports whether some call of k, whose account this is, is charged to
// that tenant. A key all of whose people have a tenant of their own charges
// nothing to its overflow.
func (a *account) chargedTo(tenant string, k *identity.Key) bool {
	if a.tenant.Partition() == tenant {
		return slices.ContainsFunc(k.Users, func(user string) bool { return a.principals[user] == nil })
	}
	for _, t := range a.principals {
		if t.Partition() == tenant {
			return true
		}
	}
	return false
}

// noteRefusal tells the limiter, for operators, that step 5 refused a call: what
// they are shown is what the agent is told. One that hung up while it waited was
// told nothing.
func (g *Gateway) noteRefusal(call *Call, e *Error) {
	if errors.Is(e, http.ErrAbortHandler) {
		return
	}
	tenant := call.account.of(call.Act.Principal)
	if tenant == nil {
		return
	}
	g.limiter.Refused(tenant, string(e.Code), e.Limit, g.nanos.Nanos())
}
