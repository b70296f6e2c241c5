package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
	"agentgw/internal/registry"
)

// keysOf returns n keys with one limit, each of them its own tenant.
func keysOf(prefix string, n int, rps float64, burst int) []*identity.Key {
	var keys []*identity.Key
	for i := range n {
		keys = append(keys, limited(fmt.Sprint(prefix, i), rps, burst))
	}
	return keys
}

// TestCallsInFlightBlockNobody: more tenants hold streams than the table has
// seats, and newcomers still get entries of their own; the streams' tenants keep
// theirs with their caps, and the table shrinks when they end.
func TestCallsInFlightBlockNobody(t *testing.T) {
	const size, pinned, newcomers = 4, 12, 60
	up := newHeldStreams()
	w := setup{
		settings: func(s *config.Settings) { s.TenantMaxInflight, s.StreamIdle = 1, 0 },
		limiter:  func(o *ratelimit.Options) { o.TableSize = size; o.Idle = time.Minute },
	}.world(t, up.serve, append(keysOf("pinned-", pinned, 20, 40), keysOf("new-", newcomers, 20, 40)...)...)

	var ends []func()
	for i := range pinned {
		ends = append(ends, w.hold(up, fmt.Sprint("pinned-", i), streamCall("tools", "")))
		w.clock.Advance(time.Second) // what the calls took is back
	}
	for i := range newcomers {
		got := w.act(fmt.Sprint("new-", i), plainCall("tools", ""))
		got.want(t, "a newcomer", 200, "", "")
		if left := got.left(t); left["key"] != 39 || left["tenant"] != 199 {
			t.Fatalf("newcomer %d does not begin with full buckets: %v", i, left)
		}
		w.clock.Advance(time.Second)
		w.limiter.Sweep(w.nanos.Nanos())
	}
	st := w.table()
	if st.Pinned != pinned || st.Entries > size+pinned || st.Overflowed != 0 || st.UnexpiredEvictions != 0 {
		t.Errorf("%+v", st)
	}
	w.clock.Advance(time.Hour)
	w.limiter.Sweep(w.nanos.Nanos())
	for i := range pinned {
		w.act(fmt.Sprint("pinned-", i), plainCall("tools", "")).want(t, "a second call under a cap of one", 429, "concurrency_limited", "tenant")
	}
	for _, end := range ends {
		end()
	}
	w.clock.Advance(time.Hour)
	w.limiter.Sweep(w.nanos.Nanos())
	if st := w.table(); st.Entries != 0 || st.Pinned != 0 {
		t.Errorf("when all is over and idle: %+v", st)
	}
}

// TestDrainedStaysDrained: a key that has used up its burst, and its tenant, find
// it used up after a crowd has gone through a table far too small for it.
func TestDrainedStaysDrained(t *testing.T) {
	const size, crowd = 4, 50
	keys := append(keysOf("crowd-", crowd, 20, 40), limited("drained", 0.01, 3))
	w := setup{limiter: func(o *ratelimit.Options) { o.TableSize = size }}.world(t, hello, keys...)
	for range 3 {
		w.act("drained", plainCall("tools", "")).want(t, "its burst", 200, "", "")
	}
	for i := range crowd {
		w.act(fmt.Sprint("crowd-", i), plainCall("tools", "")).want(t, "one of the crowd", 200, "", "")
		w.clock.Advance(time.Second)
		w.act("drained", plainCall("tools", "")).want(t, "in the crowd", 429, "rate_limited", "key")
	}
	st := w.table()
	if st.Evicted < crowd || st.Entries > size || st.UnexpiredEvictions != 0 {
		t.Errorf("the crowd did not press: %+v", st)
	}
	w.clock.Advance((100 - crowd) * time.Second)
	got := w.act("drained", plainCall("tools", ""))
	got.want(t, "when one token is back", 200, "", "")
	if left := got.left(t)["key"]; left != 0 {
		t.Errorf("it has %d more", left)
	}
}

