package gateway

import (
	"encoding/json"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/gin-gonic/gin"
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
