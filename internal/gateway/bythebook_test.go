package gateway_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// TestRequestsByTheBook: requests that RFC 9110 and 9112 (or, where they leave it open,
// the wish to be read in one way) have refused, and some that are nearly like them and
// lawful. What is refused closes its connection, reaches nobody, and has nobody behind it.
func TestRequestsByTheBook(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	g := setup{registry: strings.ReplaceAll(headered(w.url()), "allow_private: true", "allow_private: true\n    passthrough: true"), vault: fullVault(t)}.world(t, hello, tireless("k"))
	key := "Agentgate-Key: " + g.keys["k"] + "\r\n"
	head := "Host: g\r\n" + key
	line := func(first string) string { return first + "\r\n" + head + "\r\n" }
	field := func(f string) string { return "GET /proxy/bare/x HTTP/1.1\r\n" + head + f + "\r\n\r\n" }
	body := func(f, body string) string {
		return "POST /proxy/bare/y HTTP/1.1\r\n" + head + f + "\r\n\r\n" + body
	}
	chunks := func(text string) string { return body("Transfer-Encoding: chunked", text) }
	lawful, refused := []int{200}, []int{400}
	for _, c := range []struct {
		name, rule, raw string
		want            []int
	}{
		// RFC 9112, section 2.2
		{"a bare LF behind the request line", "a recipient MAY recognize a single LF as a line terminator: not here", strings.Replace(field("A: b"), "\r\n", "\n", 1), refused},
		{"a bare LF behind a field", "the same", field("A: b\nC: d"), refused},
		{"a bare LF as the empty line", "the same", "GET /proxy/bare/x HTTP/1.1\r\n" + head + "\n", refused},
		{"a bare CR for a line end", "a recipient of a bare CR MUST consider that element to be invalid or replace it with SP", field("A: b\rC: d"), refused},
		{"a bare CR in front", "the same", "\r" + field("A: b"), refused},
		{"white space in front of the request line", "a request line begins with a method", " " + field("A: b"), refused},
		{"white space in front of the first field", "a recipient MUST reject the message as invalid or consume each whitespace-preceded line", "GET /proxy/bare/x HTTP/1.1\r\n " + head + "\r\n", refused},
		// section 2.3 and 3
		{"lower-case http", "HTTP-name is case-sensitive", line("GET /proxy/bare/x http/1.1"), refused},
		{"a version of two digits", "HTTP-version = HTTP-name \"/\" DIGIT \".\" DIGIT", line("GET /proxy/bare/x HTTP/1.10"), refused},
		{"a version without a dot", "the same", line("GET /proxy/bare/x HTTP/11"), refused},
		{"a version with a space behind", "the same", line("GET /proxy/bare/x HTTP/1.1 "), refused},
		{"no version", "the same", line("GET /proxy/bare/x"), refused},
		{"another minor version", "a recipient SHOULD process it as if it were in the highest minor version that it conforms to", line("GET /proxy/bare/x HTTP/1.9"), lawful},
		{"another major version", "RFC 9110, section 15.6.6", line("GET /proxy/bare/x HTTP/3.0"), []int{505}},
		{"HTTP/2 within HTTP/1", "RFC 9113, section 3.4: that is a connection preface, and no request", line("GET /proxy/bare/x HTTP/2.0"), refused},
		{"two spaces", "three parts, each separated by a single space", line("GET  /proxy/bare/x HTTP/1.1"), refused},
		{"two spaces in front of the version", "the same", line("GET /proxy/bare/x  HTTP/1.1"), refused},
		{"a tab for a space", "the same", line("GET\t/proxy/bare/x HTTP/1.1"), refused},
		{"a tab in front of the version", "the same", line("GET /proxy/bare/x\tHTTP/1.1"), refused},
		{"a space in the target", "recipients of an invalid request-line SHOULD respond with 400", line("GET /proxy/bare/x y HTTP/1.1"), refused},
		{"no target", "the same", line("GET HTTP/1.1"), refused},
		{"no method", "method = token", line(" /proxy/bare/x HTTP/1.1"), refused},
		{"a method that is no token", "the same", line("GE(T /proxy/bare/x HTTP/1.1"), refused},
		{"a NUL in the method", "the same", line("GET\x00 /proxy/bare/x HTTP/1.1"), refused},
		// section 3.2
		{"no Host", "a server MUST respond with 400 to any HTTP/1.1 request that lacks a Host field", "GET /proxy/bare/x HTTP/1.1\r\n" + key + "\r\n", refused},
		{"two Hosts", "or contains more than one", field("Host: g"), refused},
		{"two Hosts, one of them odd", "the same", field("hOST: evil"), refused},
		{"a Host with a space", "or one with an invalid value", strings.Replace(field("A: b"), "Host: g", "Host: g evil", 1), refused},
		{"a Host with a NUL", "the same", strings.Replace(field("A: b"), "Host: g", "Host: g\x00", 1), refused},
		{"a target of the whole URI", "a server MUST accept the absolute-form, and ignore Host", line("GET http://elsewhere/proxy/bare/x HTTP/1.1"), lawful},
		// RFC 9110, section 5.1 and 5.5; RFC 9112, section 5
		{"a space in front of the colon", "a server MUST reject with 400 whitespace between a field name and colon", field("A : b"), refused},
		{"a tab in front of the colon", "the same", field("A\t: b"), refused},
		{"no colon", "field-line = field-name \":\" OWS field-value OWS", field("Nothing"), refused},
		{"an empty name", "field-name = token", field(": b"), refused},
		{"a name with a bracket", "the same", field("A(b): c"), refused},
		{"a name with a quote", "the same", field("\"A\": c"), refused},
		{"a name that is not ASCII", "the same", field("\xc3\x84: c"), refused},
		{"a folded field", "a server MUST reject obs-fold with 400 or replace it with SP", field("A: b\r\n c"), refused},
		{"a field folded by a tab", "the same", field("A: b\r\n\tc"), refused},
		{"a last field that is folded by nothing", "the same", field("A: b\r\n "), refused},
		{"a NUL in a value", "CR, LF, or NUL MUST be rejected or replaced", field("A: b\x00c"), refused},
		{"another control byte in a value", "other CTL are invalid too", field("A: b\x0bc"), refused},
		{"DEL in a value", "the same", field("A: b\x7fc"), refused},
		{"bytes over 127 in a value", "a recipient SHOULD treat obs-text as opaque", field("A: \x80\xff"), lawful},
		{"an empty value", "field-value = *field-content", field("A:"), lawful},
		{"all that a name may have", "token", field("!#$%&'*+-.^`|~09Az: b"), lawful},
		// RFC 9112, section 6.1
		{"chunks and a length", "ought to be handled as an error", body("Content-Length: 5\r\nTransfer-Encoding: chunked", "0\r\n\r\n"), refused},
		{"a length and chunks", "the same", body("Transfer-Encoding: chunked\r\nContent-Length: 5", "0\r\n\r\n"), refused},
		{"chunks in HTTP/1.0", "MUST treat the message as if the framing is faulty", strings.Replace(body("Transfer-Encoding: chunked", "0\r\n\r\n"), "/1.1", "/1.0", 1), refused},
		{"another coding", "SHOULD respond with 501", body("Transfer-Encoding: gzip", ""), []int{501}},
		{"identity", "the same; it is no coding any more", body("Transfer-Encoding: identity", ""), []int{501}},
		{"chunked and then another", "chunked is the final one, or the server MUST respond with 400 or close", body("Transfer-Encoding: chunked, gzip", "0\r\n\r\n"), []int{501}},
		{"chunked twice", "a sender MUST NOT apply chunked more than once", body("Transfer-Encoding: chunked, chunked", "0\r\n\r\n"), []int{501}},
		{"chunked in two lines", "the same", body("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "0\r\n\r\n"), []int{501}},
		{"nothing and then chunked", "a list may have empty elements, which a server need not read", body("Transfer-Encoding: , chunked", "0\r\n\r\n"), []int{501}},
		{"no coding", "the same", body("Transfer-Encoding:", "0\r\n\r\n"), []int{501}},
		{"chunked with a parameter", "chunked has none", body("Transfer-Encoding: chunked;q=1", "0\r\n\r\n"), []int{501}},
		{"chunked in quotes", "the same", body("Transfer-Encoding: \"chunked\"", "0\r\n\r\n"), []int{501}},
		{"chunked behind a vertical tab", "OWS is SP and HTAB", body("Transfer-Encoding: \x0bchunked", "0\r\n\r\n"), refused},
		{"chunked in capitals, with white space", "transfer-coding names are case-insensitive", body("Transfer-Encoding: \t CHUNKED \t", "0\r\n\r\n"), lawful},
		{"its name twice the letters", "as others may read it", body("Transfer-Encodin-g: chunked", "0\r\n\r\n"), refused},
		// section 6.2 and 6.3
		{"a length with a sign", "Content-Length = 1*DIGIT", body("Content-Length: +5", "abcde"), refused},
		{"a negative length", "the same", body("Content-Length: -5", "abcde"), refused},
		{"a length in hex", "the same", body("Content-Length: 0x5", "abcde"), refused},
		{"a length with a zero in front", "lawful, and octal to some", body("Content-Length: 05", "abcde"), refused},
		{"a length with an underscore", "1*DIGIT", body("Content-Length: 1_0", "abcdefghij"), refused},
		{"a length of another alphabet", "the same", body("Content-Length: \uff15", "abcde"), refused},
		{"a length behind a comma", "the same", body("Content-Length: ,5", "abcde"), refused},
		{"an empty length", "the same", body("Content-Length:", "abcde"), refused},
		{"a length with a semicolon", "the same", body("Content-Length: 5;", "abcde"), refused},
		{"a length over 64 bits", "a recipient MUST anticipate large numerals", body("Content-Length: 18446744073709551621", "abcde"), refused},
		{"a list of one length", "MUST be treated as an unrecoverable error, or replaced", body("Content-Length: 5, 5", "abcde"), refused},
		{"one length twice", "the same", body("Content-Length: 5\r\nContent-Length: 5", "abcde"), refused},
		{"two lengths", "the same", body("Content-Length: 5\r\nContent-Length: 6", "abcdef"), refused},
		{"a length with white space", "OWS field-value OWS", body("Content-Length:\t 5 \t", "abcde"), lawful},
		{"no length", "a request without a Transfer-Encoding and a Content-Length has no content", body("A: b", ""), lawful},
		{"content of a GET", "some implementations might reject the request (RFC 9110, section 9.3.1)", field("Content-Length: 5") + "abcde", refused},
		{"content of a HEAD, in chunks", "the same", strings.Replace(field("Transfer-Encoding: chunked"), "GET", "HEAD", 1) + "0\r\n\r\n", refused},
		// section 7.1
		{"chunks", "chunked-body", chunks("5\r\nabcde\r\n0\r\n\r\n"), lawful},
		{"a chunk with an extension", "a recipient MUST ignore unrecognized chunk extensions", chunks("5;a=\"b\"\r\nabcde\r\n0;c\r\n\r\n"), lawful},
		{"a trailer", "trailer-section", chunks("5\r\nabcde\r\n0\r\nX-Sum: 1\r\n\r\n"), lawful},
		{"a chunk size with a sign", "chunk-size = 1*HEXDIG", chunks("+5\r\nabcde\r\n0\r\n\r\n"), refused},
		{"a chunk size with 0x", "the same", chunks("0x5\r\nabcde\r\n0\r\n\r\n"), refused},
		{"a chunk size with an underscore", "the same", chunks("0_5\r\nabcde\r\n0\r\n\r\n"), refused},
		{"no chunk size", "the same", chunks("\r\nabcde\r\n0\r\n\r\n"), refused},
		{"a chunk size over 64 bits", "recipients MUST anticipate large numerals", chunks("10000000000000005\r\nabcde\r\n0\r\n\r\n"), refused},
		{"a chunk size in front of a bare LF", "CVE-2025-22871", chunks("5\nabcde\r\n0\r\n\r\n"), refused},
		{"an extension with a bare CR", "the same", chunks("5;a\rb\r\nabcde\r\n0\r\n\r\n"), refused},
		{"an extension with a bare LF", "the same", chunks("5;a\nabcde\r\n0\r\n\r\n"), refused},
		{"an extension of 5,000 bytes", "a server ought to limit the total length of chunk extensions", chunks("5;" + strings.Repeat("a", 5000) + "\r\nabcde\r\n0\r\n\r\n"), refused},
		{"a chunk that ends in a bare LF", "chunk = chunk-size [ chunk-ext ] CRLF chunk-data CRLF", chunks("5\r\nabcde\n0\r\n\r\n"), refused},
		{"a chunk that is longer than it says", "the same", chunks("4\r\nabcde\r\n0\r\n\r\n"), refused},
		{"a chunk that is shorter than it says", "the same", chunks("7\r\nabcde\r\n0\r\n\r\n"), refused},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := intents(g)
			p := g.dial()
			p.t = t
			_, _ = io.WriteString(p.c, c.raw+g.proxied("GET", "bare/hidden", "k", ""))
			res, text := p.told(strings.HasPrefix(c.raw, "HEAD"), true)
			told := fmt.Sprintf("%s %s, want %d: %s", res.Status, text, c.want, c.rule)
			if !slices.Contains(c.want, res.StatusCode) {
				t.Error(told)
			}
			if !slices.Equal(c.want, lawful) {
				if rest := p.closed(); rest != "" {
					t.Errorf("%s; and then came %q", told, rest)
				}
				if arrived := w.take(); intents(g) > before+1 || slices.ContainsFunc(arrived, func(r string) bool {
					return strings.Contains(r, "hidden") || strings.HasSuffix(r, "0\r\n\r\n") || !strings.HasPrefix(c.raw, "POST")
				}) {
					t.Errorf("%s; the service saw %q", told, arrived)
				}
				return
			}
			if !res.Close { // what stands behind a lawful one is another
				if res, _ = p.told(false, false); res.StatusCode != 200 {
					t.Error(told, "and then", res.Status)
				}
			}
			eventually(t, "each call has its receipt", func() bool { return len(w.all()) == intents(g)-before })
			w.take()
		})
	}
}
