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

// http2Upstream answers the first request on each connection and does fault to
// the next one. It returns its address and the count of requests so far.
func http2Upstream(t *testing.T, certificate tls.Certificate, fault func(*http2.Framer, net.Conn, uint32)) (address string, requests func() int) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns sync.WaitGroup
	seen := 0
	open := map[net.Conn]bool{}
	serve := func(c net.Conn) {
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
				mu.Lock()
				seen++
				mu.Unlock()
				if mine++; mine > 1 {
					fault(frames, c, f.StreamID)
					continue
				}
				var block bytes.Buffer
				_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "204"})
				_ = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: f.StreamID, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
			}
		}
	}
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			conns.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		conns.Wait()
	})
	return l.Addr().String(), func() int { mu.Lock(); defer mu.Unlock(); return seen }
}

// TestSentOnceOverHTTP2: a stream that is reset and a connection that is given
// up after the request was read are a refusal, and not a second request.
func TestSentOnceOverHTTP2(t *testing.T) {
	certificate, pool := certificateFor(t, nil, net.IPv4(127, 0, 0, 1))
	for name, fault := range map[string]func(*http2.Framer, net.Conn, uint32){
		"reset":  func(f *http2.Framer, _ net.Conn, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeInternal) },
		"closed": func(_ *http2.Framer, c net.Conn, _ uint32) { _ = c.Close() },
		"gone away": func(f *http2.Framer, c net.Conn, id uint32) {
			_ = f.WriteGoAway(id, http2.ErrCodeNo, nil)
			_ = c.Close()
		},
	} {
		for what, act := range onceCalls {
			t.Run(name+", "+what, func(t *testing.T) {
				address, requests := http2Upstream(t, certificate, fault)
				g := setup{registry: headered("https://" + address), vault: fullVault(t)}.world(t, hello, tireless("k"))
				g.gateway.Trust(pool)
				if res, body := g.send(g.raw(act, "Idempotency-Key: once")); res.StatusCode != 204 {
					t.Fatalf("%s %s", res.Status, body)
				}
				res, body := g.send(g.raw(act, "Idempotency-Key: once"))
				if res.StatusCode != 502 || res.Header.Get("Agentgate-Code") != "upstream_unreachable" || res.Header.Get("X-Should-Retry") != "false" {
					t.Errorf("%s %v %s", res.Status, res.Header, body)
				}
				if n := requests(); n != 2 {
					t.Errorf("2 calls became %d requests", n)
				}
			})
		}
	}
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
