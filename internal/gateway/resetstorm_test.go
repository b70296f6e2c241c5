package gateway_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"

	"agentgw/internal/receipts"
)

// TestResetsOfOneTenantHurtNoOther: calls of two tenants share a connection to a service that
// speaks HTTP/2. One gives up hundreds of calls, as fast as it can; the other's stream goes on,
// its calls are answered, and no slot is left taken.
func TestResetsOfOneTenantHurtNoOther(t *testing.T) {
	for _, behind := range []string{"HTTP/2", "h2c"} {
		t.Run(behind, func(t *testing.T) {
			s := newSpoken(t, "HTTP/2", behind)
			open := func(ctx context.Context, key, path string) (*http.Response, error) {
				r, err := http.NewRequestWithContext(ctx, "GET", s.server.URL+"/proxy/any/"+path, nil)
				if err != nil {
					return nil, err
				}
				r.Header.Set("Authorization", "Bearer "+s.keys[key])
				return s.server.Client().Transport.RoundTrip(r)
			}
			quiet, end := context.WithCancel(t.Context())
			stream, err := open(quiet, "other", "hold")
			if err != nil {
				t.Fatal(err)
			}
			storms := drills(300, 20_000)
			var workers sync.WaitGroup
			for range 10 {
				workers.Go(func() {
					for range storms / 10 {
						ctx, cancel := context.WithCancel(t.Context())
						res, err := open(ctx, "k", "hold")
						cancel()
						if err == nil {
							_ = res.Body.Close()
						}
					}
				})
			}
			for range 50 {
				res, err := open(t.Context(), "other", "unary")
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if err != nil || string(text) != "GET ok" {
					t.Errorf("beside the storm: %s %q, %v", res.Status, text, err)
				}
			}
			workers.Wait()
			eventually(t, "the storm has left no slot taken", func() bool { return s.inFlight("tenant:wide") == 0 && s.held.Load() == 1 })
			if n := s.inFlight("key:other"); n != 1 {
				t.Errorf("%d calls of the other are in flight, want the stream", n)
			}
			for _, r := range s.ledger.all() {
				if r.Key == "other" && r.Kind == receipts.KindOutcome && r.Ending != receipts.Complete {
					t.Errorf("%+v", r)
				}
			}
			end()
			_ = stream.Body.Close()
			eventually(t, "nothing is left", func() bool { return s.inFlight("key:other") == 0 && s.held.Load() == 0 })
		})
	}
}
