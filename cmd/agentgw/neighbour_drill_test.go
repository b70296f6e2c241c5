package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/receipts"
)

// TestNoisyNeighbour: a tenant that calls as fast as it can, a hundred times as
// often as it may with DRILLS=full, and one that makes half of the calls that it
// may. The quiet one is refused nothing; the noisy one gets what its limit is, to
// the call; and each call of either has its receipts. How long the quiet one's
// calls take beside the other is measured by `make bench`, on processes of their own.
func TestNoisyNeighbour(t *testing.T) {
	const quietRate, noisyRate, noisyBurst = 50, 20, 40
	lasts := time.Duration(rounds(1, 30)) * time.Second
	for _, decides := range []string{"key", "tenant"} {
		t.Run("refused by its "+decides, func(t *testing.T) {
			keys, key, tenant := 1, "{rps: 20, burst: 40}", "rps: 100000, burst: 100000"
			if decides == "tenant" {
				keys, key, tenant = 50, "{rps: 100000, burst: 100000}", "rps: 20, burst: 40"
			}
			var file strings.Builder
			fmt.Fprintf(&file, "version: 1\ntenants:\n  quiet: {rps: %d, burst: %d}\n  noisy: {%s, max_inflight: 0}\nkeys:\n  - {KEY quiet, services: [tools], users: [\"*\"], tenant: quiet, limits: {rps: %[1]d, burst: %[2]d}}\n", 2*quietRate, 4*quietRate, tenant)
			for i := range keys {
				fmt.Fprintf(&file, "  - {KEY noisy-%d, services: [tools], users: [\"*\"], tenant: noisy, limits: %s}\n", i, key)
			}
			file.WriteString("services:\n  tools: {base_url: UPSTREAM, allow_private: true, actions: {get: {method: GET, path: /x}}}\n")
			m := measure(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }, file.String())

			ctx, end := context.WithCancel(t.Context())
			defer end()
			defer crowd.CloseIdleConnections()
			var noisy, quiet tally
			var both sync.WaitGroup
			began := time.Now()
			callers := rounds(8, 40)
			each := rounds(0, 100*noisyRate/callers) // calls a second, 0 for as many as there can be
			for c := range callers {
				both.Go(func() {
					pace := newPace(each)
					for i := c; ctx.Err() == nil; i += callers {
						m.count(&noisy, fmt.Sprintf("noisy-%d", i%keys), decides)
						pace()
					}
				})
			}
			both.Go(func() {
				defer end()
				pace := newPace(quietRate)
				for time.Since(began) < lasts {
					m.count(&quiet, "quiet", "")
					pace()
				}
			})
			both.Wait()
			took := time.Since(began)
			if n := quiet.refused.Load(); n > 0 || quiet.admitted.Load() == 0 {
				t.Errorf("the quiet tenant: %d calls refused, %d admitted", n, quiet.admitted.Load())
			}
			// The bucket was full at first, and refilled while the flood lasted. All calls
			// were decided in that time, so that not one more can have been admitted.
			least, most := noisyBurst+int64((took-time.Second)/(time.Second/noisyRate)), noisyBurst+int64(took/(time.Second/noisyRate))
			if n := noisy.admitted.Load(); n < least || n > most {
				t.Errorf("the noisy tenant: %d admitted in %v, want %d to %d", n, took, least, most)
			}
			m.holdsReceipts(&quiet, &noisy)
			slices.Sort(quiet.took)
			t.Logf("noisy: %d calls in %v, %d admitted; quiet: %d calls, %d refused, p50 %v, p99 %v", noisy.admitted.Load()+noisy.refused.Load(), took.Round(time.Second/10),
				noisy.admitted.Load(), len(quiet.took), quiet.refused.Load(), quiet.took[len(quiet.took)/2], quiet.took[len(quiet.took)*99/100])
		})
	}
}

// tally counts the calls of a tenant.
type tally struct {
	admitted, refused atomic.Int64
	took              []time.Duration // of the quiet one, which calls one after the other
}

// newPace returns what waits until the next call is due: so many a second, without
// making up for those that came late, or at once.
func newPace(perSecond int) func() {
	if perSecond == 0 {
		return func() {}
	}
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	return func() { <-tick.C }
}

// crowd is a client that many share, each by a connection of its own.
var crowd = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// count makes a call, which may be refused by the limit of that name only.
func (m *measured) count(of *tally, key, limit string) {
	r, err := http.NewRequest("POST", "http://"+m.agentsListener.Addr().String()+"/v1/act", strings.NewReader(`{"service":"tools","action":"get"}`))
	if err != nil {
		m.t.Error(err)
		return
	}
	r.Header.Set("Agentgate-Key", m.keys[key])
	began := time.Now()
	res, err := crowd.Do(r)
	if err != nil {
		m.t.Error(err)
		return
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	switch {
	case err == nil && res.StatusCode == http.StatusOK:
		of.admitted.Add(1)
	case err == nil && res.StatusCode == http.StatusTooManyRequests && strings.Contains(string(body), `"limit":"`+limit+`"`):
		of.refused.Add(1)
	default:
		m.t.Errorf("%s: %s %s %v", key, res.Status, body, err)
	}
	if limit == "" {
		of.took = append(of.took, time.Since(began))
	}
}

// holdsReceipts compares the log with what the callers were told. What of the
// refusals was counted together is there ten seconds later at the latest.
func (m *measured) holdsReceipts(quiet, noisy *tally) {
	m.t.Helper()
	var got map[recorded]int64
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var counting int
		if got, counting = m.recorded(); counting == 0 {
			break
		}
		if time.Now().After(end) {
			m.t.Fatalf("%d summaries never end", counting)
		}
	}
	for tenant, of := range map[string]*tally{"tenant:quiet": quiet, "tenant:noisy": noisy} {
		for k, want := range map[receipts.Kind]int64{
			receipts.KindRefusal: of.refused.Load(), receipts.KindIntent: of.admitted.Load(), receipts.KindOutcome: of.admitted.Load(),
		} {
			if n := got[recorded{tenant, k}]; n != want {
				m.t.Errorf("%s: %d records of %s, want %d", tenant, n, k, want)
			}
		}
	}
}

type recorded struct {
	tenant string
	kind   receipts.Kind
}

// recorded counts what the log has of each tenant, refusals in summaries among the
// refusals, and the summaries that have not ended.
func (m *measured) recorded() (got map[recorded]int64, counting int) {
	m.t.Helper()
	got = map[recorded]int64{}
	begun := map[string]int64{}
	if err := receipts.Scan(filepath.Join(m.settings.DataDir, "receipts"), func(s receipts.Stored) error {
		r := s.Record
		if r.Kind != receipts.KindSummary {
			got[recorded{r.Tenant, r.Kind}]++
			return nil
		}
		got[recorded{r.Tenant, receipts.KindRefusal}] += int64(r.Count) - begun[r.ID]
		delete(begun, r.ID)
		if r.Ending == "" {
			begun[r.ID] = int64(r.Count)
		}
		return nil
	}); err != nil {
		m.t.Fatal(err)
	}
	return got, len(begun)
}
