package gateway

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

// BenchmarkCall is one whole call on one connection, over sockets, beside the
// same call through a bare ReverseProxy. The client and the upstream are made to
// allocate nothing, so the allocations are the gateway's. Profile it with
// -cpuprofile; figures of processes apart are `make bench`'s.
func BenchmarkCall(b *testing.B) {
	upstream := parrot(b)
	base := &url.URL{Scheme: "http", Host: upstream}
	body := `{"service":"tools","action":"post","params":{"query":"` + strings.Repeat("q", 180) + `"}}`

	b.Run("agentgw", func(b *testing.B) {
		log, err := receipts.Open(b.TempDir(), receipts.Options{Clock: clockwork.NewRealClock(), Replica: "r", Sync: receipts.SyncInterval})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = log.Close() })
		g, tokens := controlled(b, 1, base.String(), log, nil)
		b.Cleanup(g.Close)
		ask(b, g.Handler(), "/v1/act", tokens[0], body)
	})
	b.Run("reverseproxy", func(b *testing.B) {
		transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
		b.Cleanup(transport.CloseIdleConnections)
		ask(b, &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(base) },
			Transport: transport, BufferPool: bufferPool{&buffers{size: answerBuffer}},
		}, "/post", "Bearer x", body)
	})
}

// bufferPool is buffers as ReverseProxy wants them.
type bufferPool struct{ *buffers }

func (b bufferPool) Get() []byte  { return *b.get() }
func (b bufferPool) Put(p []byte) { b.put(&p) }

// parrot answers each read, which is a request as long as requests come in at
// most two writes of which the body is the last, with 1 KiB of JSON.
func parrot(b *testing.B) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1024\r\n\r\n{\"r\":\"" + strings.Repeat("x", 1024-8) + "\"}")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				room := make([]byte, 4096)
				for {
					n, err := c.Read(room)
					if err != nil {
						return
					}
					if bytes.HasSuffix(room[:n], []byte("}")) {
						if _, err := c.Write(answer); err != nil {
							return
						}
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// ask sends the same POST again and again and reads the answers.
func ask(b *testing.B, handler http.Handler, path, authorization, body string) {
	server := httptest.NewServer(handler)
	b.Cleanup(server.Close)
	c, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: gateway.example\r\nAccept: application/json\r\nAuthorization: %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, authorization, len(body), body)
	room := make([]byte, 4096)
	b.ReportAllocs()
	b.ResetTimer()
	from := processor(b)
	for range b.N {
		if _, err := c.Write(request); err != nil {
			b.Fatal(err)
		}
		for n := 0; n == 0 || !bytes.HasSuffix(room[:n], []byte(`x"}`)); {
			more, err := c.Read(room[n:])
			if err != nil && err != io.EOF || more == 0 {
				b.Fatalf("%v after %q", err, room[:n])
			}
			n += more
		}
	}
	b.ReportMetric(float64((processor(b)-from).Nanoseconds())/float64(b.N), "cpu-ns/op")
}
