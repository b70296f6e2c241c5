package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/receipts"
)

const uploadRegistry = `
version: 1
tenants:
  wide: {rps: 100000, burst: 100000, max_inflight: 100000}
services:
  any: {base_url: "%[1]s", allow_private: true, passthrough: true, timeout: 10s}
`

func uploadWorld(t *testing.T, upstream http.HandlerFunc, change func(*config.Settings), keys ...*identity.Key) *world {
	t.Helper()
	if len(keys) == 0 {
		keys = []*identity.Key{wide("k")}
	}
	return setup{registry: uploadRegistry, settings: change}.world(t, upstream, keys...)
}

// post sends a request by /proxy whose body is what is read; its length is told
// where it is not negative.
func (w *world) post(method, target string, body io.Reader, length int64, header ...string) (*http.Response, error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	w.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, w.server.URL+"/proxy/"+target, body)
	if err != nil {
		w.t.Fatal(err)
	}
	if body != nil {
		r.ContentLength = length
	}
	r.Header.Set("Authorization", "Bearer "+w.keys["k"])
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return w.server.Client().Transport.RoundTrip(r)
}

// soon is what comes by c, which it must before long.
func soon[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		t.Fatal("it never came")
		panic("unreachable")
	}
}

// fronts are the protocols by which agents reach the gateway.
var fronts = append(slices.Clone(protocols), "h2c")

// echo answers with each part of a request as it comes.
func echo(rw http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(rw).EnableFullDuplex()
	_ = http.NewResponseController(rw).Flush()
	part := make([]byte, 1<<10)
	for {
		n, err := r.Body.Read(part)
		send(rw, string(part[:n]))
		if err != nil {
			return
		}
	}
}

// TestProxyStreamsBothWays: the service has each part of a request before the agent has
// sent the next, and the agent has the answer to each, with its slot taken all the while;
// whether the length of the request is told or not.
func TestProxyStreamsBothWays(t *testing.T) {
	const parts, size = 20, 5000
	for _, protocol := range fronts {
		for _, length := range []int64{-1, parts * size} {
			t.Run(fmt.Sprint(protocol, length), func(t *testing.T) {
				w := uploadWorld(t, echo, nil)
				w.front(protocol)
				r, body := io.Pipe()
				res, err := w.post("POST", "any/echo", r, length)
				if err != nil {
					t.Fatal(err)
				}
				for i := range parts {
					part := strings.Repeat(string(rune('a'+i)), size)
					if _, err := io.WriteString(body, part); err != nil {
						t.Fatal(err)
					}
					if i == parts-1 {
						_ = body.Close() // a client that knows the length looks for the end with the last part
					}
					got := make([]byte, size)
					if n, err := io.ReadFull(res.Body, got); err != nil || string(got) != part {
						t.Fatalf("part %d: %.10q %v", i, got[:n], err)
					}
					if n := w.inFlight("tenant:wide"); n != 1 && i < parts-1 {
						t.Fatalf("%d slots are taken", n)
					}
				}
				if rest, err := io.ReadAll(res.Body); len(rest) > 0 || err != nil {
					t.Errorf("%q %v", rest, err)
				}
				if last := w.lastClosing(); last.In != parts*size || last.Out != parts*size || last.Ending != receipts.Complete {
					t.Errorf("%+v", last)
				}
				if n := w.inFlight("tenant:wide"); n != 0 {
					t.Errorf("%d slots are taken", n)
				}
			})
		}
	}
}

// TestProxyAnswersBeforeTheRequestHasEnded: what a service says to a request that it does
// not want the rest of is the agent's, whole.
func TestProxyAnswersBeforeTheRequestHasEnded(t *testing.T) {
	const size = 8 << 20
	for _, protocol := range fronts {
		answered := make(chan struct{})
		w := uploadWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(rw).EnableFullDuplex()
			rw.Header().Set("Content-Length", "30000")
			rw.WriteHeader(http.StatusUnauthorized)
			send(rw, strings.Repeat("no ", 10_000))
			<-answered
			panic(http.ErrAbortHandler) // net/http would panic if it found the end of the request (golang/go#68560)
		}, func(s *config.Settings) { s.MaxRequestBody = 2 * size })
		w.front(protocol)
		res, err := w.post("PUT", "any/x", strings.NewReader(strings.Repeat("x", size)), size)
		if err != nil {
			close(answered)
			t.Fatal(protocol, err)
		}
		body, err := io.ReadAll(res.Body)
		close(answered)
		if res.StatusCode != 401 || len(body) != 30_000 || err != nil || res.Header.Get("Agentgate-Code") != "" {
			t.Errorf("%s: %s, %d bytes, %v", protocol, res.Status, len(body), err)
		}
		within(t, 5*time.Second, "the slot is free", func() bool { return w.inFlight("tenant:wide") == 0 })
	}
}

