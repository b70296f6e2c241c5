package gateway

import (
	"log/slog"
	"net/http"

	"agentgw/internal/redact"
)

// uncompressed is the Accept-Encoding of a request whose answer is looked into.
var uncompressed = []string{"identity"}

// echoes are the places of an answer in which its service may repeat the
// credential that it was given. A nil one has none.
type echoes struct {
	redactor redact.Redactor
	body     *redact.Reader
	header   bool // there was one, or in the trailer
}

// redacted takes the credential out of an answer's header, and out of its body as
// that is read. The trailer is not there yet.
//
// A body that is compressed all the same, though nobody asked for it, is looked
// into as it stands: it was so before this request came.
func redacted(res *http.Response, redactor redact.Redactor) *echoes {
	if redactor.Empty() {
		return nil
	}
	e := &echoes{redactor: redactor, header: redactor.Header(res.Header)}
	if res.Body != http.NoBody {
		e.body = redactor.NewReader(res.Body)
		res.Body = e.body
	}
	return e
}

// trailer is the same for a trailer that has come.
func (e *echoes) trailer(h http.Header) {
	if e != nil && e.redactor.Header(h) {
		e.header = true
	}
}

func (e *echoes) found() bool { return e != nil && (e.header || e.body != nil && e.body.Found()) }

// noteEcho tells the operator of a service that repeats its credential: whoever
// else it answers gets to see it.
func (g *Gateway) noteEcho(call *Call, at *attempt, found bool) {
	if found {
		g.log.LogAttrs(call.In.Context(), slog.LevelInfo, "the service's answer repeated its credential, which was taken out",
			slog.String("service", call.Act.Service), slog.String("request", call.RequestID), slog.String("receipt", at.id()))
	}
}
