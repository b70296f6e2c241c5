package gateway

import (
	"fmt"
	"maps"
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
	h := i.out.Header()
	own := maps.Clone(h)
	clear(h)
	i.redactor.Header(http.Header(header))
	pass(h, http.Header(header))
	i.out.WriteHeader(status)
	clear(h)
	maps.Copy(h, own)
	return nil
}

// end is that the final answer is there, or none will be. The answer's header
// and connection are the caller's again.
func (i *interim) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.over = true
}