// TestNoProxiedAnswerIsCut: many requests at once, small ones and such as are sent on while
// they come, to a service that answers at once. (golang/go#40747)
func TestNoProxiedAnswerIsCut(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	w := uploadWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(rw).EnableFullDuplex()
		defer func() { _, _ = io.Copy(io.Discard, r.Body) }()
		_, _ = io.WriteString(rw, long)
	}, nil)
	for name, size := range map[string]int{"small": 40_000, "streamed": 100_000} {
		for _, told := range []bool{true, false} {
			w.clock.Advance(time.Hour)
			var all, bad atomic.Int64
			run := make(chan struct{}, 64)
			for range drills(40, 20_000) {
				run <- struct{}{}
				go func() {
					defer func() { <-run }()
					length := int64(size)
					if !told {
						length = -1
					}
					res, err := w.post("POST", "any/x", io.MultiReader(strings.NewReader(strings.Repeat("y", size))), length)
					if err != nil {
						bad.Add(1)
						t.Error(name, told, err)
						return
					}
					got, err := io.ReadAll(res.Body)
					if all.Add(1); err != nil || string(got) != long {
						bad.Add(1)
						t.Errorf("%s %v: %d bytes: %v", name, told, len(got), err)
					}
				}()
			}
			for range cap(run) {
				run <- struct{}{}
			}
			t.Logf("%s, length told %v: %d cut of %d", name, told, bad.Load(), all.Load())
		}
	}
}

// TestProxyBoundsTheBody: a length that is too large is refused before anything is sent,
// or asked for; a body that does not tell is cut off where it is, and so is the service's
// request, which then has no end.
func TestProxyBoundsTheBody(t *testing.T) {
	var ended, seen atomic.Int64
	w := uploadWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		seen.Store(n)
		if err == nil {
			ended.Add(1)
		}
	}, func(s *config.Settings) { s.MaxRequestBody = 200_000 })
	p := w.dial()
	p.write(fmt.Sprintf("PUT /proxy/any/x HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer %s\r\nContent-Length: 200001\r\nExpect: 100-continue\r\n\r\n", w.keys["k"]))
	if res, body := p.answer(); res.StatusCode != 413 || res.Header.Get("Agentgate-Code") != "body_too_large" || p.continued != 0 {
		t.Errorf("%s %s, told %d times to go on", res.Status, body, p.continued)
	}
	if n := w.upstreamRequests(); n != 0 {
		t.Errorf("the upstream saw %d requests", n)
	}
	for _, protocol := range fronts {
		w.front(protocol)
		res, err := w.post("PUT", "any/x", strings.NewReader(strings.Repeat("x", 200_000)), -1)
		if err != nil || res.StatusCode != 200 || ended.Swap(0) != 1 || seen.Load() != 200_000 {
			t.Errorf("%s: as much as may be: %v %v", protocol, res, err)
		}
		res, err = w.post("PUT", "any/x", strings.NewReader(strings.Repeat("x", 1<<20)), -1)
		if err != nil {
			t.Fatal(protocol, err)
		}
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode != 413 || res.Header.Get("Agentgate-Code") != "body_too_large" || res.Header.Get("X-Should-Retry") != "false" {
			t.Errorf("%s: more: %s %s", protocol, res.Status, body)
		}
		within(t, 5*time.Second, "the service sees its request break off", func() bool { return seen.Load() <= 200_000 && w.inFlight("tenant:wide") == 0 })
		if ended.Load() != 0 {
			t.Errorf("%s: the service saw the end of a request that had none", protocol)
		}
		if last := w.lastClosing(); last.Code != "body_too_large" || last.Status != 413 || last.Ending != receipts.Budget || last.In <= 200_000 {
			t.Errorf("%s: %+v", protocol, last)
		}
	}
}

