package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/explain"
	"agentgw/internal/identity"
	"agentgw/internal/registry"
)

// changingWorld is one in which one limit of a kind changes.
type changingWorld struct {
	*world
	change func(rps float64, burst int) // puts that limit in force
	limit  string                       // by the name that refusals have for it
	call   func() told
}

// kindsOfRates are the buckets that a call is charged to, each with whatever else
// could refuse out of its way: one of its own and one by default.
func kindsOfRates(t *testing.T) map[string]changingWorld {
	wideDefaults := registry.Defaults{KeyRPS: 1e6, KeyBurst: 1e6, TenantRPS: 1e6, TenantBurst: 1e6, Source: func(string) string { return "test" }}
	file := func(tenant, service string) string {
		return "tenants:\n  t: {" + tenant + "}\nservices:\n" + serviceLine("tools", service)
	}
	const wideTenant = "rps: 1000000, burst: 1000000, max_inflight: 0"
	changing := func(limit string, key *identity.Key, change func(w *world, key *identity.Key, rps float64, burst int)) changingWorld {
		w := setup{registry: file(wideTenant, "")}.world(t, hello, key)
		c := changingWorld{world: w, limit: limit, change: func(rps float64, burst int) { change(w, key, rps, burst) }}
		c.call = func() told { return w.act(key.ID, plainCall("tools", "")) }
		return c
	}
	rate := func(rps float64, burst int) string { return fmt.Sprintf("rps: %v, burst: %d", rps, burst) }
	return map[string]changingWorld{
		"a key's own": changing("key", of("t", limited("k", 1, 1)), func(w *world, k *identity.Key, rps float64, burst int) {
			next := *k
			next.Limits = &identity.Limits{RPS: rps, Burst: burst}
			w.useDefaults(wideDefaults, file(wideTenant, ""), &next)
		}),
		"a key's by default": changing("key", of("t", everything("k")), func(w *world, k *identity.Key, rps float64, burst int) {
			d := wideDefaults
			d.KeyRPS, d.KeyBurst = rps, burst
			w.useDefaults(d, file(wideTenant, ""), k)
		}),
		"a named tenant's": changing("tenant", of("t", roomy("k")), func(w *world, k *identity.Key, rps float64, burst int) {
			w.useDefaults(wideDefaults, file(rate(rps, burst), ""), k)
		}),
		"a tenant's by default": changing("tenant", roomy("k"), func(w *world, k *identity.Key, rps float64, burst int) {
			d := wideDefaults
			d.TenantRPS, d.TenantBurst = rps, burst
			w.useDefaults(d, file(wideTenant, ""), k)
		}),
		"a service's": changing("service", of("t", roomy("k")), func(w *world, k *identity.Key, rps float64, burst int) {
			w.useDefaults(wideDefaults, file(wideTenant, "rate_limit: {"+rate(rps, burst)+"},"), k)
		}),
	}
}

// admitted calls n times in an instant and counts those that were admitted.
func (c changingWorld) admitted(n int) (ok int) {
	c.t.Helper()
	for range n {
		switch got := c.call(); {
		case got.status == http.StatusOK:
			ok++
		case got.code != "rate_limited" || got.limit != c.limit:
			c.t.Fatalf("%d %s (limit %q), want refusals by %s: %s", got.status, got.code, got.limit, c.limit, got.body)
		}
	}
	return ok
}

// TestChangedRates: whatever has the limit, a new rate and a new burst hold from
// the next call on, of who is drained and of who floods too. Nothing is minted.
func TestChangedRates(t *testing.T) {
	for name, c := range kindsOfRates(t) {
		t.Run(name, func(t *testing.T) {
			c.t = t
			want := func(what string, n, want int) {
				t.Helper()
				if got := c.admitted(n); got != want {
					t.Errorf("%s: %d of %d admitted, want %d", what, got, n, want)
				}
			}
			c.change(100, 20)
			want("a burst of 20", 25, 20)
			for range 8 { // a flood at three times the rate
				c.clock.Advance(10 * time.Millisecond)
				want("busy", 3, 1)
			}
			c.change(1, 20)
			want("drained, at another rate", 2, 0)
			c.clock.Advance(10 * time.Millisecond)
			want("after the old rate's interval", 2, 0)
			c.clock.Advance(990 * time.Millisecond)
			want("after the new one's", 3, 1)
			c.change(100, 20)
			want("drained, at the old rate", 2, 0)
			c.clock.Advance(10 * time.Millisecond)
			want("after its interval", 2, 1)

			for round := range 20 {
				c.change([]float64{0.5, 100, 7}[round%3], []int{1, 20, 500}[round%3])
				want(fmt.Sprint("back and forth, round ", round), 1, 0)
			}

			// Whoever keeps still for a while is not left at the old rate meanwhile.
			c.change(100, 20)
			c.change(1, 20)
			c.clock.Advance(3 * time.Second)
			want("drained, and after 3 s at 1 a second", 10, 3)
			c.clock.Advance(2 * time.Second)
			c.change(100, 20)
			c.clock.Advance(10 * time.Millisecond)
			want("2 s at 1 a second, then 10 ms at 100", 10, 3)
			c.clock.Advance(20 * time.Millisecond)
			c.change(1, 20)
			c.clock.Advance(time.Second)
			want("20 ms at 100 a second, then 1 s at 1", 10, 3)
			c.change(0.5, 20)
			c.clock.Advance(2 * time.Second)
			c.change(0.5, 20) // what changes is something else
			c.clock.Advance(2 * time.Second)
			want("2 s and 2 s at one in 2 s", 10, 2)

			c.change(1, 20)
			c.clock.Advance(time.Hour)
			c.change(1, 7)
			want("a full bucket of 20 lowered to 7", 10, 7)
			c.clock.Advance(3 * time.Second)
			c.change(1, 20)
			want("3 of 7 raised to 20", 10, 3)
			c.clock.Advance(10 * time.Second)
			c.change(1, 7)
			c.change(1, 20)
			want("10 of 20 lowered and raised again before anybody called", 15, 10)
			c.clock.Advance(10 * time.Second)
			c.change(1, 7)
			want("10 of 20 lowered to 7", 1, 1)
			c.change(1, 20)
			want("and raised again after one", 10, 6)
		})
	}
}

