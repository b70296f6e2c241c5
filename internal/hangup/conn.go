// Package hangup lets an http.Server see that an HTTP/1 client is gone, though the
// client has sent something behind its request.
//
// While a handler runs, net/http waits in one Read of one byte for the client to hang
// up, and ends the request's context when that Read fails. A byte that comes instead (of
// the next request, of a stray line end) ends this watch: net/http keeps the byte and
// reads no more until the handler is done. Whoever hangs up after that goes on being
// served, and a handler that is silent keeps what it holds for as long as it is.
//
// A connection of this package keeps such bytes back: the Read of the watch goes on
// until the client is gone or net/http calls it off, and what came meanwhile is what
// the next Read returns. It costs no goroutine and, while nothing comes early, no memory.
//
//	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
//	server.Serve(hangup.Listener(l))
//
// A client that closes its sending side only is gone too, as it always is to net/http.
//
// Of a client with more than 256 KiB behind its request no more is read until its request
// is done, but what TCP tells of its end is looked at without reading. Not promised: that
// it tells. The end comes behind all that was sent, and so not while there is more than
// the kernel takes either; and an end that is TLS's alone is not seen. HTTP/2 has no such
// gap and needs none of this.
//
// As it is what net/http reads from, it is also where a request is refused that net/http
// would take and others would take for another one (package http1): that is answered with
// 400, after the answers to the requests before it, and ends the connection. So no Read
// goes behind the end of a request.
package hangup

import (
	"net"
	"slices"
	"sync/atomic"
	"time"

	"agentgw/internal/http1"
)

// most is how many bytes are kept back of what a client sends too early. More are left
// to the kernel, which soon has the client wait. It is far less than the body of a
// request may be, which is kept just as long.
const most = 256 << 10

// conn is a connection whose watch goes on. What net/http reads for the watch it tells
// from all else by what it does: it takes the deadline away and then reads one byte. A
// head is read under ReadHeaderTimeout, which must be set. The first Read of a body
// without a deadline has room for more than a byte: net/http's buffer would have to be
// full but for one, and it has just made room for the body's head. Were net/http to
// change this, early bytes would end the watch as they do without this package.
type conn struct {
	net.Conn
	watches atomic.Bool // the next Read is the watch, if it is of one byte
	taken   atomic.Bool // by somebody else than net/http, whose requests are not looked for
	early   []byte      // of the one that reads

	requests http1.Requests // in what was read
	refused  error          // there is none in what follows
	filler   string         // that is still to be read before refused
}

// Read is called by one goroutine at a time, as net/http does.
func (c *conn) Read(p []byte) (int, error) {
	if c.watches.Swap(false) && len(p) == 1 {
		return c.watch(p)
	}
	if len(c.early) > 0 || c.refused != nil {
		return c.take(p)
	}
	n, err := c.Conn.Read(p)
	passed := c.pass(p[:n])
	if passed == n {
		return n, err
	}
	c.early = append(c.early, p[passed:n]...)
	if passed > 0 {
		return passed, nil
	}
	return c.take(p)
}

// pass is how many of the bytes that come next may be read now.
func (c *conn) pass(p []byte) (n int) {
	if c.taken.Load() {
		return len(p)
	}
	if n, c.refused = c.requests.Pass(p); c.refused != nil {
		// Where net/http has less than four bytes of a request it closes without a word.
		c.filler = "    "
	}
	return n
}

// watch reads until there is an error: the client's end, or the deadline in the past by
// which net/http calls its watch off. It reads into p first, since from most clients
// nothing comes that would want a buffer. When as much came as is kept it only waits.
func (c *conn) watch(p []byte) (int, error) {
	for room := p; len(c.early) < most; room = c.early[len(c.early):min(cap(c.early), most)] {
		n, err := c.Conn.Read(room)
		c.early = append(c.early, room[:n]...) // onto itself, but for the first
		if err != nil {
			return 0, err
		}
		c.early = slices.Grow(c.early, 512)
	}
	if err := awaitEnd(c.Conn); err != nil {
		return 0, err
	}
	return c.take(p)
}

// take reads what is kept, or what is there for it where no request is in it.
func (c *conn) take(p []byte) (int, error) {
	if c.refused == nil {
		if n := c.pass(c.early[:min(len(p), len(c.early))]); n > 0 {
			copy(p, c.early[:n])
			if c.early = c.early[n:]; len(c.early) == 0 {
				c.early = nil
			}
			return n, nil
		}
	}
	c.early = nil
	if c.filler == "" {
		return 0, c.refused
	}
	n := copy(p, c.filler)
	c.filler = c.filler[n:]
	return n, nil
}

// SetReadDeadline may come while a Read is under way, as by net/http it does.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.watches.Store(t.IsZero())
	return c.Conn.SetReadDeadline(t)
}

// SetDeadline is what net/http does last before it lets somebody have the connection:
// what he reads is his.
func (c *conn) SetDeadline(t time.Time) error {
	c.watches.Store(false)
	c.taken.Store(true)
	return c.Conn.SetDeadline(t)
}

// NetConn is the connection below, for who has taken this one over from net/http.
func (c *conn) NetConn() net.Conn { return c.Conn }

// CloseWrite is how net/http ends a connection whose client is still sending.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