// TestProxyExpectContinue: an agent that asks first sends nothing to be refused; else it
// is the service that says whether it wants the body, and if it says nothing the
// body is sent all the same. The connection to the service is good for what comes then.
func TestProxyExpectContinue(t *testing.T) {
	for _, size := range []int{100_000, 10} { // the smaller one would else be read before the service is asked
		t.Run(fmt.Sprint(size), func(t *testing.T) { proxyExpectContinue(t, size) })
	}
}

func proxyExpectContinue(t *testing.T, size int) {
	served := func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			rw.WriteHeader(http.StatusExpectationFailed)
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(rw, n)
	}
	k := wide("k")
	w := uploadWorld(t, served, nil, k, &identity.Key{ID: "poor", Services: []string{"*"}, Users: []string{"*"}, Limits: &identity.Limits{RPS: 0.001, Burst: 1}})
	ask := func(path, key string) *peer {
		p := w.dial()
		p.write(fmt.Sprintf("PUT /proxy/any%s HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", path, w.keys[key], size))
		return p
	}
	for range 2 { // the poor key's second call is over its limit
		for _, c := range []struct {
			path, key string
			status    int
			code      string
		}{{"/x", "", 401, "unauthenticated"}, {"/../x", "poor", 400, "bad_request"}, {"/x", "poor", 429, "rate_limited"}} {
			p := ask(c.path, c.key)
			res, body := p.answer()
			if c.status == 400 && res.StatusCode == 429 {
				continue
			}
			if res.StatusCode != c.status || res.Header.Get("Agentgate-Code") != c.code || p.continued != 0 {
				t.Errorf("%s by %q: %s %s, told %d times to go on", c.path, c.key, res.Status, body, p.continued)
			}
			_ = p.c.Close()
		}
	}
	if n := w.upstreamRequests(); n != 0 {
		t.Errorf("the upstream saw %d requests", n)
	}
	for range drills(3, 100) {
		p := ask("/no", "k")
		if res, body := p.answer(); res.StatusCode != 417 || p.continued != 0 {
			t.Fatalf("a service that does not want it: %s %s, told %d times to go on", res.Status, body, p.continued)
		}
		_ = p.c.Close()
		p = ask("/x", "k")
		p.expectContinue()
		p.write(strings.Repeat("x", size))
		if res, body := p.answer(); res.StatusCode != 200 || body != fmt.Sprint(size) {
			t.Fatalf("a service that does: %s %s", res.Status, body)
		}
		_ = p.c.Close()
	}
	// A service that never says so.
	silent := newWire(t, "", func(c net.Conn, request string) bool {
		_, body, _ := strings.Cut(request, "\r\n\r\n")
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n%6d", len(body))
		return true
	})
	w.use(strings.ReplaceAll(uploadRegistry, "%[1]s", silent.url()), k)
	for range 2 {
		p := ask("/x", "k")
		p.expectContinue()
		p.write(strings.Repeat("x", size))
		if res, body := p.answer(); res.StatusCode != 200 || strings.TrimSpace(body) != fmt.Sprint(size) {
			t.Errorf("a service that says nothing: %s %s", res.Status, body)
		}
		_ = p.c.Close()
	}
}

