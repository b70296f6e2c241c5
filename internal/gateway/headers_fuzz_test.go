package gateway_test

import (
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzRequestHeader: whatever an agent writes among its header lines, what
// reaches the upstream is the gateway's own request: its line, its Host, the
// service's credential, and of other headers those that may pass, once each.
func FuzzRequestHeader(f *testing.F) {
	for _, line := range append(slices.Clone(connections), hostile...) {
		f.Add([]byte(line + "\r\n"))
	}
	for _, text := range []string{
		"Accept: a\r\n b\r\n", "Accept: a\r\nAccept: b\r\n", "Accept: a\nHost: evil\r\n", "Accept: a\rHost: evil\r\n", "accept: \xff\r\n", "ACCEPT:\r\n",
		"Transfer-Encoding: chunked\r\n", "Content-Length: 0\r\n", "Expect: 100-continue\r\n", "\r\n", "\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", "Tracestate: " + strings.Repeat("a", 5000) + "\r\n",
	} {
		f.Add([]byte(text))
	}
	w := newWire(f, "", says(helloBytes))
	g := setup{registry: headered(w.url()), vault: fullVault(f)}.world(f, hello, tireless("k"))
	may := []string{"Host", "User-Agent", "Accept", "Accept-Language", "Accept-Encoding", "Authorization", "Idempotency-Key", "Last-Event-Id", "Te", "Traceparent", "Tracestate", "X-Request-Id"}
	several := []string{"Accept", "Accept-Language", "Accept-Encoding", "Idempotency-Key", "Last-Event-Id", "Traceparent", "Tracestate"} // lines of the agent's own
	head, body, _ := strings.Cut(g.raw(`{"service":"bearer","action":"get"}`), "\r\n\r\n")
	f.Fuzz(func(t *testing.T, header []byte) {
		g.clock.Advance(time.Minute) // no limit is in the way
		c, err := net.Dial("tcp", g.server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, head+"\r\nConnection: close\r\n"+string(header)+"\r\n"+body)
		// Where the lines leave the gateway waiting for more, this ends it.
		if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAll(c)
		for _, request := range w.take() {
			got := lines(request)
			if got[0] != "GET /x HTTP/1.1" || got[1] != "Host: "+w.listener.Addr().String() || !strings.HasSuffix(request, "\r\n\r\n") || strings.Contains(request, g.keys["k"]) {
				t.Fatalf("%q", request)
			}
			if !slices.Contains(got, "Authorization: Bearer u:s3cr3t+&") || !slices.Contains(got, "User-Agent: agentgw/test") {
				t.Fatalf("the gateway's own are missing: %q", request)
			}
			names := map[string]int{}
			for _, line := range got[1:] {
				name, value, ok := strings.Cut(line, ": ")
				if names[name]++; !ok || !slices.Contains(may, name) || names[name] > 1 && !slices.Contains(several, name) || strings.ContainsAny(value, "\x00\r\n") {
					t.Fatalf("a line %q in %q", line, request)
				}
			}
		}
	})
}
