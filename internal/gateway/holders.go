package gateway

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
)

// caller is who calls, by a key or by a token of an issuer: by one of the two, as
// whoever sends both might have meant the other. A token that is not valid is not
// looked at beside a valid key, and why it is not is for the log alone.
func (g *Gateway) caller(call *Call, now time.Time) (*identity.Secret, error) {
	key, err := call.view.keys.Authenticate(call.credentials(), now)
	if open := call.open(); open != "" {
		if key == nil && errors.Is(err, identity.ErrUnauthenticated) {
			return g.openCaller(call, open, now)
		}
		return key, err // whatever else comes is for the service
	}
	if call.view.tokens == nil || err != nil && !errors.Is(err, identity.ErrUnauthenticated) {
		return key, err
	}
	text, ok := identity.Token(call.credentials())
	if !ok {
		return key, err
	}
	holder, why := call.view.tokens.Authenticate(call.In.Context(), text, now)
	switch {
	case why == nil && key != nil:
		return nil, identity.ErrKeyAndToken
	case why == nil:
		return holder, nil
	case key == nil:
		g.log.LogAttrs(call.In.Context(), slog.LevelDebug, "a token was refused", slog.String("request", call.RequestID), slog.Any("error", why))
	}
	return key, err
}

// holders is what holders of tokens are charged to: each has a bucket of his own,
// and a tenant, and both are in a table of their own, since anybody whom an issuer
// knows can come. Nothing is kept here of any of them.
type holders struct {
	key    ratelimit.Limit
	owns   map[identity.Limits]ratelimit.Limit // of those whose grant has limits
	tenant ratelimit.Limit
	slots  int64
}

func (h *holders) own(says identity.Limits, limit ratelimit.Limit) {
	if h.owns == nil {
		h.owns = map[identity.Limits]ratelimit.Limit{}
	}
	h.owns[says] = limit
}

// accountOfHolder is made for each call: the state is the limiter's, which finds it
// by name.
func (v *view) accountOfHolder(k *identity.Key) *account {
	limit := v.holders.key
	if k.Limits != nil {
		limit = v.holders.owns[*k.Limits]
	}
	tenant := k.TenantOf("", 0).String()
	a := &account{
		key:     ratelimit.NewRef(ratelimit.Callers, ratelimit.KindKey, k.ID, limit),
		tenant:  v.named[tenant],
		table:   ratelimit.Callers,
		buckets: make([]atomic.Pointer[ratelimit.Ref], v.rates),
	}
	if a.tenant == nil {
		a.tenant = v.tenantOfHolders(tenant)
	}
	return a
}

func (v *view) tenantOfHolders(partition string) *ratelimit.Ref {
	return ratelimit.NewTenant(ratelimit.Callers, partition, v.holders.tenant, v.holders.slots)
}

// isHolder reports whether a tenant, by its partition key, is of holders of tokens.
func isHolder(partition string) bool { return strings.HasPrefix(partition, identity.KindOIDC+":") }

// TableOf is the limiter's table that a tenant is in, by its partition key.
func TableOf(tenant string) ratelimit.Table {
	if isHolder(tenant) {
		return ratelimit.Callers
	}
	return ratelimit.Registered
}
