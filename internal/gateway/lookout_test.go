package gateway_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/config"
	"agentgw/internal/receipts"
	"agentgw/internal/websocket"
)

// fills writes until nobody takes more.
func fills(t *testing.T, c net.Conn, piece []byte) {
	t.Helper()
	var err error
	for err == nil {
		_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		_, err = c.Write(piece)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
}

// resets breaks the client's connection off, and wants that to be felt long before the
// other side's silence would be.
func (w *world) resets(c net.Conn, tenant string) {
	w.t.Helper()
	_ = tcp(c).SetLinger(0)
	_ = c.Close()
	gone := time.Duration(0)
	within(w.t, 20*time.Second, "the slot is free", func() bool {
		if gone < time.Minute { // less than the silence that is borne
			gone += 500 * time.Millisecond
			w.clock.Advance(500 * time.Millisecond)
		}
		return w.inFlight(tenant) == 0
	})
	if got := w.outcomes(1); len(got) != 1 || got[0].Ending != receipts.ClientCancelled {
		w.t.Errorf("the outcomes are %+v, want one %s", got, receipts.ClientCancelled)
	}
}

// TestAClientThatResetsBeforeADeafServiceIsSeen, though nobody reads what it has sent: all on
// the way to the service is full.
func TestAClientThatResetsBeforeADeafServiceIsSeen(t *testing.T) {
	for _, target := range []string{"plain/x", "llm/x"} { // as it comes, and collected
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			over := make(chan struct{})
			w := wsWorld(t, setup{settings: func(s *config.Settings) { s.ClientStall = 0 }, clock: func(c *clockwork.FakeClock) clockwork.Clock { return c }}, func(rw http.ResponseWriter, r *http.Request) {
				s, err := accept(rw, r)
				if err != nil {
					t.Error(err)
					return
				}
				<-over
				_ = s.Close()
			})
			t.Cleanup(func() { close(over) })
			c := w.talk(target, "k")
			fills(t, c, websocket.AppendFrame(nil, websocket.Text, c.mask, fmt.Appendf(nil, `{"type":"x","text":"%060000d"}`, 0)))
			w.resets(c.Conn, "tenant:wide")
		})
	}
}

// TestAClientThatResetsATunnelToADeafSideIsSeen as well.
func TestAClientThatResetsATunnelToADeafSideIsSeen(t *testing.T) {
	over := make(chan struct{})
	to := far(t, func(*net.TCPConn) { <-over })
	defer close(over)
	w := tunnelWorld(t, fmt.Sprintf("{allow: [%q], allow_private: true}", to), wide("k"))
	c := w.open(to, "k")
	fills(t, c.Conn, make([]byte, 60_000))
	w.resets(c.Conn, "tenant:wide")
}