// TestChangedBudgetOfFailures: that of an address changes as those of callers do.
func TestChangedBudgetOfFailures(t *testing.T) {
	w := setup{settings: func(s *config.Settings) { s.RateAuthPerMinute = 60 }}.world(t, hello)
	failures := func(n int) (unauthenticated int) {
		for range n {
			if w.act("", "{").status == http.StatusUnauthorized {
				unauthenticated++
			}
		}
		return unauthenticated
	}
	change := func(perMinute int) {
		next := *w.settings
		next.RateAuthPerMinute = perMinute
		w.settings = &next
		w.use(worldRegistry)
	}
	if n := failures(70); n != 60 {
		t.Fatalf("%d of 70, want 60", n)
	}
	for range 20 {
		change(6)
		change(600)
		if n := failures(1); n != 0 {
			t.Fatal("a change has minted one")
		}
	}
	w.clock.Advance(100 * time.Millisecond)
	if n := failures(3); n != 1 {
		t.Errorf("at 600 a minute, %d after a tenth of a second, want 1", n)
	}
	change(6)
	w.clock.Advance(10 * time.Second)
	if n := failures(8); n != 1 {
		t.Errorf("at 6 a minute, %d after ten seconds, want 1", n)
	}
	w.clock.Advance(time.Hour)
	if n := failures(20); n != 6 {
		t.Errorf("of a full budget of 6, %d", n)
	}
}

// TestChangedCaps: of a tenant and of a service. Calls under way stay counted,
// whatever the cap becomes; at no time is one admitted beyond it, and at once
// where there is room; and their slots come back to the count that is looked at.
func TestChangedCaps(t *testing.T) {
	for limit, file := range map[string]string{
		"tenant":  "tenants:\n  t: {rps: 1000, burst: 2000, max_inflight: %d}\nservices:\n" + serviceLine("tools", ""),
		"service": "tenants:\n  t: {rps: 1000, burst: 2000, max_inflight: 100}\nservices:\n" + serviceLine("tools", "max_inflight: %d,"),
	} {
		t.Run(limit, func(t *testing.T) {
			up := newHeldStreams()
			registry := func(most int) string { return strings.Replace(file, "%d", fmt.Sprint(most), 1) }
			k := of("t", roomy("k"))
			w := setup{registry: registry(2)}.world(t, up.serve, k)
			first, second := w.hold(up, "k", streamCall("tools", "")), w.hold(up, "k", streamCall("tools", ""))
			refused := func(what string) {
				t.Helper()
				w.act("k", plainCall("tools", "")).want(t, what, 429, "concurrency_limited", limit)
			}
			refused("two of two")
			for range 3 {
				w.use(registry(2), k)
				refused("two of two, reloaded")
			}
			w.use(registry(1), k)
			refused("two of one")
			first()
			eventually(t, "one is free", func() bool { return w.inFlight("tenant:t") == 1 })
			refused("one of one")
			w.use(registry(3), k)
			third, fourth := w.hold(up, "k", streamCall("tools", "")), w.hold(up, "k", streamCall("tools", ""))
			refused("three of three")
			w.use(registry(0), k) // no cap: they are counted on
			fifth := w.hold(up, "k", streamCall("tools", ""))
			w.use(registry(4), k)
			refused("four of four")
			w.use(registry(5), k)
			w.hold(up, "k", streamCall("tools", ""))()
			for _, end := range []func(){second, third, fourth, fifth} {
				end()
			}
			eventually(t, "all are free", func() bool { return w.inFlight("tenant:t") == 0 })
			w.use(registry(1), k)
			w.hold(up, "k", streamCall("tools", ""))()
		})
	}
}

// TestExplainKnowsOfChanges: what an operator is told is left is what the next call
// finds, also of a limit that has changed since the last one.
func TestExplainKnowsOfChanges(t *testing.T) {
	k := limited("k", 0.001, 2)
	w := newWorld(t, hello, k)
	for range 3 {
		w.act("k", plainCall("tools", ""))
	}
	next := *k
	next.Limits = &identity.Limits{RPS: 1, Burst: 9}
	w.use(worldRegistry, &next)
	w.clock.Advance(5 * time.Second)
	x := w.explainer(worldRegistry)
	x.Running = w.gateway
	got, err := x.Explain(explain.Question{Key: "k", Service: "tools", Action: "get"}, &next, "", w.clock.Now())
	if err != nil || len(got.Limits) == 0 || got.Limits[0].Level == nil || *got.Limits[0].Level.Remaining != 5 {
		t.Fatalf("%v %+v", err, got.Limits)
	}
	if left := w.act("k", plainCall("tools", "")).left(t)["key"]; left != 4 {
		t.Errorf("the next call leaves %d, want 4", left)
	}
}
