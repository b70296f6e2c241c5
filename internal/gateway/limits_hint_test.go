package gateway_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"agentgw/internal/identity"
)

// TestHintKeepsItsBound: whichever bucket refuses and however long the true wait,
// Retry-After is never shorter and longer by at most a second or a fifth,
// Retry-After-Ms says the same more finely, and beyond a minute SDKs are told
// not to retry. The wait itself is true to the nanosecond.
func TestHintKeepsItsBound(t *testing.T) {
	const interval = 500 * time.Second
	for _, c := range []struct {
		limit, tenant, attributes string
		key                       *identity.Key
	}{
		{"key", "rps: 1000, burst: 2000", "", limited("k", 0.002, 1)},
		{"tenant", "rps: 0.002, burst: 1", "", roomy("k")},
		{"service", "rps: 1000, burst: 2000", "rate_limit: {rps: 0.002, burst: 1},", roomy("k")},
	} {
		t.Run(c.limit, func(t *testing.T) {
			w := setup{registry: "tenants:\n  t: {" + c.tenant + "}\nservices:\n" + serviceLine("tools", c.attributes)}.
				world(t, hello, of("t", c.key))
			begin := func() time.Time {
				w.act("k", plainCall("tools", "")).want(t, "a full bucket", 200, "", "")
				return w.clock.Now().Add(interval)
			}
			free := begin()
			for _, wait := range []time.Duration{
				interval, 61 * time.Second, time.Minute + 1, time.Minute, 59900 * time.Millisecond, 55 * time.Second, 12 * time.Second, 5 * time.Second,
				4900 * time.Millisecond, 2900 * time.Millisecond, 2300 * time.Millisecond, time.Second, time.Second - 1, 950 * time.Millisecond, 50 * time.Millisecond, 1,
			} {
				w.clock.Advance(free.Add(-wait).Sub(w.clock.Now()))
				for range 8 {
					got := w.act("k", plainCall("tools", ""))
					got.want(t, wait.String(), 429, "rate_limited", c.limit)
					checkHint(t, got, wait)
					if next := got.fields(t)[c.limit].next; next != int64((wait+time.Second-1)/time.Second) || time.Duration(next)*time.Second > got.retryAfter(t) {
						t.Fatalf("wait %v: RateLimit says t=%d, Retry-After %v", wait, next, got.retryAfter(t))
					}
				}
			}
			w.clock.Advance(1)
			for range 2 { // as told, in whole seconds and in milliseconds
				begin()
				w.clock.Advance(interval - 2900*time.Millisecond)
				w.clock.Advance(w.act("k", plainCall("tools", "")).retryAfter(t))
				free = begin()
				w.clock.Advance(free.Sub(w.clock.Now()) - 4900*time.Millisecond)
				ms, err := strconv.Atoi(w.act("k", plainCall("tools", "")).header.Get("Retry-After-Ms"))
				if err != nil {
					t.Fatal(err)
				}
				w.clock.Advance(time.Duration(ms) * time.Millisecond)
			}
			begin()
		})
	}
}

// checkHint holds what a refusal says of waiting against the true wait.
func checkHint(t *testing.T, got told, wait time.Duration) {
	t.Helper()
	most := wait + max(time.Second, wait/5)
	if after := got.retryAfter(t); after < wait || after > most {
		t.Fatalf("wait %v: Retry-After is %v", wait, after)
	}
	var p struct {
		MS int64 `json:"retry_after_ms"`
	}
	if err := json.Unmarshal([]byte(got.body), &p); err != nil || fmt.Sprint(p.MS) != got.header.Get("Retry-After-Ms") {
		t.Fatalf("%v: %s, Retry-After-Ms %q", err, got.body, got.header.Get("Retry-After-Ms"))
	}
	fine := time.Duration(p.MS) * time.Millisecond
	if apart := got.retryAfter(t) - fine; fine < wait || fine > most || apart.Abs() >= time.Second {
		t.Fatalf("wait %v: %v to the millisecond, Retry-After %v", wait, fine, got.retryAfter(t))
	}
	if no := got.header.Get("X-Should-Retry") == "false"; no != (wait > time.Minute) || !no && got.retryAfter(t) > time.Minute {
		t.Fatalf("wait %v: x-should-retry %q, Retry-After %v", wait, got.header.Get("X-Should-Retry"), got.retryAfter(t))
	}
}

