package gateway

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"agentgw/internal/identity"
	"agentgw/internal/literal"
	"agentgw/internal/ratelimit"
	"agentgw/internal/registry"
)

// identify is step 1. Failures are counted per client address, and an address
// past its budget is told so; a key that is good is never refused for what
// others did from the same address.
func (g *Gateway) identify(call *Call, at *attempt) *Error {
	if call.part != nil { // who sent its batch
		at.known(call)
		return nil
	}
	now := g.clock.Now()
	secret, err := g.caller(call, now)
	if err == nil {
		key := secret.Key
		secret.Came(now)
		call.Key, call.secret = key, secret
		call.account = call.view.account(key)
		at.known(call)
		return nil
	}
	if errors.Is(err, identity.ErrTwoHeaders) && call.tunnel != nil {
		return refuse(BadRequest, "more than one Proxy-Authorization header")
	}
	if ambiguous(err) {
		return refuse(BadRequest, "%v", err)
	}
	if charge := g.limiter.Take(g.addressOf(call), g.nanos.Nanos()); charge.Refused() {
		e := g.refusal(call, charge.Verdict())
		e.Message = fmt.Sprintf("more than %d failed authentications a minute from this address; wait, or send a valid key, which is never refused for them", call.view.settings.RateAuthPerMinute)
		return e
	}
	return call.unauthenticated()
}

// identifyAgain is step 1 for a call that may have been kept waiting since: its key
// must be one of those in force now, and in its time. All else about the call stays
// as it was when the call came.
func (g *Gateway) identifyAgain(call *Call) *Error {
	if g.current.Load().secret(call, g.clock.Now()) == nil {
		return call.unauthenticated()
	}
	return nil
}

// What agents are told whatever was wrong with their key, and whoever is blocked.
const (
	unauthenticated = "send a valid gateway key, as Authorization: Bearer agw_..."
	tenantBlocked   = "the operator has blocked this tenant"
)

// chargeKey is step 2. Where the limiter puts it off, it is decided with step 5, and of a
// call that does not come that far by settle.
func (g *Gateway) chargeKey(call *Call, out *answer) (ratelimit.Charge, *Error) {
	switch {
	case call.part != nil: // its batch was charged
		return ratelimit.Charge{}, nil
	case call.batch != nil: // which has no step 5
		return g.charged(call, out, g.limiter.Take(call.account.key, g.nanos.Nanos()))
	}
	return g.charged(call, out, g.limiter.Defer(call.account.key, g.nanos.Nanos()))
}

// settle ends a call that goes no further than to some step before 5, with the refusal
// of that step if there is one. If the key has no token, that is the refusal, as it is
// the earlier one.
func (g *Gateway) settle(call *Call, charge ratelimit.Charge, out *answer, refusal *Error) *Error {
	if !charge.Deferred() {
		return refusal
	}
	if _, err := g.charged(call, out, g.limiter.Settle(charge, g.nanos.Nanos())); err != nil {
		return err
	}
	return refusal
}

func (g *Gateway) charged(call *Call, out *answer, charge ratelimit.Charge) (ratelimit.Charge, *Error) {
	tell(out, charge.Verdict(), nil)
	if charge.Refused() {
		return charge, g.refusal(call, charge.Verdict())
	}
	return charge, nil
}

// admit is step 5: tenant bucket, service bucket, rules and slot, all or none. Slots
// may be waited for.
func (g *Gateway) admit(call *Call, service *registry.Service, action *registry.Action, charge ratelimit.Charge, out *answer, at *attempt) (ratelimit.Ticket, *Error) {
	tenant := call.account.pays(call.Act.Principal)
	at.record.Tenant = tenant
	limits := call.view.services[service.Name]
	call.uses = g.uses(call, action, tenant, call.asks())
	call.nested = g.isNested(call, tenant)
	call.foreign = g.elsewhere && call.bringsID()
	needs, budget := call.admission(limits), g.budget(call)
	needs.TunnelBytes = budget.Exhausted()
	ticket, place, v, err := g.enter(call, charge, needs, at)
	if err != nil {
		return ticket, err
	}
	if v.Outcome == ratelimit.Queued {
		if ticket, v, err = g.wait(call, place, v, at); err != nil {
			return ticket, err
		}
		if v.Outcome == ratelimit.Queued { // its bytes were used up meanwhile, for which it is refused at once now
			if charge, err = g.chargeKey(call, out); err != nil {
				return ticket, err
			}
			return g.admit(call, service, action, charge, out, at)
		}
	}
	if call.Key.Open == "" { // RateLimit fields are for who has a key
		tell(out, v, call.uses)
	}
	tellBudget(out, call, budget)
	if v.Outcome != ratelimit.Admitted {
		return ticket, g.refusal(call, v)
	}
	g.showObserved(call)
	return ticket, nil
}

// admission is what the call is charged in step 5, at the service with these limits: of
// who has a key its tenant, of a caller of an open service himself.
func (call *Call) admission(limits *service) ratelimit.Admission {
	return ratelimit.Admission{
		Tenant: call.account.of(call.Act.Principal), Caller: call.account.caller, Bucket: call.account.at(limits, call.Key), Service: limits.slots,
		Process: int64(call.view.settings.MaxInflight), Under: call.view.caps, Uses: call.uses,
	}
}

