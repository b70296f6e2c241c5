package gateway_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/identity"
)

const bareCall = `{"service":"bare","action":"get"}`

// TestRequestFraming: a request whose end two readers could see in two places
// is refused or is the last on its connection. What was hidden behind it is
// never taken for a request.
func TestRequestFraming(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	g := headeredWorld(t, w)
	hidden := g.raw(`{"service":"bare","action":"drop"}`)
	chunk := fmt.Sprintf("%x\r\n%s\r\n", len(bareCall), bareCall)
	head := "POST /v1/act HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer " + g.keys["k"] + "\r\n"
	length := func(value string) string { return "Content-Length: " + value + "\r\n" }
	n := fmt.Sprint(len(bareCall))
	const chunked = "Transfer-Encoding: chunked\r\n"
	for _, c := range []struct {
		name, raw string
		status    int
		ran       bool
	}{
		{"chunks", head + chunked + "\r\n" + chunk + "0\r\n\r\n" + hidden, 200, true},
		{"chunks with a trailer", head + chunked + "Trailer: Agentgate-Key\r\n\r\n" + chunk + "0\r\nAgentgate-Key: agw_other\r\nCookie: a=1\r\n\r\n" + hidden, 200, true},
		{"chunks and the whole length", head + length(fmt.Sprint(len(chunk)+5)) + chunked + "\r\n" + chunk + "0\r\n\r\n" + hidden, 400, false},
		{"chunks and a longer length", head + chunked + length("4000") + "\r\n" + chunk + "0\r\n\r\n" + hidden, 400, false},
		{"chunks and a short length", head + length("4") + chunked + "\r\n" + chunk + "0\r\n\r\n" + hidden, 400, false},
		{"chunks of nothing and a length", head + length(n) + chunked + "\r\n0\r\n\r\n" + hidden, 400, false},
		{"HTTP/1.0 with chunks", strings.Replace(head, "1.1", "1.0", 1) + "Connection: keep-alive\r\n" + length(n) + chunked + "\r\n" + bareCall + hidden, 400, false},
		{"two lengths", head + length(n) + length("4") + "\r\n" + bareCall + hidden, 400, false},
		{"two lengths in one line", head + length(n+", "+n) + "\r\n" + bareCall + hidden, 400, false},
		{"a negative length", head + length("-1") + "\r\n" + bareCall + hidden, 400, false},
		{"a length with a sign", head + length("+"+n) + "\r\n" + bareCall + hidden, 400, false},
		{"a length in hex", head + length("0x21") + "\r\n" + bareCall + hidden, 400, false},
		{"a length with a space", head + length("3 3") + "\r\n" + bareCall + hidden, 400, false},
		{"no length at all", head + length("") + "\r\n" + bareCall + hidden, 400, false},
		{"a length over 64 bits", head + length("18446744073709551649") + "\r\n" + bareCall + hidden, 400, false},
		{"two encodings", head + chunked + chunked + "\r\n" + chunk + "0\r\n\r\n" + hidden, 501, false},
		{"another encoding", head + "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunk + "0\r\n\r\n" + hidden, 501, false},
		{"an encoding that is none", head + "Transfer-Encoding: xchunked\r\n\r\n" + chunk + "0\r\n\r\n" + hidden, 501, false},
		{"a space before the colon", head + "Transfer-Encoding : chunked\r\n\r\n" + chunk + "0\r\n\r\n" + hidden, 400, false},
		{"a tab for a colon", head + "Transfer-Encoding\t chunked\r\n\r\n" + chunk + "0\r\n\r\n" + hidden, 400, false},
		{"a chunk size that is none", head + chunked + "\r\nzz\r\n" + bareCall + "\r\n0\r\n\r\n" + hidden, 400, false},
		{"a negative chunk size", head + chunked + "\r\n-1\r\n" + bareCall + "\r\n0\r\n\r\n" + hidden, 400, false},
		{"a chunk size over 64 bits", head + chunked + "\r\n10000000000000021\r\n" + bareCall + "\r\n0\r\n\r\n" + hidden, 400, false},
		{"a chunk that is longer than said", head + chunked + "\r\n4\r\n" + bareCall + "\r\n0\r\n\r\n" + hidden, 400, false},
		{"a folded first line", strings.Replace(head, "Host", " Host", 1) + length(n) + "\r\n" + bareCall + hidden, 400, false},
		{"a line without a colon", head + "Nothing\r\n" + length(n) + "\r\n" + bareCall + hidden, 400, false},
		{"a name with a space", head + "X Y: 1\r\n" + length(n) + "\r\n" + bareCall + hidden, 400, false},
		{"no name", head + ": 1\r\n" + length(n) + "\r\n" + bareCall + hidden, 400, false},
		{"a control byte in a name", head + "X-\x01Y: 1\r\n" + length(n) + "\r\n" + bareCall + hidden, 400, false},
		{"a NUL in a name", head + "X-\x00Y: 1\r\n" + length(n) + "\r\n" + bareCall + hidden, 400, false},
		{"a NUL in a value", head + "X-Y: \x00\r\n" + length(n) + "\r\n" + bareCall + hidden, 400, false},
		{"a letter that is not ASCII in a name", head + "X-\xe9: 1\r\n" + length(n) + "\r\n" + bareCall + hidden, 400, false},
		{"another version", strings.Replace(head, "HTTP/1.1", "HTTP/3.0", 1) + length(n) + "\r\n" + bareCall + hidden, 505, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := g.dial()
			p.write(c.raw)
			res, body := p.answer()
			if res.StatusCode != c.status {
				t.Errorf("%s %s, want %d", res.Status, body, c.status)
			}
			if rest := p.closed(); rest != "" {
				t.Errorf("what was hidden was answered: %q", rest)
			}
			for _, request := range w.all() {
				if !strings.HasPrefix(request, "GET ") || strings.Contains(request, "Cookie") {
					t.Errorf("what was hidden was done: %q", request)
				}
			}
			if got := w.take(); len(got) != map[bool]int{true: 1}[c.ran] {
				t.Errorf("the upstream saw %d requests", len(got))
			}
		})
	}
}

