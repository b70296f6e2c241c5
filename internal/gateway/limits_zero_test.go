package gateway_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"agentgw/internal/config"
)

// TestZeroSwitchesOff: each limit, set to 1, refuses the second call, and set to
// 0 refuses none and is told of by no answer. (A key's own limit can be switched
// off only with the tenants'; what is refused at start-up is the registry's.)
func TestZeroSwitchesOff(t *testing.T) {
	set := func(change func(*config.Settings, int)) func(*setup, int) {
		return func(s *setup, n int) { s.settings = func(c *config.Settings) { change(c, n) } }
	}
	const wide = "rps: 1000, burst: 2000, max_inflight: 100"
	file := func(tenant, attributes string) func(*setup, int) { // <n> is the value
		return func(s *setup, n int) {
			text := "tenants:\n  t: {" + tenant + "}\nservices:\n" + serviceLine("tools", attributes)
			s.registry = strings.ReplaceAll(text, "<n>", strconv.Itoa(n))
		}
	}
	for _, c := range []struct {
		name    string
		to      func(*setup, int)
		limit   string // that refuses when on
		policy  string // by which answers tell of it
		streams bool   // it counts what is in flight
		omitted int64  // the quota where it is not mentioned; 0 is none
	}{
		{"tenant rate", set(func(s *config.Settings, n int) { s.RateTenantRPS, s.RateTenantBurst = float64(n), n }), "tenant", "tenant", false, 200},
		{"tenant burst", set(func(s *config.Settings, n int) { s.RateTenantBurst = n }), "tenant", "tenant", false, 200},
		{"tenant slots", set(func(s *config.Settings, n int) { s.TenantMaxInflight = n }), "tenant", "inflight", true, 32},
		{"rate of a named tenant", file("rps: <n>, burst: <n>", ""), "tenant", "tenant", false, 200},
		{"burst of a named tenant", file("rps: 1, burst: <n>", ""), "tenant", "tenant", false, 200},
		{"slots of a named tenant", file("max_inflight: <n>", ""), "tenant", "inflight", true, 32},
		{"service rate", file(wide, "rate_limit: {rps: <n>, burst: <n>},"), "service", "service", false, 0},
		{"service burst", file(wide, "rate_limit: {rps: 1, burst: <n>},"), "service", "service", false, 0},
		{"service slots", file(wide, "max_inflight: <n>,"), "service", "service-inflight", true, 0},
		{"process slots", func(s *setup, n int) {
			file(wide, "")(s, n)
			s.settings = func(c *config.Settings) { c.MaxInflight = n }
		}, "process", "process-inflight", true, 0},
		{"key rate, with the tenants'", func(s *setup, n int) {
			file("rps: 0", "")(s, n)
			s.settings = func(c *config.Settings) { c.RateTenantRPS, c.RateKeyRPS, c.RateKeyBurst = 0, float64(n), n }
		}, "key", "key", false, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			world := func(s setup) (*world, *heldStreams) {
				key := roomy("k")
				if s.registry != "" {
					key.Tenant = "t"
				}
				if c.limit == "key" {
					key.Limits = nil
				}
				up := newHeldStreams()
				return s.world(t, up.serve, key), up
			}
			var on, off setup
			c.to(&on, 1)
			c.to(&off, 0)

			w, up := world(on)
			first := func() {}
			if c.streams {
				first = w.hold(up, "k", streamCall("tools", ""))
			} else {
				w.act("k", plainCall("tools", "")).want(t, "on, the first", 200, "", "")
			}
			refused := w.act("k", plainCall("tools", ""))
			refused.want(t, "on, the second", 429, map[bool]string{true: "concurrency_limited", false: "rate_limited"}[c.streams], c.limit)
			if g := refused.fields(t)[c.policy]; g.quota != 1 || g.left != 0 {
				t.Errorf("on: %+v", g)
			}
			first()

			w, up = world(off)
			for i := range 40 { // more than 32 slots
				if !c.streams {
					for range 5 { // and in all than a burst of 200
						w.act("k", plainCall("tools", "")).want(t, "off", 200, "", "")
					}
					continue
				}
				defer w.hold(up, "k", streamCall("tools", fmt.Sprint(i)))()
			}
			got := w.act("k", plainCall("tools", ""))
			got.want(t, "off, once more", 200, "", "")
			if g, told := got.fields(t)[c.policy]; told {
				t.Errorf("off, and the answer tells of %+v", g)
			}

			var usual setup
			file("", "")(&usual, 0)
			w, _ = world(usual)
			if g, told := w.act("k", plainCall("tools", "")).fields(t)[c.policy]; told != (c.omitted > 0) || told && g.quota != c.omitted {
				t.Errorf("not mentioned: %+v, want a quota of %d", g, c.omitted)
			}
		})
	}
}

// TestZeroFailuresAreNotCounted: without a limit on failed authentications, each
// is refused for what it is.
func TestZeroFailuresAreNotCounted(t *testing.T) {
	w := setup{settings: func(s *config.Settings) { s.RateAuthPerMinute = 0 }}.world(t, hello)
	for range 200 {
		w.act("", "{").want(t, "no key", 401, "unauthenticated", "")
	}
}
