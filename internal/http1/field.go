package http1

import "bytes"

// malformed is what is wrong with a request. net/http answers it with 400.
type malformed string

func (m malformed) Error() string { return "http1: " + string(m) }

const (
	bareLF     malformed = "a line ends in LF alone"
	control    malformed = "a control byte in a line"
	folded     malformed = "a line begins with white space"
	nameless   malformed = "a line without the name of a field"
	badLength  malformed = "a Content-Length that is no number"
	twoLengths malformed = "two Content-Length fields"
	bothWays   malformed = "a Content-Length beside a Transfer-Encoding"
	oldChunks  malformed = "a Transfer-Encoding in HTTP/1.0"
	notHere    malformed = "HTTP/2 where it cannot begin"
)

// Classes of bytes in a line (RFC 9110, sections 5.1 and 5.5): what a name is of, and what
// a value may have besides, which is all but control bytes.
const (
	inName = 1 << iota
	inValue
)

var classes = func() (t [256]uint8) {
	for c := range 256 {
		if c == '\t' || c >= ' ' && c != 0x7f {
			t[c] = inValue
		}
	}
	for c := byte('0'); c <= 'z'; c++ {
		if digit(c) || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' {
			t[c] |= inName
		}
	}
	for _, c := range []byte("!#$%&'*+-.^_`|~") {
		t[c] |= inName
	}
	return t
}()

// readField takes a line of the head that is not its first and not its end.
func (r *Requests) readField(text []byte) error {
	i := 0
	for i < len(text) && classes[text[i]]&inName != 0 {
		i++
	}
	if i == 0 && (text[0] == ' ' || text[0] == '\t') {
		return folded
	}
	if i == 0 || i == len(text) || text[i] != ':' {
		return nameless
	}
	name, value := text[:i], text[i+1:]
	for _, c := range value {
		if classes[c]&inValue == 0 {
			return control
		}
	}
	switch {
	case len(name) == len(contentLength) && bytes.EqualFold(name, contentLength):
		return r.readLength(bytes.Trim(value, " \t"))
	case len(name) == len(transferEncoding) && bytes.EqualFold(name, transferEncoding):
		return r.readCoding()
	}
	return nil
}

var contentLength, transferEncoding = []byte("Content-Length"), []byte("Transfer-Encoding")

// readLength takes the one Content-Length. The RFC lets a reader take two that are equal
// for one; that they are two says that somebody in between has not understood them (RFC
// 9112, section 6.3). A zero in front is lawful, and read as octal by some.
func (r *Requests) readLength(text []byte) error {
	switch {
	case r.length:
		return twoLengths
	case r.coding:
		return bothWays
	case len(text) == 0 || len(text) > most || text[0] == '0' && len(text) > 1:
		return badLength
	}
	for _, c := range text {
		if !digit(c) {
			return badLength
		}
		r.left = 10*r.left + int64(c-'0')
	}
	r.length = true
	return nil
}

// readCoding takes a Transfer-Encoding. Which ones there are is for net/http to judge, which
// knows chunked alone and answers 501 to all others, and ends the connection.
func (r *Requests) readCoding() error {
	switch {
	case r.old:
		return oldChunks
	case r.length:
		return bothWays
	}
	r.coding = true
	return nil
}
