package gateway

import (
	"fmt"
	"net"
	"net/http"
	"strings"

	"agentgw/internal/identity"
	"agentgw/internal/literal"
	"agentgw/internal/ratelimit"
	"agentgw/internal/registry"
	"agentgw/internal/tunnel"
)

// tunnelled is what a call has that came as CONNECT (RFC 9110, section 9.3.6): bytes both
// ways, of which the gateway understands nothing.
type tunnelled struct {
	to    registry.HostPort
	limit tunnel.Limit
	conn  net.Conn // of the client, taken over from net/http; nil: it was not
	whole bool     // both sides have ended it in good order
}

// tunnels reports whether a request is for a tunnel. A CONNECT for a path is none, and is
// refused wherever that path is.
func tunnels(r *http.Request) bool {
	return r.Method == http.MethodConnect && !strings.HasPrefix(r.RequestURI, "/")
}

// connect is CONNECT HOST:PORT.
func (g *Gateway) connect(out *answer, r *http.Request) {
	call := g.call(r)
	call.tunnel = &tunnelled{}
	g.running.stay()
	defer g.running.leave()
	defer call.tunnel.close() // when its outcome is on disk, and its slot free
	g.serveCall(out, call)
}

// close ends the client's connection, so that a tunnel that was cut does not look like one
// that came to its end: what flows in it may have no other sign of that.
func (t *tunnelled) close() {
	switch {
	case t.conn == nil:
	case t.whole:
		_ = t.conn.Close()
	default:
		reset(t.conn)
	}
}

// reset ends a connection at once, and has the other side see that it was broken off.
func reset(c net.Conn) {
	below := c
	for {
		over, ok := below.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		below = over.NetConn()
	}
	if tcp, ok := below.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = below.Close() // not c, which over TLS would say that all is well
}

// credentials are the fields that the caller's key may stand in. That of a tunnel stands
// in no field but that of proxies; where there are no tunnels, a CONNECT is a request
// like any other that is not allowed.
func (c *Call) credentials() http.Header {
	if c.tunnel == nil || c.view.registry.Tunnels == nil && len(c.In.Header["Proxy-Authorization"]) == 0 {
		return c.In.Header
	}
	return identity.ProxyCredentials(c.In.Header)
}

// unauthenticated is what a caller is told whatever was wrong with his key.
func (c *Call) unauthenticated() *Error {
	if c.tunnel == nil && c.In.Header["Proxy-Authorization"] != nil {
		return refuse(Unauthenticated, unauthenticated+"; as a proxy this gateway takes CONNECT alone, by which clients get what is https:// (curl gets http:// so with --proxytunnel)")
	}
	if c.tunnel == nil {
		return refuse(Unauthenticated, unauthenticated)
	}
	e := refuse(Unauthenticated, "send a valid gateway key in Proxy-Authorization, as Bearer agw_... or as the password of Basic: http://x:agw_...@GATEWAY")
	e.Status = http.StatusProxyAuthRequired
	return e
}

// readTunnel is step 3 of a CONNECT.
func readTunnel(call *Call, at *attempt) *Error {
	r, rules := call.In, call.view.registry.Tunnels
	switch {
	case rules == nil:
		return refuse(MethodNotAllowed, "this gateway opens no tunnels")
	case r.ProtoMajor > 1:
		return refuse(MethodNotAllowed, "tunnels are opened over HTTP/1.1 alone")
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		return refuse(BadRequest, "a CONNECT has no body")
	}
	if err := checkFraming(r); err != nil {
		return err
	}
	to, err := registry.ParseHostPort(r.RequestURI)
	if err == nil {
		err = nameable("the target", to.String())
	}
	if err != nil {
		e := refuse(BadRequest, "the target of a CONNECT is HOST:PORT: %v", err)
		e.Quotes = true
		return e
	}
	principal, refused := onBehalfOf(r.Header)
	if refused != nil {
		return refused
	}
	call.tunnel.to = to
	call.tunnel.limit = tunnelLimit(rules)
	call.Act = act{Service: registry.TunnelService, Action: to.String(), Principal: principal, to: &to}
	at.record.Service, at.record.Action, at.record.Principal = call.Act.Service, call.Act.Action, principal
	at.read = true
	return nil
}

func tunnelLimit(t *registry.Tunnels) tunnel.Limit {
	return tunnel.Limit{Bytes: t.BytesPerWindow, Window: t.Window, Cut: t.OnExhausted == registry.OnExhaustedCut}
}

// authorizeTunnel is step 4 of a CONNECT: a key that is for tunnels, or for all services;
// the host, by the list of the file and by the key's actions; and the principal.
func authorizeTunnel(in *registry.Snapshot, key *identity.Key, a act) (*registry.Service, *registry.Action, *Error) {
	switch {
	case !key.AllowsService(registry.TunnelService):
		return nil, nil, refuse(ScopeDenied, "this key may not open tunnels: %s is not among its services", registry.TunnelService)
	case !in.Tunnels.Allows(*a.to):
		return nil, nil, refuse(ScopeDenied, "no tunnel may lead to %s: it is not on the list of the gateway (tunnels.allow)", a.to)
	case !key.Allows(registry.TunnelService, a.Action):
		return nil, nil, refuse(ScopeDenied, "this key may not open a tunnel to %s", a.to)
	}
	if err := mayActFor(key, a.Principal); err != nil {
		return nil, nil, err
	}
	return in.Tunnels.Service, nil, nil
}

// budget is how the caller stands to the bytes that his tunnels may carry; zero for a call
// that is no tunnel.
func (g *Gateway) budget(call *Call) tunnel.Standing {
	if call.tunnel == nil {
		return tunnel.Standing{}
	}
	return g.budgets.Standing(call.spender(), call.tunnel.limit, g.nanos.Nanos())
}

// exhausted reports whether a tunnel's budget is used up, as far as is known without asking.
func (g *Gateway) exhausted(call *Call) bool {
	return g.budgets.Exhausted(call.spender(), call.tunnel.limit, g.nanos.Nanos())
}

// spender is whose budget the bytes of a tunnel are of.
func (c *Call) spender() string { return c.account.key.Partition() }

// tellBudget adds the budget to the RateLimit fields, where there is one.
func tellBudget(out *answer, call *Call, s tunnel.Standing) {
	if call.tunnel == nil || call.tunnel.limit.Bytes <= 0 {
		return
	}
	l := call.tunnel.limit
	tellReading(out, ratelimit.Reading{
		Kind: ratelimit.KindTunnelBytes, Quota: min(ratelimit.MaxQuota, l.Bytes), Remaining: min(ratelimit.MaxQuota, s.Left),
		Window: l.Window, Next: s.Ends,
	})
}

// budgetRefusal puts into words that the bytes are used up.
func budgetRefusal(call *Call, v ratelimit.Verdict) string {
	l := call.tunnel.limit
	return fmt.Sprintf("the tunnels of this caller may carry %s in %s, up and down together, and have; %s",
		plural(l.Bytes, "byte"), literal.Span(l.Window), whatToDo(v, v.Wait))
}
