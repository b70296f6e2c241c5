package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"agentgw/internal/receipts"
	"agentgw/internal/redact"
	"agentgw/internal/registry"
	"agentgw/internal/websocket"
)

// How long a conversation goes on that is over for one side: halfOpen is what who ended
// his side without a close, or died, leaves to the other, and goodbye what a service may
// take to answer the client's close. Both are by the gateway's clock, as the outcome
// depends on them.
const (
	halfOpen = time.Second
	goodbye  = 5 * time.Second
)

// lastWords is how long the gateway waits for the service to take what is on its way to
// it, when the conversation is over; and for the last bytes to be taken and for the client's
// end, when the outcome is on disk and the slot is free.
const lastWords = time.Second

// conversation is a WebSocket that was opened. Each direction has a goroutine of its own;
// the call's waits for what ends it.
type conversation struct {
	g        *Gateway
	call     *Call
	service  *registry.Service
	at       *attempt
	out      *answer
	running  *running
	patience *patience
	release  func()
	redactor redact.Redactor
	identity receipts.Record // what the receipt of a refused message says as that of the connection does

	client   net.Conn
	from     io.Reader // the client, and first what net/http has read of it already
	upstream io.ReadWriteCloser
	line     net.Conn // of upstream, for its deadlines

	toClient   peer
	toUpstream peer
	in         atomic.Int64 // bytes that came from the client
	admitted   atomic.Int64 // messages that were charged and went on
	count      func(int64)  // bytes, for the rules that count them; nil: none does
	ends       chan end

	mu      sync.Mutex
	over    bool            // the client's deadlines are those of its end
	begun   [2]bool         // a message is under way: of the client's, of the service's
	goesBy  receipts.Ending // what the client did, if it is its doing that the service ends now
	timers  []timer
	message message // of the client's, while it is collected; of listen alone
	pings   pings   // of listen alone
	veil    *veil   // nil: the service has no credential of the gateway's to repeat; of speak alone
	veiled  []byte  // what went through it, until it is passed on
}

// The directions of conversation.begun.
const (
	fromClient = iota
	fromService
)

// end is how a conversation ends. The first of several counts.
type end struct {
	ending receipts.Ending // "": what the client did, or else what it looks like
	code   websocket.Code  // that the client is told; 0: nothing is said to it
	reason string
	frame  []byte // the service's own close, which goes to the client as it came
	panic  any
}

// converse is step 9 of a WebSocket whose upgrade was answered: it takes the client's
// connection over and passes frames both ways until a side or the gateway ends that. The
// outcome is on disk and the slot free before the client can see the end.
func (g *Gateway) converse(ctx context.Context, c *conversation, header http.Header) *Error {
	if !c.redactor.Empty() {
		repeats := c.redactor.Header(header)
		c.veil = newVeil(c.redactor)
		defer func() { g.noteEcho(c.call, c.at, repeats || c.veil.found()) }()
	}
	c.ends = make(chan end, 4)
	r := &c.at.record
	c.identity = receipts.Record{
		Caller: r.Caller, Key: r.Key, Tenant: r.Tenant, Principal: r.Principal, Chain: r.Chain,
		Service: r.Service, Action: r.Action, Method: r.Method, RequestID: r.RequestID, ClientAddr: r.ClientAddr,
	}
	g.running.stay()
	defer g.running.leave()
	c.running.stream()
	c.running.leave() // if a drain has begun meanwhile
	if err := c.takeOver(header); err != nil {
		return &Error{Code: Internal, Message: "the connection could not be taken over", Err: err, Ran: true}
	}
	defer c.hangUp() // on a panic too
	c.count = g.counting(c.call, true)
	var both sync.WaitGroup
	broke := func(fault any) { c.end(end{panic: fault}) }
	both.Go(func() { g.guarded("a WebSocket", c.listen, broke) })
	both.Go(func() { g.guarded("a WebSocket", c.speak, broke) })

	var e end
	select {
	case e = <-c.ends:
	case <-ctx.Done():
		e = endedBy(context.Cause(ctx))
	}
	c.patience.stop()
	c.stopTimers()
	if e.panic != nil {
		c.note(0)
		c.hangUp()
		both.Wait()
		panic(e.panic)
	}
	e = c.settle(e)
	c.release()
	c.part(e)
	both.Wait()
	return c.at.lost
}

// takeOver takes the client's connection from net/http and answers the upgrade.
func (c *conversation) takeOver(header http.Header) error {
	conn, from, err := c.out.takeOver()
	if err != nil {
		return err
	}
	c.client, c.from, c.out.status = conn, from, 0
	c.out.stall.control = conn
	c.toClient.to, c.toClient.bound = conn, &c.out.stall
	c.toUpstream.to, c.toUpstream.bound = c.upstream, &lookout{clock: c.g.clock, at: conn, broken: func() { c.end(end{ending: receipts.ClientCancelled}) }}
	if err := c.toClient.write(switched(c.out.Header(), header)); err != nil { // the first read will tell how
		c.end(end{ending: receipts.ClientCancelled})
	}
	return nil
}

