package gateway_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/config"
	"agentgw/internal/ratelimit"
)

// TestSlotsAreSharedByWeight: tenants of weight 1, 1 and 2 that together want all
// 40 slots of the process, or of a service, six times over have a quarter, a
// quarter and half of them, within 3 points (for 20 s with DRILLS=full). A fourth
// that arrives gets its first slot within the time that a slot is held on average,
// and then its share, a fifth. It is the slots' time that they share: also of three
// slots, which cannot be divided, and where the calls of one last ten times as long.
//
// The short form has to hold on a machine that is busy with something else, which
// moves a share by some points, in one second and a half by others than in the next,
// and lets a call wait for the processor. So it measures until the shares are as they
// have to be, ten times at most, and how soon the fourth has its slot it counts in
// calls: those of a queue that is served in turn would be two hundred.
func TestSlotsAreSharedByWeight(t *testing.T) {
	const hold = 500 * time.Millisecond
	if drills(0, 1) == 0 {
		shareSlots(t, "process", 40, map[string]time.Duration{"": hold}, 1500*time.Millisecond)
		return
	}
	for _, pool := range []string{"process", "service"} {
		for name, c := range map[string]struct {
			slots int
			holds map[string]time.Duration
			long  time.Duration
		}{
			"calls alike":                     {40, map[string]time.Duration{"": hold}, 20 * time.Second},
			"of three, a's ten times as long": {3, map[string]time.Duration{"": hold / 25, "a": hold * 10 / 25}, 10 * time.Second},
			"of three, c's ten times as long": {3, map[string]time.Duration{"": hold / 25, "c": hold * 10 / 25}, 10 * time.Second},
		} {
			t.Run(pool+" "+name, func(t *testing.T) { shareSlots(t, pool, c.slots, c.holds, c.long) })
		}
	}
}