// TestProxyAgentBreaksOff: an agent that hangs up in its request, or says no more of it,
// ends the service's, which has no end then, and gives its slot back.
func TestProxyAgentBreaksOff(t *testing.T) {
	var ended atomic.Int64
	called := make(chan bool, 1)
	upstream := func(_ http.ResponseWriter, r *http.Request) {
		called <- true
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			ended.Add(1)
		}
	}
	for name, c := range map[string]struct {
		stall  time.Duration
		head   string
		end    func(net.Conn)
		ending receipts.Ending
		status int
	}{
		"hangs up":                    {time.Minute, "Content-Length: 100000\r\n\r\nxxxx", func(c net.Conn) { _ = c.Close() }, receipts.ClientCancelled, 0},
		"resets":                      {time.Minute, "Content-Length: 100000\r\n\r\nxxxx", func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); _ = c.Close() }, receipts.ClientCancelled, 0},
		"hangs up in chunks":          {time.Minute, "Transfer-Encoding: chunked\r\n\r\n4\r\nxxxx\r\n", func(c net.Conn) { _ = c.Close() }, receipts.ClientCancelled, 0},
		"says what is no chunk":       {time.Minute, "Transfer-Encoding: chunked\r\n\r\n4\r\nxxxx\r\nzz\r\n", func(net.Conn) {}, receipts.ClientCancelled, 400},
		"says nothing more":           {100 * time.Millisecond, "Content-Length: 100000\r\n\r\nxxxx", func(net.Conn) {}, receipts.SlowClient, 400},
		"says nothing more in chunks": {100 * time.Millisecond, "Transfer-Encoding: chunked\r\n\r\n4\r\nxxxx\r\n", func(net.Conn) {}, receipts.SlowClient, 400},
	} {
		t.Run(name, func(t *testing.T) {
			w := uploadWorld(t, upstream, func(s *config.Settings) { s.ClientStall = c.stall })
			p := w.dial()
			p.write("PUT /proxy/any/x HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer " + w.keys["k"] + "\r\n" + c.head)
			soon(t, called)
			c.end(p.c)
			if c.status != 0 {
				if res, body := p.answer(); res.StatusCode != c.status || res.Header.Get("Agentgate-Code") != "bad_request" || res.Header.Get("X-Should-Retry") != "false" {
					t.Errorf("%s %s", res.Status, body)
				}
				p.closed()
			}
			within(t, 5*time.Second, "it is over", func() bool { return w.inFlight("tenant:wide") == 0 && w.lastClosing().Kind == receipts.KindOutcome })
			if last := w.lastClosing(); last.Ending != c.ending || last.In != 4 {
				t.Errorf("%+v", last)
			}
			if ended.Load() != 0 {
				t.Error("the service saw the end of the request")
			}
		})
	}
}

// TestProxyWaitsForTheAgent: the time that a service has to begin its answer counts
// from what the agent said last, and not while the agent is waited for.
func TestProxyWaitsForTheAgent(t *testing.T) {
	got := make(chan string)
	w := uploadWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		part := make([]byte, 4)
		for {
			n, err := io.ReadFull(r.Body, part)
			if err != nil {
				break
			}
			got <- string(part[:n])
		}
		<-r.Context().Done()
	}, nil)
	r, body := io.Pipe()
	answered := make(chan *http.Response, 1)
	go func() {
		res, err := w.post("PUT", "any/x", r, -1)
		if err != nil {
			t.Error(err)
		}
		answered <- res
	}()
	for range 5 {
		if _, err := io.WriteString(body, "part"); err != nil {
			t.Fatal(err)
		}
		if part := soon(t, got); part != "part" {
			t.Fatal(part)
		}
		eventually(t, "the agent is waited for", func() bool { return w.gateway.WaitForAgents() == 1 })
		w.clock.Advance(time.Minute)
		select {
		case res := <-answered:
			t.Fatalf("while the agent was waited for: %v", res)
		default:
		}
	}
	if err := body.Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; w.clock.Advance(time.Second) {
		select {
		case res := <-answered:
			if res == nil || res.StatusCode != 504 {
				t.Fatalf("%v", res)
			}
			return
		case <-time.After(time.Millisecond):
			if time.Now().After(end) {
				t.Fatal("no answer")
			}
		}
	}
}

// TestProxySentOnce: no request is sent twice, whatever became of its connection.
func TestProxySentOnce(t *testing.T) {
	var asked atomic.Int32
	w := newWire(t, "", func(c net.Conn, _ string) bool {
		if asked.Add(1)%2 == 0 {
			return false
		}
		_, err := io.WriteString(c, helloBytes)
		return err == nil
	})
	g := wired(t, w, uploadRegistry)
	for method, body := range map[string]string{"GET": "", "DELETE": "", "POST": strings.Repeat("x", 2000), "PUT": strings.Repeat("x", 100_000), "PROPFIND": "", "QUERY": "x"} {
		for _, want := range []int{200, 502} {
			raw := g.proxied(method, "any/x", "k", body, "Idempotency-Key: once", "Connection: close")
			res, text := g.send(raw)
			if res.StatusCode != want || want == 502 && res.Header.Get("X-Should-Retry") != "false" {
				t.Errorf("%s: %s %s", method, res.Status, text)
			}
		}
	}
	if n := len(w.all()); n != 12 {
		t.Errorf("12 calls became %d requests", n)
	}
}

