package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"

	"agentgw/internal/identity"
	"agentgw/internal/receipts"
)

// call is a request on its way in, of which nothing is known yet.
func (g *Gateway) call(r *http.Request) *Call {
	v := g.current.Load()
	return &Call{
		In: r, RequestID: rand.Text(), view: v,
		Address: identity.Proxies(v.settings.TrustedProxies).ClientAddr(r.RemoteAddr, r.Header),
	}
}

// serveCall answers a call, whichever way in it took, or all calls of a batch.
func (g *Gateway) serveCall(out *answer, call *Call) {
	out.Header().Set("X-Request-Id", call.RequestID)
	if g.running.isDraining() {
		g.decided("", Draining, "")
		writeError(out, draining(), "", jitter)
		return
	}
	at := g.begin(call)
	at.name(out)
	panicked := true
	defer func() {
		if panicked { // recovered answers
			g.decided(g.known(call), Internal, "")
			at.name(out) // which may be counted in another receipt by now
		}
	}()
	refusal := g.serve(call, out, at)
	panicked = false
	if refusal == nil && call.batch != nil {
		g.dispatch(call, out)
		return
	}
	if refusal == nil {
		out.commit()
		g.decided(call.Act.Service, "", "")
		return
	}
	if at.intended && errors.Is(refusal, http.ErrAbortHandler) { // admitted, and broken off since
		g.decided(call.Act.Service, "", "")
		panic(http.ErrAbortHandler)
	}
	g.decided(g.known(call), refusal.Code, refusal.Limit)
	if out.begun || errors.Is(refusal, http.ErrAbortHandler) {
		out.instead = refusal
		panic(http.ErrAbortHandler) // a cut answer must never look like a whole one
	}
	g.note(call, at, refusal)
	at.name(out)
	writeError(out, refusal, out.receipt, jitter)
}

// note logs a refusal. It is apart from serveCall, as a stream that waits keeps the
// frames of all who called it.
func (g *Gateway) note(call *Call, at *attempt, refusal *Error) {
	level := levelOf(refusal)
	if !g.log.Enabled(context.Background(), level) {
		return
	}
	said := slog.Any("error", refusal)
	if refusal.Quotes {
		said = slog.String("error", string(refusal.Code)+": the caller was told what is wrong, in words of the request")
	}
	g.log.LogAttrs(context.WithoutCancel(call.In.Context()), level, "refused",
		slog.String("code", string(refusal.Code)), slog.String("service", g.known(call)), slog.String("key", cmp.Or(at.record.Key, at.record.Caller)),
		slog.String("request", call.RequestID), slog.String("receipt", at.id()), said)
}

// levelOf says how loud a refusal is: a fault of the gateway's own wakes
// somebody, a service's that fails is to be seen, and the rest, of which there
// may be any number, is in the receipts.
func levelOf(e *Error) slog.Level {
	switch {
	case errors.Is(e, receipts.ErrUnavailable):
		return slog.LevelDebug // of each call; the log has said so, once
	case e.Code == Internal || e.Code == ReceiptUnavailable:
		return slog.LevelError
	case e.Code == DelegationInvalid:
		return slog.LevelDebug // whatever is wrong with it, it came from an agent
	case e.Err != nil || e.status() >= 500:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// known is the service's name for a metric: one that the registry has, or "",
// so that what strangers write makes no series.
func (g *Gateway) known(call *Call) string {
	if call.tunnel == nil && call.view.registry.Services[call.Act.Service] == nil {
		return ""
	}
	return call.Act.Service
}
