package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"agentgw/internal/identity"
	"agentgw/internal/receipts"
)

// Handler returns the agents' HTTP side. gin routes and nothing more: below
// this file nobody knows it.
func (g *Gateway) Handler() http.Handler {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	// Paths are matched as they were sent, each byte of them, and never mended.
	e.UseEscapedPath, e.UnescapePathValues = true, false
	e.RedirectTrailingSlash, e.RedirectFixedPath = false, false
	_ = e.SetTrustedProxies(nil) // nil cannot fail; the address is the gateway's own business
	e.GET("/v1/services", g.reading(func(c *gin.Context, call *Call) { c.JSON(200, g.services(call)) }))
	e.GET("/v1/services/:name", g.reading(g.service))
	e.GET("/v1/whoami", g.reading(func(c *gin.Context, call *Call) { c.JSON(200, g.whoami(call)) }))
	e.GET("/v1/receipts/:id", g.reading(g.receipt))
	// What every auditor may have, and needs no key for.
	e.GET("/v1/log/checkpoint", func(c *gin.Context) { public(c, g.receipts.Checkpoint()) })
	e.GET("/v1/log/key", func(c *gin.Context) { public(c, []byte(g.receipts.VerifierKey()+"\n")) })
	// People, who have a link and no key.
	e.GET("/oauth/:service/start", func(c *gin.Context) { g.startConnecting(c.Writer, c.Request, c.Param("service")) })
	e.GET("/oauth/:service/callback", func(c *gin.Context) { g.finishConnecting(c.Writer, c.Request, c.Param("service")) })
	e.NoRoute(g.reading(func(c *gin.Context, _ *Call) {
		e := refuse(BadRequest, "there is nothing at this path; calls go to POST /v1/act, many at once to POST /v1/batch, and a service's own requests to /proxy/SERVICE/")
		e.Status = http.StatusNotFound
		writeError(c.Writer, e, "", jitter)
	}))
	return g.framed(g.recovered(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tunnels(r) {
			g.connect(w.(*answer), r)
			return
		}
		// Of whatever method: gin knows nine of them, and no path by any other.
		switch r.URL.EscapedPath() {
		case "/v1/act":
			g.serveCall(w.(*answer), g.call(r))
			return
		case "/v1/batch":
			call := g.call(r)
			call.batch = new(batch)
			g.serveCall(w.(*answer), call)
			return
		}
		if to := proxyTarget(r); to != nil {
			g.proxy(w.(*answer), r, to)
			return
		}
		e.ServeHTTP(w, r)
	})))
}

func public(c *gin.Context, text []byte) {
	c.Header("Cache-Control", "no-store")
	c.Data(http.StatusOK, "text/plain; charset=utf-8", text)
}

// answerBelow is the answer that recovered has made for this call. gin's writer
// above it loses the errors of Flush and holds a 1xx back.
func answerBelow(c *gin.Context) *answer {
	return c.Writer.(interface{ Unwrap() http.ResponseWriter }).Unwrap().(*answer)
}

// recovered keeps a panic from ending the process or looking like an answer.
// gin's own Recovery takes http.ErrAbortHandler for a fault and ends a broken
// stream neatly; this one passes it on, and makes it of any panic that comes
// when the answer has begun.
func (g *Gateway) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := newAnswer(w, g.clock, g.clientStall())
		defer a.stall.last()
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler {
				panic(p)
			}
			e := g.panicked(p)
			if a.begun {
				panic(http.ErrAbortHandler)
			}
			writeError(a, e, a.receipt, jitter)
		}()
		next.ServeHTTP(a, r)
		a.commit()
	})
}

// panicked logs a panic, while the stack is still there, and is what is said of it.
func (g *Gateway) panicked(p any) *Error {
	g.log.Error("a handler panicked", "panic", p, "stack", string(debug.Stack()))
	return &Error{Code: Internal, Message: gatewayFailed, Ran: true}
}

const gatewayFailed = "the gateway failed; the operator's log says why"

// clientStall is how long a client may take no byte, or give none.
func (g *Gateway) clientStall() time.Duration { return g.current.Load().settings.ClientStall }

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