// TestFullTable: when all that is in the table owes, newcomers are served, from
// one bucket that they share; operators hear of it once a minute; and who gets
// an entry of its own later gets no second burst with it.
func TestFullTable(t *testing.T) {
	var warnings int
	w := setup{
		settings: func(s *config.Settings) { s.RateTenantRPS, s.RateTenantBurst = 0.01, 36 },
		limiter: func(o *ratelimit.Options) {
			o.TableSize = 2
			o.Warn = func(table string) {
				if table != "registered" {
					t.Errorf("a warning of the table %q", table)
				}
				warnings++
			}
		},
	}.world(t, hello, append(keysOf("new-", 9, 0.01, 3), limited("first", 0.01, 3))...)
	for range 3 { // and the table is full of this key and its tenant
		w.act("first", plainCall("tools", "")).want(t, "the first key", 200, "", "")
	}
	served := 0
	for i := range 9 {
		got := w.act(fmt.Sprint("new-", i), plainCall("tools", ""))
		if got.status == 200 {
			served++
		} else {
			got.want(t, "a newcomer", 429, "rate_limited", "key")
		}
	}
	if served != 3 {
		t.Errorf("%d newcomers were served, want the burst of one key", served)
	}
	if st := w.table(); st.Entries != 2 || st.UnexpiredEvictions != 0 {
		t.Errorf("%+v", st)
	}
	w.act("first", plainCall("tools", "")).want(t, "the first key again", 429, "rate_limited", "key")
	if warnings != 1 {
		t.Errorf("%d warnings, want one", warnings)
	}
	knock := func(after time.Duration, want int) {
		t.Helper()
		w.clock.Advance(after)
		w.act("new-8", plainCall("tools", "")).want(t, "a newcomer", 429, "rate_limited", "key")
		if warnings != want {
			t.Errorf("%d warnings, want %d", warnings, want)
		}
	}
	knock(time.Minute-time.Nanosecond, 1)
	knock(time.Nanosecond, 2)
	// At 100 s each bucket has a token again, and nothing can go yet: all share it.
	w.clock.Advance(40 * time.Second)
	w.act("new-1", plainCall("tools", "")).want(t, "one newcomer", 200, "", "")
	w.act("new-2", plainCall("tools", "")).want(t, "another", 429, "rate_limited", "key")
	// At 300 s the first key's entry is full again and may go; what was shared owes 100 s yet.
	w.clock.Advance(200 * time.Second)
	got := w.act("new-1", plainCall("tools", ""))
	got.want(t, "with an entry of its own", 200, "", "")
	if left := got.left(t)["key"]; left != 1 {
		t.Errorf("it has %d more, want one of the two that the shared bucket had", left)
	}
	if w.entries(ratelimit.KindKey)["key:new-1"].Partition == "" {
		t.Error("it has no entry of its own")
	}
}

// TestStrangersFillATableOfTheirOwn: addresses that fail to authenticate crowd
// out nobody who is registered, and one that is past its limit stays so.
func TestStrangersFillATableOfTheirOwn(t *testing.T) {
	w := setup{
		settings: func(s *config.Settings) { s.RateAuthPerMinute = 2; s.TrustedProxies = loopback },
		limiter:  func(o *ratelimit.Options) { o.TableSize = 8 },
	}.world(t, hello, roomy("k"))
	w.act("k", plainCall("tools", "")).want(t, "a key", 200, "", "")
	before := w.table()
	for range 2 {
		w.from("192.0.2.1", "").want(t, "the first address", 401, "unauthenticated", "")
	}
	for i := range 100 {
		w.from(fmt.Sprintf("198.51.100.%d", i), "")
		w.from("192.0.2.1", "").want(t, "the first address", 429, "rate_limited", "address")
	}
	if after := w.table(); after != before {
		t.Errorf("strangers changed the table of the registered: %+v, before %+v", after, before)
	}
	if st := w.limiter.Stats().Tables[ratelimit.Addresses]; st.Entries != 8 || st.Overflowed == 0 || st.UnexpiredEvictions != 0 {
		t.Errorf("%+v", st)
	}
	w.from("192.0.2.1", "k").want(t, "a valid key from that address", 200, "", "")
}

