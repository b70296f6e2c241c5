package http1_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"agentgw/internal/http1"
)

// split passes what a client sends, in pieces of which next tells the size, as whoever
// reads it would: what does not go on comes again. It returns what of it is of each
// request that has ended, what is behind them, and the error that ended it.
func split(sent []byte, next func() int) (requests []string, rest string, err error) {
	var r http1.Requests
	have := 0
	for len(sent) > 0 {
		if have == 0 {
			have = max(1, min(len(sent), next()))
		}
		n, err := r.Pass(sent[:have])
		rest += string(sent[:n])
		if err != nil {
			return requests, rest, err
		}
		if r.Between() && strings.Trim(rest, "\r\n") != "" {
			requests, rest = append(requests, rest), ""
		} else if n < have {
			panic("it stopped within a request")
		}
		sent, have = sent[n:], have-n
	}
	return requests, rest, nil
}

func whole() int { return 1 << 20 }

const (
	get  = "GET /a?b HTTP/1.1\r\nHost: g\r\nAccept: */*\r\nX-Empty:\r\nX.!#$%&'*+^_`|~09: \t\x85\xa0 \t\r\n\r\n"
	post = "POST / HTTP/1.1\r\nhost: g\r\ncontent-LENGTH:  5 \r\n\r\na\n\x00\r\n"
	none = "PUT / HTTP/1.0\r\nContent-Length: 0\r\n\r\n"
)

// TestWhereRequestsEnd, however they come: what follows one is another one, but behind
// chunks, a version that is not HTTP/1's, and HTTP/2's preface.
func TestWhereRequestsEnd(t *testing.T) {
	const chunks = "POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
	for name, want := range map[string][]string{
		"several":     {get, post, none, "\r\n" + get, post, get},
		"chunks":      {post, chunks + " is\ngone\x00"},
		"a version":   {get, "GET / HTTP/3.0\r\n is\ngone\x00"},
		"HTTP/2":      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\n"},
		"a half":      {get, "GET / HTTP/1.1\r\nHost"},
		"half a body": {get, strings.TrimSuffix(post, "\r\n")},
	} {
		for _, size := range []int{1, 2, 3, 7, 14, 64, 1 << 20} {
			got, rest, err := split([]byte(strings.Join(want, "")), func() int { return size })
			if rest != "" {
				got = append(got, rest)
			}
			if err != nil || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
				t.Errorf("%s, %d at a time: %q, %v", name, size, got, err)
			}
		}
	}
}

