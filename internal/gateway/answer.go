package gateway

import (
	"bytes"
	"io"
	"maps"
	"net"
	"net/http"
	"time"

	"github.com/jonboulle/clockwork"
)

// answer is the caller's end of a call: the http.ResponseWriter with a bound on
// how long a write may take, a count of the bytes, and a memory of how writing
// failed. It is not safe for concurrent use, as no ResponseWriter is.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   stall
	status  int     // a final status that is still to go out; 0: none
	begun   bool    // a final header has gone out
	head    bool    // it answers a HEAD: a length in it is that of another answer
	receipt string  // id of the attempt that it answers; "" where there is none
	dialect dialect // of refusals
	upload  *upload // that it may overtake; nil: none
	trails  bool    // the client takes a trailer, and the outcome's place stands in it,
	outcome string  // once it is known
	written int64
	failed  error
	instead *Error // what could be said of an answer that was broken off, if nothing of it had gone out

	gone <-chan struct{} // closed: the client is; nil: nobody would know
	own  http.Header     // its fields, from a 1xx on until it is committed; nil: they are the ResponseWriter's
}

func newAnswer(w http.ResponseWriter, clock clockwork.Clock, limit time.Duration) *answer {
	control := http.NewResponseController(w)
	return &answer{ResponseWriter: w, control: control, stall: stall{clock: clock, limit: limit, control: control}}
}

// Unwrap lets an http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Header is that of the final answer.
func (a *answer) Header() http.Header {
	if a.own != nil {
		return a.own
	}
	return a.ResponseWriter.Header()
}

// interim sends a 1xx with these fields and no other. It may be told when the client is
// gone, and over HTTP/2 net/http then does not wait until it has written the header: it may
// be reading its map still. So what the map had is put back when the answer goes out, if
// anybody gets that, and not here.
func (a *answer) interim(status int, fields http.Header) {
	if a.own == nil {
		a.own = maps.Clone(a.ResponseWriter.Header())
	}
	if a.sendable(fields) {
		a.WriteHeader(status)
	}
}

// sendable puts fields, and no other, where net/http takes those to send from. It reports
// whether there is anybody to send them to.
func (a *answer) sendable(fields http.Header) bool {
	select {
	case <-a.gone:
		return false
	default:
	}
	h := a.ResponseWriter.Header()
	clear(h)
	maps.Copy(h, fields)
	return true
}

// WriteHeader keeps a final status back until there is something to send with
// it, so that an answer whose outcome cannot be recorded can still become a
// refusal. Whoever is done without having written calls commit. A 1xx goes out
// at once.
func (a *answer) WriteHeader(status int) {
	if status < 200 && status != http.StatusSwitchingProtocols {
		a.stall.begin()
		a.ResponseWriter.WriteHeader(status)
		a.stall.end()
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
	if a.upload != nil && !a.upload.ended() {
		a.Header().Set("Connection", "close")
	}
	if a.own != nil && a.sendable(a.own) {
		a.own = nil
	}
	a.ResponseWriter.WriteHeader(a.status) // buffered: a write or the handler's end sends it
	a.status = 0
}

// receiptField tells of the receipt: in the header of the record that was on disk
// when it went out, and in a trailer, where the client takes one, of the outcome.
const receiptField = "Agentgate-Receipt"

// name tells the caller which receipt the answer has, and where; "" is none.
func (a *answer) name(receipt, where string) {
	a.receipt = receipt
	if receipt == "" {
		a.Header().Del(receiptField)
		return
	}
	a.Header().Set(receiptField, where)
}

// unwritten is how many bytes of a body net/http keeps to itself until somebody
// flushes or the handler ends. Keeping them cannot stall, and a short answer,
// which most are, is spared a timer. stall.last bounds the end.
const unwritten = 2 << 10

func (a *answer) Write(b []byte) (int, error) {
	a.commit()
	if bound := a.written+int64(len(b)) > unwritten; bound {
		a.stall.begin()
		defer a.stall.end()
	}
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
	a.commit()
	a.stall.begin()
	err := a.control.Flush()
	a.stall.end()
	a.note(err)
	return err
}

func (a *answer) note(err error) {
	if err != nil && a.failed == nil {
		a.failed = err
	}
}

// takeOver takes the agent's connection from net/http, for what is no answer of HTTP. It
// is to be read by from, which begins with what net/http has read of it already: below
// net/http's own reader, an end would be taken for that of the call.
func (a *answer) takeOver() (conn net.Conn, from io.Reader, err error) {
	conn, buffered, err := a.control.Hijack()
	if err != nil {
		return nil, nil, err
	}
	a.begun = true
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered()) // all of it is there
	return conn, io.MultiReader(bytes.NewReader(early), conn), nil
}
