package gateway_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentgw/internal/identity"
)

// obeyed is how long an agent stays away that does as a refusal says: to the
// millisecond, as the official SDKs do, or by the header that everybody reads.
func (got told) obeyed(t *testing.T, fine bool) time.Duration {
	t.Helper()
	if !fine {
		return got.retryAfter(t)
	}
	ms, err := strconv.ParseUint(got.header.Get("Retry-After-Ms"), 10, 40)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(ms) * time.Millisecond
}

// TestARefusedCrowdComesBackSpread: a thousand agents that are refused while one
// bucket has nothing, at one moment or over a third of a second, and obey, do not
// come back together: no tenth of a second sees more than a fifth of them.
func TestARefusedCrowdComesBackSpread(t *testing.T) {
	const crowd, interval = 1000, 100 * time.Second
	waits := []time.Duration{300 * time.Millisecond, 4950 * time.Millisecond, 59 * time.Second}
	full := drills(0, 1) == 1
	if full {
		waits = append(waits, time.Microsecond, 20*time.Millisecond, 950*time.Millisecond, time.Second, 1300*time.Millisecond, 3700*time.Millisecond, 5*time.Second, 9900*time.Millisecond, 30*time.Second, 90*time.Second)
	}
	for i, wait := range waits {
		for j, over := range []time.Duration{0, 300 * time.Millisecond} {
			if over >= wait || !full && i%2 != j {
				continue // all are refused before the wait is over
			}
			w := setup{registry: "tenants:\n  t: {rps: 0.01, burst: 1}\nservices:\n" + serviceLine("tools", "")}.world(t, hello, of("t", roomy("k")))
			w.act("k", plainCall("tools", "")).want(t, "the only token", 200, "", "")
			w.clock.Advance(interval - wait)
			bins := map[int64]int{}
			for range crowd {
				got := w.act("k", plainCall("tools", ""))
				got.want(t, "one of the crowd", 429, "rate_limited", "tenant")
				back := w.clock.Now().Add(got.obeyed(t, true))
				bins[back.UnixMilli()/100]++
				w.clock.Advance(over / crowd)
			}
			most := 0
			for _, n := range bins {
				most = max(most, n)
			}
			if most > crowd/5 {
				t.Errorf("wait %v, refused over %v: %d of %d come back within 100 ms", wait, over, most, crowd)
			}
			t.Logf("wait %v, refused over %v: %d agents come back in %d tenths of a second, at most %d in one", wait, over, crowd, len(bins), most)
		}
	}
}

// TestALoneAgentIsRefusedOnce: under random limits of key, tenant and service, an
// agent that is alone and comes back just when it was told to, to the millisecond
// or by whole seconds, is served, whether the wait was a microsecond or an hour.
func TestALoneAgentIsRefusedOnce(t *testing.T) {
	limits := drills(90, 1000)
	random := rand.New(rand.NewPCG(1, uint64(limits)))
	var tenants, services strings.Builder
	var keys []*identity.Key
	var bursts []int
	tenants.WriteString("tenants:\n")
	services.WriteString("services:\n")
	for i := range limits {
		burst := 1 + random.IntN(3)
		// A token in a microsecond to an hour, each order of magnitude as likely.
		rps := max(1.001*float64(burst)/3600, 1e6/math.Pow(10, random.Float64()*9.5))
		limit := fmt.Sprintf("rps: %.9f, burst: %d", rps, burst)
		k := roomy(fmt.Sprint("k", i))
		k.Tenant = fmt.Sprint("t", i)
		tenant, service := "rps: 1000000, burst: 1000000", "rps: 1000000, burst: 1000000"
		switch i % 3 {
		case 0:
			k.Limits = &identity.Limits{RPS: rps, Burst: burst}
		case 1:
			tenant = limit
		case 2:
			service = limit
		}
		fmt.Fprintf(&tenants, "  t%d: {%s}\n", i, tenant)
		services.WriteString(serviceLine(fmt.Sprint("s", i), "rate_limit: {"+service+"},"))
		keys, bursts = append(keys, k), append(bursts, burst)
	}
	w := setup{registry: tenants.String() + services.String()}.world(t, hello, keys...)
	var waits []time.Duration
	for i, k := range keys {
		call := plainCall(fmt.Sprint("s", i), "")
		for range bursts[i] {
			w.act(k.ID, call).want(t, "the burst", 200, "", "")
		}
		for _, fine := range []bool{true, false} {
			got := w.act(k.ID, call)
			got.want(t, "without a token", 429, "rate_limited", []string{"key", "tenant", "service"}[i%3])
			wait := got.obeyed(t, fine)
			waits = append(waits, wait)
			w.clock.Advance(wait)
			for range bursts[i] { // as many as have come, and at least one
				if got = w.act(k.ID, call); got.status != 200 {
					break
				}
				wait = 0
			}
			if wait != 0 {
				t.Fatalf("%+v of %s: told to wait %v, and refused again: %s", k.Limits, k.ID, wait, got.body)
			}
		}
	}
	slices.Sort(waits)
	t.Logf("%d limits: agents waited %v to %v as told, twice each, and were served", limits, waits[0], waits[len(waits)-1])
}
