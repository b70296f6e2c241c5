package gateway_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// http2Service is a service that speaks HTTP/2 by frames, over TLS or, with no certificate,
// from the first byte. It answers the first request on each connection and does fault
// to the next one.
type http2Service struct {
	address string
	fault   func(*http2.Framer, net.Conn, uint32)

	mu    sync.Mutex
	seen  []*http2.HeadersFrame // what came, of which only the header of the frame is kept
	conns map[net.Conn]bool
}

func newHTTP2Service(t *testing.T, certificate *tls.Certificate, fault func(*http2.Framer, net.Conn, uint32)) *http2Service {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if certificate != nil {
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*certificate}, NextProtos: []string{"h2"}})
	}
	s := &http2Service{address: l.Addr().String(), fault: fault, conns: map[net.Conn]bool{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c] = true
			s.mu.Unlock()
			serving.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		s.mu.Lock()
		for c := range s.conns {
			_ = c.Close()
		}
		s.mu.Unlock()
		serving.Wait()
	})
	return s
}

func (s *http2Service) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	frames := http2.NewFramer(c, c)
	_ = frames.WriteSettings()
	for mine := 0; ; {
		frame, err := frames.ReadFrame()
		if err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = frames.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			s.mu.Lock()
			s.seen = append(s.seen, f)
			s.mu.Unlock()
			if mine++; mine > 1 {
				s.fault(frames, c, f.StreamID)
				continue
			}
			answer204(frames, f.StreamID)
		}
	}
}

func answer204(frames *http2.Framer, stream uint32) {
	var block bytes.Buffer
	_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "204"})
	_ = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
}

// requests counts those that came, and those that their header ended.
func (s *http2Service) requests() (all, ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.seen {
		if f.StreamEnded() {
			ended++
		}
	}
	return len(s.seen), ended
}

// http2Services runs a test with a service over TLS and with one in clear text, and a
// gateway in front of it.
func http2Services(t *testing.T, fault func(*http2.Framer, net.Conn, uint32), test func(*testing.T, *http2Service, *world)) {
	t.Helper()
	certificate, pool := certificateFor(t, nil, net.IPv4(127, 0, 0, 1))
	for scheme, with := range map[string]*tls.Certificate{"https": &certificate, "http": nil} {
		t.Run(scheme, func(t *testing.T) {
			s := newHTTP2Service(t, with, fault)
			file := headered(scheme + "://" + s.address)
			if with == nil {
				file = strings.ReplaceAll(file, "    allow_private: true\n", "    allow_private: true\n    h2c: true\n")
			}
			file = strings.ReplaceAll(file, "    allow_private: true\n", "    allow_private: true\n    passthrough: true\n")
			w := setup{registry: file, vault: fullVault(t)}.world(t, hello, tireless("k"))
			w.gateway.Trust(pool)
			test(t, s, w)
		})
	}
}

// ways in which the service does not answer a request that it has read.
var http2Faults = map[string]func(*http2.Framer, net.Conn, uint32){
	"reset":    func(f *http2.Framer, _ net.Conn, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeInternal) },
	"refused":  func(f *http2.Framer, _ net.Conn, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeRefusedStream) },
	"protocol": func(f *http2.Framer, _ net.Conn, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeProtocol) },
	"closed":   func(_ *http2.Framer, c net.Conn, _ uint32) { _ = c.Close() },
	"gone away": func(f *http2.Framer, c net.Conn, id uint32) {
		_ = f.WriteGoAway(id, http2.ErrCodeNo, nil)
		_ = c.Close()
	},
	"gone away before it": func(f *http2.Framer, _ net.Conn, id uint32) { _ = f.WriteGoAway(id-2, http2.ErrCodeNo, nil) },
	"gone away for a fault of it": func(f *http2.Framer, c net.Conn, id uint32) {
		_ = f.WriteGoAway(id-2, http2.ErrCodeEnhanceYourCalm, nil)
		_ = c.Close()
	},
}

// TestSentOnceOverHTTP2: a stream that is reset or refused and a connection that is given
// up after the request was read are a refusal, and not a second request.
func TestSentOnceOverHTTP2(t *testing.T) {
	for name, fault := range http2Faults {
		t.Run(name, func(t *testing.T) {
			http2Services(t, fault, func(t *testing.T, s *http2Service, w *world) {
				for what, act := range onceCalls {
					answered := true
					for range 2 { // the first may be on a connection of its own, and the second is not
						before, _ := s.requests()
						res, body := w.send(w.raw(act, "Idempotency-Key: once"))
						if answered = res.StatusCode == 204; !answered &&
							(res.StatusCode != 502 || res.Header.Get("Agentgate-Code") != "upstream_unreachable" || res.Header.Get("X-Should-Retry") != "false") {
							t.Errorf("%s: %s %v %s", what, res.Status, res.Header, body)
						}
						if after, _ := s.requests(); after != before+1 {
							t.Errorf("%s: a call became %d requests", what, after-before)
						}
					}
					if answered {
						t.Errorf("%s: it was answered and is not to be", what)
					}
				}
				if n := w.inFlight("key:k"); n != 0 {
					t.Errorf("%d slots are taken", n)
				}
			})
		})
	}
}

// TestAServiceThatGoesAwayInGoodOrderIsCalledAnew: what it has said before a call is made
// costs that call nothing.
func TestAServiceThatGoesAwayInGoodOrderIsCalledAnew(t *testing.T) {
	http2Services(t, func(f *http2.Framer, _ net.Conn, id uint32) {
		_ = f.WriteGoAway(id, http2.ErrCodeNo, nil)
		answer204(f, id)
	}, func(t *testing.T, s *http2Service, w *world) {
		calls := 0
		for range 4 {
			for _, act := range onceCalls {
				calls++
				if res, body := w.send(w.raw(act)); res.StatusCode != 204 {
					t.Errorf("%s %s", res.Status, body)
				}
			}
		}
		if n, _ := s.requests(); n != calls {
			t.Errorf("%d calls became %d requests", calls, n)
		}
	})
}

