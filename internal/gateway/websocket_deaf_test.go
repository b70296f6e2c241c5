package gateway_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/config"
	"agentgw/internal/receipts"
	"agentgw/internal/websocket"
)

// TestAServiceThatTakesNothingHoldsNoWebSocketUp whoever ends it: neither its slot nor its
// outcome waits until that service has taken what the client sent.
func TestAServiceThatTakesNothingHoldsNoWebSocketUp(t *testing.T) {
	for name, way := range map[string]struct {
		end    func(w *world, service *side)
		code   int
		ending receipts.Ending
	}{
		"its key is revoked":       {func(w *world, _ *side) { w.use(wsRegistry) }, 1008, receipts.Revoked},
		"its tenant is blocked":    {func(w *world, _ *side) { w.gateway.Block("tenant:wide") }, 1008, receipts.Blocked},
		"the drain time ends":      {func(w *world, _ *side) { w.gateway.Cut() }, 1001, receipts.Shutdown},
		"the service is silent":    {func(w *world, _ *side) { w.clock.Advance(5 * time.Minute) }, 1008, receipts.Timeout},
		"the service closes":       {func(_ *world, s *side) { _ = s.close(4321, "enough") }, 4321, receipts.Complete},
		"the service breaks rules": {func(_ *world, s *side) { _ = s.raw([]byte{0xc1, 1, 'x'}) }, 1014, receipts.UpstreamAborted},
	} {
		for _, target := range []string{"plain/x", "llm/x"} { // as it comes, and collected
			t.Run(name+", "+target, func(t *testing.T) {
				t.Parallel()
				opened, over := make(chan *side, 1), make(chan struct{})
				w := wsWorld(t, setup{settings: func(s *config.Settings) { s.ClientStall = 0 }, clock: func(c *clockwork.FakeClock) clockwork.Clock { return c }}, func(rw http.ResponseWriter, r *http.Request) {
					s, err := accept(rw, r)
					if err != nil {
						t.Error(err)
						return
					}
					opened <- s
					<-over
					_ = s.Close()
				})
				t.Cleanup(func() { close(over) })
				client := w.talk(target, "k")
				service := <-opened
				text := []byte(fmt.Sprintf(`{"type":"x","text":%q}`, strings.Repeat("x", 60<<10)))
				frame := websocket.AppendFrame(nil, websocket.Text, client.mask, text)
				var err error
				for err == nil { // until all on the way is full
					_ = client.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
					err = client.raw(frame)
				}
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatal(err)
				}

				way.end(w, service)

				w.idle("tenant:wide")
				if f := client.hears(t); f.code() != way.code {
					t.Errorf("the client is told %v (code %d), want %d", f, f.code(), way.code)
				}
				var endings []receipts.Ending
				for _, r := range w.ledger.all() {
					if r.Kind == receipts.KindOutcome {
						endings = append(endings, r.Ending)
					}
				}
				if fmt.Sprint(endings) != fmt.Sprintf("[%s]", way.ending) {
					t.Errorf("the outcomes end %v, want one %s", endings, way.ending)
				}
			})
		}
	}
}
