package gateway_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
)

// limited is a key for everything with a limit of its own.
func limited(id string, rps float64, burst int) *identity.Key {
	return &identity.Key{ID: id, Services: []string{"*"}, Users: []string{"*"}, Limits: &identity.Limits{RPS: rps, Burst: burst}}
}

// TestWaitingAsToldIsEnough: one token every 2.5 s. Whatever the moment of the
// refusal, who waits the whole seconds that Retry-After names, or the
// milliseconds of the other header, is admitted.
func TestWaitingAsToldIsEnough(t *testing.T) {
	w := newWorld(t, hello, limited("k", 0.4, 1))
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 40 {
		w.act("k", plainCall("tools", "")).want(t, "a full bucket", 200, "", "")
		if round > 0 {
			w.clock.Advance(time.Duration(random.Int64N(int64(2500 * time.Millisecond))))
		}
		refused := w.act("k", plainCall("tools", ""))
		refused.want(t, "an empty bucket", 429, "rate_limited", "key")
		if after := refused.retryAfter(t); round == 0 && after != 3*time.Second {
			t.Errorf("Retry-After is %v, want 2.5 s rounded up", after)
		}
		if round%2 == 0 {
			w.clock.Advance(refused.retryAfter(t))
		} else {
			var ms int64
			if _, err := fmt.Sscan(refused.header.Get("Retry-After-Ms"), &ms); err != nil {
				t.Fatal(err)
			}
			w.clock.Advance(time.Duration(ms) * time.Millisecond)
		}
		w.act("k", plainCall("tools", "")).want(t, "after waiting as told", 200, "", "")
		w.clock.Advance(2500 * time.Millisecond)
	}
}

// TestRetryAfterIsWholeSeconds, at a rate whose wait is half of one: a fraction
// makes clients raise an error instead of waiting.
func TestRetryAfterIsWholeSeconds(t *testing.T) {
	w := newWorld(t, hello, limited("k", 2, 1))
	w.act("k", plainCall("tools", ""))
	for range 20 {
		refused := w.act("k", plainCall("tools", ""))
		refused.want(t, "the second at once", 429, "rate_limited", "key")
		if after := refused.header.Get("Retry-After"); after != "1" {
			t.Fatalf("Retry-After: %q, want 1", after)
		}
	}
}

// TestNoisyKeyDrainsNobody: of a tenant's 100 tokens, a key that is refused 199
// times has taken the one of its call that ran, whichever limit refused it.
func TestNoisyKeyDrainsNobody(t *testing.T) {
	const rps, burst = 0.05, 100
	for _, c := range []struct {
		name, tenant, code, limit string
		noisy                     *identity.Key
	}{
		{"refused by its own bucket", "rps: 0.05, burst: 100", "rate_limited", "key", limited("noisy", 1.0/60, 1)},
		{"refused by the cap", "rps: 0.05, burst: 100, max_inflight: 1", "concurrency_limited", "tenant", limited("noisy", 20, 40)},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := newHeldStreams()
			w := setup{registry: "tenants:\n  t: {" + c.tenant + "}\nservices:\n" + serviceLine("tools", "")}.
				world(t, up.serve, of("t", c.noisy), of("t", roomy("quiet")))
			end := w.hold(up, "noisy", streamCall("tools", ""))
			for range 199 {
				w.act("noisy", plainCall("tools", "")).want(t, "noisy", 429, c.code, c.limit)
			}
			end()
			for i := range 50 {
				got := w.act("quiet", plainCall("tools", ""))
				got.want(t, "quiet", 200, "", "")
				if left := got.left(t)["tenant"]; left != 98-int64(i) {
					t.Fatalf("after call %d the tenant has %d left", i, left)
				}
			}
			if left := w.tokens(ratelimit.KindTenant, "tenant:t", rps, burst); left != 49 {
				t.Errorf("the tenant has %d tokens, want 100-1-50", left)
			}
		})
	}
}

// TestRefusalTellsOfTheLimitThatRefused: beside a limit per day, the one of a
// minute is named and timed.
func TestRefusalTellsOfTheLimitThatRefused(t *testing.T) {
	w := setup{registry: "tenants:\n  t: {rps: 1.1574, burst: 4000}\nservices:\n" + serviceLine("tools", "")}.
		world(t, hello, of("t", limited("k", 5.0/60, 5)))
	for range 5 {
		w.act("k", plainCall("tools", "")).want(t, "within the burst", 200, "", "")
	}
	refused := w.act("k", plainCall("tools", ""))
	refused.want(t, "the sixth", 429, "rate_limited", "key")
	if after := refused.retryAfter(t); after < 12*time.Second || after > 60*time.Second {
		t.Errorf("Retry-After is %v, want the key's 12 s", after)
	}
	if got, want := refused.header.Get("RateLimit")+" | "+refused.header.Get("RateLimit-Policy"), `"key";r=0;t=12 | "key";q=5;w=60`; got != want {
		t.Errorf("the fields are %s, want %s", got, want)
	}
	if got := refused.violated(); !slices.Equal(got, []string{"key"}) {
		t.Errorf("violated: %q", got)
	}
}

