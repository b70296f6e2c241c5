package gateway

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"golang.org/x/net/http/httpguts"

	"agentgw/internal/registry"
)

// passed are the request headers of an agent that reach an upstream; all others
// stay here. Everything outbound is built, nothing is copied by default.
var passed = []string{
	"Accept", "Accept-Encoding", "Accept-Language", "Idempotency-Key", "Last-Event-Id",
	"Traceparent", "Tracestate",
}

// upstreamRequest builds the request that goes out: of an act from the declared
// action and nothing else but the allow-listed headers, and not those that the agent
// names in Connection, which are for the gateway alone (RFC 9110, section 7.6.1); of
// a request of the agent's own from what may go on of it. Host is the service's, as
// the server name of TLS is, whatever the agent called the gateway. The credential is
// not on it yet.
func upstreamRequest(ctx context.Context, call *Call, target *registry.Target, agent string) *http.Request {
	in := call.In
	h := target.Header // which is this call's own, and comes before what the agent says
	if h == nil {
		h = make(http.Header, 8) // a map of more takes a table, and twice the memory
	}
	out := (&http.Request{
		Method: target.Method, URL: target.URL, Host: target.URL.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h,
	}).WithContext(ctx)
	for _, name := range passed {
		if call.proxied != nil {
			break
		}
		values := in.Header[name]
		if len(values) > 0 && h[name] == nil && !httpguts.HeaderValuesContainsToken(in.Header["Connection"], name) {
			h[name] = values
		}
	}
	if h["User-Agent"] == nil {
		h["User-Agent"] = []string{agent}
	}
	h["X-Request-Id"] = []string{call.RequestID}
	if takesTrailers(in) {
		h["Te"] = []string{"trailers"}
	}
	if target.Body != nil {
		if h["Content-Type"] == nil && call.proxied == nil {
			h["Content-Type"] = []string{"application/json"}
		}
		// Of a kind that the transport knows to be in memory: else it would send
		// the header by itself first, a write, a packet and a wakeup more.
		out.Body = io.NopCloser(bytes.NewReader(target.Body))
		out.ContentLength = int64(len(target.Body))
	}
	if up := call.uploaded(); up != nil {
		out.Body, out.ContentLength = up, in.ContentLength
		if up.asks != nil {
			h["Expect"] = []string{"100-continue"}
		}
		if out.Trailer = trailerFor(in); out.Trailer != nil {
			out.ContentLength = -1 // HTTP/1 has a trailer behind chunks alone
			up.trailer = out.Trailer
		}
	}
	return out
}

// takesTrailers reports whether the client says that it keeps trailers
// (RFC 9110, section 6.5.1).
func takesTrailers(in *http.Request) bool {
	return in.ProtoAtLeast(1, 1) && httpguts.HeaderValuesContainsToken(in.Header["Te"], "trailers")
}
