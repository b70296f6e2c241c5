package gateway_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"agentgw/internal/receipts"
)

// behinds are the protocols by which services are reached.
var behinds = []string{"HTTP/1.1", "HTTP/2", "h2c"}

// spoken is a world whose service speaks one protocol and is reached by it alone.
type spoken struct {
	*world
	gone  atomic.Int64 // calls that the service has seen cancelled
	held  atomic.Int64 // calls that the service holds
	wrong atomic.Int64 // requests by another protocol
}

func newSpoken(t *testing.T, front, behind string) *spoken {
	s := &spoken{}
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if (r.ProtoMajor == 2) != (behind != "HTTP/1.1") || (r.TLS != nil) != (behind == "HTTP/2") {
			s.wrong.Add(1)
		}
		s.answer(rw, r)
	}))
	upstream.Config.ErrorLog = nothing
	h2c, pool := "", "http"
	certificate, roots := certificateFor(t, nil, net.IPv4(127, 0, 0, 1))
	switch behind {
	case "HTTP/2":
		upstream.EnableHTTP2 = true
		upstream.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
		upstream.StartTLS()
		pool = "https"
	case "h2c":
		h2c = "h2c: true, "
		upstream.Config.Protocols = new(http.Protocols)
		upstream.Config.Protocols.SetUnencryptedHTTP2(true)
		upstream.Start()
	default:
		upstream.Start()
	}
	t.Cleanup(upstream.Close)
	s.world = setup{registry: "tenants:\n  wide: {rps: 100000, burst: 100000, max_inflight: 100000}\nservices:\n  any: {base_url: \"" + pool + "://" + upstream.Listener.Addr().String() +
		"\", allow_private: true, passthrough: true, " + h2c + "timeout: 20s}\n"}.world(t, hello, wide("k"), roomy("other"))
	s.gateway.Trust(roots)
	s.front(front)
	return s
}

// answer is the service: each path is a kind of answer.
func (s *spoken) answer(rw http.ResponseWriter, r *http.Request) {
	h := rw.Header()
	switch r.URL.Path {
	case "/unary":
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		h.Set("X-Length", fmt.Sprint(len(body)))
		h.Set("X-Trailer", fmt.Sprint(r.Trailer))
		_, _ = io.WriteString(rw, r.Method+" ok")
	case "/events":
		h.Set("Content-Type", "text/event-stream")
		for range 3 {
			send(rw, event)
		}
	case "/trailers":
		h.Set("Trailer", "X-Sum")
		send(rw, "body")
		h.Set("X-Sum", "7")
		h.Set(http.TrailerPrefix+"X-Late", "8")
		h.Set(http.TrailerPrefix+"Set-Cookie", "b=2")
	case "/early": // without having read the request
		h.Set("Connection", "close")
		rw.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(rw, "no")
	case "/hold":
		s.held.Add(1)
		send(rw, "begun")
		<-r.Context().Done()
		s.held.Add(-1)
		s.gone.Add(1)
	case "/204":
		rw.WriteHeader(204)
	case "/304":
		h.Set("Etag", `"e"`)
		rw.WriteHeader(304)
	case "/large":
		for i := range 20 {
			h.Set(fmt.Sprint("X-Fill-", i), strings.Repeat("f", 3000))
		}
	case "/interim":
		h.Set("Link", "</x>")
		rw.WriteHeader(103)
		h.Del("Link")
		_, _ = io.WriteString(rw, "final")
	case "/continue": // which reads nothing of a body unless it is of a good length
		if r.ContentLength == 3 {
			rw.WriteHeader(http.StatusExpectationFailed)
			return
		}
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprint(rw, len(body))
	}
}

// trailed is a body that has a trailer when it has ended.
type trailed struct {
	io.Reader
	trailer func()
}

func (s *trailed) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err == io.EOF && s.trailer != nil {
		s.trailer()
	}
	return n, err
}

// TestProtocols: what an agent is answered is the same by whichever protocol it and the
// service speak, and no slot outlives its call in any of them.
func TestProtocols(t *testing.T) {
	for _, front := range fronts {
		for _, behind := range behinds {
			t.Run(front+" to "+behind, func(t *testing.T) {
				s := newSpoken(t, front, behind)
				s.unary(t)
				s.streams(t)
				s.requestTrailers(t, front)
				s.overtaken(t)
				s.cancelled(t)
				s.interims(t)
				if n := s.wrong.Load(); n != 0 {
					t.Errorf("%d requests came by another protocol", n)
				}
				eventually(t, "no slot is taken", func() bool { return s.inFlight("tenant:wide") == 0 && s.pooled() == 0 })
				for _, r := range s.ledger.all() {
					if r.Kind == receipts.KindRefusal {
						t.Errorf("%+v", r)
					}
				}
				s.endings()
			})
		}
	}
}

// get is an answer, read to its end.
func (s *spoken) get(t *testing.T, method, path string, body io.Reader, length int64, header ...string) (*http.Response, string) {
	t.Helper()
	res, err := s.post(method, "any/"+path, body, length, header...)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return res, string(text)
}

