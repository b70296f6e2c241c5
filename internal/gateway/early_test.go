package gateway_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
)

// TestAHangUpBehindEarlyBytes is seen whatever the call is at: one that waits leaves
// the queue and is never made, one that runs gives its slot back, though its upstream
// says nothing that could be written to the caller.
func TestAHangUpBehindEarlyBytes(t *testing.T) {
	const streams, runs, waits = "its stream is silent", "its answer is to come", "it waits"
	for _, at := range []string{streams, runs, waits} {
		for _, early := range []string{"\r\n", "POST /v1/act HTTP/1.1\r\nHost: g\r\n\r\n"} {
			t.Run(fmt.Sprintf("%s, behind %.4q", at, early), func(t *testing.T) {
				up := newHeldStreams()
				called := make(chan bool, 1)
				w := setup{
					registry: "tenants:\n  t: {rps: 100, burst: 200, max_inflight: 1}\nservices:\n" + serviceLine("tools", ""),
					settings: func(s *config.Settings) { s.TenantQueue, s.TenantQueueWait = 10, time.Minute },
				}.world(t,
					func(rw http.ResponseWriter, r *http.Request) {
						if r.Header.Get("Idempotency-Key") != runs {
							up.serve(rw, r)
							return
						}
						called <- true
						<-r.Context().Done()
					}, of("t", limited("k", 10, 50)))
				finish := func() {}
				if at == waits {
					finish = w.hold(up, "k", streamCall("tools", ""))
				}
				up.ends.Store(streams, make(chan struct{}))
				before := w.tokens(ratelimit.KindKey, "key:k", 10, 50)

				c, err := net.Dial("tcp", w.server.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				say := func(text string) {
					t.Helper()
					if _, err := fmt.Fprint(c, text); err != nil {
						t.Fatal(err)
					}
				}
				body := streamCall("tools", "")
				say(fmt.Sprintf("POST /v1/act HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer %s\r\nIdempotency-Key: %s\r\nContent-Length: %d\r\n\r\n%s", w.keys["k"], at, len(body), body))
				switch at {
				case streams:
					if res, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || res.StatusCode != 200 {
						t.Fatal(res, err)
					}
				case runs:
					<-called
				case waits:
					eventually(t, "it waits", func() bool { return w.waiting() == 1 })
				}
				say(early)
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				eventually(t, "its receipt", func() bool { return w.lastClosing().Ending == receipts.ClientCancelled })
				if after := w.tokens(ratelimit.KindKey, "key:k", 10, 50); at == waits && (after != before || w.upstreamRequests() != 1) {
					t.Errorf("%d tokens of %d, the upstream was called %d times", after, before, w.upstreamRequests())
				}
				finish()
				w.nothingIsLeft(t, at)
			})
		}
	}
}