// TestHintForASlot: nobody knows when one comes free, so it is an estimate from
// how long they were held lately, between one and ten seconds.
func TestHintForASlot(t *testing.T) {
	up := newHeldStreams()
	w := setup{registry: "tenants:\n  t: {rps: 1000, burst: 2000, max_inflight: 1}\nservices:\n" + serviceLine("tools", "")}.
		world(t, up.serve, of("t", roomy("k")))
	hint := func() time.Duration {
		got := w.act("k", plainCall("tools", ""))
		got.want(t, "no slot", 429, "concurrency_limited", "tenant")
		if got.header.Get("X-Should-Retry") != "" {
			t.Error("it is worth a retry")
		}
		return max(got.retryAfter(t), got.obeyed(t, true))
	}
	end := w.hold(up, "k", streamCall("tools", ""))
	if d := hint(); d < time.Second || d > 2*time.Second {
		t.Errorf("with nothing known: %v", d)
	}
	w.clock.Advance(40 * time.Second)
	end()
	end = w.hold(up, "k", streamCall("tools", ""))
	if d := hint(); d < 5*time.Second || d > 6*time.Second {
		t.Errorf("after one that was held for 40 s: %v, want an eighth of it", d)
	}
	end()
	for range 10 {
		end = w.hold(up, "k", streamCall("tools", ""))
		w.clock.Advance(4 * time.Minute)
		end()
	}
	end = w.hold(up, "k", streamCall("tools", ""))
	for range 20 {
		if d := hint(); d < 8*time.Second || d > 10*time.Second {
			t.Errorf("after many that were held for minutes: %v, want 8 to 10 s", d)
		}
	}
	end()
}

// TestSeveralLimitsRefuse: each is named, the longest wait decides, and it
// includes the key's own next token, which the retry needs as well.
func TestSeveralLimitsRefuse(t *testing.T) {
	const tenant, line = "tenants:\n  t: {rps: 0.25, burst: 2, max_inflight: 1}\nservices:\n", "rate_limit: {rps: 0.125, burst: 2}, max_inflight: 1,"
	up := newHeldStreams()
	w := setup{registry: tenant + serviceLine("tools", line)}.world(t, up.serve, of("t", roomy("k")), of("t", limited("slow", 0.05, 2)))

	w.act("k", plainCall("tools", "")).want(t, "the first", 200, "", "")
	end := w.hold(up, "k", streamCall("tools", ""))
	got := w.act("k", plainCall("tools", ""))
	got.want(t, "all of them", 429, "rate_limited", "service")
	if v := got.violated(); !slices.Equal(v, []string{"tenant", "service", "inflight", "service-inflight"}) {
		t.Errorf("violated: %q", v)
	}
	checkHint(t, got, 8*time.Second)
	all := got.fields(t)
	if all["tenant"].next != 4 || all["service"].next != 8 || all["inflight"].left != 0 || all["service-inflight"].left != 0 {
		t.Errorf("%+v", all)
	}
	end()
	got = w.act("k", plainCall("tools", ""))
	got.want(t, "the buckets", 429, "rate_limited", "service")
	if v := got.violated(); !slices.Equal(v, []string{"tenant", "service"}) {
		t.Errorf("violated: %q", v)
	}

	w.clock.Advance(7 * time.Second) // the tenant has one again, the service not
	got = w.act("k", plainCall("tools", ""))
	got.want(t, "the service", 429, "rate_limited", "service")
	checkHint(t, got, time.Second)
	w.clock.Advance(time.Second)
	w.act("k", plainCall("tools", "")).want(t, "neither", 200, "", "")

	w.act("slow", plainCall("tools", "")).want(t, "the slow key", 200, "", "")
	got = w.act("slow", plainCall("tools", ""))
	got.want(t, "the tenant, and the key has no more", 429, "rate_limited", "tenant")
	checkHint(t, got, 20*time.Second)
	w.clock.Advance(20*time.Second - 1)
	w.act("slow", plainCall("tools", "")).want(t, "a nanosecond early", 429, "rate_limited", "key")
	w.clock.Advance(1)
	w.act("slow", plainCall("tools", "")).want(t, "after the wait", 200, "", "")
}
