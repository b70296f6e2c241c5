package gateway

import (
	"sync/atomic"

	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
)

// account is what the calls of one key are charged to, or of one caller of an open
// service.
type account struct {
	key    *ratelimit.Ref
	caller *ratelimit.Ref // of an open service; nil for all others, and where the limit is off
	// principals have a tenant of their own, and all other calls are charged to
	// tenant; see identity.Key.TenantOf for who is who.
	principals map[string]*ratelimit.Ref
	tenant     *ratelimit.Ref // nil for callers of open services
	table      ratelimit.Table
	// buckets are the key's at each service that has a rate, by the service's
	// number; made when they are first used, as most never are.
	buckets []atomic.Pointer[ratelimit.Ref]
}

// account is what the calls of k are charged to.
func (v *view) account(k *identity.Key) *account {
	if k.Open != "" {
		return v.accountOfOpenCaller(k)
	}
	if k.Issuer != "" {
		return v.accountOfHolder(k)
	}
	return &v.accounts[k.Number()]
}

// tenant is a tenant's namesake under the cap that it has in v; nil where it has none.
func (v *view) tenant(r *ratelimit.Ref) *ratelimit.Ref {
	if isHolder(r.Partition()) {
		return v.tenantOfHolders(r.Partition())
	}
	return v.tenants[r.Partition()]
}

// pays is the name of whom a call on behalf of principal is charged to; "" for nobody.
func (a *account) pays(principal string) string {
	if t := a.of(principal); t != nil {
		return t.Partition()
	}
	return ""
}

// of is the tenant that a call on behalf of principal is charged to, or nil.
func (a *account) of(principal string) *ratelimit.Ref {
	if t := a.principals[principal]; t != nil {
		return t
	}
	return a.tenant
}

// at is the bucket of key, whose account this is, at s; nil where s has no rate.
func (a *account) at(s *service, key *identity.Key) *ratelimit.Ref {
	if s.limit.Unlimited() {
		return nil
	}
	place := &a.buckets[s.number]
	r := place.Load()
	if r == nil {
		// Two calls may make two: they are of one bucket.
		r = ratelimit.NewRef(a.table, ratelimit.KindService, ratelimit.ServiceBucket(key.ID, s.name), s.limit.Limit).From(s.limit.since)
		place.Store(r)
	}
	return r
}
