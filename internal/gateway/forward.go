package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	"agentgw/internal/receipts"
	"agentgw/internal/registry"
	"agentgw/internal/vault"
)

// Why an upstream call was ended by the gateway. They are the causes of the
// upstream context, so that whoever sees it fail can tell why.
var (
	errFirstByte  = errors.New("no answer began within the service's timeout")
	errStreamIdle = errors.New("the upstream sent nothing for AGENTGATE_STREAM_IDLE")
	errStreamMax  = errors.New("the stream reached AGENTGATE_STREAM_MAX")
	errShutdown   = errors.New("the gateway is draining")
	errBlocked    = errors.New("the tenant was blocked")
)

var quiet = log.New(io.Discard, "", 0) // ReverseProxy's own log repeats what upstreams say

// buffers lends copy buffers of one size.
type buffers struct {
	size int
	pool sync.Pool
}

// A stream of events keeps its buffer while nothing comes, and its events are
// small: as large a one as other answers get would be half of what it costs.
const (
	answerBuffer = 32 << 10
	eventBuffer  = 4 << 10
)

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, b.size)
}

func (b *buffers) Put(p []byte) { b.pool.Put(&p) }

// forward calls the upstream and relays its answer. The end of the answer is
// withheld until the outcome is durable and the slot is free.
func (g *Gateway) forward(call *Call, service *registry.Service, target *registry.Target,
	credential vault.Credential, out *answer, at *attempt, release func()) (refusal *Error) {

	ctx, cancel := context.WithCancelCause(call.In.Context())
	defer cancel(nil)
	running := g.running.add(cancel, at.record.Tenant)
	defer g.running.remove(running)

	request := upstreamRequest(ctx, call.In, target, call.RequestID, g.userAgent)

	stopFirst := func() bool { return true }
	if service.Timeout > 0 {
		stopFirst = g.clock.AfterFunc(service.Timeout, func() { cancel(errFirstByte) }).Stop
	}
	defer stopFirst()
	sent := g.clock.Now()

	// The gateway's own fields belong to the final answer: a 1xx that comes first
	// would take them with it, as ReverseProxy clears the header after each.
	own := maps.Clone(out.Header())
	clear(out.Header())
	var proxy httputil.ReverseProxy
	proxy = httputil.ReverseProxy{
		// Last, so that no rule about what may not pass on can take it away.
		Rewrite:    func(r *httputil.ProxyRequest) { credential.Apply(r.Out) },
		Transport:  sendOnce{g.transport(service.AllowPrivate), target.Body},
		BufferPool: &g.answers,
		ErrorLog:   quiet,
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			refusal = g.upstreamError(ctx, call, service, err)
		},
		ModifyResponse: func(res *http.Response) error {
			stopFirst()
			after := g.clock.Now().Sub(sent)
			at.answered(res.StatusCode, after)
			g.answered(service.Name, after)
			maps.Copy(out.Header(), own)
			if res.Header["Content-Type"] == nil {
				out.Header()["Content-Type"] = nil // or the server would guess one
			}
			oneAuthor(out.Header(), res.Header, res.StatusCode)
			err := g.relay(ctx, cancel, res, at, running, release, service.BaseURL)
			if running.isStream { // which relay, above, has set or not
				proxy.BufferPool = &g.events
			}
			return err
		},
	}
	defer func() {
		p := recover()
		at.sent(out.written)
		if (p != nil || refusal != nil) && !out.begun {
			// The upstream's headers are of an answer that will not be given.
			out.status = 0
			clear(out.Header())
			maps.Copy(out.Header(), own)
		}
		if p != nil && p != http.ErrAbortHandler {
			at.ending(receipts.Panic)
			panic(p)
		}
		if at.lost != nil {
			refusal = at.lost
		}
		if at.lost == nil && (p != nil || out.failed != nil) {
			at.ending(brokenBy(ctx, call.In.Context(), out))
			if refusal == nil {
				refusal = &Error{Code: Internal, Message: "the transfer broke", Err: http.ErrAbortHandler}
			}
		}
	}()
	proxy.ServeHTTP(out, request)
	return refusal
}

