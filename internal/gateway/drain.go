package gateway

import (
	"bytes"
	"context"
	"sync"

	"agentgw/internal/delegation"
)

// running is one upstream call under way, or one that waits for a slot, as those see
// it who may end it.
type running struct {
	cancel   context.CancelCauseFunc
	call     *Call
	tenant   string            // by its partition key
	waits    bool              // for a slot; the upstream is not called before that
	chain    *delegation.Chain // that it runs by, or nil
	patience *patience

	mu       sync.Mutex
	isStream bool
	border   bool // the agent has whole events only
	leaving  bool
	tail     []byte // the last bytes, for a border cut in two
}

// underWay makes a call known to those who may end it, until over. All that is done for
// the call is done under ctx, whose cause says who ended it.
func (g *Gateway) underWay(call *Call, at *attempt) (ctx context.Context, r *running, over func()) {
	ctx, cancel := context.WithCancelCause(call.In.Context())
	r = &running{cancel: cancel, call: call, tenant: at.record.Tenant, patience: &patience{clock: g.clock, cancel: cancel}, chain: call.chain}
	g.running.add(call.RequestID, r)
	g.endWithSecret(r)
	delegated := g.delegated(r)
	return ctx, r, func() {
		delegated()
		g.running.remove(call.RequestID)
		r.patience.stop()
		cancel(nil)
	}
}

// stream marks the call as a stream of events, which does not end by itself.
func (r *running) stream() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isStream, r.border = true, true
}

// saw notes whether the bytes relayed so far end with a whole event.
func (r *running) saw(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tail = append(r.tail, p...)
	if n := len(r.tail); n > 4 {
		r.tail = append(r.tail[:0], r.tail[n-4:]...)
	}
	line, ended := cutLineEnd(r.tail)
	_, empty := cutLineEnd(line)
	r.border = ended && (empty || len(line) == 0)
}

// rest notes whether a stream that is no text may end where it stands.
func (r *running) rest(may bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.border = may
}

// cutLineEnd removes one line end of the event stream format: CR LF, LF or CR,
// which a stream may mix.
func cutLineEnd(b []byte) (line []byte, ended bool) {
	for _, end := range []string{"\r\n", "\n", "\r"} {
		if line, ended = bytes.CutSuffix(b, []byte(end)); ended {
			return line, true
		}
	}
	return b, false
}

// whole reports whether the agent has whole events only.
func (r *running) whole() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.border
}

// leave ends the stream if it is to end and may end here, and reports whether
// it did.
func (r *running) leave() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leaving && r.border {
		r.cancel(errShutdown)
		return true
	}
	return false
}

// drain asks the call to end: a stream at its next event border, which may be now,
// one that waits at once; any other call finishes. It reports whether the call is a
// stream.
func (r *running) drain() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaving = true
	if r.isStream && r.border || r.waits {
		r.cancel(errShutdown)
	}
	return r.isStream
}

// calls are the calls under way, by request id. Safe for concurrent use.
type calls struct {
	mu       sync.Mutex
	set      map[string]*running
	draining bool
	blocked  map[string]bool // tenants

	staying int           // see stay
	left    chan struct{} // closed when nobody is; nil: nobody waits for it
}

// add counts a call among those under way. One that was admitted just before its
// tenant was blocked is ended here, as is one that would wait while draining.
func (c *calls) add(id string, r *running) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.set == nil {
		c.set = map[string]*running{}
	}
	c.set[id] = r
	r.leaving = c.draining
	if r.waits && c.draining {
		r.cancel(errShutdown)
	}
	if c.blocked[r.tenant] {
		r.cancel(errBlocked)
	}
}

// serves reports whether the call of that id is one of the tenant's under way.
func (c *calls) serves(id, tenant string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.set[id]
	return r != nil && r.tenant == tenant
}

// block ends the calls of a tenant, those on their way to add too, and counts
// those under way.
func (c *calls) block(tenant string) (ended int) {
	c.mu.Lock()
	if c.blocked == nil {
		c.blocked = map[string]bool{}
	}
	c.blocked[tenant] = true
	c.mu.Unlock()
	c.each(func(r *running) {
		if r.tenant == tenant {
			r.cancel(errBlocked)
			ended++
		}
	})
	return ended
}

func (c *calls) unblock(tenant string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.blocked, tenant)
}

func (c *calls) remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.set, id)
}

// each calls f for a snapshot of the calls under way, first for those that wait:
// of a slot that the end of another sets free nothing is to come to them.
func (c *calls) each(f func(*running)) {
	c.mu.Lock()
	var waiting, others []*running
	for _, r := range c.set {
		if r.waits {
			waiting = append(waiting, r)
		} else {
			others = append(others, r)
		}
	}
	c.mu.Unlock()
	for _, r := range append(waiting, others...) {
		f(r)
	}
}

// drain has every call drain, those to come too, and counts those under way.
func (c *calls) drain() (streams, others int) {
	c.mu.Lock()
	c.draining = true
	c.mu.Unlock()
	c.each(func(r *running) {
		switch stream := r.drain(); {
		case stream:
			streams++
		case !r.waits:
			others++
		}
	})
	return streams, others
}

// stay and leave are around a call whose handler takes the connection over from net/http,
// which then does not wait for it when it shuts down.
func (c *calls) stay() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.staying++
}

func (c *calls) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.staying--; c.staying == 0 && c.left != nil {
		close(c.left)
		c.left = nil
	}
}

// wait returns when nobody stays, or with the error of ctx.
func (c *calls) wait(ctx context.Context) error {
	c.mu.Lock()
	if c.staying == 0 {
		c.mu.Unlock()
		return nil
	}
	if c.left == nil {
		c.left = make(chan struct{})
	}
	left := c.left
	c.mu.Unlock()
	select {
	case <-left:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *calls) isDraining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.draining
}