// refusal puts a verdict into words.
func (g *Gateway) refusal(call *Call, v ratelimit.Verdict) *Error {
	e := &Error{Code: RateLimited, Limit: v.Limit.String(), Wait: v.Wait, Never: v.Never}
	starved := false // of a slot
	for kind := range v.Violated() {
		if kind == ratelimit.KindRule {
			e.Violated = append(e.Violated, refusing(call.uses)...)
			continue
		}
		e.Violated = append(e.Violated, policy(kind))
		starved = starved || kind.Gauge()
	}
	var reading ratelimit.Reading
	for r := range v.Readings() {
		if r.Kind == v.Limit {
			reading = r
		}
	}
	if v.Limit == ratelimit.KindRule {
		reading = deciding(call.uses, v.Rule)
	}
	e.Quota, e.Full = reading.Quota, fullIn(reading)
	switch {
	case v.Outcome == ratelimit.ConcurrencyLimited:
		e.Code = ConcurrencyLimited
		e.Wait = min(e.Wait, 8*time.Second) // an estimate: with its jitter, at most 10 s
		e.Message = fmt.Sprintf("all %d in-flight places of this %s are taken", reading.Quota, e.Limit)
		if reading.Quota == 1 {
			e.Message = fmt.Sprintf("the one in-flight place of this %s is taken", e.Limit)
		}
		if call.nested {
			return nestedRefusal(e)
		}
		e.Message += call.waitInWords() + "; nothing was charged; call again when a call or stream has ended"
	case v.Outcome == ratelimit.Unavailable:
		e = &Error{Code: LimitsUnavailable, Message: "the limits that replicas share cannot be asked now, and nothing is called without them; call again", Wait: time.Second}
	case v.Outcome == ratelimit.Blocked:
		e = refuse(TenantBlocked, tenantBlocked)
		e.Never = v.Never
	case v.Limit == ratelimit.KindRule:
		e.Limit, e.Message = v.Rule, ruleRefusal(call, v)
	case v.Limit == ratelimit.KindTunnelBytes:
		e.Quota, e.Full, e.Message = call.tunnel.limit.Bytes, v.Wait, budgetRefusal(call, v)
	case v.Limit == ratelimit.KindKey && starved:
		e.Message = fmt.Sprintf("this key was refused for want of an in-flight place more often than ten times its limit, a burst of %s refilled over %s; from here on it pays for each such refusal: wait %s, and call again when a call or stream has ended", plural(reading.Quota, "call"), literal.Span(reading.Window), inWords(v.Wait))
	case v.Limit == ratelimit.KindCaller:
		e.Message = fmt.Sprintf("%s may make a burst of %s, refilled over %s; %s", call.whoMay(), plural(reading.Quota, "call"), literal.Span(reading.Window), whatToDo(v, reading.Next))
	default:
		e.Message = fmt.Sprintf("the %s limit is a burst of %s, refilled over %s; %s", e.Limit, plural(reading.Quota, "call"), literal.Span(reading.Window), whatToDo(v, reading.Next))
	}
	return e
}

// whatToDo tells a refused agent how long to wait, and whose wait that is where it is
// not that of the limit that decided: a call that was refused there has spent the
// key's token, and needs another when it comes back.
func whatToDo(v ratelimit.Verdict, own time.Duration) string {
	wait := fmt.Sprintf("wait %s and call again", inWords(v.Wait))
	for r := range v.Readings() {
		if r.Kind == ratelimit.KindKey && v.Limit != ratelimit.KindKey && r.Remaining == 0 && r.Next >= v.Wait && own < v.Wait {
			return fmt.Sprintf("it has room in %s, but this key has no token until later (its limit is a burst of %s, refilled over %s): %s", inWords(own), plural(r.Quota, "call"), literal.Span(r.Window), wait)
		}
	}
	return wait
}

// inWords is a wait to the millisecond, not cut: who waits that long is admitted.
func inWords(wait time.Duration) time.Duration {
	return (wait + time.Millisecond - 1).Truncate(time.Millisecond)
}

// jitter returns how much longer than wait a refused agent is told to stay away.
func jitter(wait time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(room(wait)) + 1))
}

// room is the most that an agent is told to wait longer than its true wait: a
// fifth of that, or 750 ms where that is more, over which a crowd that was refused
// spreads when it comes back. It never passes a minute that the wait itself does
// not: SDKs take no hint beyond that (see writeError). The millisecond is what
// rounding up may add.
func room(wait time.Duration) time.Duration {
	most := max(750*time.Millisecond, wait/5) - time.Millisecond
	if wait <= time.Minute {
		most = min(most, time.Minute-wait)
	}
	return most
}

// wholeSeconds is told, the wait with its jitter, in the whole seconds of
// Retry-After: rounded up, unless that would exceed the wait by more than a second
// or a fifth. The seconds alone would leave a crowd no room there: for a wait of
// 4.9 s they can only be 5.
func wholeSeconds(wait, told time.Duration) int64 {
	return min(seconds(told), int64((wait+max(time.Second, wait/5))/time.Second))
}

// policy is a limit's name in RateLimit-Policy, RateLimit and violated-policies.
// Unlike the name of its owner, it tells a bucket from a count of slots.
func policy(k ratelimit.Kind) string {
	switch {
	case k == ratelimit.KindTenantSlots:
		return "inflight"
	case k.Gauge():
		return k.String() + "-inflight"
	}
	return k.String()
}

func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
