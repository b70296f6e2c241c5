package gateway_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
)

// small is a default tenant of two calls at once, refilled slowly, and one slot.
func small(s *config.Settings) {
	s.RateTenantRPS, s.RateTenantBurst, s.TenantMaxInflight = 0.001, 2, 1
}

// acting is a key for all services that acts for those people.
func acting(id string, users ...string) *identity.Key {
	k := roomy(id)
	k.Users = users
	return k
}

// TestPeopleOfOneKey: the first 64 of a key's list have a tenant each, the other
// six share one bucket and one cap.
func TestPeopleOfOneKey(t *testing.T) {
	var people []string
	for i := range 70 {
		people = append(people, fmt.Sprintf("user-%02d", i))
	}
	up := newHeldStreams()
	w := setup{settings: small}.world(t, up.serve, acting("crew", people...))

	for _, p := range people[:64] {
		w.act("crew", plainCall("tools", p)).want(t, p, 200, "", "")
	}
	for i, p := range people[64:] {
		got := w.act("crew", plainCall("tools", p))
		if i < 2 {
			got.want(t, p, 200, "", "")
		} else {
			got.want(t, p, 429, "rate_limited", "tenant")
		}
	}
	want := []string{"key:crew:overflow"}
	for _, p := range people[:64] {
		want = append(want, "human:"+p)
	}
	tenants := w.entries(ratelimit.KindTenant)
	if got := slices.Sorted(maps.Keys(tenants)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("the tenants are %v", got)
	}
	for name, e := range tenants {
		if left := map[bool]int64{true: 0, false: 1}[name == "key:crew:overflow"]; e.Remaining != left {
			t.Errorf("%s has %d tokens, want %d", name, e.Remaining, left)
		}
	}
	for i, r := range w.ledger.all() {
		if p := r.Principal; strings.HasPrefix(r.Tenant, "human:") != (p < "user-64") || p < "user-64" && r.Tenant != "human:"+p {
			t.Fatalf("record %d: a call for %s is charged to %s", i, p, r.Tenant)
		}
	}

	w.clock.Advance(time.Hour)
	end := w.hold(up, "crew", streamCall("tools", people[64]))
	w.act("crew", plainCall("tools", people[69])).want(t, "another of the overflow", 429, "concurrency_limited", "tenant")
	w.act("crew", plainCall("tools", people[0])).want(t, "one with a tenant", 200, "", "")
	w.act("crew", plainCall("tools", people[63])).want(t, "the last with a tenant", 200, "", "")
	end()
	w.act("crew", plainCall("tools", people[69])).want(t, "when the slot is free", 200, "", "")
}

// TestOwnTenantsCanBeFewer: the number is a setting.
func TestOwnTenantsCanBeFewer(t *testing.T) {
	w := setup{settings: func(s *config.Settings) { s.KeyMaxPrincipals = 1 }}.world(t, hello, acting("crew", "a", "b", "c"))
	for _, p := range []string{"a", "b", "c"} {
		w.act("crew", plainCall("tools", p)).want(t, p, 200, "", "")
	}
	if got := slices.Sorted(maps.Keys(w.entries(ratelimit.KindTenant))); !slices.Equal(got, []string{"human:a", "key:crew:overflow"}) {
		t.Errorf("the tenants are %v", got)
	}
}

// TestOneHumanTwoKeys: keys that act for the same person share that person's
// bucket and slots, and nothing else.
func TestOneHumanTwoKeys(t *testing.T) {
	up := newHeldStreams()
	w := setup{settings: small}.world(t, up.serve, acting("a", "ann", "bob"), acting("b", "ann"))
	w.act("a", plainCall("tools", "ann")).want(t, "a for ann", 200, "", "")
	w.act("b", plainCall("tools", "ann")).want(t, "b for ann", 200, "", "")
	w.act("a", plainCall("tools", "ann")).want(t, "a for ann, whose bucket is empty", 429, "rate_limited", "tenant")
	w.act("b", plainCall("tools", "ann")).want(t, "b for ann, whose bucket is empty", 429, "rate_limited", "tenant")
	w.act("a", plainCall("tools", "bob")).want(t, "a for bob", 200, "", "")

	w.clock.Advance(time.Hour)
	end := w.hold(up, "a", streamCall("tools", "ann"))
	w.act("b", plainCall("tools", "ann")).want(t, "b for ann, whose slot a holds", 429, "concurrency_limited", "tenant")
	w.act("a", plainCall("tools", "bob")).want(t, "a for bob, who has a slot", 200, "", "")
	end()
	w.act("b", plainCall("tools", "ann")).want(t, "b for ann, when it is free", 200, "", "")
}