// TestRateWithoutBurst holds one second's worth, at least one call, and a rate by
// the minute of failed authentications one minute's.
func TestRateWithoutBurst(t *testing.T) {
	file := "services:\n" + serviceLine("six", "rate_limit: {rps: 6},") + serviceLine("slow", "rate_limit: {rps: 0.1},") +
		serviceLine("odd", "rate_limit: {rps: 2.5},")
	w := setup{registry: file, settings: func(s *config.Settings) { s.RateAuthPerMinute = 6 }}.world(t, hello, roomy("k"))
	for name, burst := range map[string]int{"six": 6, "slow": 1, "odd": 3} {
		for range burst {
			w.act("k", plainCall(name, "")).want(t, name, 200, "", "")
		}
		w.act("k", plainCall(name, "")).want(t, name, 429, "rate_limited", "service")
	}
	for range 6 {
		w.act("", "{").want(t, "no key", 401, "unauthenticated", "")
	}
	w.act("", "{").want(t, "no key, once more", 429, "rate_limited", "address")
}

// TestKnockingKeepsTheRefill: ten per 30 s are a token every 3 s, however often
// the caller knocks meanwhile.
func TestKnockingKeepsTheRefill(t *testing.T) {
	w := newWorld(t, hello, limited("k", 10.0/30, 10))
	admitted := func(every time.Duration, calls int) (n int) {
		for range calls {
			if w.act("k", plainCall("tools", "")).status == 200 {
				n++
			}
			w.clock.Advance(every)
		}
		return n
	}
	if n := admitted(time.Second, 60); n != 10+19 { // the 20th comes back at 60 s
		t.Errorf("one call a second for a minute: %d admitted, want 29", n)
	}
	if n := admitted(100*time.Millisecond, 300); n != 10 {
		t.Errorf("ten calls a second for half a minute: %d admitted, want 10", n)
	}
}

// TestRefundAtLevelZero: the tenant's last token, taken by a call that then finds
// no slot, is there again for the next one.
func TestRefundAtLevelZero(t *testing.T) {
	up := newHeldStreams()
	w := setup{registry: "tenants:\n  t: {rps: 0.001, burst: 2, max_inflight: 1}\nservices:\n" + serviceLine("tools", "")}.
		world(t, up.serve, of("t", roomy("a")), of("t", limited("b", 0.001, 1)))
	end := w.hold(up, "a", streamCall("tools", ""))
	for range 3 {
		w.act("b", plainCall("tools", "")).want(t, "no slot", 429, "concurrency_limited", "tenant")
	}
	end()
	w.act("b", plainCall("tools", "")).want(t, "a slot again", 200, "", "")
	w.act("b", plainCall("tools", "")).want(t, "now both buckets are empty", 429, "rate_limited", "key")
	if left := w.tokens(ratelimit.KindTenant, "tenant:t", 0.001, 2); left != 0 {
		t.Errorf("the tenant has %d tokens, want 0", left)
	}
}

// TestRemainingStaysInItsRange, told by every answer and to operators: after
// idling, when refused again and again, after refunds. (fields fails a test where
// it does not.)
func TestRemainingStaysInItsRange(t *testing.T) {
	up := newHeldStreams()
	w := setup{registry: "tenants:\n  t: {rps: 1, burst: 4, max_inflight: 1}\nservices:\n" + serviceLine("tools", "rate_limit: {rps: 1, burst: 3},")}.
		world(t, up.serve, of("t", limited("k", 2, 50)))
	left := func(what string, got told, want map[string]int64) {
		t.Helper()
		if left := got.left(t); fmt.Sprint(left) != fmt.Sprint(want) {
			t.Fatalf("%s: %v left, want %v", what, left, want)
		}
		for kind, name := range map[ratelimit.Kind]string{ratelimit.KindKey: "key", ratelimit.KindTenant: "tenant", ratelimit.KindService: "service"} {
			for partition, e := range w.entries(kind) {
				if remaining, told := want[name]; told && e.Remaining != remaining {
					t.Fatalf("%s: operators are told of %d left of %s, want %d", what, e.Remaining, partition, remaining)
				}
			}
		}
	}
	for range 50 {
		w.act("k", plainCall("tools", "")).fields(t)
	}
	left("refused 50 times", w.act("k", plainCall("tools", "")), map[string]int64{"key": 0})
	w.clock.Advance(time.Hour)
	left("idle for an hour", w.act("k", plainCall("tools", "")), map[string]int64{"key": 49, "tenant": 3, "service": 2, "inflight": 0})
	end := w.hold(up, "k", streamCall("tools", ""))
	for range 60 {
		left("refunded", w.act("k", plainCall("tools", "")), map[string]int64{"key": 48, "tenant": 2, "service": 1, "inflight": 0})
		w.clock.Advance(time.Nanosecond)
	}
	end()
	w.clock.Advance(time.Hour)
	left("idle once more", w.act("k", plainCall("tools", "")), map[string]int64{"key": 49, "tenant": 3, "service": 2, "inflight": 0})
}
