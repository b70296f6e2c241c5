package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"agentgw/internal/ratelimit"
)

// maxBatch is the most calls of one batch.
const maxBatch = 64

// batch is what a POST /v1/batch brings: calls that the pipeline takes one by one, after
// it has decided the request that they came in.
type batch struct {
	calls    []act
	parts    []*Call
	siblings siblings
}

// part is what a call has of the batch that it came in. Nothing but the gateway makes one.
type part struct {
	batch  *batch
	shared []ratelimit.Use // rules that the batch was charged for with this call among others

	tenant, service string // whose slots it holds, or waits for
	holds           bool
}

// parseBatch reads the JSON of a batch as strictly as that of an act. One person may be
// named for all calls, or one with each. What is wrong with any of them is wrong with the
// batch: nothing of what cannot be read for certain is run.
func parseBatch(raw []byte) (all string, calls []act, err error) {
	d, err := strictly(raw)
	if err != nil {
		return "", nil, err
	}
	defer decoders.Put(d)
	if _, err := d.ReadToken(); err != nil {
		return "", nil, jsonError(err)
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return "", nil, jsonError(err)
		}
		switch member := name.String(); member {
		case "calls":
			calls, err = readCalls(d, raw)
		case "on_behalf_of":
			var value jsontext.Value
			if value, err = d.ReadValue(); err != nil {
				return "", nil, jsonError(err)
			}
			all, err = principal(value)
		default:
			err = fmt.Errorf("unknown member %.80q; known are calls and on_behalf_of", member)
		}
		if err != nil {
			return "", nil, err
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return "", nil, jsonError(err)
	}
	if err := nothingMore(d); err != nil {
		return "", nil, err
	}
	if len(calls) == 0 {
		return "", nil, errors.New("calls is missing or empty")
	}
	for i := range calls {
		switch {
		case all == "":
		case calls[i].Principal != "":
			return "", nil, fmt.Errorf("calls[%d] has an on_behalf_of, and so has the batch: give one for all calls, or one with each", i)
		default:
			calls[i].Principal = all
		}
	}
	return all, calls, nil
}

func readCalls(d *jsontext.Decoder, raw []byte) (calls []act, err error) {
	if d.PeekKind() != '[' {
		return nil, errors.New("calls must be a list")
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, jsonError(err)
	}
	for d.PeekKind() != ']' {
		if len(calls) == maxBatch {
			return nil, fmt.Errorf("there are more than %d calls, the most of one batch", maxBatch)
		}
		if kind := d.PeekKind(); kind != '{' && kind > 0 {
			return nil, fmt.Errorf("calls[%d] must be an object", len(calls))
		}
		a, err := readAct(d, raw)
		if err != nil {
			return nil, fmt.Errorf("calls[%d]: %w", len(calls), err)
		}
		calls = append(calls, a)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, jsonError(err)
	}
	return calls, nil
}

// open makes a call of each, with a request id that tells of which batch it is.
func (b *batch) open(call *Call) {
	b.siblings = siblings{tenants: map[string]int{}, services: map[string]int{}, ended: make(chan struct{})}
	b.parts = make([]*Call, len(b.calls))
	for i, a := range b.calls {
		in := *call.In
		in.Header = partHeader(call.In.Header, i)
		b.parts[i] = &Call{
			In: &in, RequestID: call.RequestID + "-" + strconv.Itoa(i), Address: call.Address,
			Key: call.Key, secret: call.secret, Act: a, view: call.view, account: call.account,
			part: &part{batch: b},
		}
	}
}

// partHeader is the header that a call has which came in a batch: the batch's, without
// what is said of the one answer that the agent gets, and with a key for idempotency of its
// own, as no two calls of a batch are the same one.
func partHeader(of http.Header, i int) http.Header {
	h := of.Clone()
	h.Del("Last-Event-Id")
	h.Del("Te")
	h["Accept-Encoding"] = uncompressed
	for line, once := range h["Idempotency-Key"] { // which is of one line; of two a service may go by either
		h["Idempotency-Key"][line] = once + "-" + strconv.Itoa(i)
	}
	return h
}

// errHungUp and errStalled are why the calls of a batch end whose client is gone.
var (
	errHungUp  = errors.New("the client hung up")
	errStalled = errors.New("the client took no bytes for AGENTGATE_CLIENT_STALL")
)

func whyGone(out *answer) error {
	if out.stall.cut() {
		return errStalled
	}
	return errHungUp
}

// dispatch runs the calls of a batch, each through the whole pipeline and as many at once
// as their tenants have slots, and answers with their results, in order and as they come.
// No call waits for the client: its answer is kept, and its slot free, when it has ended.
// When it returns none is running.
func (g *Gateway) dispatch(call *Call, out *answer) {
	out.name("", "") // each of the calls has its own
	parts := call.batch.parts
	// Not of the request's own context: that is also done when a write fails, and does not
	// tell a client that took nothing from one that hung up.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(call.In.Context()))
	gone := func() { cancel(whyGone(out)) }
	defer context.AfterFunc(call.In.Context(), gone)()
	kept := newShelf(len(parts))
	defer context.AfterFunc(ctx, kept.close)()
	var workers sync.WaitGroup
	defer workers.Wait()
	defer gone() // on a panic too
	for range atOnce(parts) {
		workers.Go(func() {
			for i, more := kept.next(); more && ctx.Err() == nil; i, more = kept.next() {
				parts[i].In = parts[i].In.WithContext(ctx)
				kept.put(i, g.servePart(parts[i]))
			}
		})
	}
	if kept.writeTo(out) != nil {
		panic(http.ErrAbortHandler) // a cut answer must never look like a whole one
	}
}

// atOnce is how many calls of a batch are run at once: as many as its tenants have slots
// together. Whichever cannot have one yet waits for it (see siblings).
func atOnce(parts []*Call) int {
	slots := map[*ratelimit.Ref]int{}
	for _, p := range parts {
		tenant := p.account.of(p.Act.Principal)
		slots[tenant] = int(tenant.Slots())
	}
	most := 0
	for _, n := range slots {
		if n == 0 { // no cap
			return len(parts)
		}
		most += min(n, len(parts))
	}
	return min(most, len(parts))
}

// servePart serves one call of a batch as if it had come by itself, and keeps the answer.
// One that broke off, of which a client by itself would have got a piece, is an error here.
func (g *Gateway) servePart(call *Call) (k *keptAnswer) {
	k = &keptAnswer{header: http.Header{}}
	out := newAnswer(k, g.clock, 0)
	defer func() {
		if p := recover(); p != nil {
			e := out.instead
			switch {
			case p != http.ErrAbortHandler:
				e = g.panicked(p)
			case e == nil: // nobody is left to be told
				e = refuse(Internal, "the client hung up")
			}
			e.Ran = true
			k.restart()
			out.begun, out.status = false, 0
			writeError(out, e, out.receipt, jitter)
		}
		k.receipt = out.receipt
		call.part.leave()
	}()
	g.serveCall(out, call)
	return k
}
