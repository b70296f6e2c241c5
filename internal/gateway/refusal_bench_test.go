package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/hangup"
	"agentgw/internal/identity"
	"agentgw/internal/receipts"
)

// BenchmarkRefusal is a flood of calls that the key's own limit refuses, with and
// without their records, beside the least that refuses a call in Go. Of each cpu-ns/op
// what a client does is part, alike in all.
func BenchmarkRefusal(b *testing.B) {
	body := `{"service":"tools","action":"post","params":{"query":"` + strings.Repeat("q", 180) + `"}}`
	for _, recorded := range []bool{true, false} {
		b.Run(fmt.Sprintf("agentgw/recorded=%t", recorded), func(b *testing.B) {
			var log Receipts = unkept{}
			if recorded {
				kept, err := receipts.Open(b.TempDir(), receipts.Options{Clock: clockwork.NewRealClock(), Replica: "r"})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = kept.Close() })
				log = kept
			}
			g, tokens := controlled(b, 1, "http://127.0.0.1:1", log, &identity.Limits{RPS: 1.0 / 3600, Burst: 1})
			b.Cleanup(g.Close)
			flood(b, g.Handler(), tokens[0], body)
		})
	}
	b.Run("net/http", func(b *testing.B) {
		flood(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusTooManyRequests)
		}), "Bearer x", body)
	})
}

// unkept takes records and keeps none.
type unkept struct{ Receipts }

func (unkept) Append(*receipts.Record) (receipts.Entry, error) { return receipts.Entry{}, nil }

func (unkept) Refuse(*receipts.Record, string) (receipts.Entry, error) { return receipts.Entry{}, nil }

// flood sends the same POST over 64 connections and reads the answers.
func flood(b *testing.B, handler http.Handler, authorization, body string) {
	server := httptest.NewUnstartedServer(handler)
	server.Listener = hangup.Listener(server.Listener)
	server.Config.ReadHeaderTimeout, server.Config.IdleTimeout = 10*time.Second, time.Minute
	server.Start()
	b.Cleanup(server.Close)
	request := fmt.Appendf(nil, "POST /v1/act HTTP/1.1\r\nHost: gateway.example\r\nAccept: application/json\r\nAuthorization: %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", authorization, len(body), body)
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	from := processor(b)
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			c, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				b.Error(err)
				return
			}
			defer func() { _ = c.Close() }()
			room := make([]byte, 4096)
			for left.Add(-1) >= 0 {
				if _, err := c.Write(request); err != nil {
					b.Error(err)
					return
				}
				n, err := c.Read(room)
				if said := string(room[:min(n, 12)]); err != nil || said != "HTTP/1.1 429" && said != "HTTP/1.1 502" { // the one call of the hour
					b.Errorf("%.100q, %v", room[:n], err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64((processor(b)-from).Nanoseconds())/float64(b.N), "cpu-ns/op")
}
