package gateway

import (
	"errors"
	"net/http"
	"net/netip"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/receipts"
)

// attempt is one call's way into the receipts: its refusal, or its intent and
// its outcome. Exactly one closing record is written, whatever happens. It is
// not safe for concurrent use: one call has one goroutine that serves it.
type attempt struct {
	g        *Gateway
	settings *config.Settings
	record   receipts.Record // what all of them say alike stands in it from one to the next
	read     bool            // the request was read, and its parameters
	params   []byte          // are to be hashed: no bytes, if it had none
	address  netip.Addr      // of the client
	began    time.Time
	queued   time.Duration // waited for a slot
	upstream time.Duration
	status   int
	out      int64
	end      receipts.Ending
	intended bool // the upstream may be called
	closed   bool
	wrote    bool           // some record of it is on disk,
	first    receipts.Entry // of these the intent, the refusal, or the outcome of a call without an intent,
	last     receipts.Entry // and the newest
	stands   bool           // the newest that there was to write is on disk
	late     bool           // some record of it will be on disk, nobody knows when
	begun    bool           // its intent is, or will be
	failed   bool           // some record of it could not be written
	lost     *Error         // the outcome could not be recorded
}

func (g *Gateway) begin(call *Call) *attempt {
	at := &attempt{g: g, settings: call.view.settings, address: call.Address, began: g.clock.Now()}
	at.record = receipts.Record{ID: receipts.NewID(), RequestID: call.RequestID, ClientAddr: call.Address.String()}
	return at
}

// known notes who calls, and whom that is charged to until it is known for whom.
func (a *attempt) known(call *Call) {
	a.record.Caller = call.account.key.Partition()
	if call.Key.Open == "" || call.Key.Issuer != "" { // who has shown that he is who he says
		a.record.Key = call.Key.ID
	}
	a.record.Tenant = call.account.pays("")
}

// asked notes what an act is for.
func (a *attempt) asked(call *Call) {
	r := &a.record
	r.In, r.Service, r.Action, r.Principal = call.Act.size, call.Act.Service, call.Act.Action, call.Act.Principal
	a.read, a.params = true, call.Act.Params
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

// intend makes the intent durable, if the settings ask for one, and sees to it
// that there is room for the outcome. After it the upstream may be called.
func (a *attempt) intend(method string) *Error {
	r := &a.record
	r.Method = method
	if err := a.hashParams(); err != nil && a.settings.ReceiptOnFailure != "allow" {
		return unrecordable(err, false)
	}
	if a.wantsIntent(method) {
		r.Kind, r.Decision = receipts.KindIntent, receipts.Allowed
		err := a.write(false)
		a.begun = a.wrote || a.late
		if err != nil {
			return err
		}
	} else if err := a.g.receipts.Promise(r); err != nil {
		a.fail()
		if err := a.unwritten(err, false); err != nil {
			return err
		}
	}
	a.intended = true
	return nil
}

func (a *attempt) wantsIntent(method string) bool {
	switch a.settings.ReceiptIntent {
	case "never":
		return false
	case "writes":
		return method != http.MethodGet && method != http.MethodHead
	}
	return true
}

// outcome makes the outcome of an answer that reached its end durable. Later
// calls do nothing, so that the one at the end of the answer and the deferred
// one cannot write two. A write that panics has not closed the attempt: the
// deferred close then says that it ended in a panic.
func (a *attempt) outcome() error { return a.outcomeAs(receipts.Complete) }

// outcomeAs is outcome for a connection, whose end is to be seen however it came.
func (a *attempt) outcomeAs(e receipts.Ending) error {
	if a.closed {
		return nil
	}
	r := &a.record
	r.Kind, r.Decision, r.Status, r.Ending = receipts.KindOutcome, receipts.Allowed, a.status, e
	r.Out = a.out
	a.time()
	a.lost = a.write(true)
	a.settle()
	if a.lost != nil {
		return a.lost
	}
	return nil
}

// settle ends the attempt, and has it counted where nothing of it is in the log.
func (a *attempt) settle() {
	a.closed = true
	if a.failed && !a.wrote && !a.late {
		a.g.receipts.Miss(&a.record, !a.allowed())
	}
}

// allowed reports whether the operator lets pass what cannot be recorded.
func (a *attempt) allowed() bool { return a.settings.ReceiptOnFailure == "allow" }

// close writes what is still to be written: a refusal, or the outcome of a call
// that did not reach the end of its answer. It returns what the caller is told.
func (a *attempt) close(refusal *Error) *Error {
	if a.closed || refusal == nil && !a.intended {
		return refusal
	}
	r := &a.record
	r.Out = a.out
	a.time()
	told := !errors.Is(refusal, http.ErrAbortHandler)
	if refusal != nil && (told || !a.intended) {
		r.Code, r.Limit = string(refusal.Code), refusal.Limit
	}
	if refusal != nil && told {
		r.Status = refusal.status()
	}
	if a.intended || a.begun {
		r.Kind, r.Decision, r.Ending = receipts.KindOutcome, receipts.Allowed, a.endedBy(refusal)
		if a.status != 0 { // the upstream's, which had gone out before
			r.Status = a.status
		}
	} else {
		r.Kind, r.Decision, r.Ending = receipts.KindRefusal, receipts.Refused, a.end
		_ = a.hashParams() // it has logged why not; who is refused is told that all the same
	}
	err := a.write(a.intended)
	a.settle()
	if err != nil {
		return err
	}
	return refusal
}

// endedBy is how a call ended that did not reach the end of its answer.
func (a *attempt) endedBy(refusal *Error) receipts.Ending {
	switch {
	case a.end != "":
		return a.end
	case refusal == nil:
		return receipts.Complete
	case errors.Is(refusal, http.ErrAbortHandler):
		return receipts.ClientCancelled
	case refusal.Code == UpstreamTimeout:
		return receipts.Timeout
	case refusal.Code == UpstreamUnreachable:
		return receipts.UpstreamAborted
	case refusal.Code == Draining:
		return receipts.Shutdown
	case refusal.Code == TenantBlocked:
		return receipts.Blocked
	case refusal.Code == BodyTooLarge: // on its way to the upstream
		return receipts.Budget
	case refusal.Code == BadRequest:
		return receipts.ClientCancelled
	case refusal.Code == Unauthenticated, refusal.Code == DelegationInvalid: // which held when it was admitted
		return receipts.Revoked
	}
	return receipts.Complete
}

// time has the record say how long the call has taken, and for what.
func (a *attempt) time() {
	r := &a.record
	r.QueueMicros, r.UpstreamMicros, r.TotalMicros = a.queued.Microseconds(), a.upstream.Microseconds(), a.took()
}

func (a *attempt) took() int64 { return max(0, a.g.clock.Now().Sub(a.began).Microseconds()) }
