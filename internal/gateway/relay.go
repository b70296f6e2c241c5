package gateway

import (
	"errors"
	"io"
	"net/http"
	"strings"
)

// relay gives the agent an upstream's answer: its header, its body as b reads
// it, and its trailer. An error is that it did not come to its end, and then
// the agent must not take what it got for a whole answer.
//
// The header goes out with the first bytes of an answer of known length, and
// else at once, since they may be long in coming. So what a failure at the end
// of a short answer still finds in out is the gateway's own header alone.
//
// httputil.ReverseProxy does the same, and half as much again for what it
// cannot know: that the request is the gateway's own, made from nothing.
func relay(out *answer, res *http.Response, b *body, lent *buffers) error {
	if bodiless(res) {
		// The header is the end of such an answer, so it is what has to wait. A
		// length in it is that of another answer, and an agent whose own request
		// was a POST would wait for so many bytes.
		if !out.head {
			res.Header.Del("Content-Length")
		}
		if err := b.end(); err != nil {
			return err
		}
		begin(out, res)
		out.commit()
		return nil
	}
	live := b.border != nil || res.ContentLength < 0
	if live {
		begin(out, res)
		if err := out.FlushError(); err != nil {
			return err
		}
	}
	with := scoop{lent: lent}
	if b.border != nil {
		with.quiet, with.small = make([]byte, quietBuffer), 1
	}
	defer with.giveBack()
	for {
		to := with.next()
		n, err := b.Read(to)
		with.took(n)
		if n > 0 {
			if !out.begun {
				begin(out, res)
			}
			if _, err := out.Write(to[:n]); err != nil {
				return err
			}
			if live {
				if err := out.FlushError(); err != nil {
					return err
				}
			}
		}
		if errors.Is(err, io.EOF) {
			finish(out, res)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// begin puts an upstream's status and header on the answer.
func begin(out *answer, res *http.Response) {
	h := out.Header()
	oneAuthor(h, res.Header, res.StatusCode)
	pass(h, res.Header)
	if res.Header["Content-Type"] == nil {
		h["Content-Type"] = nil // or the server would guess one
	}
	if len(res.Trailer) > 0 || out.trails {
		names := make([]string, 0, len(res.Trailer)+1)
		for name := range res.Trailer {
			names = append(names, name)
		}
		if out.trails {
			names = append(names, receiptField)
		}
		h["Trailer"] = []string{strings.Join(names, ", ")}
	}
	out.WriteHeader(res.StatusCode)
}

// finish puts an upstream's trailer on the answer, what it announced and what
// it did not alike.
func finish(out *answer, res *http.Response) {
	if !out.begun { // a body of no bytes
		begin(out, res)
		out.commit()
	}
	for name, values := range res.Trailer {
		if len(values) > 0 {
			out.Header()[http.TrailerPrefix+name] = values
		}
	}
	if out.trails && out.outcome != "" {
		out.Header().Set(receiptField, out.outcome) // the header's has gone out: this is the trailer's, which was announced
	}
}
