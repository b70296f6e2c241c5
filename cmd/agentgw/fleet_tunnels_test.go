package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"agentgw/internal/redistest"
)

// tunnel opens one through a replica; status is that of the answer.
func (r *replicas) tunnel(replica int, to string) (conn net.Conn, from *bufio.Reader, status int, header http.Header) {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.agents[replica])
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: Bearer %s\r\n\r\n", to, to, r.key); err != nil {
		r.t.Fatal(err)
	}
	from = bufio.NewReader(conn)
	res, err := http.ReadResponse(from, &http.Request{Method: "CONNECT"})
	if err != nil {
		r.t.Fatal(err)
	}
	return conn, from, res.StatusCode, res.Header
}

// TestReplicasShareTheBytesOfTunnels: ten tunnels at two replicas carry together what one
// caller may have in a window, and of each replica a piece more at most; then neither opens
// another, and both say the same.
func TestReplicasShareTheBytesOfTunnels(t *testing.T) {
	t.Parallel()
	endless, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer endless.Close()
	go func() {
		for {
			c, err := endless.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for piece := make([]byte, 16<<10); err == nil; {
					_, err = c.Write(piece)
				}
			}()
		}
	}()
	const budget, piece = 4 << 20, 32 << 10
	store := redistest.Start(t)
	r := newReplicasWith(t, []string{store.URL(), store.URL()}, "{rps: 10000, burst: 10000}",
		fmt.Sprintf("tunnels: {allow: [%q], allow_private: true, bytes_per_window: %d, window: 24h, on_exhausted: cut}\n", endless.Addr(), budget))
	var carried atomic.Int64
	var all sync.WaitGroup
	for i := range 10 {
		_, from, status, header := r.tunnel(i%2, endless.Addr().String())
		if status != 200 {
			if got := header.Get("Agentgate-Code"); status != 429 || got != "rate_limited" {
				t.Errorf("%d %s", status, got)
			}
			continue // the others have had it all
		}
		all.Go(func() {
			n, _ := io.Copy(io.Discard, from) // to the reset, which may lose what came last
			carried.Add(n)
		})
	}
	all.Wait()
	if got := carried.Load(); got > budget+3*piece {
		t.Errorf("%d bytes of %d", got, budget)
	}
	eventually(t, "both say that it is used up", func() bool {
		for i := range 2 {
			conn, _, status, header := r.tunnel(i, endless.Addr().String())
			_ = conn.Close() // what was lent and not used may open one more
			if after := header.Get("Retry-After"); status != 429 || !strings.HasPrefix(header.Get("RateLimit"), `"`) || len(after) != 5 {
				return false
			}
		}
		return true
	})
}