// TestOddHeaderNames: a name that a server behind could read as another one is
// 400 on every way in, said by name, and costs the key's token alone.
func TestOddHeaderNames(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	g := headeredWorld(t, w)
	for _, line := range []string{"X_Forwarded_For: 1.2.3.4", "Content_Length: 0", "agentgate_key: x", "_: 1"} {
		name, _, _ := strings.Cut(line, ":")
		res, body := g.send(g.raw(bareCall, line))
		if res.StatusCode != 400 || res.Header.Get("Agentgate-Code") != "bad_request" || !strings.Contains(strings.ToLower(body), strings.ToLower(name)) {
			t.Errorf("%s: %s %s", line, res.Status, body)
		}
		for _, path := range []string{"/v1/services", "/v1/services/bare", "/v1/whoami", "/v1/receipts/0", "/nowhere"} {
			raw := strings.Replace(strings.Replace(g.raw("", line), "POST /v1/act", "GET "+path, 1), "Content-Length: 0\r\nX", "X", 1)
			if res, body := g.send(raw); res.StatusCode != 400 || res.Header.Get("Agentgate-Code") != "bad_request" {
				t.Errorf("%s on %s: %s %s", line, path, res.Status, body)
			}
		}
	}
	if got := w.take(); len(got) > 0 {
		t.Errorf("the upstream saw %q", got)
	}
}

// TestPipelined: two requests in one packet are two calls with their answers in
// order.
func TestPipelined(t *testing.T) {
	w := newWire(t, "", func(c net.Conn, request string) bool {
		_, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%s", request[:1])
		return err == nil
	})
	g := headeredWorld(t, w)
	p := g.dial()
	p.write(g.raw(bareCall) + g.raw(`{"service":"bare","action":"drop"}`) + g.raw(bareCall))
	for _, want := range []string{"G", "D", "G"} {
		if res, body := p.answer(); res.StatusCode != 200 || body != want {
			t.Errorf("%s %q, want %q", res.Status, body, want)
		}
	}
}