// TestRotationCreatesNothing: a caller that changes on_behalf_of with each call
// gets no entry and no bucket for it.
func TestRotationCreatesNothing(t *testing.T) {
	const names = 300
	t.Run("a key for everybody", func(t *testing.T) {
		w := setup{settings: small}.world(t, hello, roomy("k"))
		admitted := 0
		for i := range names {
			if got := w.act("k", plainCall("tools", fmt.Sprint("user-", i))); got.status == 200 {
				admitted++
			} else {
				got.want(t, "a new name", 429, "rate_limited", "tenant")
			}
		}
		if admitted != 2 {
			t.Errorf("%d admitted, want the burst of the one tenant", admitted)
		}
		if got := w.entries(ratelimit.KindTenant); len(got) != 1 || got["key:k"].Partition == "" {
			t.Errorf("the tenants are %v", got)
		}
		if n := w.table().Entries; n != 2 {
			t.Errorf("%d entries, want the key's and its tenant's", n)
		}
	})
	t.Run("a key with a list", func(t *testing.T) {
		w := setup{settings: small}.world(t, hello, acting("k", "ann"), acting("other", "bob"))
		w.act("other", plainCall("tools", "bob")).want(t, "bob's own key", 200, "", "")
		before := w.table().Entries
		for i := range names {
			for _, name := range []string{fmt.Sprint("user-", i), "bob"} {
				got := w.act("k", plainCall("tools", name))
				got.want(t, "a name that is not listed", 403, "scope_denied", "")
				if left := got.fields(t); len(left) != 1 || left["key"].quota == 0 {
					t.Fatalf("a refusal by scope tells of %v", left)
				}
			}
		}
		if n := w.table().Entries; n != before+1 {
			t.Errorf("%d entries, want one more than the %d before, the key's", n, before)
		}
		if bob := w.entries(ratelimit.KindTenant)["human:bob"]; bob.Remaining != 1 {
			t.Errorf("bob's tenant has %d tokens, want the one that his own key left", bob.Remaining)
		}
		w.act("other", plainCall("tools", "bob")).want(t, "bob's own key again", 200, "", "")
	})
}

// TestAllThreeTokensComeBack: a refusal for want of a slot, the tenant's, the
// service's or the process's, leaves key, tenant and service what they had.
func TestAllThreeTokensComeBack(t *testing.T) {
	for _, c := range []struct {
		limit, policy, tenant, attributes string
		process                           int
	}{
		{"tenant", "inflight", "max_inflight: 1", "", 0},
		{"service", "service-inflight", "max_inflight: 0", "max_inflight: 1,", 0},
		{"process", "process-inflight", "max_inflight: 0", "", 1},
	} {
		t.Run(c.limit, func(t *testing.T) {
			up := newHeldStreams()
			w := setup{
				registry: "tenants:\n  t: {rps: 0.002, burst: 7, " + c.tenant + "}\nservices:\n" +
					serviceLine("tools", "rate_limit: {rps: 0.0015, burst: 5},"+c.attributes),
				settings: func(s *config.Settings) { s.MaxInflight = c.process },
			}.world(t, up.serve, of("t", limited("k", 0.001, 3)))
			state := func() string {
				return fmt.Sprint(w.tokens(ratelimit.KindKey, "key:k", 0.001, 3), w.tokens(ratelimit.KindTenant, "tenant:t", 0.002, 7),
					w.tokens(ratelimit.KindService, ratelimit.ServiceBucket("k", "tools"), 0.0015, 5))
			}
			end := w.hold(up, "k", streamCall("tools", ""))
			if got := state(); got != "2 6 4" {
				t.Fatalf("with one call running: %s", got)
			}
			for range 20 {
				got := w.act("k", plainCall("tools", ""))
				got.want(t, "no slot", 429, "concurrency_limited", c.limit)
				want := map[string]int64{"key": 2, "tenant": 6, "service": 4, c.policy: 0}
				if left := got.left(t); !maps.Equal(left, want) {
					t.Fatalf("the refusal tells of %v, want %v", left, want)
				}
				if violated := got.violated(); !slices.Equal(violated, []string{c.policy}) {
					t.Fatalf("violated: %q, want what RateLimit calls %q", violated, c.policy)
				}
				if got := state(); got != "2 6 4" {
					t.Fatalf("after a refusal: %s", got)
				}
				w.clock.Advance(time.Millisecond)
			}
			end()
			w.act("k", plainCall("tools", "")).want(t, "a slot again", 200, "", "")
			if got := state(); got != "1 5 3" {
				t.Errorf("after the second call that ran: %s", got)
			}
		})
	}
}