func (s *spoken) unary(t *testing.T) {
	if res, body := s.get(t, "GET", "unary", nil, 0); res.StatusCode != 200 || body != "GET ok" || res.Header.Get("Agentgate-Receipt") == "" {
		t.Errorf("%v %q", res, body)
	}
	if res, body := s.get(t, "HEAD", "unary", nil, 0); res.StatusCode != 200 || body != "" || res.ContentLength != 7 {
		t.Errorf("HEAD: %v %q", res, body)
	}
	for _, method := range []string{"GET", "HEAD"} { // over HTTP/2 the end is a frame of its own, as that of a body whose length nobody knows
		if res, body := s.get(t, method, "unary", io.LimitReader(endless{}, 0), -1); res.StatusCode != 200 || res.ContentLength != int64(len(method+" ok")) || !strings.HasPrefix(method+" ok", body) {
			t.Errorf("%s with an end of its own: %v %q", method, res, body)
		}
	}
	const large = 900 << 10
	for _, length := range []int64{-1, large} {
		if res, body := s.get(t, "POST", "unary", io.LimitReader(endless{}, large), length); body != "POST ok" || res.Header.Get("X-Length") != fmt.Sprint(large) {
			t.Errorf("an upload: %v %q", res, body)
		}
	}
	if res, body := s.get(t, "GET", "204", nil, 0); res.StatusCode != 204 || body != "" {
		t.Errorf("204: %v %q", res, body)
	}
	if res, body := s.get(t, "GET", "304", nil, 0); res.StatusCode != 304 || body != "" || res.Header.Get("Etag") != `"e"` {
		t.Errorf("304: %v %q", res, body)
	}
	if res, _ := s.get(t, "GET", "large", nil, 0); res.StatusCode != 200 || len(res.Header.Get("X-Fill-19")) != 3000 {
		t.Errorf("a large header: %v", res)
	}
}

// endless is what never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func (s *spoken) streams(t *testing.T) {
	if res, body := s.get(t, "GET", "events", nil, 0); body != strings.Repeat(event, 3) || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("events: %v %q", res, body)
	}
	res, body := s.get(t, "GET", "trailers", nil, 0, "Te", "trailers")
	if res.Trailer.Get("X-Sum") != "7" || res.Trailer.Get("Set-Cookie") != "" || body != "body" || !strings.HasPrefix(res.Trailer.Get("Agentgate-Receipt"), "id=") {
		t.Errorf("trailers: %v %q", res.Trailer, body)
	}
}

// requestTrailers: what an agent says behind the body reaches the service, if it was
// announced, but for what no agent may send on.
func (s *spoken) requestTrailers(t *testing.T, front string) {
	for _, size := range []int64{3, 200 << 10, -3, -200 << 10} { // below 0: with its length, beside which HTTP/1 has no trailer
		length := int64(-1)
		if size < 0 && front == "HTTP/1.1" {
			break
		}
		if size < 0 {
			size = -size
			length = size
		}
		key := s.keys["k"]
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.server.URL+"/proxy/any/unary", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.ContentLength = length
		r.Trailer = http.Header{"X-Sum": nil, "X-Key": nil, "X-Api-Key": nil, "X-Forwarded-For": nil, "X_under": nil, "Agentgate-On-Behalf-Of": nil, "Cookie": nil}
		if front == "HTTP/1.1" { // the others have no such field
			r.Header.Set("Connection", "x-hop")
			r.Trailer["X-Hop"] = nil
		}
		r.Body = io.NopCloser(&trailed{io.LimitReader(endless{}, size), func() {
			for name := range r.Trailer {
				r.Trailer.Set(name, "7")
			}
			r.Trailer.Set("X-Key", "see "+key)
		}})
		res, err := s.server.Client().Transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadAll(res.Body)
		_ = res.Body.Close()
		if got := res.Header.Get("X-Trailer"); err != nil || !strings.Contains(got, "X-Sum:[7]") || strings.Count(got, "7") != 1 ||
			strings.Contains(got, key) || res.Header.Get("X-Length") != fmt.Sprint(size) {
			t.Errorf("the trailer of %d bytes arrived as %s, %v", size, got, err)
		}
	}
}

// overtaken: an answer may come before the request has ended.
func (s *spoken) overtaken(t *testing.T) {
	r, w := io.Pipe()
	go func() { _, _ = w.Write(make([]byte, 100)) }()
	res, err := s.post("POST", "any/early", r, -1)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	_ = w.Close()
	if res.StatusCode != http.StatusTeapot || string(text) != "no" || err != nil {
		t.Errorf("early: %s %q, %v", res.Status, text, err)
	}
}

// cancelled: the slot is held to the end, and the service is told when nobody waits any more.
func (s *spoken) cancelled(t *testing.T) {
	for i := range int64(3) {
		ctx, cancel := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, "GET", s.server.URL+"/proxy/any/hold", nil)
		r.Header.Set("Authorization", "Bearer "+s.keys["k"])
		res, err := s.server.Client().Transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if n := s.inFlight("tenant:wide"); n != 1 {
			t.Errorf("%d slots are taken while it is answered", n)
		}
		cancel()
		_ = res.Body.Close()
		eventually(t, "the service is told, and the slot is free", func() bool { return s.gone.Load() == i+1 && s.inFlight("tenant:wide") == 0 })
	}
}

func (s *spoken) interims(t *testing.T) {
	var seen []string
	var mu sync.Mutex
	trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprint(code, " ", header.Get("Link")))
		return nil
	}})
	r, _ := http.NewRequestWithContext(trace, "GET", s.server.URL+"/proxy/any/interim", nil)
	r.Header.Set("Authorization", "Bearer "+s.keys["k"])
	res, err := s.server.Client().Transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	mu.Lock()
	defer mu.Unlock()
	if string(text) != "final" || err != nil || fmt.Sprint(seen) != "[103 </x>]" {
		t.Errorf("1xx: %v, then %q, %v", seen, text, err)
	}
	for length, want := range map[int64]int{3: 417, 4: 200, 100 << 10: 200} {
		res, body := s.get(t, "POST", "continue", io.LimitReader(endless{}, length), length, "Expect", "100-continue")
		if res.StatusCode != want || want == 200 && body != fmt.Sprint(length) {
			t.Errorf("expected of %d: %s %q", length, res.Status, body)
		}
	}
}
