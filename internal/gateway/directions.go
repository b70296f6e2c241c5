package gateway

import (
	"bytes"
	"errors"
	"io"
	"os"
	"time"

	"agentgw/internal/receipts"
	"agentgw/internal/websocket"
)

// manyFrames is in how many fragments a message may come that is collected: each has a
// header that is kept with it, and may hold nothing else.
const manyFrames = 1 << 16

// listen passes on what the client sends, until nothing more comes of it. Where messages
// are charged, those with data are collected first, and control frames go ahead of one
// that is not whole yet.
func (c *conversation) listen() {
	lent := c.g.events.get()
	defer c.g.events.put(lent)
	s := websocket.Stream{FromClient: true, Most: c.call.view.settings.MaxRequestBody}
	if c.charges() {
		s.Frames = manyFrames
	}
	for held, buf := 0, *lent; ; {
		c.await(held > 0 || s.InFrame())
		n, err := c.from.Read(buf[held:])
		c.in.Add(int64(n))
		rest, more := c.heard(&s, buf[:held+n])
		if !more {
			c.ignore()
			return
		}
		held = copy(buf, rest)
		if err != nil {
			c.clientEnded(err)
			return
		}
	}
}

// heard passes on what of p is whole, and returns the rest; false is that nothing more of
// what comes behind is to be passed on.
func (c *conversation) heard(s *websocket.Stream, p []byte) (rest []byte, more bool) {
	run := 0 // what goes on as it is begins here
	for at := 0; at < len(p); {
		u, fault := s.Next(p[at:])
		switch {
		case fault != nil:
			c.passUp(s, p[run:at])
			c.clientFault(fault)
			return nil, false
		case len(u.Bytes) == 0:
			return p[at:], c.passUp(s, p[run:at])
		case u.Opcode == websocket.Closing:
			return nil, c.passUp(s, p[run:at]) && c.clientCloses(u)
		case u.Opcode == websocket.Ping && !c.pings.allow(c.g.clock.Now()):
			c.passUp(s, p[run:at])
			c.end(end{ending: receipts.ClientCancelled, code: websocket.Policy, reason: "too many pings"})
			return nil, false
		}
		next := at + len(u.Bytes)
		if c.charges() && !u.Opcode.Control() {
			if !c.passUp(s, p[run:at]) || !c.collect(u) {
				return nil, false
			}
			run = next
		}
		at = next
	}
	return nil, c.passUp(s, p[run:])
}

// passUp passes bytes of the client on, behind which s stands.
func (c *conversation) passUp(s *websocket.Stream, b []byte) bool {
	if len(b) == 0 {
		return true
	}
	if c.count != nil {
		c.count(int64(len(b)))
	}
	begun := s.InMessage() && !c.charges()
	if begun {
		c.border(fromClient, true)
	}
	err := c.toUpstream.pass(b, stands{inFrame: begun && s.InFrame(), inMessage: begun})
	if !begun {
		c.border(fromClient, false)
	}
	return c.passed(err)
}

// passed reports whether what comes behind is to be passed on, too. A service that takes
// nothing more may have said why: that is on its way in the other direction.
func (c *conversation) passed(err error) bool {
	if err == nil || errors.Is(err, errShut) {
		return true
	}
	c.endIn(halfOpen, broken("the service takes nothing more"))
	return false
}

// clientCloses passes the client's close on. Nothing that comes behind one counts (RFC
// 6455, section 5.5.1).
func (c *conversation) clientCloses(u websocket.Unit) bool {
	if _, fault := websocket.ParseClose(websocket.AppendUnmasked(nil, u.Payload, u.Header.Mask, 0)); fault != nil {
		c.clientFault(fault)
		return false
	}
	if c.toUpstream.reply(u.Bytes) { // to the service's own, with which it is over
		return false
	}
	c.clientDid(receipts.Complete)
	c.endIn(goodbye, end{ending: receipts.Timeout, code: websocket.BadGateway, reason: "the service did not answer the close"})
	c.passed(c.toUpstream.pass(u.Bytes, stands{}))
	return false
}

func (c *conversation) clientFault(f *websocket.Fault) {
	e := end{ending: receipts.ClientCancelled, code: f.Code, reason: f.Reason}
	if f.Code == websocket.TooBig {
		e.ending = receipts.Budget
	}
	c.end(e)
}

