package gateway

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
	"agentgw/internal/registry"
)

// identify is step 1. Failures are counted per client address, and an address
// past its budget is told so; a key that is good is never refused for what
// others did from the same address.
func (g *Gateway) identify(call *Call, at *attempt) *Error {
	key, err := call.view.keys.Authenticate(call.In.Header, g.clock.Now())
	if err == nil {
		call.Key = key
		at.record.Caller, at.record.Key = "key:"+key.ID, key.ID
		at.record.Tenant = g.tenant(call).String() // until it is known for whom
		return nil
	}
	if ambiguous(err) {
		return refuse(BadRequest, "%v", err)
	}
	address := addressKey(call.Address)
	if _, v := g.limiter.Take(ratelimit.Addresses, ratelimit.KindAddress, address, g.authLimit, g.nanos.Nanos()); v.Outcome != ratelimit.Admitted {
		e := g.refusal(call, v)
		e.Message = "too many failed authentications from this address; wait, and send a valid key"
		return e
	}
	return refuse(Unauthenticated, "send a valid gateway key, as Authorization: Bearer agw_...")
}

// chargeKey is step 2.
func (g *Gateway) chargeKey(call *Call, out *answer) (ratelimit.Charge, *Error) {
	limit := call.view.keyLimit(call.Key)
	charge, v := g.limiter.Take(ratelimit.Registered, ratelimit.KindKey, "key:"+call.Key.ID, limit, g.nanos.Nanos())
	tell(out, v)
	if v.Outcome != ratelimit.Admitted {
		return charge, g.refusal(call, v)
	}
	return charge, nil
}

// admit is step 5: tenant bucket, service bucket and slot, all or none.
func (g *Gateway) admit(call *Call, service *registry.Service, charge ratelimit.Charge, out *answer, at *attempt) (ratelimit.Ticket, *Error) {
	tenant := g.tenant(call)
	at.record.Tenant = tenant.String()
	limits := call.view.tenantLimits(tenant)
	ticket, v := g.limiter.Admit(ratelimit.Admission{
		Charge: charge, Table: ratelimit.Registered,
		Tenant: tenant.String(), TenantLimit: limits.bucket, TenantSlots: limits.slots,
		Service: service.Name, ServiceBucket: ratelimit.ServiceBucket(call.Key.ID, service.Name),
		ServiceLimit: call.view.serviceLimit(service.Name), ServiceSlots: int64(service.MaxInflight),
	}, g.nanos.Nanos())
	tell(out, v)
	if v.Outcome != ratelimit.Admitted {
		return ticket, g.refusal(call, v)
	}
	return ticket, nil
}

// tenant is whom the call is charged to.
func (g *Gateway) tenant(call *Call) identity.Tenant {
	return call.Key.TenantOf(call.Act.Principal, g.settings.KeyMaxPrincipals)
}

// refusal puts a verdict into words.
func (g *Gateway) refusal(call *Call, v ratelimit.Verdict) *Error {
	e := &Error{Code: RateLimited, Limit: v.Limit.String(), Wait: v.Wait, Never: v.Never}
	for kind := range v.Violated() {
		e.Violated = append(e.Violated, kind.String())
	}
	var reading ratelimit.Reading
	for r := range v.Readings() {
		if r.Kind == v.Limit {
			reading = r
		}
	}
	switch v.Outcome {
	case ratelimit.ConcurrencyLimited:
		e.Code = ConcurrencyLimited
		e.Message = fmt.Sprintf("all %d in-flight places of this %s are taken; nothing was charged; call again when a call or stream has ended", reading.Quota, e.Limit)
	case ratelimit.Blocked:
		return refuse(TenantBlocked, "the operator has blocked this tenant")
	default:
		e.Message = fmt.Sprintf("the %s limit is %d calls at once, refilled over %s; wait %s and call again", e.Limit, reading.Quota, reading.Window, v.Wait.Round(time.Millisecond))
	}
	return e
}

// jitter returns up to a fifth of wait, and at most 250 ms of a short one.
func jitter(wait time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(max(250*time.Millisecond, wait/5)) + 1))
}

// tell sets the RateLimit fields (draft-ietf-httpapi-ratelimit-headers) from
// the decision itself, never from a second look. A later step adds its limits
// to those that an earlier one reached.
func tell(out *answer, v ratelimit.Verdict) {
	var policy, state strings.Builder
	whole := false // a refusal at admission reads the key again, after the refund
	for r := range v.Readings() {
		name := r.Kind.String()
		whole = whole || r.Kind == ratelimit.KindKey
		if r.Gauge {
			if name == "tenant" {
				name = "inflight"
			} else {
				name += "-inflight"
			}
		}
		if policy.Len() > 0 {
			policy.WriteString(", ")
			state.WriteString(", ")
		}
		if r.Gauge {
			fmt.Fprintf(&policy, `"%s";q=%d;qu="concurrent-requests"`, name, r.Quota)
			fmt.Fprintf(&state, `"%s";r=%d`, name, r.Remaining)
			continue
		}
		fmt.Fprintf(&policy, `"%s";q=%d;w=%d`, name, r.Quota, max(1, seconds(r.Window)))
		fmt.Fprintf(&state, `"%s";r=%d`, name, r.Remaining)
		if r.Next > 0 {
			fmt.Fprintf(&state, `;t=%d`, seconds(r.Next))
		}
	}
	if policy.Len() == 0 {
		return
	}
	if whole {
		out.Header().Del("RateLimit-Policy")
		out.Header().Del("RateLimit")
	}
	join(out.Header(), "RateLimit-Policy", policy.String())
	join(out.Header(), "RateLimit", state.String())
}

func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// join appends to a list field in one line.
func join(h http.Header, name, value string) {
	if before := h.Get(name); before != "" {
		value = before + ", " + value
	}
	h.Set(name, value)
}
