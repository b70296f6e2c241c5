package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"agentgw/internal/receipts"
	"agentgw/internal/redact"
	"agentgw/internal/registry"
	"agentgw/internal/vault"
)

// Why an upstream call was ended by the gateway. They are the causes of the
// upstream context, so that whoever sees it fail can tell why.
var (
	errFirstByte   = errors.New("no answer began within the service's timeout")
	errStreamIdle  = errors.New("the upstream sent nothing for AGENTGATE_STREAM_IDLE")
	errStreamMax   = errors.New("the stream reached AGENTGATE_STREAM_MAX")
	errShutdown    = errors.New("the gateway is draining")
	errBlocked     = errors.New("the tenant was blocked")
	errUndelegated = errors.New("the delegation was revoked or is over")
	errGone        = errors.New("the key was revoked, taken away or has expired")
	errBudget      = errors.New("the caller's bytes of tunnels are used up")
)

// forward calls the upstream and relays its answer. The end of the answer is
// withheld until the outcome is durable and the slot is free.
func (g *Gateway) forward(call *Call, service *registry.Service, target *registry.Target,
	credential vault.Credential, out *answer, at *attempt, release func()) *Error {

	ctx, running, over := g.underWay(call, at)
	defer over()
	patience := running.patience
	redactor := credential.Redactor()
	interim := newInterim(call.In, out, redactor)
	sending := once{cancel: running.cancel}

	request := upstreamRequest(sending.watched(ctx, &interim.trace), call, target, g.userAgent)
	if !redactor.Empty() {
		// In what is compressed nobody finds a secret. An agent that asked for it
		// gets the answer larger instead.
		request.Header["Accept-Encoding"] = uncompressed
	}
	// Last, so that no rule about what may not pass on can take it away.
	if err := credential.Apply(request); err != nil {
		return &Error{Code: Internal, Message: gatewayFailed, Never: true, Err: err}
	}

	sent := g.clock.Now()
	up := call.uploaded()
	if up != nil {
		up.patience, up.count = patience, g.counting(call, call.In.ContentLength < 0)
		defer func() { at.record.In = up.n.Load() }()
		defer up.stop()
		up.start(out, call.In)
		defer context.AfterFunc(ctx, func() {
			if endingOf(context.Cause(ctx)) != "" { // or reading ends by itself, and says why
				up.stop()
			}
		})() // the transport gives nothing up while it reads a body
		if up.asks != nil {
			interim.expect(up.asks)
		}
		patience.awaitSent(sent, service.Timeout, errFirstByte)
	} else {
		patience.await(sent, service.Timeout, errFirstByte)
	}
	res, err := g.transport(service).RoundTrip(request)
	if err != nil {
		interim.end(0)
		broke := up.broke()
		if errors.Is(broke, os.ErrDeadlineExceeded) || errors.Is(context.Cause(ctx), errStalled) {
			at.ending(receipts.SlowClient)
		}
		return g.upstreamError(ctx, call, service, redactor, broke, err)
	}
	defer func() {
		if up != nil {
			up.stop() // over HTTP/2 to close an answer is to wait for its request, and that may wait for the agent
		}
		_ = res.Body.Close()
	}()

	interim.end(res.StatusCode)
	began := g.clock.Now()
	at.answered(res.StatusCode, began.Sub(sent))
	g.answered(service.Name, began.Sub(sent))
	if refusal := unfit(res, service.BaseURL, call); refusal != nil {
		return refusal
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		patience.follow(began, at.settings.StreamIdle, at.settings.StreamMax)
		return g.converse(ctx, &conversation{
			g: g, call: call, service: service, at: at, out: out, running: running, patience: patience, release: release,
			upstream: res.Body.(io.ReadWriteCloser), line: sending.line, redactor: redactor,
		}, res.Header)
	}
	echoes := redacted(res, redactor)
	defer func() { g.noteEcho(call, at, echoes.found()) }()
	keepTrailer(res.Trailer)
	out.trails = takesTrailers(call.In) && !bodiless(res)
	if len(res.Trailer) > 0 || out.trails {
		res.Header.Del("Content-Length") // which HTTP/2 has beside a trailer, and HTTP/1 instead of one
	}
	patience.follow(began, at.settings.StreamIdle, at.settings.StreamMax)
	b := &body{res: res, left: res.ContentLength, patience: patience, echoes: echoes}
	b.finish = func() error {
		if up != nil {
			at.record.In = up.n.Load()
		}
		if call.part != nil && b.read > maxKept { // what is withheld will not be taken
			out.note(errTooMuch)
			return errTooMuch
		}
		at.sent(b.read) // all of it: what is withheld now goes out next
		if err := at.outcome(); err != nil {
			return err
		}
		if out.trails && at.stands {
			out.outcome = placed(at.id(), at.last)
		}
		if !out.begun {
			at.name(out) // of a call without an intent it is the outcome
		}
		release()
		return nil
	}
	b.count = g.counting(call, true)
	lent := &g.answers
	if isEvents(res.Header.Get("Content-Type")) {
		running.stream()
		b.border, lent = running, &g.events
	}

	defer func() { at.sent(out.written) }() // on a panic too
	err = relay(out, res, b, lent)
	if err == nil {
		return nil
	}
	refusal, why := at.lost, at.lost
	if at.lost == nil {
		ending := brokenBy(ctx, call.In.Context(), out, up.broke())
		at.ending(ending)
		refusal, why = &Error{Code: Internal, Message: "the transfer broke", Err: http.ErrAbortHandler}, cutBy(ending, call.Act.Service)
	}
	out.instead = why
	if b.border != nil && b.border.whole() && res.Header.Get("Content-Encoding") == "" {
		sayWhy(out, why)
	}
	return refusal
}