// clientEnded is that nothing more comes of the client, for that reason.
func (c *conversation) clientEnded(err error) {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.end(end{ending: receipts.SlowClient, code: websocket.Policy, reason: "a frame was begun and not ended"})
	case !errors.Is(err, io.EOF):
		c.end(end{ending: receipts.ClientCancelled})
	default:
		// It may only have ended its side, and still take what is on its way to it.
		closed := c.clientDidIt()
		c.clientDid(receipts.ClientCancelled)
		c.toUpstream.endSide(c.upstream)
		e := end{ending: receipts.ClientCancelled}
		if closed {
			e.ending = receipts.Complete
		}
		c.endIn(halfOpen, e)
	}
}

// ignore reads what the client sends to the end of it.
func (c *conversation) ignore() {
	c.await(false)
	_, err := io.Copy(io.Discard, c.from)
	if err == nil {
		err = io.EOF
	}
	c.clientEnded(err)
}

// await bounds how long the next bytes of the client may take, where it has begun a frame.
func (c *conversation) await(begun bool) {
	if c.out.stall.limit <= 0 {
		return
	}
	var until time.Time
	if begun {
		until = deadline(c.out.stall.limit)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		_ = c.client.SetReadDeadline(until)
	}
}

// speak passes on what the service sends, until its close, which is for whoever ends the
// conversation to pass on.
func (c *conversation) speak() {
	lent := c.g.events.get()
	defer c.g.events.put(lent)
	var s websocket.Stream
	for held, buf := 0, *lent; ; {
		n, err := c.upstream.Read(buf[held:])
		if n > 0 {
			c.patience.heard()
		}
		if n > 0 && c.count != nil {
			c.count(int64(n))
		}
		rest, more := c.said(&s, buf[:held+n])
		if !more {
			return
		}
		held = copy(buf, rest)
		if err != nil {
			c.serviceEnded(err)
			return
		}
	}
}

// said passes on what of p is whole, and returns the rest; false is that nothing more is
// to be passed on.
func (c *conversation) said(s *websocket.Stream, p []byte) (rest []byte, more bool) {
	at, border := 0, 0
	var out []byte // what may go on: of a service without a credential p as far as at
	for at < len(p) {
		u, fault := s.Next(p[at:])
		switch {
		case fault != nil:
			return nil, c.misspoken(s, out, border, fault)
		case len(u.Bytes) == 0:
			return p[at:], c.passDown(s, out, border)
		case u.Opcode == websocket.Closing:
			if _, fault := websocket.ParseClose(u.Payload); fault != nil {
				return nil, c.misspoken(s, out, border, fault)
			}
			frame := bytes.Clone(u.Bytes)
			if c.veil != nil {
				frame = c.veil.control(u)
			}
			if c.passDown(s, out, border) {
				c.end(end{frame: frame})
			}
			return nil, false
		}
		at += len(u.Bytes)
		if out = p[:at]; c.veil != nil {
			c.veiled = c.veil.add(c.veiled, u)
			out = c.veiled
		}
		if !s.InMessage() {
			border = len(out)
		}
	}
	return nil, c.passDown(s, out, border)
}

// misspoken passes on what was in order of the service, and ends the conversation for what
// was not.
func (c *conversation) misspoken(s *websocket.Stream, b []byte, border int, f *websocket.Fault) (more bool) {
	if c.passDown(s, b, border) {
		c.end(broken("the service broke the protocol: " + f.Reason))
	}
	return false
}

// passDown passes bytes of the service on, behind which s stands; so many of them end
// between two messages.
func (c *conversation) passDown(s *websocket.Stream, b []byte, border int) bool {
	if len(b) == 0 {
		return true
	}
	if s.InMessage() {
		c.border(fromService, true)
	}
	inFrame := s.InFrame()
	if c.veil != nil {
		inFrame = c.veil.inFrame()
	}
	err := c.toClient.pass(b, stands{inFrame, s.InMessage(), border})
	c.veiled = c.veiled[:0]
	if !s.InMessage() {
		c.border(fromService, false)
	}
	if err == nil {
		return true
	}
	e := end{ending: receipts.ClientCancelled}
	if c.out.stall.cut() {
		e.ending = receipts.SlowClient
	}
	c.end(e)
	return false
}

// serviceEnded is that nothing more comes of the service, and no close did. What the client
// has sent may still be on its way.
func (c *conversation) serviceEnded(err error) {
	e := broken("the service broke off")
	switch {
	case c.clientDidIt():
		c.end(end{})
	case errors.Is(err, io.EOF):
		c.endIn(halfOpen, e)
	default:
		c.end(e)
	}
}