// TestWhatIsRefused is so wherever it is cut, at the line that has it, and behind
// requests that are not.
func TestWhatIsRefused(t *testing.T) {
	field := func(line string) string { return "POST / HTTP/1.1\r\nHost: g\r\n" + line + "\r\n" }
	for name, bad := range map[string]string{
		"a bare LF first":              "GET / HTTP/1.1\nHost: g\r\n\r\n",
		"a bare LF before":             "\nGET / HTTP/1.1\r\nHost: g\r\n\r\n",
		"a bare LF in the head":        field("A: b\n"),
		"a bare LF at the end":         "POST / HTTP/1.1\r\nHost: g\r\n\n",
		"an LF behind CR LF":           "GET / HTTP/1.1\r\n\nHost: g\r\n\r\n",
		"a bare CR in a value":         field("A: b\rTransfer-Encoding: chunked\r\n"),
		"a bare CR in a name":          field("\rContent-Length: 4\r\n"),
		"two CR":                       field("A: b\r\r\n"),
		"a CR in the first line":       "GET /\rHTTP/1.1 HTTP/1.1\r\nHost: g\r\n\r\n",
		"a NUL in the first line":      "GET /\x00 HTTP/1.1\r\nHost: g\r\n\r\n",
		"a tab in the first line":      "GET /\tx HTTP/1.1\r\nHost: g\r\n\r\n",
		"a fold":                       field("A: b\r\n c\r\n"),
		"a fold by tab":                field("A: b\r\n\tc\r\n"),
		"a fold first":                 "GET / HTTP/1.1\r\n Host: g\r\n\r\n",
		"an empty fold":                field("A: b\r\n \r\n"),
		"a space before the colon":     field("Transfer-Encoding : chunked\r\n"),
		"a tab before the colon":       field("Content-Length\t: 4\r\n"),
		"no colon":                     field("Nothing\r\n"),
		"no name":                      field(": 1\r\n"),
		"a control byte in a name":     field("A\x01: 1\r\n"),
		"a byte of no ASCII in a name": field("Tran\u017ffer-Encoding: chunked\r\n"),
		"a NUL in a value":             field("A: \x00\r\n"),
		"a DEL in a value":             field("A: \x7f\r\n"),
		"chunks, then a length":        field("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
		"a length, then chunks":        field("content-length: 5\r\ntransfer-encoding: CHUNKED\r\n"),
		"another encoding and none":    field("Transfer-Encoding: gzip\r\nContent-Length: 0\r\n"),
		"chunks in HTTP/1.0":           "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
		"two lengths":                  field("Content-Length: 5\r\nContent-Length: 5\r\n"),
		"a list of lengths":            field("Content-Length: 5, 5\r\n"),
		"no length":                    field("Content-Length: \r\n"),
		"a sign":                       field("Content-Length: +5\r\n"),
		"a negative length":            field("Content-Length: -5\r\n"),
		"a zero in front":              field("Content-Length: 05\r\n"),
		"a length in hex":              field("Content-Length: 0x5\r\n"),
		"a length with a point":        field("Content-Length: 5.0\r\n"),
		"a length with a space":        field("Content-Length: 5 5\r\n"),
		"a length with an NBSP":        field("Content-Length: 5\xa0\r\n"),
		"a length of 19 digits":        field("Content-Length: 1000000000000000000\r\n"),
		"a length over 64 bits":        field("Content-Length: 18446744073709551621\r\n"),
		"HTTP/2 that goes on wrongly":  "PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n",
		"HTTP/2 with a field":          "PRI * HTTP/2.0\r\nHost: g\r\n\r\nSM\r\n\r\n",
		"another request of HTTP/2":    "GET / HTTP/2.0\r\n\r\n",
	} {
		for _, before := range []string{"", get, post} {
			if strings.HasPrefix(bad, "PRI") && before != "" {
				continue
			}
			sent := before + bad + "\r\nabcde" + get
			for size := 1; size < len(sent); size++ {
				requests, rest, err := split([]byte(sent), func() int { return size })
				if err == nil || strings.Join(requests, "") != before || len(rest) >= len(bad) && strings.HasPrefix(rest, bad) {
					t.Fatalf("%s, behind %d bytes, %d at a time: %q, %q, %v", name, len(before), size, requests, rest, err)
				}
			}
		}
	}
	if _, _, err := split([]byte(get+"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), whole); err == nil {
		t.Error("HTTP/2 began behind a request")
	}
}

// FuzzRequests holds the filter against net/http's reader: of what passes, net/http reads
// the same requests with the same ends, as far as it reads any.
func FuzzRequests(f *testing.F) {
	for _, text := range []string{get, post, none, get + post + none, "\r\n" + get, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n", "GET / HTTP/1.1\nHost: g\n\n",
		"POST / HTTP/1.1\r\nHost: g\r\nA: b\r\n c\r\nContent-Length: 1\r\n\r\nx", "GET http://a/ HTTP/1.2\r\nHost: b\r\nConnection: close\r\n\r\n"} {
		f.Add([]byte(text), uint8(0))
		f.Add([]byte(text), uint8(3))
	}
	f.Fuzz(func(t *testing.T, sent []byte, size uint8) {
		next := whole
		if size > 0 {
			next = func() int { return int(size) }
		}
		requests, tail, refused := split(sent, next)
		if again, _, err := split(sent, whole); err != refused || strings.Join(again, "|") != strings.Join(requests, "|") {
			t.Fatalf("in pieces %q, %v; at once %q, %v", requests, refused, again, err)
		}
		passed := bytes.NewReader([]byte(strings.Join(requests, "") + tail))
		buffered := bufio.NewReader(passed)
		behind := 0 // of what was read
		for i, text := range append(requests, tail) {
			// Empty lines in front net/http's server takes away, where it thinks that right.
			for strings.HasPrefix(text, "\r\n") {
				_, _ = buffered.Discard(2)
				text, behind = text[2:], behind+2
			}
			ended := i < len(requests)
			r, err := http.ReadRequest(buffered)
			if err != nil {
				return // and so the connection ends
			}
			if r.ProtoMajor != 1 {
				if ended {
					t.Fatalf("%q has an end", text)
				}
				return
			}
			if !ended && refused != nil {
				t.Fatalf("%q was refused (%v), and net/http has a request of it before that", text, refused)
			}
			if ended && len(r.TransferEncoding) > 0 {
				t.Fatalf("%q is in chunks, and something follows", text)
			}
			if !ended {
				return
			}
			body, err := io.ReadAll(r.Body)
			if at := int(passed.Size()) - passed.Len() - buffered.Buffered(); err != nil || at != behind+len(text) {
				t.Fatalf("net/http is %d bytes on and has %d of %q, which ends at %d: %v", at, len(body), text, behind+len(text), err)
			}
			behind += len(text)
		}
	})
}

func BenchmarkPass(b *testing.B) {
	body := strings.Repeat("x", 243)
	sent := []byte("POST /v1/act HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: 243\r\n" +
		"Authorization: Bearer agw_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG012345\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n" + body)
	var r http1.Requests
	b.SetBytes(int64(len(sent)))
	b.ReportAllocs()
	for b.Loop() {
		if n, err := r.Pass(sent); n != len(sent) || err != nil {
			b.Fatal(n, err)
		}
	}
}
