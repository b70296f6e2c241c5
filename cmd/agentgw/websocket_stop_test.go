package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"agentgw/internal/receipts"
	"agentgw/internal/websocket"
)

// TestAStopWaitsForWebSockets, of which http.Server.Shutdown knows nothing: each gets a close
// with 1001, and one in the middle of a message when the drain time ends; and each has its
// outcome in the log before that is sealed.
func TestAStopWaitsForWebSockets(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
		c, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", websocket.Accept(in.Header.Get("Sec-WebSocket-Key")))
		if in.URL.Path == "/half" { // a fragment, and nothing behind it
			_, _ = io.WriteString(c, "\x01\x02ab")
		}
		_, _ = io.Copy(io.Discard, buffered)
	}))
	defer service.Close()
	r := newReloading(t, "{rps: 1000, burst: 1000, max_inflight: 100}")
	r.more = fmt.Sprintf("  talk: {base_url: %q, allow_private: true, passthrough: true, websocket: {}}\n", service.URL)
	r.reload("{rps: 1000, burst: 1000, max_inflight: 100}")

	dial := func(path string) *bufio.Reader {
		c, err := net.Dial("tcp", r.server.agentsListener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := fmt.Fprintf(c, "GET /proxy/talk%s HTTP/1.1\r\nHost: g\r\nx-api-key: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", path, r.key); err != nil {
			t.Fatal(err)
		}
		b := bufio.NewReader(c)
		res, err := http.ReadResponse(b, nil)
		if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatal(res, err)
		}
		return b
	}
	const n = 50
	var clients []*bufio.Reader
	for range n {
		clients = append(clients, dial("/x"))
	}
	half := dial("/half")
	if b, err := half.Peek(4); err != nil || string(b) != "\x01\x02ab" {
		t.Fatal(b, err)
	}

	hurry, now := context.WithCancel(context.Background())
	stopped := make(chan bool)
	go func() { r.server.stop(hurry); close(stopped) }()
	want := string(websocket.AppendClose(nil, nil, websocket.GoingAway, "the gateway is shutting down"))
	for i, c := range clients {
		if got, err := io.ReadAll(c); string(got) != want || err != nil {
			t.Fatalf("WebSocket %d got %q, %v; want %q", i, got, err, want)
		}
	}
	select {
	case <-stopped:
		t.Fatal("the gateway stopped in the middle of a message")
	default:
	}
	now()
	if got, err := io.ReadAll(half); string(got) != "\x01\x02ab"+want || err != nil { // between two frames a close may stand
		t.Errorf("in the middle of a message: %q, %v", got, err)
	}
	<-stopped
	endings := map[receipts.Ending]int{}
	last := receipts.Kind("")
	if err := receipts.Scan(filepath.Join(r.server.settings.DataDir, "receipts"), func(s receipts.Stored) error {
		if s.Record.Kind == receipts.KindOutcome {
			endings[s.Record.Ending]++
		}
		last = s.Record.Kind
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(endings) != 1 || endings[receipts.Shutdown] != n+1 || last != receipts.KindSeal {
		t.Errorf("the outcomes: %v, and the last record is a %s", endings, last)
	}
}