// unfit says why an answer is not one that an agent may get, or nil.
func unfit(res *http.Response, base *url.URL, call *Call) *Error {
	if res.StatusCode == http.StatusSwitchingProtocols && call.upgrade() {
		return unfitUpgrade(res, call)
	}
	if res.StatusCode/100 == 3 && res.StatusCode != http.StatusNotModified && leadsAway(res.Header["Location"], res.Request.URL, base) {
		return &Error{Code: UpstreamRedirect, Message: "the service answered with a redirect that leads away from it", Ran: true}
	}
	if res.StatusCode < http.StatusOK {
		// An upgrade that nobody asked for, or a number that is no status.
		return &Error{Code: UpstreamUnreachable, Message: fmt.Sprintf("the service answered with status %d, which is no answer to this call", res.StatusCode), Ran: true}
	}
	return nil
}

// leadsAway reports whether a redirect may lead off the service, for any agent
// that follows it. Of several Locations an agent takes which it likes. A browser
// takes a backslash for a slash and passes over some control characters, so that
// they may hide another host, and over any slashes behind the second (WHATWG URL,
// "special authority ignore slashes"), where RFC 3986 has a path.
func leadsAway(locations []string, from, base *url.URL) bool {
	if len(locations) == 0 {
		return false
	}
	location := locations[0]
	to, err := from.Parse(location)
	return len(locations) > 1 || strings.HasPrefix(location, "///") || err != nil || to.User != nil || to.Scheme != base.Scheme || !strings.EqualFold(to.Host, base.Host) ||
		strings.ContainsFunc(location, func(c rune) bool { return c == '\\' || c < ' ' || c == 0x7f })
}

// isEvents reports whether a Content-Type is that of an event stream.
func isEvents(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(media), "text/event-stream")
}

// endingOf is how what ended by a cause of the gateway's own is recorded; "" for any other.
func endingOf(cause error) receipts.Ending {
	switch {
	case errors.Is(cause, errShutdown):
		return receipts.Shutdown
	case errors.Is(cause, errBlocked):
		return receipts.Blocked
	case errors.Is(cause, errGone), errors.Is(cause, errUndelegated):
		return receipts.Revoked
	case errors.Is(cause, errBudget):
		return receipts.Budget
	case errors.Is(cause, errStreamIdle), errors.Is(cause, errStreamMax), errors.Is(cause, errFirstByte):
		return receipts.Timeout
	}
	return ""
}

// brokenBy says how a transfer that did not reach its end was broken.
func brokenBy(upstream, client context.Context, out *answer, upload error) receipts.Ending {
	cause := context.Cause(upstream)
	if ours := endingOf(cause); ours != "" {
		return ours
	}
	switch {
	case out.stall.cut(), errors.Is(upload, os.ErrDeadlineExceeded), errors.Is(cause, errStalled):
		return receipts.SlowClient
	case errors.Is(out.failed, errTooMuch):
		return receipts.Budget
	case upload != nil, client.Err() != nil, out.failed != nil, errors.Is(cause, errClient):
		return receipts.ClientCancelled
	}
	return receipts.UpstreamAborted
}

// upstreamError makes the refusal of a call whose upstream gave no usable answer;
// broke is what the agent's own request broke off with, if that is why.
func (g *Gateway) upstreamError(ctx context.Context, call *Call, service *registry.Service, redactor redact.Redactor, broke, err error) *Error {
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
	case errors.Is(cause, errGone):
		e := call.unauthenticated()
		e.Ran = true
		return e
	case errors.Is(cause, errUndelegated):
		return &Error{Code: DelegationInvalid, Message: notDelegated, Ran: true}
	case errors.Is(broke, errOverLimit):
		e := tooLarge(call.view.settings.MaxRequestBody)
		e.Ran = true
		return e
	case broke != nil && (call.In.Context().Err() == nil || errors.Is(broke, os.ErrDeadlineExceeded)):
		return &Error{Code: BadRequest, Message: "the body could not be read to its end", Ran: true}
	case call.In.Context().Err() != nil:
		return &Error{Code: Internal, Message: "the caller hung up", Err: http.ErrAbortHandler}
	case errors.Is(err, errGuarded):
		return &Error{Code: UpstreamUnreachable, Message: fmt.Sprintf("%s may not be dialled: %v", call.Act.Service, errGuarded), Never: true, Err: err}
	}
	// What the transport says can hold the URL, and the URL a credential: it is
	// reduced to its kind before it may be logged. It can quote the upstream, too.
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if errors.Is(context.Cause(ctx), errAgain) {
		err = errAgain
	}
	if errors.Is(err, errManyInterim) {
		return &Error{Code: UpstreamUnreachable, Message: fmt.Sprintf("%s sent %v", call.Act.Service, errManyInterim), Ran: true}
	}
	if fault := headerFault(err); fault != "" {
		return &Error{Code: UpstreamUnreachable, Message: call.Act.Service + " answered with " + fault, Ran: true, Err: err}
	}
	var dial *net.OpError
	ran := !errors.As(err, &dial) || dial.Op != "dial" // what was never reached has done nothing
	said := err.Error()
	if told := redactor.String(said); told != said {
		err = errors.New(told)
	}
	return &Error{Code: UpstreamUnreachable, Message: fmt.Sprintf("%s could not be reached or broke off before it answered", call.Act.Service), Ran: ran, Err: err}
}
