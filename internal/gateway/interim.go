package gateway

import (
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"

	"agentgw/internal/redact"
)

// interim relays the 1xx answers that come before the final one (RFC 9110,
// section 15.2). The transport tells of them from a goroutine of its own, and
// maybe still when it has given up: over is that nobody wants them any more.
type interim struct {
	out      *answer
	redactor redact.Redactor
	asks     *expectation // that a 100 answers; nil: none does
	trace    httptrace.ClientTrace

	mu   sync.Mutex
	over bool
	sent int
}

// manyInterim is the most 1xx answers that are relayed of one call. They cost a
// service nothing, and net/http does not count those that somebody looks at.
const manyInterim = 100

var errManyInterim = fmt.Errorf("more than %d interim answers (1xx) before its own", manyInterim)

// newInterim relays what comes before the answer to in, unless that is of HTTP/1.0, which
// has none and takes the first one for the answer.
func newInterim(in *http.Request, out *answer, redactor redact.Redactor) *interim {
	i := &interim{out: out, redactor: redactor}
	out.gone = in.Context().Done()
	if in.ProtoAtLeast(1, 1) {
		i.trace.Got1xxResponse = i.relay
	}
	return i
}

// relay sends one on. The gateway's own fields belong to the final answer and
// stay out of it.
func (i *interim) relay(status int, header textproto.MIMEHeader) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.over {
		return nil
	}
	if i.sent++; i.sent > manyInterim {
		return errManyInterim
	}
	if i.asks != nil {
		if status == http.StatusContinue {
			return nil // told when it was heard
		}
		i.asks.begun.Store(false) // it was no answer, and of one that comes now nobody hears the beginning
	}
	i.write(status, http.Header(header))
	return nil
}

func (i *interim) write(status int, header http.Header) {
	i.redactor.Header(header)
	fields := http.Header{}
	pass(fields, header)
	i.out.interim(status, fields)
}

// expect has the service's answer to that question be heard before the body is read, and
// so before this is told of a 100.
func (i *interim) expect(asks *expectation) {
	i.asks = asks
	i.trace.GotFirstResponseByte = func() { asks.begun.Store(true) }
	i.trace.Got100Continue, asks.unsaid = i.wanted, i.wanted
}

// wanted is that the body is, unless an answer has come.
func (i *interim) wanted() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.over {
		i.asks.want(i.goOn)
	}
}

func (i *interim) goOn() { i.write(http.StatusContinue, nil) }

// end is that the final answer is there; 0: none will be. The answer's header and
// connection are the caller's again.
func (i *interim) end(status int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.over = true
	switch {
	case i.asks == nil:
	case status/100 == 2:
		i.asks.want(i.goOn) // or the agent might take the answer for a refusal
	default:
		i.asks.refuse()
	}
}