// reading wraps the ways in that look and change nothing: they go through the
// first two steps of the pipeline and leave no receipt, except that a refused
// authentication always does.
func (g *Gateway) reading(next func(*gin.Context, *Call)) gin.HandlerFunc {
	return func(c *gin.Context) {
		call := g.call(c.Request)
		// Refusals go through gin's writer: of what went past it gin would not
		// know, and at a path without a route it would add its own 404 to it.
		out := answerBelow(c)
		out.Header().Set("X-Request-Id", call.RequestID)
		out.Header().Set("Cache-Control", "no-store")
		at := g.begin(call)
		if err := g.identify(call, at); err != nil {
			err = at.close(err)
			at.name(out)
			g.decided("", err.Code, err.Limit)
			writeError(c.Writer, err, out.receipt, jitter)
			return
		}
		charge, err := g.chargeKey(call, out)
		if err == nil {
			err = g.settle(call, charge, out, nil) // it goes no further
		}
		if err != nil {
			g.decided("", err.Code, err.Limit)
			writeError(c.Writer, err, "", jitter)
			return
		}
		awaitEnd(c.Request, out)
		if err := checkFraming(c.Request); err != nil {
			writeError(c.Writer, err, "", jitter)
			return
		}
		next(c, call)
	}
}

type serviceView struct {
	Name    string       `json:"name"`
	Actions []actionView `json:"actions"`
}

type actionView struct {
	Name   string               `json:"name"`
	Method string               `json:"method"`
	Path   string               `json:"path"`
	Params map[string]paramView `json:"params"`
}

type paramView struct {
	In       string          `json:"in"`
	Required bool            `json:"required"`
	Schema   json.RawMessage `json:"schema"`
}

// services lists what the caller's key may call, and nothing else.
func (g *Gateway) services(call *Call) map[string][]serviceView {
	list := []serviceView{}
	for _, name := range slices.Sorted(maps.Keys(call.view.registry.Services)) {
		if v, ok := describe(call, name); ok {
			list = append(list, v)
		}
	}
	return map[string][]serviceView{"services": list}
}

func describe(call *Call, name string) (serviceView, bool) {
	service := call.view.registry.Services[name]
	if service == nil || !call.Key.AllowsService(name) {
		return serviceView{}, false
	}
	v := serviceView{Name: name, Actions: []actionView{}}
	for _, a := range slices.Sorted(maps.Keys(service.Actions)) {
		if !call.Key.Allows(name, a) {
			continue
		}
		action := service.Actions[a]
		params := map[string]paramView{}
		for _, p := range action.Params() {
			params[p.Name] = paramView{In: p.In, Required: p.Required, Schema: p.Schema}
		}
		v.Actions = append(v.Actions, actionView{Name: a, Method: action.Method, Path: action.Path(), Params: params})
	}
	return v, true
}

func (g *Gateway) service(c *gin.Context, call *Call) {
	name := c.Param("name")
	v, ok := describe(call, name)
	switch {
	case ok:
		c.JSON(200, v)
	case call.Key.AllServices():
		writeError(c.Writer, refuse(ServiceNotFound, "there is no service %q", name), "", jitter)
	default:
		writeError(c.Writer, refuse(ScopeDenied, "this key may not call the service %q", name), "", jitter)
	}
}

// receiptView is one receipt: its records and, for each, the proof that it is in
// its tenant's tree. Proof is that of the newest.
type receiptView struct {
	ID      string            `json:"id"`
	Records []json.RawMessage `json:"records"`
	Proof   string            `json:"proof,omitempty"`
	Proofs  []string          `json:"proofs,omitempty"`
}

// receipt shows the caller's own receipt; somebody else's does not exist.
func (g *Gateway) receipt(c *gin.Context, call *Call) {
	view := receiptView{ID: c.Param("id")}
	var err error
	if view.Records, err = g.receipts.Find(view.ID, call.Key.ID); err != nil {
		g.log.Error("a receipt could not be read", "receipt", view.ID, "error", err)
		writeError(c.Writer, refuse(Internal, "the gateway cannot read its receipts; the operator's log says why"), "", jitter)
		return
	}
	mine := len(view.Records) > 0
	for _, r := range view.Records {
		var head struct {
			Key string `json:"key"`
		}
		mine = mine && json.Unmarshal(r, &head) == nil && head.Key == call.Key.ID
	}
	if !mine {
		e := refuse(BadRequest, "this key has no receipt of that id")
		e.Status = http.StatusNotFound
		writeError(c.Writer, e, "", jitter)
		return
	}
	proofs, err := g.receipts.Prove(view.Records)
	if err != nil { // what was recorded is shown all the same
		g.log.Error("a receipt could not be proven", "receipt", view.ID, "error", err)
	}
	for _, p := range proofs {
		view.Proof = string(p.Text)
		view.Proofs = append(view.Proofs, view.Proof)
	}
	c.PureJSON(200, view) // the records byte for byte, so that they can be hashed
}
