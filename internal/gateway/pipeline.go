package gateway

import (
	"errors"
	"net/http"
	"net/netip"

	"agentgw/internal/delegation"
	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
	"agentgw/internal/registry"
)

// Call is one call on its way through the pipeline, whichever way in it took.
type Call struct {
	In        *http.Request
	RequestID string
	Address   netip.Addr
	Key       *identity.Key
	secret    *identity.Secret // of Key, that came with the call
	Act       act
	proxied   *proxied          // nil: it did not come by /proxy
	tunnel    *tunnelled        // nil: it is no CONNECT
	batch     *batch            // the calls that it brings; nil: it is one itself
	part      *part             // what it has of the batch that it came in; nil: it came by itself
	unfit     error             // what is wrong with the parameters of one that did not; nil before it was read
	view      *view             // the one registry snapshot that decides this call
	account   *account          // of Key, in view
	uses      []ratelimit.Use   // the rules that apply to it; nil before step 5
	waited    bool              // it had a place in the queue
	chain     *delegation.Chain // that lets it run; nil for none, and before step 6
	nested    bool              // it serves another of its tenant's, and may not wait; false before step 5
	foreign   bool              // it may serve one of another replica's, and may not wait
}

// serve takes one call through the gateway. The order of its steps is the
// contract: a call that would fail at several of them is refused by the first.
// The refusal that it returns has its receipt; an answer that has begun is not
// followed by one, but broken off.
func (g *Gateway) serve(call *Call, out *answer, at *attempt) (refusal *Error) {
	settled := false
	closing := func() {
		if !settled {
			at.ending(receipts.Panic)
			refusal = refuse(Internal, gatewayFailed)
		}
		settled = false
		refusal = at.close(refusal)
		settled = true
	}
	// On a panic too: the record must not depend on good luck. Twice, since it
	// may be the closing that panics; after one that went well it does nothing.
	defer closing()
	defer closing()
	refusal = g.steps(call, out, at)
	settled = true
	return refusal
}

func (g *Gateway) steps(call *Call, out *answer, at *attempt) *Error {
	if err := g.identify(call, at); err != nil {
		return err
	}
	charge, err := g.chargeKey(call, out)
	if err != nil {
		return err
	}
	service, action, err := g.ask(call, out, at)
	if err != nil {
		return g.settle(call, charge, out, err)
	}
	if call.batch != nil { // its calls take these steps again, but 1 to 3, and the others, each by itself
		return g.chargeBatch(call, charge, out, at)
	}
	ticket, err := g.admit(call, service, action, charge, out, at)
	if err != nil {
		g.noteRefusal(call, err)
		return err
	}
	defer call.release(ticket) // once; a stream has given it back before its last byte
	if err := g.verifyDelegation(call, service, at); err != nil {
		return err
	}
	credential, err := openCredential(g.vault, call, service)
	if err != nil {
		return err
	}
	target, err := buildTarget(call, service, action)
	if err != nil {
		return err
	}
	if err := g.identifyAgain(call); err != nil { // so may a slot
		return err
	}
	if err := at.intend(target.Method); err != nil {
		return err
	}
	at.name(out) // of its intent; or not at all, if it could not be recorded and the operator lets that pass
	if call.tunnel != nil {
		err = g.runTunnel(call, out, at)
	} else {
		err = g.forward(call, service, target, credential, out, at, func() { call.release(ticket) })
	}
	if err != nil && err.Code == TenantBlocked && !out.begun { // which came when it was admitted already
		g.noteRefusal(call, err)
	}
	return err
}

// ask is steps 3 and 4: what the call asks for, and whether its key may.
func (g *Gateway) ask(call *Call, out *answer, at *attempt) (*registry.Service, *registry.Action, *Error) {
	if err := g.read(call, out, at); err != nil {
		return nil, nil, err
	}
	if err := g.identifyAgain(call); err != nil || call.batch != nil { // a body may take its time
		return nil, nil, err
	}
	service, action, err := authorize(call.view.registry, call.Key, call.Act)
	if err != nil {
		return nil, nil, err
	}
	if call.Key.ID == identity.Anonymous && byAPage(call.In) {
		return nil, nil, refuse(ScopeDenied, "a page in a browser that is of another site calls no open service without a bearer token or an x-api-key")
	}
	return service, action, g.readBody(call, action, out, at)
}

