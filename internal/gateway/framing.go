package gateway

import (
	"io"
	"net/http"
	"time"
)

// framed looks after the end of requests, before and after anybody reads them.
//
// It ends the connection after a request whose length net/http may have been
// told in two ways: by chunks and a Content-Length, of which it takes the
// chunks, or in HTTP/1.0 by chunks, which it does not take. It is right, and it
// does not tell, so what is asked of those is done for all of their kind (RFC
// 9112, section 6.1). A proxy in front that went by the other length would
// otherwise have the gateway take for the next caller's request what was body.
//
// It bounds how long a body that nobody wants is waited for: net/http reads
// what is left of a small one before it closes, and a client that asked with
// "Expect: 100-continue" and was refused may never send it.
func (g *Gateway) framed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 || !r.ProtoAtLeast(1, 1) {
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
