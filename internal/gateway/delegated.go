package gateway

import (
	"encoding/base64"
	"fmt"

	"agentgw/internal/delegation"
	"agentgw/internal/registry"
)

// delegationField is the header that a chain comes in, spelled as net/http spells it
// in a header map. It is none of those that are passed on.
const delegationField = "Agentgate-Delegation"

// notDelegated is all that an agent is told of a chain, whatever is wrong with it.
const notDelegated = "the delegation does not hold"

// TrustDelegations makes delegations be verified by t from now on, and ends the calls under way
// whose delegation t does not trust any more: it was revoked, or its root is gone. Until it
// has been called none holds.
func (g *Gateway) TrustDelegations(t *delegation.Trust) {
	g.trusted.Store(t)
	g.running.each(func(r *running) {
		if r.chain != nil && !t.Trusts(r.chain) {
			r.cancel(errUndelegated)
		}
	})
}

// agent is who calls, as a delegation names it.
func (c *Call) agent() string { return c.Key.ID }

// verifyDelegation is step 6. A chain that came is verified, wanted or not: whoever
// sends one means that it bounds the call.
func (g *Gateway) verifyDelegation(call *Call, service *registry.Service, at *attempt) *Error {
	fields := call.In.Header[delegationField]
	if len(fields) == 0 {
		return undelegated(service)
	}
	v := delegation.Verdict{Reason: delegation.Malformed, Detail: "there are two headers of them"}
	if len(fields) == 1 {
		v = delegation.Verify(fields[0], g.trusted.Load(), call.view.settings.DelegationURI(), g.clock.Now(), delegation.Ask{
			Agent: call.agent(), User: call.Act.Principal, Tenant: call.Key.Tenant,
			Service: call.Act.Service, Action: call.Act.Action, Params: call.Act.Params,
		})
	}
	for _, l := range v.Chain.Links {
		at.record.Chain = append(at.record.Chain, l.ID+" "+base64.RawURLEncoding.EncodeToString(l.Hash[:])+" "+l.Agent)
	}
	if !v.Holds {
		at.record.Reason = string(v.Reason)
		e := refuse(DelegationInvalid, notDelegated)
		e.Err = fmt.Errorf("%s: %s", v.Reason, v.Detail)
		return e
	}
	call.chain = &v.Chain
	return nil
}

// undelegated is step 6 for a call that brings no delegation.
func undelegated(service *registry.Service) *Error {
	if !service.DelegationRequired {
		return nil
	}
	return refuse(DelegationRequired, "%s wants a delegation: send one in Agentgate-Delegation", service.Name)
}

// delegated sees to it that a call that runs, and is known to, ends with its
// delegation: with the time of it, or when it is trusted no more. It may not be since it
// was verified, before TrustDelegations could see that the call runs.
func (g *Gateway) delegated(r *running) (stop func()) {
	if r.chain == nil {
		return func() {}
	}
	if !g.trusted.Load().Trusts(r.chain) {
		r.cancel(errUndelegated)
	}
	timer := g.clock.AfterFunc(r.chain.Until.Sub(g.clock.Now()), func() { r.cancel(errUndelegated) })
	return func() { timer.Stop() }
}
