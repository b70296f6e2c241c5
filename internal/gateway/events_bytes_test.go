package gateway_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"agentgw/internal/config"
)

// eventStreams are of the kinds that the web platform's tests of EventSource have
// (web-platform-tests/wpt, eventsource/format-*): whatever a client has to make of them,
// nobody in between may touch a byte.
var eventStreams = []string{
	"data:1\n\ndata: 2\n\ndata:3\n\n",
	"\xef\xbb\xbfdata:a\n\n\xef\xbb\xbfdata:b\n\ndata:c\n\n",
	"\xef\xbb\xbf\xef\xbb\xbfdata:a\n\ndata:b\n\n",
	"data:1\r:\x00\n:\r\ndata:2\n:xxxx\rdata:3\n:data:fail\r:y\ndata:4\n\n",
	"retry:1000\ndata:one\n\nid:lost\ndata:two",
	"data:\n\ndata\ndata\n\ndata:test\n\n",
	"event: \ndata:data\n\n", "event:test\ndata:x\n\ndata:x\n\n",
	"id: \xe2\x80\xa6\ndata: hello\n\n", "id: \x00\x00\ndata: hello\n\nid\ndata:none\n\n",
	"retry:02000\nretry:1000x\ndata:x\n\n",
	"data:\x00\n\n\n\n\n", "data:ok\xe2\x80\xa6\n\n", "data: \xff\xfe no UTF-8\n\n",
	"data: msg\r\ndata: msg\r\n\r\nfalsefield: x\r\n: comment\r\rdata\n\r\ndata: end\r\n\n",
	"data: CR\r\rdata: CR LF\r\n\r\ndata: LF\n\ndata: LF CR\n\rdata: CR LF CR\r\n\rdata: all\r\n\n\r\r\n",
	" data:x\ndata :x\nData:x\ndata:  two spaces \n\n", "\n\r\n\r\n: only\n\n", "event: error\ndata: {}\n\n",
}

// sseEvent is one that a client dispatches.
type sseEvent struct{ name, data string }

// dispatched is what a client makes of a stream so far (WHATWG HTML, section 9.2.6), and
// whether it stands between two events: no line is open, and the last one was blank. A
// byte order mark alone is taken for a part of a line.
func dispatched(stream string) (events []sseEvent, between bool) {
	stream, marked := strings.CutPrefix(stream, "\xef\xbb\xbf")
	name, data, between := "", []string(nil), !marked
	for stream != "" {
		at := strings.IndexAny(stream, "\r\n")
		if at < 0 {
			return events, false
		}
		line, rest := stream[:at], stream[at+1:]
		if stream[at] == '\r' {
			rest = strings.TrimPrefix(rest, "\n")
		}
		stream, between = rest, line == ""
		if line == "" {
			if data != nil {
				events = append(events, sseEvent{name, strings.Join(data, "\n")})
			}
			name, data = "", nil
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimPrefix(value, " "); field {
		case "event":
			name = value
		case "data":
			data = append(data, value)
		}
	}
	return events, between
}

// cutting is an upstream that sends a stream of eventStreams up to a byte, and what comes
// then when it is told to: the rest, or nothing, as it breaks off.
type cutting struct{ next chan struct{} }

func (c *cutting) serve(rw http.ResponseWriter, r *http.Request) {
	nth, _ := strconv.Atoi(r.URL.Query().Get("stream"))
	at, _ := strconv.Atoi(r.URL.Query().Get("at"))
	rw.Header().Set("Content-Type", "text/event-stream")
	send(rw, eventStreams[nth][:at])
	<-c.next
	if r.URL.Path == "/breaks" {
		panic(http.ErrAbortHandler)
	}
	send(rw, eventStreams[nth][at:])
}

// TestEventStreamsKeepTheirBytes: streams of events arrive byte for byte, wherever they are
// cut in two on their way, and what there is of them does not wait for the rest.
func TestEventStreamsKeepTheirBytes(t *testing.T) {
	for _, protocol := range protocols {
		c := &cutting{next: make(chan struct{})}
		w := setup{registry: dialectsRegistry, settings: func(s *config.Settings) { s.RateTenantRPS, s.RateTenantBurst = 10000, 10000 }}.world(t, c.serve, tireless("k"))
		w.front(protocol)
		for nth, stream := range eventStreams {
			for at := range len(stream) + 1 {
				res, err := w.post("GET", fmt.Sprintf("openai/whole?stream=%d&at=%d", nth, at), nil, 0)
				if err != nil || res.StatusCode != 200 {
					t.Fatal(res, err)
				}
				begun := make([]byte, at)
				_, err = io.ReadFull(res.Body, begun)
				c.next <- struct{}{}
				rest, end := io.ReadAll(res.Body)
				if got := string(begun) + string(rest); err != nil || end != nil || got != stream {
					t.Fatalf("over %s %q, cut at %d, arrived as %q (%v, %v)", protocol, stream, at, got, err, end)
				}
			}
		}
	}
}

// TestWhatIsSaidInAStreamIsAnEventOfItsOwn: wherever a stream of events breaks off, its
// client dispatches what it had dispatched before, and, where it stands between two events, one
// more, which is the gateway's. Elsewhere the gateway says nothing.
func TestWhatIsSaidInAStreamIsAnEventOfItsOwn(t *testing.T) {
	c := &cutting{next: make(chan struct{})}
	w := setup{registry: dialectsRegistry, settings: func(s *config.Settings) { s.RateTenantRPS, s.RateTenantBurst = 10000, 10000 }}.world(t, c.serve, tireless("k"))
	said := 0
	services := []string{"openai", "anthropic"} // in turn
	lasts := []sseEvent{
		{"", `{"error":{"message":"openai broke off in its answer","type":"api_error","param":null,"code":"upstream_unreachable"}}`},
		{"error", `{"type":"error","error":{"type":"api_error","message":"anthropic broke off in its answer"},"request_id":"req_ID"}`},
	}
	for nth, stream := range eventStreams {
		for at := range len(stream) + 1 {
			turn := (nth + at) % 2
			res, err := w.post("GET", fmt.Sprintf("%s/breaks?stream=%d&at=%d", services[turn], nth, at), nil, 0)
			if err != nil || res.StatusCode != 200 {
				t.Fatal(res, err)
			}
			begun := make([]byte, at)
			_, err = io.ReadFull(res.Body, begun)
			c.next <- struct{}{}
			more, end := io.ReadAll(res.Body)
			if err != nil || !errors.Is(end, io.ErrUnexpectedEOF) {
				t.Fatalf("%q, cut at %d: %v, %v", stream, at, err, end)
			}
			want, between := dispatched(stream[:at])
			if between {
				said++
				want = append(want, sseEvent{lasts[turn].name, strings.ReplaceAll(lasts[turn].data, "ID", res.Header.Get("X-Request-Id"))})
			}
			if got, _ := dispatched(string(begun) + string(more)); !slices.Equal(got, want) || !between && len(more) > 0 {
				t.Errorf("%q, cut at %d, is followed by %q: a client dispatches %q, want %q", stream, at, more, got, want)
			}
		}
	}
	if said < 2*len(eventStreams) {
		t.Errorf("the gateway said something %d times", said)
	}
}
