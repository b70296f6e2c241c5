package gateway

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// framed looks after the end of requests, before and after anybody reads them.
//
// It ends the connection after a request in chunks, after one of HTTP/1.0, and after a
// CONNECT, whatever its target: who has sent something behind that meant it for whom the
// tunnel leads to, though it may look like a request.
// net/http would take such a one with a Content-Length as well, or in HTTP/1.0
// chunks for none, and does not tell (RFC 9112, section 6.1): a proxy in front that
// went by the other length would have the gateway take for the next caller's request
// what was body. Where connections are those of package hangup it gets none of these,
// and that one looks for no request behind chunks, whose end it does not know.
//
// It bounds how long a body that nobody wants is waited for: net/http reads
// what is left of a small one before it closes, and a client that asked with
// "Expect: 100-continue" and was refused may never send it.
func (g *Gateway) framed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 || !r.ProtoAtLeast(1, 1) || r.Method == http.MethodConnect && r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
		if stall := g.clientStall(); r.ContentLength != 0 && stall > 0 {
			wait := stall
			if r.Header.Get("Expect") != "" {
				wait = min(stall, time.Second)
			}
			// A writer without deadlines has none to set.
			_ = http.NewResponseController(w).SetReadDeadline(deadline(wait))
		}
		next.ServeHTTP(w, r)
	})
}

// incoming reads the body of a request. A client that gives no byte for the
// stall is given up; however slow, one that gives some is not. The deadline ends
// with the body: net/http takes it back when it begins to watch for a hang-up.
type incoming struct {
	body    io.Reader
	control *http.ResponseController
	stall   time.Duration
}

func (in incoming) Read(p []byte) (int, error) {
	if in.stall > 0 {
		_ = in.control.SetReadDeadline(deadline(in.stall))
	}
	return in.body.Read(p)
}

// awaitEnd has a GET or HEAD request of HTTP/2 be the one without content that it is where
// its end comes in a frame of its own, as that of net/http's client does: before that is
// there nobody can tell. In HTTP/1 chunks are content, were there none in them.
func awaitEnd(r *http.Request, out *answer) {
	if r.ProtoMajor != 2 || r.ContentLength >= 0 || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return
	}
	body := incoming{r.Body, out.control, out.stall.limit}
	if n, err := io.ReadFull(body, make([]byte, 1)); n == 0 && errors.Is(err, io.EOF) {
		r.ContentLength = 0
	}
}

// checkFraming refuses what of a request some server, before the gateway or behind it,
// could read as another one: a name that it takes for another name; two lengths, which
// net/http refuses in HTTP/1 alone; and content where the method has none, of which some
// think that it is the next request (RFC 9110, sections 9.3.1 and 9.3.2). Where the end of
// the request is in doubt by it, nothing that follows on its connection is read; a request
// of HTTP/2 has its end from its frames.
func checkFraming(r *http.Request) *Error {
	if len(r.Header["Content-Length"]) > 1 {
		return lastIn(r, refuse(BadRequest, "there are two Content-Length fields"))
	}
	if r.ContentLength != 0 && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		return lastIn(r, refuse(BadRequest, "a %s request has no content; leave it out, or use a method that has some", r.Method))
	}
	var odd *Error
	for name := range r.Header {
		if name != "Content-Length" && (spells(name, "contentlength") || spells(name, "transferencoding")) {
			e := lastIn(r, refuse(BadRequest, "the header name %.80q is nearly one that says where a request ends", name))
			e.Quotes = true
			return e
		}
		if strings.IndexFunc(name, func(c rune) bool { return c == '_' || c < ' ' || c == 0x7f }) >= 0 {
			odd = refuse(BadRequest, "the header name %.80q has an underscore or a control byte", name)
			odd.Quotes = true
		}
	}
	return odd
}

func lastIn(r *http.Request, e *Error) *Error {
	e.Last = r.ProtoMajor == 1
	return e
}

// spells reports whether the letters of a name, whatever stands between them, are these.
func spells(name, letters string) bool {
	for _, c := range []byte(name) {
		if c |= 0x20; 'a' <= c && c <= 'z' {
			if letters == "" || letters[0] != c {
				return false
			}
			letters = letters[1:]
		}
	}
	return letters == ""
}