// TestProxyAnswersWithoutABody: HEAD with the length of what it is about, 204 and 304, and
// the connection is good for the next request behind each.
func TestProxyAnswersWithoutABody(t *testing.T) {
	w := newWire(t, "", func(c net.Conn, request string) bool {
		answer := map[string]string{
			"/head": "200 OK\r\nContent-Length: 12345\r\nEtag: \"a\"", "/none": "204 No Content", "/same": "304 Not Modified\r\nEtag: \"a\"", "/empty": "200 OK\r\nContent-Length: 0",
		}[strings.Split(request, " ")[1]]
		_, err := io.WriteString(c, "HTTP/1.1 "+answer+"\r\n\r\n")
		return err == nil
	})
	g := wired(t, w, uploadRegistry)
	for _, protocol := range fronts {
		g.front(protocol)
		for range 2 {
			for method, paths := range map[string]map[string]int{"HEAD": {"head": 200}, "GET": {"none": 204, "same": 304, "empty": 200}, "POST": {"none": 204, "empty": 200}} {
				for path, status := range paths {
					res, err := g.post(method, "any/"+path, nil, 0, "If-None-Match", `"a"`)
					if err != nil {
						t.Fatal(protocol, method, path, err)
					}
					body, err := io.ReadAll(res.Body)
					if res.StatusCode != status || len(body) != 0 || err != nil || path == "head" && (res.ContentLength != 12345 || res.Header.Get("Etag") != `"a"`) {
						t.Errorf("%s %s /%s: %s %v %d %v", protocol, method, path, res.Status, res.Header, res.ContentLength, err)
					}
				}
			}
		}
	}
	if n := w.connections(); n > 2 {
		t.Errorf("%d connections for as many answers", n)
	}
}

// TestProxyTrailersAndHints: a trailer of the service's comes behind its answer, and a
// 1xx before it; a header may be large, and one that is too large is a 502 that says so.
func TestProxyTrailersAndHints(t *testing.T) {
	w := newWire(t, "", func(c net.Conn, request string) bool {
		switch strings.Split(request, " ")[1] {
		case "/trailer":
			_, _ = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Sum: 7\r\nSet-Cookie: a=1\r\n\r\n")
		case "/large":
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX-Large: "+strings.Repeat("x", 70<<10)+"\r\nContent-Length: 0\r\n\r\n")
		case "/hints":
			for range 20_000 {
				if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"); err != nil {
					return false
				}
			}
			return false
		default:
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX-Large: "+strings.Repeat("x", 300<<10)+"\r\n\r\n")
			return false
		}
		return true
	})
	g := wired(t, w, uploadRegistry)
	p := g.dial()
	p.write(g.proxied("GET", "any/trailer", "k", ""))
	if res, err := http.ReadResponse(p.r, nil); err != nil || res.StatusCode != 103 || res.Header.Get("Link") != "</a>" || res.Header.Get("X-Request-Id") != "" {
		t.Errorf("%v %v", res, err)
	}
	res, body := p.answer()
	if res.StatusCode != 200 || body != "a" || res.Trailer.Get("X-Sum") != "7" || res.Trailer.Get("Set-Cookie") != "" {
		t.Errorf("%s %s %v", res.Status, body, res.Trailer)
	}
	if res, body := g.send(strings.Replace(g.proxied("GET", "any/trailer", "k", ""), "HTTP/1.1", "HTTP/1.0", 1)); res.StatusCode != 200 || body != "a" {
		t.Errorf("HTTP/1.0, which has no 1xx: %s %s", res.Status, body)
	}
	if res, _ := g.send(g.proxied("GET", "any/large", "k", "")); res.StatusCode != 200 || len(res.Header.Get("X-Large")) != 70<<10 {
		t.Errorf("%s", res.Status)
	}
	for path, says := range map[string]string{"any/larger": "header larger than 256 KiB", "any/hints": "more than"} {
		p := g.dial()
		p.write(g.proxied("GET", path, "k", ""))
		hints := 0
		res, err := http.ReadResponse(p.r, nil)
		for ; err == nil && res.StatusCode == 103; hints++ {
			res, err = http.ReadResponse(p.r, nil)
		}
		if err != nil {
			t.Fatal(path, err)
		}
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode != 502 || res.Header.Get("Agentgate-Code") != "upstream_unreachable" || !strings.Contains(string(body), says) || hints > 1000 {
			t.Errorf("%s: %s %s after %d hints", path, res.Status, body, hints)
		}
	}
	if n := g.inFlight("key:k"); n != 0 {
		t.Errorf("%d slots are taken", n)
	}
}

