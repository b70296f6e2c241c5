package gateway

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxKept is the most bytes of an answer's body that a batch keeps.
const maxKept = 1 << 20

var errTooMuch = fmt.Errorf("the body is larger than %d bytes, the most that a batch keeps of an answer", maxKept)

// keptAnswer is the answer to one call of a batch, as net/http would write it, until it goes out
// among the others' results. It implements http.ResponseWriter for one goroutine.
type keptAnswer struct {
	header  http.Header
	status  int
	sent    http.Header // header as it was when the status was written
	body    []byte
	receipt string // its id; "": there is none
}

// Header implements http.ResponseWriter.
func (k *keptAnswer) Header() http.Header { return k.header }

// WriteHeader implements http.ResponseWriter. A 1xx is said to nobody.
func (k *keptAnswer) WriteHeader(status int) {
	if status >= 200 && k.status == 0 {
		k.status, k.sent = status, maps.Clone(k.header)
	}
}

// Write implements http.ResponseWriter.
func (k *keptAnswer) Write(b []byte) (int, error) {
	if len(k.body)+len(b) > maxKept {
		return 0, errTooMuch
	}
	k.body = append(k.body, b...)
	return len(b), nil
}

// Flush implements http.Flusher.
func (k *keptAnswer) Flush() {}

// restart forgets an answer, but for what the gateway says of the call itself.
func (k *keptAnswer) restart() {
	own := http.Header{}
	for _, name := range []string{"X-Request-Id", receiptField, policyField, stateField} {
		if values, ok := k.header[name]; ok {
			own[name] = values
		}
	}
	*k = keptAnswer{header: own}
}

// size is about how many bytes it takes.
func (k *keptAnswer) size() int {
	n := len(k.body)
	for name, values := range k.sent {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

// appendResult appends the result as JSON: a body that is JSON as it stands, any other
// as a text, and what is no text in base64.
func (k *keptAnswer) appendResult(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"status":`...), int64(k.status), 10)
	b = appendHeader(append(b, `,"headers":`...), k.sent)
	b = append(b, `,"body":`...)
	switch {
	case len(k.body) == 0:
		b = append(b, "null"...)
	case isJSONType(k.sent.Get("Content-Type")) && k.sent["Content-Encoding"] == nil && embeddable(k.body):
		b = append(append(b, k.body...), `,"encoding":"json"`...)
	case utf8.Valid(k.body):
		b = append(appendText(b, string(k.body)), `,"encoding":"text"`...)
	default:
		b = append(b, '"')
		b = append(base64.StdEncoding.AppendEncode(b, k.body), `","encoding":"base64"`...)
	}
	if trailer := k.trailer(); len(trailer) > 0 {
		b = appendHeader(append(b, `,"trailers":`...), trailer)
	}
	if k.receipt == "" {
		return append(b, `,"receipt":null}`...)
	}
	return append(appendText(append(b, `,"receipt":`...), k.receipt), '}')
}

// trailer is what was said behind the body.
func (k *keptAnswer) trailer() http.Header {
	t := http.Header{}
	for name, values := range k.header {
		if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			t[name] = values
		}
	}
	return t
}

// appendHeader appends fields as an object, each with its lines as one (RFC 9110, section
// 5.3), by name.
func appendHeader(b []byte, h http.Header) []byte {
	b = append(b, '{')
	first := true
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if len(h[name]) == 0 || name == "Trailer" || strings.HasPrefix(name, http.TrailerPrefix) {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(appendText(b, name), ':')
		b = appendText(b, strings.Join(h[name], ", "))
	}
	return append(b, '}')
}

// appendText appends a JSON string. A byte that is of no character becomes U+FFFD.
func appendText(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, strings.ToValidUTF8(s, "\uFFFD")) // it is valid: cannot fail
	return b
}

func isJSONType(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

// deepestKept is how deep JSON may nest that is embedded in a result. One answer is not
// to be what makes all of them unreadable: readers give up at some depth, at a name that
// stands twice, at a number that no double holds (RFC 8259, section 6), or at what is no JSON
// after all.
const deepestKept = 128

// embeddable reports whether b is one JSON value that every reader can read in a result.
func embeddable(b []byte) bool {
	if crowded(b) > 0 {
		return false
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(b)) // which it reads in place
	for ended := false; ; ended = d.StackDepth() == 0 {
		token, err := d.ReadToken()
		if errors.Is(err, io.EOF) {
			return ended
		}
		if err != nil || ended || d.StackDepth() > deepestKept {
			return false
		}
		if token.Kind() == '0' {
			if _, err := strconv.ParseFloat(token.String(), 64); err != nil { // it is too large
				return false
			}
		}
	}
}
