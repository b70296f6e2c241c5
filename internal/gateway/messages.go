package gateway

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
	"agentgw/internal/registry"
	"agentgw/internal/websocket"
)

// message is one of the client's while it is collected: its frames as they came, and
// their payload.
type message struct{ frames, payload []byte }

// keptBetween is how much memory a connection keeps between two messages, for each.
const keptBetween = 16 << 10

func (m *message) forget() {
	m.frames, m.payload = m.frames[:0], m.payload[:0]
	if cap(m.frames) > keptBetween || cap(m.payload) > keptBetween {
		*m = message{}
	}
}

// pings is a bucket of those that a client may have answered, of this connection alone and
// as those of ratelimit are: when it is full again.
type pings struct{ full time.Time }

const (
	pingBurst = 60
	pingEvery = time.Second
)

func (p *pings) allow(now time.Time) bool {
	next := now
	if p.full.After(now) {
		next = p.full
	}
	if next = next.Add(pingEvery); next.Sub(now) > pingBurst*pingEvery {
		return false
	}
	p.full = next
	return true
}

// charges reports whether some messages of the client are charged.
func (c *conversation) charges() bool { return len(c.service.ChargeMessages) > 0 }

// collect takes a piece of a message, and passes the message on when it is whole: what is
// to be charged after that. A refused one is answered in its place. False is that nothing
// of what comes behind is to be passed on.
func (c *conversation) collect(u websocket.Unit) bool {
	m := &c.message
	m.frames = append(m.frames, u.Bytes...)
	m.payload = websocket.AppendUnmasked(m.payload, u.Payload, u.Header.Mask, u.Offset)
	if !u.Last {
		return true
	}
	defer m.forget()
	if u.Opcode == websocket.Text && !utf8.Valid(m.payload) {
		c.clientFault(&websocket.Fault{Code: websocket.InvalidData, Reason: "a text is not UTF-8"})
		return false
	}
	if !c.listed(u.Opcode, m.payload) {
		if c.count != nil {
			c.count(int64(len(m.frames)))
		}
		return c.passed(c.toUpstream.pass(m.frames, stands{}))
	}
	if c.toUpstream.closed() { // it is over: nothing is charged that goes nowhere
		return true
	}
	if frame := c.chargeMessage(m.payload); frame != nil {
		if err := c.toClient.put(websocket.AppendFrame(nil, websocket.Text, nil, frame)); err == errCrowded {
			c.end(end{ending: receipts.ClientCancelled, code: websocket.Policy, reason: "too many refused messages within one of the service's"})
			return false
		}
		return true // of a client that takes nothing more the other direction tells
	}
	err := c.toUpstream.pass(m.frames, stands{})
	if err == nil {
		c.admitted.Add(1)
	}
	return c.passed(err)
}

// listed reports whether a message is one that is charged: its kind is listed, in whatever
// case, or cannot be told for certain.
func (c *conversation) listed(o websocket.Opcode, payload []byte) bool {
	if o != websocket.Text {
		return true
	}
	kind, certain := websocket.Kind(payload)
	return !certain || slices.ContainsFunc(c.service.ChargeMessages, func(listed string) bool { return strings.EqualFold(listed, kind) })
}

// chargeMessage charges one message of the client as a call is charged, but for slots, of
// which the connection has its own; and returns nil, or the frame's payload that a refused
// one is answered with. It goes by the limits that are in force when the message comes: the
// connection may be days old.
func (c *conversation) chargeMessage(payload []byte) []byte {
	g, one := c.g, *c.call
	if now := g.current.Load(); now.services[one.Act.Service] != nil {
		one.view = now
	}
	if s := one.view.secret(c.call, g.clock.Now()); s != nil {
		one.Key = s.Key
	} else {
		one.view = c.call.view // of a key that is gone, which ends the connection, or a token that is over, which does not
	}
	one.account, one.Act.size = one.view.account(one.Key), int64(len(payload))
	refusal := g.pay(&one)
	if refusal == nil {
		return nil
	}
	g.noteRefusal(&one, refusal)
	at := g.begin(&one)
	own := c.identity
	own.ID, own.In = at.record.ID, int64(len(payload))
	at.record, at.read, at.params = own, true, payload
	refusal = at.close(refusal)
	g.decided(g.known(&one), refusal.Code, refusal.Limit)
	g.note(&one, at, refusal)
	receipt := ""
	if !at.unrecorded() {
		receipt = at.id()
	}
	return c.out.dialect.frame(refusal, receipt)
}

// pay charges what has its slot: the key first, then all else.
func (g *Gateway) pay(call *Call) *Error {
	charge := g.limiter.Take(call.account.key, g.nanos.Nanos())
	if charge.Refused() {
		return g.refusal(call, charge.Verdict())
	}
	service := call.view.registry.Services[call.Act.Service]
	call.uses = g.uses(call, service.Actions[call.Act.Action], call.account.pays(call.Act.Principal), everyRule)
	v := g.limiter.Pay(charge, call.admission(call.view.services[call.Act.Service]), g.nanos.Nanos())
	if v.Outcome != ratelimit.Admitted {
		return g.refusal(call, v)
	}
	g.showObserved(call)
	return nil
}

// frame is the message that answers a refused one.
func (d dialect) frame(e *Error, receipt string) []byte {
	said := struct {
		Type      string `json:"type"`
		Status    int    `json:"status"`
		Error     any    `json:"error"`
		RequestID string `json:"request_id,omitempty"`
	}{Type: "error", Status: e.status()}
	switch d.name {
	case registry.DialectAnthropic:
		said.Error, said.RequestID = d.error(e), d.requestField()
	case registry.DialectOpenAI:
		said.Error = d.error(e)
	default:
		said.Error, _ = problemOf(e, receipt, jitter)
	}
	b, _ := json.Marshal(said) // texts and numbers only: cannot fail
	return b
}
