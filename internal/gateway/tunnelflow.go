package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"agentgw/internal/redact"
)

// Why a tunnel broke that the gateway did not end. Both are causes of its context.
var (
	errClient   = errors.New("the client broke the tunnel off")
	errUpstream = errors.New("the other side broke the tunnel off")
)

// runTunnel is step 9 of a CONNECT: it dials, tells the client that the tunnel is there,
// and carries bytes both ways until both sides have ended it or something ends it.
func (g *Gateway) runTunnel(call *Call, out *answer, at *attempt) *Error {
	t := call.tunnel
	ctx, running, over := g.underWay(call, at)
	defer over()
	patience := running.patience

	dialled := g.clock.Now()
	patience.await(dialled, dialTimeout, errFirstByte)
	upstream, err := newDialer(call.view.registry.Tunnels.AllowPrivate).DialContext(ctx, "tcp", t.to.String())
	if err != nil {
		return g.unreached(ctx, call, err)
	}
	g.budgets.Open(call.spender())
	defer g.budgets.Close(call.spender())
	f := &flow{g: g, call: call, out: out, upstream: upstream, patience: patience, cancel: running.cancel, count: g.counting(call, true)}
	defer f.endUpstream()
	began := g.clock.Now()
	at.answered(http.StatusOK, began.Sub(dialled))
	g.answered(call.Act.Service, began.Sub(dialled))
	patience.follow(began, at.settings.StreamIdle, at.settings.StreamMax)
	if err := f.takeOver(); err != nil {
		return &Error{Code: Internal, Message: gatewayFailed, Err: err, Ran: true}
	}
	defer func() { at.record.In = f.up.Load(); at.sent(f.down.Load()) }() // on a panic too
	f.run(ctx)

	at.record.In = f.up.Load()
	at.sent(f.down.Load())
	if !f.whole() {
		at.ending(brokenBy(ctx, call.In.Context(), out, nil))
		return &Error{Code: Internal, Message: "the tunnel broke", Err: http.ErrAbortHandler}
	}
	if err := at.outcome(); err != nil {
		return at.lost
	}
	t.whole = true // what the client sees of it is left to connect, when the slot is free too
	return nil
}

// unreached makes the refusal of a tunnel whose target could not be dialled. Nothing was
// said to that.
func (g *Gateway) unreached(ctx context.Context, call *Call, err error) *Error {
	to, cause := call.tunnel.to.String(), context.Cause(ctx)
	var timeout net.Error
	switch {
	case errors.Is(cause, errFirstByte), cause == nil && errors.As(err, &timeout) && timeout.Timeout():
		return &Error{Code: UpstreamTimeout, Message: fmt.Sprintf("%s took no connection within %s", to, dialTimeout), Err: err}
	case cause != nil:
		e := g.upstreamError(ctx, call, call.view.registry.Tunnels.Service, redact.Redactor{}, nil, err)
		e.Ran = false
		return e
	case errors.Is(err, errGuarded):
		return &Error{Code: UpstreamUnreachable, Message: to + " may not be dialled: the address is private, loopback or link-local, and tunnels.allow_private is not set", Err: err}
	}
	return &Error{Code: UpstreamUnreachable, Message: to + " could not be reached", Err: err}
}

// flow is what a tunnel carries. Each direction has a goroutine: up that of run, and down
// the one that serves the call.
type flow struct {
	g        *Gateway
	call     *Call
	out      *answer
	client   net.Conn
	from     io.Reader // the client, and first what net/http has read of it already
	upstream net.Conn
	patience *patience
	cancel   context.CancelCauseFunc
	count    func(int64)
	up, down atomic.Int64 // bytes that were carried

	mu    sync.Mutex
	ended int // directions
}

// takeOver takes the client's connection from net/http and answers. A 200 to a CONNECT has
// no body, and so no header about one (RFC 9110, section 9.3.6), which net/http would add.
func (f *flow) takeOver() error {
	conn, from, err := f.out.takeOver()
	if err != nil {
		return err
	}
	f.client, f.from, f.call.tunnel.conn = conn, from, conn
	h := f.out.Header()
	h.Del("Connection")
	head := bytes.NewBufferString("HTTP/1.1 200 Connection established\r\n")
	_ = h.Write(head)
	head.WriteString("\r\n")
	return f.toClient(func() error { _, err := conn.Write(head.Bytes()); return err })
}

// toClient is a write to the client, which may last as long as AGENTGATE_CLIENT_STALL.
func (f *flow) toClient(write func() error) error {
	f.out.stall.begin()
	defer f.out.stall.end()
	return write()
}