// TestChangedLimitsMintNothingInAFullTable: who shares an entry because the table
// is full, and has drained it, is refused after its limit has changed too, though
// others under the new limit share a full one.
func TestChangedLimitsMintNothingInAFullTable(t *testing.T) {
	k := limited("k", 0.001, 2)
	keys := []*identity.Key{limited("first", 0.001, 1), k, limited("other", 5, 9), of("small", roomy("m")), roomy("n")}
	w := setup{
		settings: func(s *config.Settings) { s.RateAuthPerMinute = 2; s.TrustedProxies = loopback },
		limiter:  func(o *ratelimit.Options) { o.TableSize = 1 },
	}.world(t, hello, keys...)
	w.act("first", plainCall("tools", "")).want(t, "the first key", 200, "", "")
	w.from("192.0.2.1", "").want(t, "the first address", 401, "unauthenticated", "")
	spend := func(n int, key, service, limit string) {
		t.Helper()
		for range n {
			w.act(key, plainCall(service, "")).want(t, "one of a burst", 200, "", "")
		}
		w.act(key, plainCall(service, "")).want(t, "one more", 429, "rate_limited", limit)
	}
	refused := func() {
		t.Helper()
		w.act("k", plainCall("tools", "")).want(t, "the key", 429, "rate_limited", "key")
		w.act("m", plainCall("tools", "")).want(t, "the tenant", 429, "rate_limited", "tenant")
		w.act("n", plainCall("slow", "")).want(t, "the service", 429, "rate_limited", "service")
		w.from("198.51.100.1", "").want(t, "the address", 429, "rate_limited", "address")
	}
	w.act("other", plainCall("tools", "")).want(t, "one under the limit to come", 200, "", "")
	spend(2, "k", "tools", "key")
	spend(2, "m", "tools", "tenant")
	spend(1, "n", "slow", "service")
	for range 2 {
		w.from("198.51.100.1", "").want(t, "an address", 401, "unauthenticated", "")
	}
	refused()

	settings := *w.settings
	settings.RateAuthPerMinute = 10
	w.settings = &settings
	k.Limits = &identity.Limits{RPS: 5, Burst: 9}
	w.use(strings.NewReplacer(
		"small: {rps: 1, burst: 2,", "small: {rps: 1, burst: 90,",
		"rate_limit: {rps: 0.1, burst: 1}", "rate_limit: {rps: 0.1, burst: 5}",
	).Replace(worldRegistry), keys...)
	refused()
	w.clock.Advance(10 * time.Second)
	w.act("k", plainCall("tools", "")).want(t, "the key at its new rate", 200, "", "")
	w.act("m", plainCall("tools", "")).want(t, "the tenant at its new rate", 200, "", "")
	w.act("n", plainCall("slow", "")).want(t, "the service at its new rate", 200, "", "")
	w.from("198.51.100.1", "").want(t, "the address at its new rate", 401, "unauthenticated", "")
}

// TestChangedDefaultsMintNothingInAFullTable: the same for tenants that are people
// for whom a key acts.
func TestChangedDefaultsMintNothingInAFullTable(t *testing.T) {
	h := roomy("h")
	h.Users = []string{"u"}
	keys := []*identity.Key{limited("first", 0.001, 1), h}
	w := setup{
		settings: func(s *config.Settings) { s.RateTenantRPS, s.RateTenantBurst = 0.1, 3 },
		limiter:  func(o *ratelimit.Options) { o.TableSize = 1 },
	}.world(t, hello, keys...)
	w.act("first", plainCall("tools", "")).want(t, "the first key", 200, "", "")
	for range 2 { // the first key's call took one of what is shared
		w.act("h", plainCall("tools", "u")).want(t, "one of a burst", 200, "", "")
	}
	w.act("h", plainCall("tools", "u")).want(t, "one more", 429, "rate_limited", "tenant")
	w.useDefaults(registry.Defaults{KeyRPS: 20, KeyBurst: 40, TenantRPS: 0.1, TenantBurst: 30, TenantMaxInflight: 32}, worldRegistry, h)
	w.act("h", plainCall("tools", "u")).want(t, "after the change", 429, "rate_limited", "tenant")
}
