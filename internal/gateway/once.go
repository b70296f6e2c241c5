package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
)

// once is the sending of one request. An http.Transport sends some again by itself: over
// HTTP/1 safe ones and those with an Idempotency-Key, when a kept connection dies under them,
// and over HTTP/2 all without a body, when the service refuses the stream or goes away. Here
// an attempt may follow another only while no whole header has gone out.
//
// Of a header that is larger than the transport's buffer a part may have gone out then, and
// goes out again on another connection. No service has processed that part: a request begins
// to be one with the end of its header (RFC 9112, section 2.2; RFC 9113, section 4.3), and the
// last byte of it stays in the buffer until WroteHeaders has been told. What became of the
// part is the end of a connection, which says that there was no request (RFC 9112, section 8).
//
// A body that cannot be had twice would have the transport do the same, but one is announced:
// over HTTP/2 the header would not be the request's end.
//
// The transport begins an attempt by asking for its proxy, and within HTTP/2 by having got a
// connection; it returns when all that wrote for the attempt before has ended.
type once struct {
	cancel context.CancelCauseFunc // of the request's context
	line   net.Conn                // that the request is sent on
	sent   atomic.Bool             // a whole header of it
}

// errAgain is a second attempt, which is not made. What the first one failed by is lost: net/http
// tells only of the last.
var errAgain = errors.New("the service refused the request or gave the connection up, and the request is not sent again")

type onceKey struct{}

// watched is ctx for a request that is sent once by a transport of NewTransport's, with what
// else trace is to be told of.
func (o *once) watched(ctx context.Context, trace *httptrace.ClientTrace) context.Context {
	trace.GotConn = func(i httptrace.GotConnInfo) {
		if o.line = i.Conn; o.sent.Load() {
			o.cancel(errAgain) // HTTP/2 looks at it before it writes
		}
	}
	trace.WroteHeaders = func() { o.sent.Store(true) }
	return httptrace.WithClientTrace(context.WithValue(ctx, onceKey{}, o), trace)
}

// noProxy is a transport's Proxy: none for any request, and not from the environment, which
// would bypass the dial guard. An error of it ends the attempt before there is a connection.
func noProxy(r *http.Request) (*url.URL, error) {
	if o, ok := r.Context().Value(onceKey{}).(*once); ok && o.sent.Load() {
		return nil, errAgain
	}
	return nil, nil
}
