package gateway

import (
	"cmp"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"agentgw/internal/identity"
	"agentgw/internal/registry"
)

// proxied is what a call has that came by /proxy: a request of the agent's own,
// which goes on as it came.
type proxied struct {
	service     string
	path, query string  // below the service, as sent; the query with its question mark
	body        []byte  // read before the call is decided; nil: it was not, or there is none
	upload      *upload // what is read on the way; nil: nothing is
	upgrade     bool    // it asks for a WebSocket
}

// uploaded is the body of a call that is read on its way; nil: there is none.
func (call *Call) uploaded() *upload {
	if call.proxied == nil {
		return nil
	}
	return call.proxied.upload
}

// proxyPrefix is where services are, each under its name.
const proxyPrefix = "/proxy/"

// anyAction is what a request is called that is none of its service's actions. No
// action has such an id.
const anyAction = "*"

// readFirst is the length of a body that is read to its end before the service is
// called. A small one that is sent on while it comes, and whose answer begins before it
// has all gone out, costs a thousand times as often an answer that is cut (golang/go#40747).
const readFirst = 64 << 10

// relayable are the methods that are relayed: those that IANA registers, but for
// CONNECT, TRACE and PRI, which are about connections and not about a service.
var relayable = strings.Fields(`GET HEAD POST PUT PATCH DELETE OPTIONS
	ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT COPY LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF
	MKWORKSPACE MOVE ORDERPATCH PROPFIND PROPPATCH QUERY REBIND REPORT SEARCH UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE
	UPDATEREDIRECTREF VERSION-CONTROL`)

// proxyTarget is where a request leads by /proxy, by the bytes of its target as they
// were sent; nil: it does not.
func proxyTarget(r *http.Request) *proxied {
	target := r.RequestURI
	if scheme, absolute, ok := strings.Cut(target, "://"); ok && !strings.ContainsAny(scheme, ":/?") { // RFC 9112, section 3.2.2
		target = absolute[max(0, strings.IndexAny(absolute, "/?")):] // a query may begin where there is no path
	}
	rest, ok := strings.CutPrefix(target, proxyPrefix)
	if !ok {
		return nil
	}
	p := &proxied{}
	p.path = rest
	if at := strings.IndexByte(rest, '?'); at >= 0 {
		p.path, p.query = rest[:at], rest[at:]
	}
	p.service, p.path = p.path, ""
	if at := strings.IndexByte(p.service, '/'); at >= 0 {
		p.service, p.path = p.service[:at], p.service[at:]
	}
	if p.service == "" {
		return nil
	}
	return p
}

// params are the bytes that a receipt commits to: the target below the service, and
// behind a line end the body, where the gateway has read it to judge it.
func (p *proxied) params(judged bool) []byte {
	b := []byte(p.path + p.query)
	if judged {
		b = append(append(b, '\n'), p.body...)
	}
	return b
}

// readProxied is step 3 of a call by /proxy: all of the request but its body.
func (g *Gateway) readProxied(call *Call, out *answer, at *attempt) *Error {
	p, r, limit := call.proxied, call.In, call.view.settings.MaxRequestBody
	awaitEnd(r, out)
	if err := checkFraming(r); err != nil {
		return err
	}
	if !slices.Contains(relayable, r.Method) {
		e := refuse(MethodNotAllowed, "%.40q is not relayed", r.Method)
		e.Allow = strings.Join(relayable, ", ")
		return e
	}
	if err := cmp.Or(registry.CheckTarget(p.path, strings.TrimPrefix(p.query, "?")), nameable("the service", p.service)); err != nil {
		return refuse(BadRequest, "%v", err)
	}
	if identity.HasKeyInURL(p.path) || identity.HasKeyInURL(p.query) {
		return refuse(BadRequest, "there is a gateway key in the path or the query, where it would go on to the service and into its logs: send it in a header")
	}
	if p.upgrade = upgrades(r); p.upgrade {
		if err := checkUpgrade(call, out); err != nil {
			return err
		}
	}
	principal, err := onBehalfOf(r.Header)
	if err != nil {
		return err
	}
	if limit > 0 && r.ContentLength > limit {
		return tooLarge(limit)
	}
	call.Act = act{Service: p.service, Action: anyAction, unmatched: true, Principal: principal, size: max(0, r.ContentLength)}
	if service := call.view.registry.Services[p.service]; service != nil && call.Key.AllowsService(p.service) {
		action, err := service.Match(r.Method, p.path, func(name string) bool { return call.Key.Allows(p.service, name) })
		if err != nil {
			return refuse(BadRequest, "%v", err)
		}
		if action != nil {
			call.Act.Action, call.Act.unmatched = action.Name, false
		}
	}
	at.record.Service, at.record.Action, at.record.Principal = call.Act.Service, call.Act.Action, call.Act.Principal
	at.read, at.params = true, p.params(false)
	return nil
}

// onBehalfOf is the principal of a call by /proxy.
func onBehalfOf(h http.Header) (string, *Error) {
	fields := h["Agentgate-On-Behalf-Of"]
	if len(fields) == 0 {
		return "", nil
	}
	user := strings.Trim(fields[0], " \t")
	if len(fields) > 1 || user == "" {
		return "", refuse(BadRequest, "Agentgate-On-Behalf-Of is given twice or is empty; leave it out where there is nobody")
	}
	if err := nameable("Agentgate-On-Behalf-Of", user); err != nil {
		return "", refuse(BadRequest, "%v", err)
	}
	return user, nil
}