// run carries until both directions have ended, or ctx has.
func (f *flow) run(ctx context.Context) {
	past := time.Unix(1, 0)
	stop := context.AfterFunc(ctx, func() {
		_ = f.client.SetReadDeadline(past) // each by itself, as a Read may be under way (see package hangup)
		_ = f.client.SetWriteDeadline(past)
		_ = f.upstream.SetDeadline(past)
	})
	defer stop()
	if f.call.tunnel.limit.Cut && f.g.exhausted(f.call) { // since it was admitted
		f.cancel(errBudget)
	}
	faults := make(chan any, 2)
	broke := func(fault any) {
		faults <- fault
		f.cancel(http.ErrAbortHandler)
	}
	var up sync.WaitGroup
	up.Go(func() { f.g.guarded("a tunnel", f.carryUp, broke) })
	f.g.guarded("a tunnel", f.carryDown, broke)
	up.Wait()
	if len(faults) > 0 {
		panic(<-faults)
	}
}

func (f *flow) carryUp() {
	watch := &lookout{clock: f.g.clock, at: f.client, broken: func() { f.cancel(errClient) }}
	read, wrote := f.carry(f.from, &f.up, func(b []byte) (int, error) {
		watch.begin()
		defer watch.end()
		return f.upstream.Write(b)
	})
	switch {
	case read != nil:
		f.cancel(errClient)
	case errors.Is(wrote, syscall.EPIPE): // whether in good order, the one that reads from it knows
		f.end()
	case wrote != nil:
		f.cancel(errUpstream)
	case f.end() == 1:
		closeWrite(f.upstream)
	}
}

func (f *flow) carryDown() {
	read, wrote := f.carry(f.upstream, &f.down, func(b []byte) (n int, err error) {
		err = f.toClient(func() error { n, err = f.client.Write(b); return err })
		return n, err
	})
	switch {
	case read != nil:
		f.cancel(errUpstream)
	case errors.Is(wrote, syscall.EPIPE): // whether in good order, the one that reads from it knows
		f.end()
	case wrote != nil:
		f.cancel(errClient)
	case f.end() == 1:
		f.patience.linger(f.out.stall.limit) // nothing is to come but what the client still has to say
		// Not where it is the second to end: then the client sees it when the outcome is on disk.
		_ = f.toClient(func() error { closeWrite(f.client); return nil })
	}
}

// end is the end of a direction, in good order, and how many have ended by now.
func (f *flow) end() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended++
	return f.ended
}

// whole reports whether both directions have ended in good order.
func (f *flow) whole() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended == 2
}

// carry copies one direction to its end, which is nil twice. Every piece is counted before
// it goes on.
//
// Most programs close a connection when they have said all, and do not wait for the other
// side's last words, such as those of TLS. These are then answered by a reset, and that is no
// tunnel broken off. It can be told: where the end came first one still reads to it, and
// writing fails with EPIPE; else both fail with ECONNRESET (Linux, tcp_reset).
func (f *flow) carry(src io.Reader, carried *atomic.Int64, write func([]byte) (int, error)) (read, wrote error) {
	lent := f.g.answers.get()
	defer f.g.answers.put(lent)
	buf := *lent
	for {
		n, err := src.Read(buf)
		if n > 0 {
			f.patience.heard()
			if wrote := f.pass(buf[:n], carried, write); wrote != nil {
				return nil, wrote
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil, nil
		case err != nil:
			return err, nil
		}
	}
}

// pass writes a piece that the budget has room for.
func (f *flow) pass(piece []byte, carried *atomic.Int64, write func([]byte) (int, error)) error {
	g, who := f.g, f.call.spender()
	lease := g.budgets.Spend(who, f.call.tunnel.limit, int64(len(piece)), g.nanos.Nanos())
	if !lease.OK {
		f.cancel(errBudget)
		return errBudget
	}
	n, err := write(piece)
	carried.Add(int64(n))
	if f.count != nil {
		f.count(int64(n))
	}
	g.budgets.Return(who, lease, int64(len(piece)-n))
	if lease.Last {
		g.cutExhausted(who)
	}
	return err
}

// cutExhausted ends the tunnels of a caller, this one among them, that are to end with
// his budget.
func (g *Gateway) cutExhausted(who string) {
	g.running.each(func(r *running) {
		if t := r.call.tunnel; t != nil && !r.waits && t.limit.Cut && r.call.spender() == who && g.exhausted(r.call) {
			r.cancel(errBudget)
		}
	})
}

// endUpstream ends the connection to the other side: so that it sees it, where the tunnel
// was cut.
func (f *flow) endUpstream() {
	if f.whole() {
		_ = f.upstream.Close()
		return
	}
	reset(f.upstream)
}

// closeWrite passes on that nothing more will come.
func closeWrite(c io.Writer) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