// TestProxyStreamsEnd: events come one by one and hold the slot to their last byte, and
// whoever may end a stream ends one that came by /proxy.
func TestProxyStreamsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(*world, net.Conn)
		ending receipts.Ending
	}{
		"the agent hangs up":    {func(_ *world, c net.Conn) { _ = c.Close() }, receipts.ClientCancelled},
		"drain":                 {func(w *world, _ net.Conn) { w.gateway.Drain() }, receipts.Shutdown},
		"the drain time ends":   {func(w *world, _ net.Conn) { w.gateway.Cut() }, receipts.Shutdown},
		"the key is revoked":    {func(w *world, _ net.Conn) { w.use(uploadRegistry) }, receipts.Revoked},
		"the tenant is blocked": {func(w *world, _ net.Conn) { w.gateway.Block("tenant:wide") }, receipts.Blocked},
		"the service is silent": {func(w *world, _ net.Conn) { w.clock.Advance(5 * time.Minute) }, receipts.Timeout},
	} {
		t.Run(name, func(t *testing.T) {
			gone := make(chan struct{})
			w := uploadWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Content-Type", "text/event-stream")
				send(rw, event)
				<-r.Context().Done()
				close(gone)
			}, nil)
			p := w.dial()
			if err := p.c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Fatal(err)
			}
			p.write(w.proxied("GET", "any/stream", "k", "", "Accept: text/event-stream"))
			res, err := http.ReadResponse(p.r, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(event))
			if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != event || w.inFlight("tenant:wide") != 1 {
				t.Fatalf("%q %v, %d slots taken", got, err, w.inFlight("tenant:wide"))
			}
			c.end(w, p.c)
			soon(t, gone)
			if more, err := io.ReadAll(res.Body); err == nil || len(more) > 0 {
				t.Errorf("it looks whole: %q %v", more, err)
			}
			within(t, 5*time.Second, "the slot is free", func() bool { return w.inFlight("tenant:wide") == 0 })
			if last := w.lastClosing(); last.Ending != c.ending || last.Action != "*" || last.Out != int64(len(event)) {
				t.Errorf("%+v", last)
			}
		})
	}
}

// TestProxyRequestFraming: what stands in a body that nobody has read to its end is never
// taken for a request, whoever answered before that: the service, or the gateway.
func TestProxyRequestFraming(t *testing.T) {
	const size = 70_000
	forbid := func(rw http.ResponseWriter) {
		rw.Header().Set("Content-Length", "0")
		rw.WriteHeader(http.StatusForbidden)
		_ = http.NewResponseController(rw).Flush()
	}
	ways := map[string]func(rw http.ResponseWriter, r *http.Request){
		"the service answers first": func(rw http.ResponseWriter, _ *http.Request) { forbid(rw) },
		"the service reads half": func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadFull(r.Body, make([]byte, size/2))
			forbid(rw)
		},
		"the service breaks off": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"the agent is slow":      func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) },
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			var hidden atomic.Int32
			w := uploadWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/hidden" {
					hidden.Add(1)
					return
				}
				_ = http.NewResponseController(rw).EnableFullDuplex()
				way(rw, r)
				_, _ = io.Copy(io.Discard, r.Body) // or net/http would, and panic at the end of it (golang/go#68560)
			}, func(s *config.Settings) { s.ClientStall = 200 * time.Millisecond })
			p := w.dial()
			p.write(fmt.Sprintf("PUT /proxy/any/x HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", w.keys["k"], size))
			p.write(strings.Repeat("x", size/2))
			if res, body := p.answer(); res.StatusCode/100 == 2 || !res.Close {
				t.Errorf("%s %v %s", res.Status, res.Header, body)
			}
			_, _ = io.WriteString(p.c, w.proxied("GET", "any/hidden", "k", "")) // which may be too late
			if rest := p.closed(); rest != "" {
				t.Errorf("what was hidden was answered: %q", rest)
			}
			if n := hidden.Load(); n != 0 {
				t.Errorf("what was hidden was done %d times", n)
			}
		})
	}
	// One that was read to its end keeps its connection.
	w := uploadWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(rw, n)
	}, nil)
	p := w.dial()
	for range 3 {
		p.write(w.proxied("PUT", "any/x", "k", strings.Repeat("x", size)))
		if res, body := p.answer(); res.StatusCode != 200 || body != fmt.Sprint(size) || res.Close {
			t.Fatalf("%s %s", res.Status, body)
		}
	}
}