// readBody reads what of a body has to be known before the call is decided: that of an
// action whose parameters the registry has, which are then those of the call; and a
// small one. Any other is sent on while it comes. What is wrong with the parameters is for
// step 8 to say.
func (g *Gateway) readBody(call *Call, action *registry.Action, out *answer, at *attempt) *Error {
	p, r := call.proxied, call.In
	if p == nil {
		return nil
	}
	judged := action != nil && action.Described()
	switch {
	case r.ContentLength == 0:
	case judged && !action.TakesBody() && r.ContentLength > 0:
		p.body = []byte{} // one that need not be read to be refused
	case judged || 0 < r.ContentLength && r.ContentLength <= readFirst && r.Header["Expect"] == nil && len(r.Trailer) == 0:
		if err := g.readWhole(call, out, at); err != nil {
			return err
		}
	default:
		p.upload = newUpload(r, out, call.view.settings.MaxRequestBody)
	}
	if !judged {
		return nil
	}
	sent := agentHeader(r.Header, call.open() != "") // what the service gets: a field that stays here is no parameter of its
	if action.TakesBody() {
		if err := isJSON(sent); err != nil {
			return err
		}
		at.params = p.params(true)
	}
	call.Act.Params, call.unfit = carried(action, p, r, sent)
	return nil
}

func (g *Gateway) readWhole(call *Call, out *answer, at *attempt) *Error {
	p, r, limit := call.proxied, call.In, call.view.settings.MaxRequestBody
	raw, err := readBody(incoming{r.Body, out.control, out.stall.limit}, r.ContentLength, limit)
	at.record.In, call.Act.size = int64(len(raw)), int64(len(raw))
	if err != nil {
		return refuse(BadRequest, "the body could not be read to its end")
	}
	if limit > 0 && int64(len(raw)) > limit {
		return tooLarge(limit)
	}
	_ = r.Body.Close() // see readJSON
	p.body = raw
	return nil
}

// isJSON refuses a body in which the gateway cannot read parameters, or which a service
// that goes by the other of two lines, or by a charset, would read as another.
func isJSON(h http.Header) *Error {
	types, codings := h["Content-Type"], h["Content-Encoding"]
	media, says, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset := says["charset"]
	typed := h.Get("Content-Type") == "" || err == nil && media == "application/json" && (charset == "" || strings.EqualFold(charset, "utf-8"))
	coded := h.Get("Content-Encoding") != "" && !strings.EqualFold(h.Get("Content-Encoding"), "identity")
	if !typed || coded || len(types) > 1 || len(codings) > 1 {
		e := refuse(BadRequest, "the body of this action must be JSON in UTF-8, and not compressed: send Content-Type: application/json, once")
		e.Status = http.StatusUnsupportedMediaType
		return e
	}
	return nil
}

// carried are the parameters that a request has for its action, with sent as its header.
func carried(action *registry.Action, p *proxied, r *http.Request, sent http.Header) ([]byte, error) {
	if p.body != nil && !action.TakesBody() && (r.ContentLength > 0 || len(p.body) > 0) {
		return nil, &registry.ParamError{Reason: "this action has no body"}
	}
	if !utf8.Valid(p.body) {
		return nil, &registry.ParamError{Reason: "the body is not UTF-8"}
	}
	if at := crowded(p.body); at > 0 {
		return nil, &registry.ParamError{Reason: fmt.Sprintf("the body has an object of more than %d members, as far as byte %d", manyMembers, at)}
	}
	return action.Carried(registry.Sent{Path: p.path, Query: strings.TrimPrefix(p.query, "?"), Header: sent, Body: p.body})
}

// proxiedTarget is step 8 of a call by /proxy.
func proxiedTarget(call *Call, service *registry.Service) (*registry.Target, *Error) {
	p := call.proxied
	if call.unfit != nil {
		return nil, badParams(call.unfit)
	}
	target, err := service.Relay(call.In.Method, p.path, p.query)
	if err != nil {
		return nil, refuse(BadParams, "%v", err)
	}
	target.Body = p.body
	if len(p.body) == 0 {
		target.Body = nil
	}
	target.Header = agentHeader(call.In.Header, call.open() != "")
	if p.upgrade {
		forUpgrade(target.Header)
	}
	return target, nil
}

// proxy is ANY /proxy/SERVICE/PATH.
func (g *Gateway) proxy(out *answer, r *http.Request, p *proxied) {
	call := g.call(r)
	call.proxied = p
	out.head = r.Method == http.MethodHead
	out.dialect = dialectOf(call.view.registry.Services[p.service], p.path, call.RequestID)
	if r.ContentLength != 0 && r.ProtoMajor == 2 {
		// framed has bounded how long the body is waited for, as net/http may after the
		// answer. Here it may be read much later, and over HTTP/2 a deadline that has passed
		// is the end of the body, whether somebody was reading or not.
		_ = out.control.SetReadDeadline(time.Time{})
		defer func() { _ = out.control.SetReadDeadline(deadline(time.Second)) }()
	}
	g.serveCall(out, call)
}