// TestExpectContinue: who asks before he sends is refused without sending: no
// 100, no byte of the body read, no slot; and the connection ends there, since
// nobody can tell whether the body comes after all.
func TestExpectContinue(t *testing.T) {
	w := newWire(t, "", says("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno"))
	poor := tireless("poor")
	poor.Limits = &identity.Limits{RPS: 0.001, Burst: 1}
	g := setup{registry: headered(w.url()), vault: fullVault(t), settings: func(s *config.Settings) { s.MaxRequestBody, s.ClientStall = 10<<20, 300*time.Millisecond }}.
		world(t, hello, tireless("k"), poor)
	head := func(key string, length int, header ...string) string {
		return fmt.Sprintf("POST /v1/act HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n%s\r\n", key, length, strings.Join(header, ""))
	}
	if res, body := g.send(strings.Replace(g.raw(bareCall), g.keys["k"], g.keys["poor"], 1)); res.StatusCode != 401 {
		t.Fatalf("%s %s", res.Status, body)
	}
	w.take()
	for _, c := range []struct {
		name, raw string
		status    int
		code      string
	}{
		{"a bad key", head("agw_wrong", 50<<20), 401, "unauthenticated"},
		{"no key", strings.Replace(head("", 50<<20), "Authorization: Bearer \r\n", "", 1), 401, "unauthenticated"},
		{"over the limit", head(g.keys["poor"], 50<<20), 429, "rate_limited"},
		{"over the limit, a small body", head(g.keys["poor"], 40), 429, "rate_limited"},
		{"too large", head(g.keys["k"], 50<<20), 413, "body_too_large"},
		{"not JSON", head(g.keys["k"], 40, "Content-Type: text/plain\r\n"), 415, "bad_request"},
		{"an odd header", head(g.keys["k"], 40, "X_Y: 1\r\n"), 400, "bad_request"},
		{"a way in without a body", strings.Replace(head(g.keys["k"], 50<<20), "POST /v1/act", "GET /v1/whoami", 1), 400, "bad_request"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := g.dial()
			p.t = t
			p.write(c.raw)
			res, body := p.answer()
			if res.StatusCode != c.status || res.Header.Get("Agentgate-Code") != c.code || p.continued != 0 {
				t.Errorf("%s %q after %d times 100: %s", res.Status, res.Header.Get("Agentgate-Code"), p.continued, body)
			}
			if rest := p.closed(); rest != "" {
				t.Errorf("then came %q", rest)
			}
			if n := g.inFlight("key:k") + g.inFlight("key:poor"); n != 0 {
				t.Errorf("%d slots are taken", n)
			}
		})
	}
	if got := w.take(); len(got) > 0 {
		t.Fatalf("the upstream saw %q", got)
	}
	for _, r := range g.ledger.all() {
		if r.Code != "" && r.In != 0 {
			t.Errorf("%d bytes of a refused body (%s) were read", r.In, r.Code)
		}
	}

	// A body that is wanted is asked for, and what the service says comes back.
	// The service itself is never asked whether it wants one.
	p := g.dial()
	for range 2 {
		p.continued = 0
		p.write(head(g.keys["k"], len(bareCall)))
		p.expectContinue()
		p.write(bareCall)
		if res, body := p.answer(); res.StatusCode != 401 || body != "no" || res.Header.Get("Agentgate-Code") != "" {
			t.Errorf("the service's own 401: %s %s", res.Status, body)
		}
		if got := withoutID(t, w); strings.Contains(strings.Join(got, "\n"), "Expect") {
			t.Errorf("%q", got)
		}
	}
	p.write(strings.Replace(head(g.keys["k"], len(bareCall)), "100-continue", "the-unexpected", 1))
	if res, _ := p.answer(); res.StatusCode != http.StatusExpectationFailed {
		t.Errorf("another expectation: %s", res.Status)
	}
}

