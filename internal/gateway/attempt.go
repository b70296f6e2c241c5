package gateway

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
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

// hashParams has the record commit to the parameters of the call, once it is known
// whom the call is charged to: the salt is of that tenant's. A record that cannot is
// one without them.
func (a *attempt) hashParams() error {
	if !a.read {
		return nil
	}
	r, params := &a.record, a.params
	a.read, a.params = false, nil
	salt, key, err := a.g.salts.Salt(r.Tenant, r.ID)
	if err != nil {
		a.g.log.Debug("a receipt cannot say anything of the parameters", "receipt", r.ID, "error", err) // the salts have said so, once
		return fmt.Errorf("%w: %w", receipts.ErrUnavailable, err)
	}
	r.Params = receipts.HashParams(salt, key, params)
	return nil
}

// write appends the record as it stands. Its own failure is the caller's only
// where the operator chose to refuse what cannot be recorded.
func (a *attempt) write(ran bool) *Error {
	r := &a.record
	r.Time, r.Replica = time.Time{}, a.g.replica // each has its own time, which the log fills in
	entry, err := a.append(r)
	a.stands = err == nil
	switch {
	case errors.Is(err, receipts.ErrLate):
		a.late = true
		return a.unwritten(err, ran)
	case err != nil:
		a.fail()
		return a.unwritten(err, ran)
	}
	if a.last = entry; !a.wrote {
		a.wrote, a.first = true, entry
	}
	return nil
}

// fail notes that a record could not be written, once for each attempt.
func (a *attempt) fail() {
	if !a.failed {
		a.failed = true
		a.g.unrecorded()
	}
}

// unwritten is what becomes of a call whose record is not on disk.
func (a *attempt) unwritten(err error, ran bool) *Error {
	level := slog.LevelError
	if errors.Is(err, receipts.ErrUnavailable) {
		level = slog.LevelDebug // the log has said so, once
	}
	a.g.log.Log(context.Background(), level, "a receipt could not be written", "receipt", a.id(), "kind", string(a.record.Kind), "error", err)
	if !a.allowed() {
		return unrecordable(err, ran)
	}
	if !a.begun { // else its intent is, and shows that there was a call
		a.g.receipts.Pass(&a.record, errors.Is(err, receipts.ErrLate))
	}
	return nil
}

func unrecordable(err error, ran bool) *Error {
	return &Error{Code: ReceiptUnavailable, Message: "the gateway cannot write receipts, and does nothing that it cannot record", Wait: 5 * time.Second, Ran: ran, Err: err}
}

// append has a refusal be one of its source's, of which a flood is counted.
func (a *attempt) append(r *receipts.Record) (receipts.Entry, error) {
	if r.Kind != receipts.KindRefusal {
		return a.g.receipts.Append(r)
	}
	source := ""
	if r.Key == "" {
		source = network(a.address)
	}
	return a.g.receipts.Refuse(r, source)
}

// unrecorded reports whether the log was tried and has nothing of the attempt on
// disk: then nobody is told of a receipt.
func (a *attempt) unrecorded() bool { return (a.failed || a.late) && !a.wrote }

// name tells the agent of the attempt: of its record where one is on disk, of its
// id while none is yet, and of nothing where none could be written.
func (a *attempt) name(out *answer) {
	switch {
	case a.unrecorded():
		out.name("", "")
	case !a.wrote:
		out.name(a.id(), `id="`+a.id()+`"`)
	default:
		out.name(a.id(), placed(a.id(), a.first))
	}
}

// placed is what an answer says of a record that is on disk (a dictionary of
// RFC 9651): its place in its tenant's tree, and its hash. Whoever keeps it can
// show later that the record is missing. To one without a tenant no place is
// told: among all strangers' records it would tell how many these are.
func placed(id string, e receipts.Entry) string {
	b := append(make([]byte, 0, 256), `id="`...)
	b = append(append(b, id...), '"')
	if e.Tree != "" {
		b = append(append(b, `, log="`...), e.Tree...)
		b = strconv.AppendUint(append(b, `", index=`...), e.TreeIndex, 10)
	}
	b = append(b, ", leaf=:"...)
	b = base64.StdEncoding.AppendEncode(b, e.Leaf[:])
	return string(append(b, ':'))
}
