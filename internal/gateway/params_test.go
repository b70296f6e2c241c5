package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"testing"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/ratelimit"
)

// TestParamsHash: whoever is given the salt of one receipt can open that one,
// HMAC(HMAC(key, id), params), and the hash of a call knows nothing of calls
// before it or beside it.
func TestParamsHash(t *testing.T) {
	key := []byte("the gateway's")
	clock := clockwork.NewFakeClock()
	g := New(Parts{Clock: clock, Nanos: ratelimit.NewClock(clock), ParamsKey: key})
	of := func(key, text []byte) []byte {
		m := hmac.New(sha256.New, key)
		m.Write(text)
		return m.Sum(nil)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, id := range []string{"00", "01", "02"} {
				want := base64.RawURLEncoding.EncodeToString(of(of(key, []byte(id)), []byte(`{"pin":"1234"}`)))
				if got := g.hashParams(id, []byte(`{"pin":"1234"}`)); got.Hash != want || got.Alg != "hmac-sha256" {
					t.Errorf("receipt %s: %+v, want %s", id, got, want)
				}
			}
		})
	}
	wg.Wait()
}