// TestARequestWithoutContentEndsWithItsHeader over HTTP/2, where an empty piece of content
// behind it would be content to some services (RFC 9113, section 8.1: END_STREAM).
func TestARequestWithoutContentEndsWithItsHeader(t *testing.T) {
	http2Services(t, func(f *http2.Framer, _ net.Conn, id uint32) { answer204(f, id) }, func(t *testing.T, s *http2Service, w *world) {
		requests := []string{
			w.raw(onceCalls["GET"]), w.raw(onceCalls["DELETE"]), w.raw(onceCalls["PUT, no body"]), // of actions
		}
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "DELETE", "POST", "PUT"} {
			for _, length := range []string{"", "Content-Length: 0\r\n", "Content-Length: 0\r\nIdempotency-Key: once\r\n", "Content-Length: 0\r\nExpect: 100-continue\r\n"} {
				requests = append(requests, method+" /proxy/bare/y HTTP/1.1\r\nHost: g\r\nConnection: close\r\nAuthorization: Bearer "+w.keys["k"]+"\r\n"+length+"\r\n")
			}
		}
		for i, request := range requests {
			if res, body := w.send(request); res.StatusCode != 204 {
				t.Errorf("%s: %s %s", request, res.Status, body)
			}
			if all, ended := s.requests(); all != i+1 || ended != all {
				t.Fatalf("%d calls became %d requests, of which %d ended with their header; the last: %s", i+1, all, ended, request)
			}
		}
		if res, body := w.send(w.raw(onceCalls["POST of 2 KiB"])); res.StatusCode != 204 {
			t.Errorf("%s %s", res.Status, body)
		}
		if all, ended := s.requests(); all != ended+1 {
			t.Errorf("%d requests, and %d that ended with their header, with one of 2 KiB", all, ended)
		}
	})
}

// TestHTTP2Answers: what holds of headers and trailers of answers over HTTP/1
// holds over HTTP/2, also of a trailer that comes behind a declared length.
func TestHTTP2Answers(t *testing.T) {
	certificate, pool := certificateFor(t, nil, net.IPv4(127, 0, 0, 1))
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Fill", strings.Repeat("f", map[string]int{"GET": 70 << 10, "DELETE": 300 << 10, "POST": 1126 << 10}[r.Method]))
		h.Set("Set-Cookie", "a=1")
		h.Set("Agentgate-Code", "forged")
		h.Set("Trailer", "X-Sum")
		if r.Method == "PUT" {
			h.Set("Content-Length", "2")
		} else {
			_ = http.NewResponseController(w).Flush() // or the server would count
		}
		_, _ = io.WriteString(w, "{}")
		h.Set("X-Sum", "7")
		h.Set(http.TrailerPrefix+"Set-Cookie", "b=2")
		h.Set(http.TrailerPrefix+"Agentgate-Receipt", "forged")
	}))
	upstream.EnableHTTP2, upstream.Config.ErrorLog = true, nothing
	upstream.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	upstream.StartTLS()
	defer upstream.Close()
	g := setup{registry: headered(upstream.URL), vault: fullVault(t)}.world(t, hello, tireless("k"))
	g.gateway.Trust(pool)

	for _, action := range []string{"get", "put"} {
		res, body := g.send(g.raw(`{"service":"bare","action":"` + action + `"}`))
		if res.StatusCode != 200 || body != "{}" || res.Header.Get("Set-Cookie") != "" || res.Header.Get("Agentgate-Code") != "" {
			t.Errorf("%s: %s %v %q", action, res.Status, res.Header, body)
		}
		if got := fmt.Sprint(res.Trailer); got != "map[X-Sum:[7]]" {
			t.Errorf("%s: the trailer is %s", action, got)
		}
	}
	for _, action := range []string{"drop", "make"} { // 300 KiB, 1.1 MiB
		if res, body := g.send(g.raw(`{"service":"bare","action":"` + action + `"}`)); res.StatusCode != 502 || !strings.Contains(body, "header larger than 256 KiB") {
			t.Errorf("%s: %s %.300s", action, res.Status, body)
		}
	}
	if n := g.inFlight("key:k"); n != 0 {
		t.Errorf("%d slots are taken", n)
	}
}

// TestTrailerOfAnEmptyAnswer: HTTP/2 may send a trailer behind no body at all,
// and status, header and trailer reach the agent all the same.
func TestTrailerOfAnEmptyAnswer(t *testing.T) {
	certificate, pool := certificateFor(t, nil, net.IPv4(127, 0, 0, 1))
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusTeapot)
		w.Header().Set("X-Sum", "7")
		w.Header().Set(http.TrailerPrefix+"Set-Cookie", "b=2")
	}))
	upstream.EnableHTTP2, upstream.Config.ErrorLog = true, nothing
	upstream.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	upstream.StartTLS()
	defer upstream.Close()
	g := setup{registry: headered(upstream.URL), vault: fullVault(t)}.world(t, hello, tireless("k"))
	g.gateway.Trust(pool)
	res, body := g.send(g.raw(`{"service":"bare","action":"get"}`))
	if got := fmt.Sprintf("%d%s%v", res.StatusCode, body, res.Trailer); got != "418map[X-Sum:[7]]" {
		t.Error(got)
	}
}
