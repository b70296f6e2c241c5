package gateway

import (
	"errors"
	"net/http"
	"time"

	"agentgw/internal/receipts"
)

// attempt is one call's way into the receipts: its refusal, or its intent and
// its outcome. Exactly one closing record is written, whatever happens. It is
// not safe for concurrent use: one call has one goroutine that serves it.
type attempt struct {
	g        *Gateway
	record   receipts.Record // what all records of this attempt say alike
	began    time.Time
	upstream time.Duration
	status   int
	out      int64
	end      receipts.Ending
	intended bool // the upstream may be called
	closed   bool
	lost     *Error // the outcome could not be recorded
}

func (g *Gateway) begin(call *Call) *attempt {
	at := &attempt{g: g, began: g.clock.Now()}
	at.record = receipts.Record{ID: receipts.NewID(), RequestID: call.RequestID, ClientAddr: call.Address.String()}
	return at
}

func (a *attempt) id() string { return a.record.ID }

// answered notes that an upstream's header is there.
func (a *attempt) answered(status int, after time.Duration) { a.status, a.upstream = status, after }

func (a *attempt) sent(n int64) { a.out = n }

// ending notes how the transfer ended; the first word counts.
func (a *attempt) ending(e receipts.Ending) {
	if a.end == "" {
		a.end = e
	}
}

// intend makes the intent durable, if the settings ask for one. After it the
// upstream may be called.
func (a *attempt) intend(method string) *Error {
	a.intended = true
	a.record.Method = method
	switch a.g.settings.ReceiptIntent {
	case "never":
		return nil
	case "writes":
		if method == http.MethodGet || method == http.MethodHead {
			return nil
		}
	}
	r := a.record
	r.Kind, r.Decision = receipts.KindIntent, receipts.Allowed
	if err := a.write(&r, false); err != nil {
		a.intended = false
		return err
	}
	return nil
}

// outcome makes the outcome durable. Later calls do nothing, so that the one at
// the end of the answer and the deferred one cannot write two.
func (a *attempt) outcome(end receipts.Ending) error {
	if a.closed {
		return nil
	}
	a.closed = true
	a.ending(end)
	r := a.record
	r.Kind, r.Decision, r.Status, r.Ending = receipts.KindOutcome, receipts.Allowed, a.status, a.end
	r.Out, r.UpstreamMicros, r.TotalMicros = a.out, a.upstream.Microseconds(), a.took()
	if a.lost = a.write(&r, true); a.lost != nil {
		return a.lost
	}
	return nil
}

// close writes what is still to be written: a refusal, or the outcome of a call
// that did not reach the end of its answer. It returns what the caller is told.
func (a *attempt) close(refusal *Error) *Error {
	if a.closed || refusal == nil && !a.intended {
		return refusal
	}
	a.closed = true
	r := a.record
	r.TotalMicros, r.UpstreamMicros, r.Out = a.took(), a.upstream.Microseconds(), a.out
	if refusal != nil && !errors.Is(refusal, http.ErrAbortHandler) {
		r.Code, r.Limit, r.Status = string(refusal.Code), refusal.Limit, refusal.status()
	}
	if a.intended {
		r.Kind, r.Decision = receipts.KindOutcome, receipts.Allowed
		if a.status != 0 { // the upstream's, which had gone out before
			r.Status = a.status
		}
		if a.end == "" && errors.Is(refusal, http.ErrAbortHandler) {
			a.end = receipts.ClientCancelled
		}
		if a.end == "" && refusal != nil && refusal.Code == UpstreamTimeout {
			a.end = receipts.Timeout
		}
		if a.end == "" && refusal != nil && refusal.Code == UpstreamUnreachable {
			a.end = receipts.UpstreamAborted
		}
		a.ending(receipts.Complete)
		r.Ending = a.end
	} else {
		r.Kind, r.Decision, r.Ending = receipts.KindRefusal, receipts.Refused, a.end
	}
	if err := a.write(&r, a.intended); err != nil {
		return err
	}
	return refusal
}

func (a *attempt) took() int64 { return max(0, a.g.clock.Now().Sub(a.began).Microseconds()) }

// write appends r. Its own failure is the caller's only where the operator
// chose to refuse what cannot be recorded.
func (a *attempt) write(r *receipts.Record, ran bool) *Error {
	r.Replica = a.g.replica
	if _, err := a.g.receipts.Append(r); err != nil {
		a.g.log.Error("a receipt could not be written", "receipt", r.ID, "kind", string(r.Kind), "error", err)
		if a.g.settings.ReceiptOnFailure == "allow" {
			return nil
		}
		return &Error{Code: ReceiptUnavailable, Message: "the gateway cannot write receipts, and does nothing that it cannot record", Wait: 5 * time.Second, Ran: ran, Err: err}
	}
	return nil
}
