package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"agentgw/internal/literal"
	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
)

// errWaited is the cause that ends a wait for a slot which was as long as one may be.
var errWaited = errors.New("no slot came free within AGENTGATE_TENANT_QUEUE_WAIT")

// How a wait for a slot ended, as metrics tell it.
const (
	waitServed  = "served"
	waitRefused = "refused" // it was as long as a wait may be
	waitLeft    = "left"    // the caller hung up, its key is gone, the tenant was blocked, the gateway drains
)

// queue is how many calls of a tenant may wait, as far as this call is concerned.
func (c *Call) queue() int64 {
	if c.nested || c.foreign || c.view.settings.TenantQueueWait <= 0 {
		return 0
	}
	return int64(c.view.settings.TenantQueue)
}

// waitInWords is what a refusal for want of a slot says of the queue.
func (c *Call) waitInWords() string {
	switch most := c.queue(); {
	case c.waited:
		return ", and none came free in the " + literal.Span(c.view.settings.TenantQueueWait) + " that a call may wait"
	case most == 1:
		return ", and one call waits already, as many as may"
	case most > 1:
		return fmt.Sprintf(", and %d calls wait already, as many as may", most)
	}
	return ""
}

// wait waits for the slots that place is for. All that can end it but the slots
// themselves is a cause of one context. A caller that hangs up, a key that is
// gone, a tenant that is blocked and a gateway that drains end it at once, and nothing
// was taken. Of a tunnel whose bytes were used up while it waited the verdict stays Queued:
// it has left, and has given back all that it took, its key's token too.
func (g *Gateway) wait(call *Call, place *ratelimit.Place, v ratelimit.Verdict, at *attempt) (ratelimit.Ticket, ratelimit.Verdict, *Error) {
	began, how := g.clock.Now(), waitLeft
	call.waited = true
	defer func() {
		place.Leave(g.nanos.Nanos()) // on a panic too; after End it does nothing
		waited := g.clock.Now().Sub(began)
		at.queued += waited
		g.waited(how, waited)
	}()
	ctx, cancel := context.WithCancelCause(call.In.Context())
	defer cancel(nil)
	patience := patience{clock: g.clock, cancel: cancel}
	defer patience.stop()
	waiting := &running{cancel: cancel, call: call, tenant: at.record.Tenant, waits: true, patience: &patience}
	g.running.add(call.RequestID, waiting)
	defer g.running.remove(call.RequestID)
	g.endWithSecret(waiting)
	patience.await(began, call.view.settings.TenantQueueWait, errWaited)

	for {
		select {
		case <-place.Ready():
		case <-ctx.Done():
		}
		switch cause := context.Cause(ctx); {
		case (cause == nil || errors.Is(cause, errWaited)) && g.budget(call).Exhausted() > 0:
			how = waitRefused
			return ratelimit.Ticket{}, v, nil
		case cause == nil, errors.Is(cause, errWaited):
			end := place.Claim
			if cause != nil {
				end = place.End
			}
			ticket, v := end(g.nanos.Nanos())
			if v.Outcome == ratelimit.Queued { // calls of other replicas have the slots after all
				continue
			}
			if how = waitRefused; v.Outcome == ratelimit.Admitted {
				how = waitServed
			}
			return ticket, v, nil
		case errors.Is(cause, errShutdown):
			return ratelimit.Ticket{}, v, draining()
		case errors.Is(cause, errGone):
			return ratelimit.Ticket{}, v, call.unauthenticated()
		case errors.Is(cause, errBlocked):
			return ratelimit.Ticket{}, v, &Error{Code: TenantBlocked, Message: tenantBlocked, Never: true}
		}
		at.ending(receipts.ClientCancelled)
		return ratelimit.Ticket{}, v, &Error{Code: ConcurrencyLimited, Limit: v.Limit.String(), Message: "the caller hung up while it waited for a slot", Err: http.ErrAbortHandler}
	}
}

func draining() *Error {
	return &Error{Code: Draining, Message: "this gateway is shutting down; call again", Wait: time.Second}
}

// isNested reports whether the call was made while serving another that runs, of the
// same tenant: it brings the request id that the gateway gave that one upstream. Who
// does not serve that call cannot know the id.
func (g *Gateway) isNested(call *Call, tenant string) bool {
	for _, id := range call.In.Header["X-Request-Id"] {
		if g.running.serves(id, tenant) {
			return true
		}
	}
	return false
}

// bringsID reports whether the call brings a request id such as gateways give. Of one that is not
// known here the call may be another replica's, which it then serves: to wait for that one's slot
// might be to wait for ever.
func (c *Call) bringsID() bool {
	for _, id := range c.In.Header["X-Request-Id"] {
		if len(id) == len(c.RequestID) && strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == "" {
			return true
		}
	}
	return false
}

// nestedRefusal is that of a nested call for which there is no slot. To wait for one
// might be to wait for its own parent to end, which waits for it; so no SDK is to try
// again.
func nestedRefusal(e *Error) *Error {
	return &Error{
		Code: NestedCall, Limit: e.Limit, Violated: e.Violated, Never: true,
		Message: fmt.Sprintf("this call serves another of the same tenant, and %s; it is not kept waiting for a place that the other may hold; nothing was charged", e.Message),
	}
}