// end has the conversation end, if nothing else has.
func (c *conversation) end(e end) {
	select {
	case c.ends <- e:
	default: // it has been told often enough
	}
}

// endIn has it end that much later.
func (c *conversation) endIn(d time.Duration, e end) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timers = append(c.timers, c.g.clock.AfterFunc(d, func() { c.end(e) }))
}

func (c *conversation) stopTimers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.timers {
		t.Stop()
	}
}

// endedBy is how a conversation ends that the gateway ends, and what the client is told.
func endedBy(cause error) end {
	e := end{ending: endingOf(cause), code: websocket.Policy}
	switch {
	case errors.Is(cause, errShutdown):
		e.code, e.reason = websocket.GoingAway, "the gateway is shutting down"
	case errors.Is(cause, errBlocked):
		e.reason = tenantBlocked
	case errors.Is(cause, errGone):
		e.reason = "the key was revoked, taken away or has expired"
	case errors.Is(cause, errUndelegated):
		e.reason = "the delegation was revoked or is over"
	case errors.Is(cause, errStreamIdle):
		e.reason = "the service was silent for too long"
	case errors.Is(cause, errStreamMax):
		e.reason = "the connection grew too old"
	default:
		return end{ending: receipts.ClientCancelled}
	}
	return e
}

// broken is how a conversation ends whose service broke it off, or broke the protocol.
func broken(why string) end {
	return end{ending: receipts.UpstreamAborted, code: websocket.BadGateway, reason: why}
}

// note has the record say what went over the connection, with so many bytes that are
// still to go.
func (c *conversation) note(more int) {
	c.at.record.In, c.at.record.Messages = c.in.Load(), c.admitted.Load()
	c.at.sent(c.toClient.sent.Load() + int64(more))
}

// settle makes the outcome durable, and returns how the conversation ends for the client:
// where it could not be recorded not as if it were.
func (c *conversation) settle(e end) end {
	c.mu.Lock()
	switch {
	case e.ending != "":
	case c.goesBy != "":
		e.ending = c.goesBy
	case e.frame != nil:
		e.ending = receipts.Complete
	default:
		e.ending = receipts.UpstreamAborted
	}
	c.mu.Unlock()
	if e.frame == nil && e.code != 0 {
		e.frame = websocket.AppendClose(nil, nil, e.code, e.reason)
	}
	_ = c.line.SetWriteDeadline(deadline(lastWords)) // or a service that takes nothing would hold this up, and the slot with it
	c.toUpstream.shut(e.code == 0)                   // what goes on after this would be in no record; and who answers a close of the gateway's does not answer the service
	c.note(len(e.frame))
	if c.at.outcomeAs(e.ending) != nil {
		c.toUpstream.shut(false)
		e.code, e.frame = websocket.InternalError, websocket.AppendClose(nil, nil, websocket.InternalError, "the gateway could not record how this ended")
	}
	return e
}

// part says what is left to say: to the client the service's close or the gateway's, to
// the service that the client is going away, or what the client answers to its close. Who
// went without a word is followed without one.
func (c *conversation) part(e end) {
	bound := deadline(lastWords)
	_ = c.client.SetWriteDeadline(bound) // whoever still writes there gives up, too
	_ = c.line.SetWriteDeadline(bound)
	c.toClient.last(e.frame)
	closeWrite(c.client)
	if e.code != 0 {
		c.toUpstream.last(websocket.AppendClose(nil, newMask(), websocket.GoingAway, ""))
	}
	if e.code != 0 || e.frame == nil {
		_ = c.upstream.Close()
	}
	// What the client still sends is read, its answer to the close first: a connection
	// that is closed on top of unread bytes is reset, and may lose what it was sent last.
	c.mu.Lock()
	c.over = true
	_ = c.client.SetReadDeadline(bound)
	c.mu.Unlock()
}

// hangUp closes both connections.
func (c *conversation) hangUp() {
	_ = c.client.Close()
	_ = c.upstream.Close()
}

// border notes whether a message of a direction is under way. A drain ends the
// conversation where none is.
func (c *conversation) border(direction int, begun bool) {
	c.mu.Lock()
	c.begun[direction] = begun
	c.running.rest(!c.begun[fromClient] && !c.begun[fromService])
	c.mu.Unlock()
	c.running.leave()
}

// clientDid notes what the client did, of which the end of the conversation is the
// consequence; the first counts.
func (c *conversation) clientDid(e receipts.Ending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.goesBy == "" {
		c.goesBy = e
	}
}

func (c *conversation) clientDidIt() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.goesBy != ""
}
