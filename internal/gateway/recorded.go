package gateway

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"agentgw/internal/receipts"
)

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