// read is step 3: the request, read and bounded.
func (g *Gateway) read(call *Call, out *answer, at *attempt) *Error {
	switch {
	case call.proxied != nil:
		return g.readProxied(call, out, at)
	case call.tunnel != nil:
		return readTunnel(call, at)
	case call.part != nil: // read with its batch
		at.asked(call)
		return nil
	}
	raw, refusal := readJSON(call.In, out, call.view.settings.MaxRequestBody)
	at.record.In = int64(len(raw))
	if refusal != nil {
		return refusal
	}
	var err error
	if call.batch != nil {
		if call.Act.Principal, call.batch.calls, err = parseBatch(raw); err != nil {
			return misread(err)
		}
		at.record.Principal = call.Act.Principal
		return nil
	}
	if call.Act, err = parseAct(raw); err != nil {
		return misread(err)
	}
	call.Act.size = int64(len(raw))
	at.asked(call)
	return nil
}

// outOfScope says the same of what there is and of what there is not.
func outOfScope(a act) *Error {
	if a.unmatched {
		return refuse(ScopeDenied, "no action of %s that this key may call has this method and path; anything else wants a key for all of the service, and passthrough at the service", a.Service)
	}
	return refuse(ScopeDenied, "this key may not call %s.%s, or there is no such action", a.Service, a.Action)
}

// authorize is step 4: service, action and principal, by name alone. A name
// that the key's scope does not cover is refused before anybody can learn
// whether it exists. A request of /proxy that is none of the service's actions has
// anyAction, and no action: it wants a service that lets such pass, and a key for all of it.
func authorize(in *registry.Snapshot, key *identity.Key, a act) (*registry.Service, *registry.Action, *Error) {
	if a.to != nil {
		return authorizeTunnel(in, key, a)
	}
	if !key.AllowsService(a.Service) {
		return nil, nil, refuse(ScopeDenied, "this key may not call the service %q", a.Service)
	}
	service := in.Services[a.Service]
	if service == nil && key.AllServices() {
		return nil, nil, refuse(ServiceNotFound, "there is no service %q", a.Service)
	}
	relayed := a.unmatched && service != nil && service.Passthrough
	if service == nil || !key.Allows(a.Service, a.Action) || relayed && !key.AllowsEvery(a.Service) {
		return nil, nil, outOfScope(a)
	}
	action := service.Actions[a.Action]
	told := key.AllServices() || key.Open != "" // what there is and what not
	switch {
	case action != nil || relayed:
	case told && a.unmatched:
		return nil, nil, refuse(ActionNotFound, "no action of the service %s has this method and path, and without passthrough it takes nothing else", a.Service)
	case told:
		return nil, nil, refuse(ActionNotFound, "the service %s has no action %q", a.Service, a.Action)
	default:
		return nil, nil, outOfScope(a)
	}
	if key.Open != "" && a.Principal != "" {
		return nil, nil, refuse(ScopeDenied, "who comes to an open service without a gateway key acts for nobody: leave Agentgate-On-Behalf-Of out, or send a key")
	}
	if err := mayActFor(key, a.Principal); err != nil {
		return nil, nil, err
	}
	return service, action, nil
}

// mayActFor is the last part of step 4.
func mayActFor(key *identity.Key, principal string) *Error {
	switch {
	case key.AllowsUser(principal):
		return nil
	case principal == "":
		return refuse(ScopeDenied, "this key acts for named people only; say for whom in on_behalf_of")
	}
	return refuse(ScopeDenied, "this key may not act for %q", principal)
}

// buildTarget is step 8.
func buildTarget(call *Call, service *registry.Service, action *registry.Action) (*registry.Target, *Error) {
	switch {
	case call.proxied != nil:
		return proxiedTarget(call, service)
	case call.tunnel != nil:
		return &registry.Target{Method: call.In.Method}, nil
	}
	target, err := action.Target(call.Act.Params)
	if err != nil {
		return nil, badParams(err)
	}
	if service.Access == registry.AccessOpen && call.part == nil { // a batch does not say for which of its services they are
		target.Header = withCredentials(target.Header, call.In.Header)
	}
	return target, nil
}

func badParams(err error) *Error {
	e := refuse(BadParams, "%v", err)
	var wrong *registry.ParamError
	e.Quotes = errors.As(err, &wrong) && wrong.Unknown
	return e
}
