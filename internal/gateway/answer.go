package gateway

import (
	"errors"
	"net/http"
	"os"
	"time"
)

// answer is the caller's end of a call: the http.ResponseWriter with a deadline
// on each write, a count of the bytes, and a memory of how writing failed.
//
// The deadline moves with each write, so a stream may live for ever while a
// client that takes no bytes is cut after stall. It is not safe for concurrent
// use, as no ResponseWriter is.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	until   time.Time // the deadline in force
	status  int       // a final status that is still to go out; 0: none
	begun   bool      // a final header has gone out
	written int64
	failed  error
}

func newAnswer(w http.ResponseWriter, stall time.Duration) *answer {
	a := &answer{ResponseWriter: w, control: http.NewResponseController(w), stall: stall}
	a.extend()
	return a
}

// Unwrap lets an http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// extend moves the write deadline, at most once a second: setting it costs a
// timer, and a second is nothing against a stall. The kernel's deadlines are
// wall time, which no test's clock can move, hence deadline() and not the
// gateway's clock.
func (a *answer) extend() {
	if a.stall <= 0 {
		return
	}
	until := deadline(a.stall)
	if until.Sub(a.until) < time.Second {
		return
	}
	a.until = until
	_ = a.control.SetWriteDeadline(until) // a writer without deadlines has none to extend
}

// WriteHeader keeps a final status back until there is something to send with
// it, so that an answer whose outcome cannot be recorded can still become a
// refusal. Whoever is done without having written calls commit. A 1xx goes out
// at once, without what does not reach the agent.
func (a *answer) WriteHeader(status int) {
	if status < 200 && status != http.StatusSwitchingProtocols {
		keep(a.Header())
		a.extend()
		a.ResponseWriter.WriteHeader(status)
		return
	}
	if !a.begun {
		a.status = status
	}
}

// commit lets the header go.
func (a *answer) commit() {
	a.begun = true
	if a.status == 0 {
		return
	}
	a.extend()
	a.ResponseWriter.WriteHeader(a.status)
	a.status = 0
}

func (a *answer) Write(b []byte) (int, error) {
	a.extend()
	a.commit()
	n, err := a.ResponseWriter.Write(b)
	a.written += int64(n)
	a.note(err)
	return n, err
}

// Flush sends what is buffered and remembers a failure: http.Flusher has no
// error to return.
func (a *answer) Flush() { _ = a.FlushError() }

// FlushError sends what is buffered.
func (a *answer) FlushError() error {
	a.extend()
	a.commit()
	err := a.control.Flush()
	a.note(err)
	return err
}

func (a *answer) note(err error) {
	if err != nil && a.failed == nil {
		a.failed = err
	}
}

// stalled reports whether the client was cut because it took no bytes.
func (a *answer) stalled() bool { return errors.Is(a.failed, os.ErrDeadlineExceeded) }