// shareSlots has the tenants share so many slots for so long. A call of each has its slot
// for as long as holds says, on average, or holds[""].
func shareSlots(t *testing.T, pool string, sharedSlots int, holds map[string]time.Duration, long time.Duration) {
	holdOf := func(tenant string) time.Duration {
		if hold, own := holds[tenant]; own {
			return hold
		}
		return holds[""]
	}
	meanHold := slices.Max(slices.Collect(maps.Values(holds)))
	var mu sync.Mutex
	held := map[string]time.Duration{} // slot time within the stretch that is measured
	var from, until time.Time
	begun, running, peak := map[string]time.Time{}, 0, 0
	calls, asked, others := 0, -1, 0 // that had a slot: in all, when the fourth asked, and from then until it had one
	up := func(rw http.ResponseWriter, r *http.Request) {
		tenant, start := strings.TrimPrefix(r.URL.Path, "/get/"), time.Now()
		mu.Lock()
		if begun[tenant].IsZero() {
			begun[tenant] = start
			if asked >= 0 {
				others = calls - asked
			}
		}
		calls++
		running++
		peak = max(peak, running)
		mu.Unlock()
		hold := time.NewTimer(holdOf(tenant)/2 + rand.N(holdOf(tenant)))
		select {
		case <-hold.C:
		case <-r.Context().Done():
		}
		mu.Lock()
		running--
		first, last := start, time.Now()
		if first.Before(from) {
			first = from
		}
		if until.Before(last) {
			last = until
		}
		held[tenant] += max(0, last.Sub(first))
		mu.Unlock()
		_, _ = io.WriteString(rw, "{}")
	}
	const wide = "rps: 1000000, burst: 1000000, max_inflight: 0"
	attributes, process := "", sharedSlots
	if pool == "service" {
		attributes, process = fmt.Sprintf("max_inflight: %d,", sharedSlots), 0
	}
	w := setup{
		registry: "tenants:\n  a: {" + wide + "}\n  b: {" + wide + "}\n  c: {" + wide + ", weight: 2}\n  d: {" + wide + "}\nservices:\n" + serviceLine("tools", attributes),
		settings: func(s *config.Settings) {
			s.MaxInflight, s.TenantQueue, s.TenantQueueWait = process, 1000, time.Minute
		},
		clock:   func(*clockwork.FakeClock) clockwork.Clock { return clockwork.NewRealClock() },
		limiter: func(o *ratelimit.Options) { o.Clock = ratelimit.NewClock(clockwork.NewRealClock()) },
	}.world(t, up, of("a", roomy("a")), of("b", roomy("b")), of("c", roomy("c")), of("d", roomy("d")))
	w.server.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = 8 * sharedSlots

	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var failed atomic.Int64
	arrive := func(tenant string, wrote func(httptrace.WroteRequestInfo)) {
		body := strings.Replace(plainCall("tools", ""), `"1"`, `"`+tenant+`"`, 1)
		for range 2 * sharedSlots {
			wg.Go(func() {
				for ctx.Err() == nil {
					r := w.request(ctx, tenant, body)
					res, err := w.server.Client().Do(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{WroteRequest: wrote})))
					if err != nil {
						continue // the end
					}
					if body, _ := io.ReadAll(res.Body); res.StatusCode != 200 && failed.Add(1) == 1 {
						t.Errorf("%s: refused: %d %s", pool, res.StatusCode, body)
					}
					_ = res.Body.Close()
				}
			})
		}
	}
	measure := func(after, long time.Duration) map[string]float64 {
		mu.Lock()
		clear(held)
		from = time.Now().Add(after)
		until = from.Add(long)
		mu.Unlock()
		// Calls that began within it have all ended by then.
		timer := time.NewTimer(after + long + 2*meanHold)
		<-timer.C
		mu.Lock()
		defer mu.Unlock()
		share := map[string]float64{}
		for tenant, d := range held {
			share[tenant] = 100 * d.Seconds() / long.Seconds() / float64(sharedSlots)
		}
		return share
	}
	check := func(what string, after, long time.Duration, want map[string]float64) {
		t.Helper()
		for tries := drills(10, 1); ; tries-- {
			off := compare(t, pool+": "+what, measure(after, long), want)
			if len(off) == 0 {
				return
			}
			if tries == 1 {
				t.Errorf("%s: %s: %s", pool, what, strings.Join(off, ", "))
				return
			}
			after = 0
		}
	}
	for _, tenant := range []string{"a", "b", "c"} {
		arrive(tenant, nil)
	}
	check("weights 1, 1, 2", 2*meanHold, long, map[string]float64{"a": 25, "b": 25, "c": 50})

	came := time.Now()
	arrive("d", func(httptrace.WroteRequestInfo) {
		mu.Lock()
		defer mu.Unlock()
		if asked < 0 {
			asked = calls
		}
	})
	eventually(t, "the fourth has a slot", func() bool { mu.Lock(); defer mu.Unlock(); return !begun["d"].IsZero() })
	mu.Lock()
	took, others := begun["d"].Sub(came), others
	mu.Unlock()
	t.Logf("%s: a fourth tenant had its first slot after %v and %d calls; the longest calls have a slot for %v", pool, took.Round(100*time.Microsecond), others, meanHold)
	if drills(0, 1) == 1 && took > meanHold || others > 2*sharedSlots {
		t.Errorf("%s: the fourth had to wait for %v and %d calls", pool, took, others)
	}
	check("with a fourth of weight 1", 2*meanHold, long, map[string]float64{"a": 20, "b": 20, "c": 40, "d": 20})
	mu.Lock()
	most := peak // from here on calls are cancelled, which their upstream hears of later than who comes next
	mu.Unlock()
	stop()
	wg.Wait()
	eventually(t, "nothing is left", func() bool { return w.waiting() == 0 && w.pooled() == 0 })
	if most > sharedSlots || failed.Load() > 0 {
		t.Errorf("%s: at most %d ran at once, %d were refused", pool, most, failed.Load())
	}
}

// compare says whose share of the slots' time is off by more than 3 points of what was
// used: between two calls a slot changes hands.
func compare(t *testing.T, what string, share, want map[string]float64) (off []string) {
	used := 0.0
	for _, s := range share {
		used += s
	}
	t.Logf("%s: a %.1f %%, b %.1f %%, c %.1f %%, d %.1f %% of the slots' time; %.1f %% used", what, share["a"], share["b"], share["c"], share["d"], used)
	for tenant, percent := range want {
		if got := 100 * share[tenant] / used; got < percent-3 || got > percent+3 {
			off = append(off, fmt.Sprintf("%s had %.1f %%, want %.0f", tenant, got, percent))
		}
	}
	return off
}
