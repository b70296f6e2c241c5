// Package http1 finds the requests in what a client sends over HTTP/1, and refuses those
// that two readers could take for different ones (RFC 9112).
//
// net/http forgives what the RFC forbids a client to write and what a server in front may
// have read in another way: a length beside chunks, a line that is folded or ends in a bare
// LF, a carriage return that ends nothing. Whoever serves behind a proxy that reads such a
// request otherwise takes for the next request what was the body of this one (RFC 9112,
// section 11.2). When a handler sees the request nothing tells any more how it was written,
// so it is looked at before net/http has it.
//
// It is a filter and no parser: what passes is for net/http to read, which refuses some of
// it as well.
package http1

import "bytes"

// Requests follows the requests on one connection. The zero value stands before the
// first. It is not safe for concurrent use.
//
// It keeps no byte but those of a line that came in pieces.
type Requests struct {
	at   place
	old  bool   // HTTP/1.0
	left int64  // of the body, while the head is read what it will be
	line []byte // the beginning of a line whose end is still to come

	length, coding bool // a Content-Length, a Transfer-Encoding has been read
}

type place uint8

const (
	first  place = iota // before the first request
	start               // before another one
	fields              // behind its first line
	body
	preface // of HTTP/2: behind its first line, ...
	prefaceSM
	prefaceEnd
	beyond // where nothing is another request
)

// Pass tells how many of the bytes that come next may go on: as many as belong to one
// request, and none behind its end. With an error there is no request in what follows
// them, and nothing may be read from the connection any more.
//
// Where a request in chunks ends it does not look for: such a request has to be the
// last on its connection, for which whoever serves it has to see. All that follows goes
// on, as it does behind the preface of HTTP/2.
func (r *Requests) Pass(p []byte) (n int, err error) {
	for n < len(p) {
		switch r.at {
		case beyond:
			return len(p), nil
		case body:
			k := min(r.left, int64(len(p)-n))
			n, r.left = n+int(k), r.left-k
		default:
			rest := p[n:]
			end := bytes.IndexByte(rest, '\n') + 1
			if end == 0 {
				r.line = append(r.line, rest...)
				return len(p), nil
			}
			line := rest[:end]
			if len(r.line) > 0 {
				r.line = append(r.line, line...)
				line, r.line = r.line, nil
			}
			if err := r.read(line); err != nil {
				return n, err
			}
			n += end
		}
		if r.at == body && r.left == 0 {
			r.at = start
			return n, nil
		}
	}
	return n, nil
}

// read takes the next line, with its end.
func (r *Requests) read(line []byte) error {
	text, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok {
		return bareLF
	}
	switch r.at {
	case first, start:
		return r.readFirst(text)
	case fields:
		if len(text) > 0 {
			return r.readField(text)
		}
		r.at = body
		if r.coding {
			r.at = beyond
		}
		return nil
	default:
		return r.readPreface(text)
	}
}

// readFirst takes the first line of a request. Empty ones before it are net/http's to
// ignore or refuse.
func (r *Requests) readFirst(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	for _, c := range text {
		if c < ' ' || c == 0x7f {
			return control
		}
	}
	version := text[bytes.LastIndexByte(text, ' ')+1:]
	switch {
	case r.at == first && string(text) == "PRI * HTTP/2.0":
		r.at = preface
		return nil
	case string(version) == "HTTP/1.0":
		*r = Requests{at: fields, old: true}
	case len(version) == len("HTTP/1.1") && string(version[:7]) == "HTTP/1." && digit(version[7]):
		*r = Requests{at: fields}
	case string(version) == "HTTP/2.0":
		return notHere
	default:
		*r = Requests{at: beyond} // net/http answers this, and ends it
	}
	return nil
}

// readPreface holds the rest of the preface of HTTP/2 to its bytes (RFC 9113, section
// 3.4). Of another rest net/http would make a request of HTTP/1.
func (r *Requests) readPreface(text []byte) error {
	want := ""
	if r.at == prefaceSM {
		want = "SM"
	}
	if string(text) != want {
		return notHere
	}
	r.at++
	return nil
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

// most is how many digits a length may have: one more could be more than an int64.
const most = 18