// TestFreeRefusalsEnd: ten times a key's rate and burst of refusals for want of a
// slot cost it nothing. After that each is the key's own, and is paid.
func TestFreeRefusalsEnd(t *testing.T) {
	up := newHeldStreams()
	w := setup{registry: "tenants:\n  t: {rps: 1, burst: 9, max_inflight: 1}\nservices:\n" + serviceLine("tools", "")}.
		world(t, up.serve, of("t", roomy("holder")), of("t", limited("k", 0.1, 3)))
	end := w.hold(up, "holder", streamCall("tools", ""))
	refusals := func(n int) {
		t.Helper()
		for i := range n {
			got := w.act("k", plainCall("tools", ""))
			got.want(t, fmt.Sprint("free refusal ", i), 429, "concurrency_limited", "tenant")
			if left := got.left(t)["key"]; left != 3 {
				t.Fatalf("free refusal %d: the key has %d of 3", i, left)
			}
		}
	}
	refusals(30)
	for i := range int64(3) {
		got := w.act("k", plainCall("tools", ""))
		got.want(t, "a refusal that is paid", 429, "rate_limited", "key")
		if left, violated := got.left(t), got.violated(); left["key"] != 2-i || left["tenant"] != 8 || !slices.Equal(violated, []string{"key", "inflight"}) {
			t.Fatalf("%d paid: %v left, violated %q", i+1, left, violated)
		}
		if !strings.Contains(got.body, "ten times its limit, a burst of 3 calls refilled over") {
			t.Errorf("it does not say why: %s", got.body)
		}
	}
	got := w.act("k", plainCall("tools", ""))
	got.want(t, "the key has paid all", 429, "rate_limited", "key")
	if left := got.left(t); !maps.Equal(left, map[string]int64{"key": 0}) {
		t.Errorf("%v left", left)
	}
	w.clock.Advance(30 * time.Second) // the key's burst is back, and 30 free refusals
	refusals(30)
	end()
	w.act("k", plainCall("tools", "")).want(t, "a slot again", 200, "", "")
}

// TestBlockedTenant: an operator's block is a refusal of its own, names no limit,
// is not worth a retry, and costs the tenant nothing.
func TestBlockedTenant(t *testing.T) {
	w := setup{settings: small}.world(t, hello, roomy("k"), roomy("other"))
	w.limiter.Block(ratelimit.Registered, "key:k")
	for range 3 {
		got := w.act("k", plainCall("tools", ""))
		got.want(t, "blocked", 403, "tenant_blocked", "")
		if got.header.Get("X-Should-Retry") != "false" || got.header.Get("Retry-After") != "" || got.violated() != nil {
			t.Errorf("%v %s", got.header, got.body)
		}
		if left := got.fields(t); len(left) != 1 || left["key"].quota == 0 {
			t.Errorf("it tells of %v", left)
		}
	}
	w.act("other", plainCall("tools", "")).want(t, "another tenant", 200, "", "")
	w.limiter.Unblock(ratelimit.Registered, "key:k")
	for range 2 {
		w.act("k", plainCall("tools", "")).want(t, "unblocked, with a full bucket", 200, "", "")
	}
}