// brokenBy says how a transfer that did not reach its end was broken.
func brokenBy(upstream, client context.Context, out *answer) receipts.Ending {
	switch cause := context.Cause(upstream); {
	case errors.Is(cause, errShutdown):
		return receipts.Shutdown
	case errors.Is(cause, errBlocked):
		return receipts.Blocked
	case errors.Is(cause, errStreamIdle), errors.Is(cause, errStreamMax), errors.Is(cause, errFirstByte):
		return receipts.Timeout
	case out.stall.cut():
		return receipts.SlowClient
	case client.Err() != nil || out.failed != nil:
		return receipts.ClientCancelled
	}
	return receipts.UpstreamAborted
}

// upstreamError makes the refusal of a call whose upstream gave no usable answer.
func (g *Gateway) upstreamError(ctx context.Context, call *Call, service *registry.Service, err error) *Error {
	var e *Error
	switch cause := context.Cause(ctx); {
	case errors.As(err, &e):
		return e
	case errors.Is(cause, errFirstByte):
		return &Error{Code: UpstreamTimeout, Message: fmt.Sprintf("%s did not begin to answer within %s (services.%s.timeout)", service.Name, service.Timeout, service.Name), Ran: true}
	case errors.Is(cause, errShutdown):
		return &Error{Code: Draining, Message: "the gateway is shutting down", Ran: true}
	case errors.Is(cause, errBlocked):
		return &Error{Code: TenantBlocked, Message: "the operator has blocked this tenant", Never: true, Ran: true}
	case call.In.Context().Err() != nil:
		return &Error{Code: Internal, Message: "the caller hung up", Err: http.ErrAbortHandler}
	case errors.Is(err, errGuarded):
		return &Error{Code: UpstreamUnreachable, Message: fmt.Sprintf("%s may not be dialled: %v", call.Act.Service, errGuarded), Err: err}
	}
	// What the transport says can hold the URL, and the URL a credential: it is
	// reduced to its kind before it may be logged.
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if fault := headerFault(err); fault != "" {
		return &Error{Code: UpstreamUnreachable, Message: call.Act.Service + " answered with " + fault, Ran: true, Err: err}
	}
	var dial *net.OpError
	ran := !errors.As(err, &dial) || dial.Op != "dial" // what was never reached has done nothing
	return &Error{Code: UpstreamUnreachable, Message: fmt.Sprintf("%s could not be reached or broke off before it answered", call.Act.Service), Ran: ran, Err: err}
}

// relay prepares an upstream's answer for the agent.
func (g *Gateway) relay(ctx context.Context, cancel context.CancelCauseFunc, res *http.Response, at *attempt, running *running, release func(), base *url.URL) error {
	if location := res.Header.Get("Location"); location != "" && res.StatusCode/100 == 3 {
		to, err := res.Request.URL.Parse(location)
		if err != nil || !strings.EqualFold(to.Host, base.Host) || to.Scheme != base.Scheme || to.User != nil {
			return &Error{Code: UpstreamRedirect, Message: "the service answered with a redirect that leads away from it", Ran: true}
		}
	}
	if res.StatusCode < http.StatusOK {
		// An upgrade that nobody asked for, or a number that is no status.
		return &Error{Code: UpstreamUnreachable, Message: fmt.Sprintf("the service answered with status %d, which is no answer to this call", res.StatusCode), Ran: true}
	}
	keep(res.Header)
	keepTrailer(res.Trailer)
	if len(res.Trailer) > 0 {
		res.Header.Del("Content-Length") // which HTTP/2 has beside a trailer, and HTTP/1 instead of one
	}
	b := &body{ReadCloser: res.Body, res: res, left: -1, idle: at.settings.StreamIdle}
	b.finish = func() error {
		at.sent(b.read) // all of it: what is withheld now goes out next
		if err := at.outcome(); err != nil {
			return err
		}
		release()
		return nil
	}
	if res.ContentLength >= 0 {
		b.left = res.ContentLength
	}
	if bodiless(res) {
		// The header is the end of such an answer, so it is what has to wait. A
		// length in it is that of another answer, and the agent, whose own
		// request was a POST, would wait for so many bytes.
		res.Header.Del("Content-Length")
		return b.end()
	}
	if media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); media == "text/event-stream" {
		b.border = running
		running.stream()
	}
	if b.idle > 0 {
		b.timer = g.clock.AfterFunc(b.idle, func() { cancel(errStreamIdle) })
	}
	if at.settings.StreamMax > 0 {
		b.old = g.clock.AfterFunc(at.settings.StreamMax, func() { cancel(errStreamMax) })
	}
	res.Body = b
	return nil
}