// TestLargeBodyUnasked: a client that sends 50 MiB without asking still gets to
// read why it is refused.
func TestLargeBodyUnasked(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	g := headeredWorld(t, w)
	for name, c := range map[string]struct {
		key    string
		length int64
		want   int
	}{
		"a good key": {g.keys["k"], 50 << 20, 413}, "a bad key": {"agw_wrong", 50 << 20, 401},
		"a good key, in chunks": {g.keys["k"], -1, 413}, "a bad key, in chunks": {"agw_wrong", -1, 401},
	} {
		r, err := http.NewRequest("POST", g.server.URL+"/v1/act", io.LimitReader(zeros{}, 50<<20))
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = c.length
		r.Header.Set("Authorization", "Bearer "+c.key)
		res, err := g.server.Client().Do(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_ = res.Body.Close()
		if res.StatusCode != c.want {
			t.Errorf("%s: %s", name, res.Status)
		}
	}
	for _, r := range g.ledger.all() {
		if most := g.settings.MaxRequestBody + 1; r.In > most {
			t.Errorf("%d bytes were read, at most %d are needed to know", r.In, most)
		}
	}
}

// TestClientThatStopsSending: a body that stops half way ends in a refusal and
// with the connection; one that is slow but comes does not, and its call may
// take as long as it takes.
func TestClientThatStopsSending(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := newWire(t, "", func(c net.Conn, _ string) bool {
		<-release
		_, err := io.WriteString(c, helloBytes)
		return err == nil
	})
	const stall = time.Second
	g := setup{registry: headered(w.url()), vault: fullVault(t), settings: func(s *config.Settings) { s.ClientStall = stall }}.world(t, hello, tireless("k"))
	p := g.dial()
	p.write(strings.TrimSuffix(g.raw(bareCall), bareCall[10:]))
	if res, body := p.answer(); res.StatusCode != 400 || res.Header.Get("Agentgate-Code") != "bad_request" {
		t.Errorf("%s %s", res.Status, body)
	}
	p.closed()

	p = g.dial()
	raw := g.raw(bareCall)
	head := strings.TrimSuffix(raw, bareCall)
	p.write(head)
	for i := range bareCall {
		p.write(bareCall[i : i+1])
		time.Sleep(stall / 20) // the pace of a slow client is what this is about
	}
	began := time.Now()
	eventually(t, "the call is under way for longer than the stall", func() bool { return time.Since(began) > 2*stall && len(w.all()) == 1 })
	close(release)
	if res, body := p.answer(); res.StatusCode != 200 || body != "{}" {
		t.Errorf("%s %s", res.Status, body)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestAnswerFraming: an answer that is none becomes a refusal, one whose end is
// in doubt is broken off or cut there, and never is one taken for whole that
// is not.
func TestAnswerFraming(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		body         string // of a whole answer
		refused      bool   // 502; otherwise, without a body, the transfer breaks
	}{
		{"to the end of the connection", "HTTP/1.1 200 OK\r\n\r\nwhole", "whole", false},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\nwhole", "whole", false},
		{"chunks and a length", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n", "whole", false},
		{"two lengths that agree", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nwhole", "whole", false},
		{"more than was said", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwholeHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "whole", false},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 4\r\n\r\nwhole", "", true},
		{"a length that is none", "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nwhole", "", true},
		{"an unknown encoding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nwhole", "", true},
		{"a line without a colon", "HTTP/1.1 200 OK\r\nnothing\r\n\r\nwhole", "", true},
		{"no HTTP", "hello\r\n", "", true},
		{"nothing", "", "", true},
		{"a cut header", "HTTP/1.1 200 OK\r\nContent-Len", "", true},
		{"a status under 100", "HTTP/1.1 099 Odd\r\nContent-Length: 5\r\n\r\nwhole", "", true},
		{"status 000", "HTTP/1.1 000 Odd\r\nContent-Length: 0\r\n\r\n", "", true},
		{"a status of four digits", "HTTP/1.1 2000 OK\r\nContent-Length: 5\r\n\r\nwhole", "", true},
		{"an upgrade that nobody asked for", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "", true},
		{"an announced trailer that is none", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n5\r\nwhole\r\n0\r\n\r\n", "", true},
		{"a short body", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nwhole", "", false},
		{"a chunk size that is none", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\nzz\r\n", "", false},
		{"a first chunk size that is none", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nwhole", "", false},
		{"chunks without their end", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n", "", false},
		{"a cut trailer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\nX-S", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWire(t, "", func(conn net.Conn, _ string) bool {
				_, _ = io.WriteString(conn, c.answer)
				return false
			})
			g := headeredWorld(t, w)
			res, err := g.server.Client().Do(g.request(t.Context(), "k", bareCall))
			var body []byte
			if err == nil {
				body, err = io.ReadAll(res.Body)
				_ = res.Body.Close()
			}
			switch {
			case c.body != "" && (err != nil || res.StatusCode != 200 || string(body) != c.body || res.Header["Content-Type"] != nil):
				t.Errorf("%v %q, %v", res, body, err)
			case c.refused && (err != nil || res.StatusCode != 502 || res.Header.Get("Agentgate-Code") != "upstream_unreachable"):
				t.Errorf("%v %q, %v", res, body, err)
			case c.body == "" && !c.refused && err == nil:
				t.Errorf("looks whole: %v %q", res, body)
			}
			if n := len(w.all()); n != 1 {
				t.Errorf("the upstream saw %d requests", n)
			}
			eventually(t, "an intent and an outcome", func() bool { return len(g.ledger.all()) == 2 })
			end := g.ledger.all()[1]
			if whole := c.body != ""; (end.Ending == "complete" && end.Code == "") != whole {
				t.Errorf("the outcome is %q with code %q", end.Ending, end.Code)
			}
			if n := g.inFlight("key:k"); n != 0 {
				t.Errorf("%d slots are taken", n)
			}
		})
	}
}
