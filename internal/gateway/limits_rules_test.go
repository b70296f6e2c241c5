package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
	"agentgw/internal/registry"
)

// ruledWorld is a world whose clock stands 5 s into a minute, with these rules.
func ruledWorld(t *testing.T, upstream http.HandlerFunc, rules string, keys ...*identity.Key) *world {
	t.Helper()
	return setup{registry: ruledFile(rules), settings: func(s *config.Settings) { s.TrustedProxies = loopback }}.world(t, upstream, keys...)
}

func ruledFile(rules string) string {
	return "tenants:\n  dry: {rps: 0.001, burst: 1}\n  one: {rps: 1000, burst: 1000, max_inflight: 1}\n  wide: {rps: 1000, burst: 100000}\nservices:\n" +
		serviceLine("tools", "") + serviceLine("other", "") + "rules:\n" + rules
}

func owned(k *identity.Key, user, space, org string) *identity.Key {
	k.User, k.Space, k.Org = user, space, org
	return k
}

// TestARulePerAddress: whoever comes from one address has so many a minute between
// them, whatever their keys; a refusal tells the rule, its value, and how long
// the rest of the window is, to the nanosecond.
func TestARulePerAddress(t *testing.T) {
	w := ruledWorld(t, hello, "  - {name: per-ip, key: client_ip, window: 1m, max: 3}\n", roomy("a"), roomy("b"))
	for i, key := range []string{"a", "b", "a"} {
		got := w.from("203.0.113.7", key)
		got.want(t, fmt.Sprint("call ", i), 200, "", "")
		if g := got.fields(t)["per-ip"]; g != (gauge{quota: 3, window: 60, left: int64(2 - i), next: 55, unit: ""}) {
			t.Errorf("call %d: %+v", i, g)
		}
	}
	got := w.from("203.0.113.7", "b")
	got.want(t, "the fourth", 429, "rate_limited", "per-ip")
	if after := got.retryAfter(t); after < 55*time.Second || after > 60*time.Second {
		t.Errorf("Retry-After %v, the window lasts 55 s", after)
	}
	if !slices.Equal(got.violated(), []string{"per-ip"}) || got.fields(t)["per-ip"].left != 0 || got.header.Get("X-Should-Retry") != "" ||
		!strings.Contains(got.body, "the rule per-ip allows 3 calls in each 1m, and they are used up; wait 55s and call again") {
		t.Errorf("%v %s", got.header, got.body)
	}
	if r := w.ledger.all(); r[len(r)-1].Limit != "per-ip" || r[len(r)-1].Code != "rate_limited" || w.counted("rate_limited", "per-ip") != 1 {
		t.Errorf("%+v", r[len(r)-1])
	}
	w.from("203.0.113.8", "b").want(t, "another address", 200, "", "")
	w.from("6.6.6.6, 203.0.113.7", "b").want(t, "what the client wrote", 429, "rate_limited", "per-ip")
	for i := range 5 { // addresses of one /64 are one
		got := w.from(fmt.Sprintf("[2001:db8:0:1::%d]:4%d", i, i), "a")
		if want := map[bool]int{true: 200, false: 429}[i < 3]; got.status != want {
			t.Errorf("IPv6 %d: %d %s", i, got.status, got.body)
		}
	}
	w.from("2001:db8:0:2::1", "a").want(t, "another /64", 200, "", "")
	w.clock.Advance(55*time.Second - time.Nanosecond)
	w.from("203.0.113.7", "a").want(t, "before the window ends", 429, "rate_limited", "per-ip")
	w.clock.Advance(time.Nanosecond)
	w.from("203.0.113.7", "a").want(t, "in the next window", 200, "", "")
}

// TestIdentityLimits: every key of one user shares what the user has in a second;
// whose key nobody owns has no such limit.
func TestIdentityLimits(t *testing.T) {
	w := ruledWorld(t, hello, "  []\nidentity_limits: {user: 3, org: 4}\n",
		owned(roomy("u1"), "u", "s", "o"), owned(roomy("u2"), "u", "s", "o"), owned(roomy("v"), "v", "s", "o"), roomy("n"))
	for i, key := range []string{"u1", "u2", "u1"} {
		w.act(key, plainCall("tools", "")).want(t, fmt.Sprint("call ", i), 200, "", "")
	}
	got := w.act("u2", plainCall("tools", ""))
	got.want(t, "the user's fourth", 429, "rate_limited", "user")
	if !strings.Contains(got.body, `"detail":"the identity limit user allows 3 calls in each 1s, and they are used up; `) {
		t.Error(got.body)
	}
	if left := got.left(t); left["user"] != 0 || left["org"] != 1 || got.retryAfter(t) > 2*time.Second {
		t.Errorf("%v, %v", left, got.header)
	}
	w.act("v", plainCall("tools", "")).want(t, "another user", 200, "", "")
	got = w.act("u1", plainCall("tools", ""))
	got.want(t, "both", 429, "rate_limited", "user")
	if !slices.Equal(got.violated(), []string{"user", "org"}) {
		t.Errorf("violated %v", got.violated())
	}
	for range 10 {
		got := w.act("n", plainCall("tools", ""))
		got.want(t, "nobody's key", 200, "", "")
		if _, told := got.fields(t)["user"]; told {
			t.Fatal("it is told of a limit that it does not meet")
		}
	}
	got = w.do(w.whoami("u1"))
	if !strings.Contains(got.body, `{"limit":"user","max":3,"window":"1s","remaining":0}`) || !strings.Contains(got.body, `{"limit":"org","max":4,"window":"1s","remaining":0}`) ||
		!strings.Contains(got.body, `"user":"u"`) || !strings.Contains(got.body, `"space":"s"`) || !strings.Contains(got.body, `"org":"o"`) {
		t.Errorf("whoami: %s", got.body)
	}
	if got := w.do(w.whoami("n")); strings.Contains(got.body, `"window"`) || strings.Contains(got.body, `"org"`) {
		t.Errorf("whoami of nobody's key: %s", got.body)
	}
	w.clock.Advance(time.Second)
	w.act("u2", plainCall("tools", "")).want(t, "in the next second", 200, "", "")
}

func (w *world) whoami(key string) *http.Request {
	r := w.request(context.Background(), key, "")
	r.Method, r.URL.Path, r.Body, r.ContentLength = "GET", "/v1/whoami", nil, 0
	return r
}

// TestRulesSayWhenAndWhom: a rule applies where it says; without a key it does not.
func TestRulesSayWhenAndWhom(t *testing.T) {
	w := ruledWorld(t, hello, `
  - name: people
    key: principal
    when: service == "tools" && request.method == "GET" && tenant.startsWith("key:")
    window: 1h
    max: "principal == 'vip' ? 3 : 1"
`, roomy("a"), of("wide", roomy("b")))
	for _, step := range []struct {
		key, service, principal string
		want                    int
	}{
		{"a", "tools", "ann", 200}, {"a", "tools", "ann", 429}, {"a", "tools", "bob", 200}, {"a", "other", "ann", 200}, {"b", "tools", "ann", 200},
		{"a", "tools", "", 200}, {"a", "tools", "", 200}, {"a", "tools", "vip", 200}, {"a", "tools", "vip", 200}, {"a", "tools", "vip", 200}, {"a", "tools", "vip", 429},
	} {
		if got := w.act(step.key, plainCall(step.service, step.principal)); got.status != step.want {
			t.Errorf("%+v: %d %s", step, got.status, got.body)
		}
	}
}

// TestAnAddressAsRulesSeeIt is what an operator would write for it.
func TestAnAddressAsRulesSeeIt(t *testing.T) {
	w := ruledWorld(t, hello, "  - {name: these, key: client_ip, when: \"client_ip in ['203.0.113.7', '2001:db8:0:1::/64']\", window: 1m, max: \"1 - 1\"}\n", roomy("a"))
	for address, want := range map[string]int{
		"203.0.113.7": 429, "203.0.113.7:80": 429, "::ffff:203.0.113.7": 429, "203.0.113.8": 200,
		"2001:db8:0:1:2:3:4:5": 429, "[2001:db8:0:1::]:80": 429, "2001:db8:0:2::": 200,
	} {
		if got := w.from(address, "a"); got.status != want {
			t.Errorf("%s: %d, want %d", address, got.status, want)
		}
	}
}

// TestRulesCountBytes: those of the request when it comes, those of the answer as
// they flow. The call that crosses the line ends whole, and the next is refused.
func TestRulesCountBytes(t *testing.T) {
	w := ruledWorld(t, func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, strings.Repeat("x", 300_000)) },
		"  - {name: traffic, key: tenant, window: 1m, max: 512KiB, count: bytes}\n", of("wide", roomy("a")))
	body := plainCall("tools", "")
	left := int64(512 << 10)
	for i := range 2 {
		got := w.act("a", body)
		got.want(t, fmt.Sprint("call ", i), 200, "", "")
		if left -= int64(len(body)); got.left(t)["traffic"] != left {
			t.Errorf("call %d: told of %d bytes, want %d", i, got.left(t)["traffic"], left)
		}
		if len(got.body) != 300_000 {
			t.Errorf("call %d: %d bytes of the answer", i, len(got.body))
		}
		left -= 300_000
	}
	got := w.act("a", body)
	got.want(t, "past the line", 429, "rate_limited", "traffic")
	if !strings.Contains(got.body, "the rule traffic allows 524288 bytes in each 1m, and they are used up; wait 55s") {
		t.Errorf("%s", got.body)
	}
	w.clock.Advance(55 * time.Second)
	w.act("a", body).want(t, "in the next window", 200, "", "")
}

// TestAStreamCountsAsItFlows, in the windows that it flows in, and not at its end;
// that of a client that hangs up is counted as far as it came.
func TestAStreamCountsAsItFlows(t *testing.T) {
	flow := make(chan int)
	w := ruledWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for {
			_ = http.NewResponseController(rw).Flush()
			select {
			case n := <-flow:
				_, _ = io.WriteString(rw, strings.Repeat("x", n))
			case <-r.Context().Done():
				return
			}
		}
	}, "  - {name: traffic, key: tenant, window: 1m, max: 1MiB, count: bytes}\n", of("wide", roomy("a")))
	counted := func() int64 {
		used, _ := w.limiter.Counted(ratelimit.NewRule("traffic", registry.CountBytes, time.Minute, false), "tenant:wide", w.nanos.Nanos())
		return used
	}
	ctx, hangUp := context.WithCancel(context.Background())
	res, err := w.server.Client().Do(w.request(ctx, "a", streamCall("tools", "")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	asked := int64(len(streamCall("tools", "")))
	flow <- 1000
	eventually(t, "the count of the stream", func() bool { return counted() == asked+1000 })
	w.clock.Advance(55 * time.Second)
	if n := counted(); n != 0 {
		t.Errorf("%d counted in the next window before anything flowed", n)
	}
	flow <- 77
	eventually(t, "the count of the stream", func() bool { return counted() == 77 })
	hangUp()
	eventually(t, "the count of the stream", func() bool { return w.inFlight("tenant:wide") == 0 })
	if n := counted(); n != 77 {
		t.Errorf("%d counted after the end", n)
	}
}

// TestAnObservingRuleOfBytes counts what it would have let flow, and no more.
func TestAnObservingRuleOfBytes(t *testing.T) {
	w := ruledWorld(t, hello, "  - {name: traffic, key: tenant, window: 1m, max: 100, count: bytes, mode: observe}\n", of("wide", roomy("a")))
	body := plainCall("tools", "")
	for range 5 {
		w.act("a", body).want(t, "a call", 200, "", "")
	}
	used, _ := w.limiter.Counted(ratelimit.NewRule("traffic", registry.CountBytes, time.Minute, true), "tenant:wide", w.nanos.Nanos())
	if want := int64(len(body) + len(`{"hello":1}`)); used != want || w.counted("observed", "traffic") != 4 {
		t.Errorf("%d bytes counted, want the %d of one call; %d observed", used, want, w.counted("observed", "traffic"))
	}
}

// TestAnObservingRule refuses nothing, is not told to agents, and shows operators
// what it would have refused, in the log once a minute.
func TestAnObservingRule(t *testing.T) {
	w := ruledWorld(t, hello, "  - {name: tryout, key: \"'all'\", window: 1h, max: 2, mode: observe}\n  - {name: real, key: \"'all'\", window: 1h, max: 9}\n", roomy("a"))
	for i := range 9 {
		got := w.act("a", plainCall("tools", ""))
		got.want(t, fmt.Sprint("call ", i), 200, "", "")
		if _, told := got.fields(t)["tryout"]; told {
			t.Error("agents are told of it")
		}
	}
	if n := w.counted("observed", "tryout"); n != 7 {
		t.Errorf("%d observed, want 7", n)
	}
	got := w.act("a", plainCall("tools", ""))
	got.want(t, "the real one", 429, "rate_limited", "real")
	if n := w.counted("observed", "tryout"); n != 7 || !slices.Equal(got.violated(), []string{"real"}) {
		t.Errorf("a call that was refused is shown as one that would have been: %d, %v", n, got.violated())
	}
	lines := func() int { return strings.Count(w.logged.String(), "would have refused") }
	if lines() != 1 || !strings.Contains(w.logged.String(), "rule=tryout") {
		t.Errorf("%d lines: %s", lines(), w.logged.String())
	}
	w.use(ruledFile("  - {name: tryout, key: \"'all'\", window: 1h, max: 2, mode: enforce}\n"), roomyLike(w, "a")...)
	w.act("a", plainCall("tools", "")).want(t, "once enforced", 429, "rate_limited", "tryout")
}

// roomyLike is roomy for keys that are there, so that a view can be made anew.
func roomyLike(w *world, ids ...string) (list []*identity.Key) {
	for _, id := range ids {
		k := roomy(id)
		k.Digest, _ = identity.ParseKey(w.keys[id])
		list = append(list, k)
	}
	return list
}

// TestRulesOfParameters: a rule may take key and count from what the call holds.
// What it cannot make of a stranger's call opens nothing and closes nothing, and is
// logged without it.
func TestRulesOfParameters(t *testing.T) {
	w := ruledWorld(t, hello, `
  - {name: model, key: request.params.id, window: 1h, max: 10, count: "has(request.params.n) ? request.params.n : 1"}
`, roomy("a"))
	call := func(params string) told {
		return w.act("a", actBody("tools", "get", "", `,"params":`+params))
	}
	for i := range 10 {
		call(`{"id":"x"}`).want(t, fmt.Sprint("call ", i), 200, "", "")
	}
	call(`{"id":"x"}`).want(t, "x is used up", 429, "rate_limited", "model")
	call(`{"id":"y"}`).want(t, "y is not", 200, "", "")
	// The rule comes before the parameters are held to their schema.
	call(`{"id":"z","n":10}`).want(t, "an unknown parameter", 400, "bad_params", "")
	call(`{"id":"z"}`).want(t, "z has had its ten", 429, "rate_limited", "model")
	got := call(`{"id":"w","n":11}`)
	got.want(t, "more than there ever is", 429, "rate_limited", "model")
	if got.header.Get("X-Should-Retry") != "false" || got.retryAfter(t) < time.Minute || !strings.Contains(got.body, "this call alone is more") {
		t.Errorf("%v %s", got.header, got.body)
	}
	call(`{"id":"w","n":-5}`)
	call(`{"id":"w","n":"much"}`)
	if left := call(`{"id":"w"}`).left(t)["model"]; left != 7 {
		t.Errorf("%d left to w, want 7: what is no count counts for 1", left)
	}
	// Whoever has no key shares one.
	for i := range 10 {
		call(fmt.Sprintf(`{"other":"secret-%d"}`, i)).want(t, "without a key", 400, "bad_params", "")
	}
	call(`{"id":["secret"]}`).want(t, "without a key, past ten", 429, "rate_limited", "model")
	if text := w.logged.String(); strings.Count(text, "has no result") != 1 || strings.Contains(text, "secret") || !strings.Contains(text, "rule=model") {
		t.Errorf("%s", text)
	}
}

// TestAMaximumThatFails refuses, and says so.
func TestAMaximumThatFails(t *testing.T) {
	w := ruledWorld(t, hello, "  - {name: r, key: caller, window: 1m, max: request.params.limit}\n  - {name: none, key: caller, window: 1m, max: \"service == 'other' ? 0 : 5\"}\n", roomy("a"))
	got := w.act("a", plainCall("tools", ""))
	got.want(t, "no maximum", 429, "rate_limited", "r")
	if got.header.Get("X-Should-Retry") != "false" || !strings.Contains(got.body, "the rule r cannot tell how much it allows this call") {
		t.Errorf("%v %s", got.header, got.body)
	}
	got = w.act("a", actBody("other", "get", "", `,"params":{"id":"1","limit":1}`))
	got.want(t, "a maximum of 0", 429, "rate_limited", "none")
	if !strings.Contains(got.body, "the rule none allows this call nothing") {
		t.Errorf("%s", got.body)
	}
}

// TestRulesAreAllOrNothing: what refuses a call anywhere else takes nothing from a
// rule, and a rule takes nothing from a tenant or a slot.
func TestRulesAreAllOrNothing(t *testing.T) {
	up := newHeldStreams()
	w := ruledWorld(t, up.serve, "  - {name: r, key: caller, window: 1m, max: 2}\n  - {name: all, key: \"'all'\", window: 1m, max: 100}\n",
		of("dry", roomy("dry")), of("one", roomy("one")), of("wide", &identity.Key{ID: "narrow", Services: []string{"tools"}, Users: []string{"*"}, Limits: &identity.Limits{RPS: 0.001, Burst: 3}}))
	counted := func(rule, partition string) int64 {
		used, _ := w.limiter.Counted(ratelimit.NewRule(rule, registry.CountRequests, time.Minute, false), partition, w.nanos.Nanos())
		return used
	}
	w.act("dry", plainCall("tools", "")).want(t, "first", 200, "", "")
	w.act("dry", plainCall("tools", "")).want(t, "tenant dry", 429, "rate_limited", "tenant")
	if n := counted("r", "key:dry"); n != 1 {
		t.Errorf("a refusal by the tenant was counted: %d", n)
	}
	finish := w.hold(up, "one", streamCall("tools", ""))
	for range 5 {
		w.act("one", plainCall("tools", "")).want(t, "no slot", 429, "concurrency_limited", "tenant")
	}
	if n := counted("r", "key:one"); n != 1 {
		t.Errorf("a refusal for want of a slot was counted: %d", n)
	}
	finish()
	w.act("one", plainCall("tools", "")).want(t, "second", 200, "", "")
	tokens := w.tokens(ratelimit.KindTenant, "tenant:one", 1000, 1000)
	for range 5 {
		w.act("one", plainCall("tools", "")).want(t, "rule full", 429, "rate_limited", "r")
	}
	if n := w.tokens(ratelimit.KindTenant, "tenant:one", 1000, 1000); n != tokens || w.inFlight("tenant:one") != 0 || counted("all", "all") != 3 {
		t.Errorf("a refusal by a rule took: tokens %d of %d, %d in flight, %d counted", n, tokens, w.inFlight("tenant:one"), counted("all", "all"))
	}
	w.act("narrow", plainCall("other", "")).want(t, "out of scope", 403, "scope_denied", "")
	if n := counted("r", "key:narrow"); n != 0 {
		t.Errorf("a refusal of scope was counted: %d", n)
	}
	for range 2 {
		w.act("narrow", plainCall("tools", "")).want(t, "within", 200, "", "")
	}
	w.act("narrow", plainCall("tools", "")).want(t, "the key is dry", 429, "rate_limited", "key")
}

// TestACrowdAtARule: of many calls at once, over many connections, keys and
// tenants, just as many pass as the rule allows, and all others are told of it.
func TestACrowdAtARule(t *testing.T) {
	const crowd, most = 150, 40
	file := ruledFile(fmt.Sprintf("  - {name: all, key: \"'all'\", window: 1h, max: %d}\n  - {name: each, key: caller, window: 1h, max: 1000}\n", most))
	w := setup{registry: file, settings: func(s *config.Settings) { s.TenantMaxInflight = 0 }}.
		world(t, hello, of("wide", roomy("a")), roomy("b"), roomy("c"))
	var passed, told atomic.Int64
	var all sync.WaitGroup
	for i := range crowd {
		all.Go(func() {
			r := w.request(context.Background(), []string{"a", "b", "c"}[i%3], plainCall([]string{"tools", "other"}[i%2], ""))
			res, err := w.server.Client().Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = res.Body.Close() }()
			body, err := io.ReadAll(res.Body)
			switch {
			case err != nil:
				t.Error(err)
			case res.StatusCode == 200:
				passed.Add(1)
			case strings.Contains(string(body), `"limit":"all","violated-policies":["all"]`):
				told.Add(1)
			default:
				t.Errorf("%s %s", res.Status, body)
			}
		})
	}
	all.Wait()
	if passed.Load() != most || told.Load() != crowd-most {
		t.Errorf("%d passed and %d were refused, want %d and %d", passed.Load(), told.Load(), most, crowd-most)
	}
	counted := int64(0)
	for _, key := range []string{"a", "b", "c"} {
		used, _ := w.limiter.Counted(ratelimit.NewRule("each", registry.CountRequests, time.Hour, false), "key:"+key, w.nanos.Nanos())
		counted += used
	}
	if counted != most {
		t.Errorf("the other rule counted %d, want those that ran", counted)
	}
}

// TestReloadedRules: what was counted under a name, of the same things and in the
// same windows, still counts; what a rule counts otherwise begins anew.
func TestReloadedRules(t *testing.T) {
	w := ruledWorld(t, hello, "  - {name: r, key: caller, window: 1h, max: 3}\n", roomy("a"))
	for i, step := range []struct {
		rules string
		want  []int
	}{
		{"  - {name: r, key: caller, window: 1h, max: 3}\n", []int{200, 200, 200, 429}},
		{"  - {name: r, key: caller, window: 1h, max: 5}\n", []int{200, 200, 429}},      // raised
		{"  - {name: r, key: caller, window: 1h, max: 2}\n", []int{429}},                // lowered below
		{"  - {name: r, key: caller, window: 1h, max: 2, mode: observe}\n", []int{200}}, // watched
		{"  - {name: r, key: caller, window: 1h, max: 0}\n", []int{200}},                // off
		{"  []\n", []int{200}}, // gone
		{"  - {name: r, key: caller, window: 1h, max: 6}\n", []int{200, 429}},                 // and back
		{"  - {name: r, key: caller, window: 2h, max: 1}\n", []int{200, 429}},                 // another window
		{"  - {name: r, key: caller, window: 1h, max: 1, count: '2 - 1'}\n", []int{200, 429}}, // of another thing
		{"  - {name: s, key: caller, window: 1h, max: 1}\n", []int{200, 429}},                 // another name
	} {
		if i > 0 {
			w.use(ruledFile(step.rules), roomyLike(w, "a")...)
		}
		for j, want := range step.want {
			if got := w.act("a", plainCall("tools", "")); got.status != want {
				t.Errorf("step %d, call %d: %d %s, want %d", i, j, got.status, got.body, want)
			}
		}
	}
}

// TestManyRules: the fields of an answer hold them all, and stay what a parser of
// structured fields takes.
func TestManyRules(t *testing.T) {
	var text strings.Builder
	for i := range 40 {
		fmt.Fprintf(&text, "  - {name: rule-number.%d_of-those-with-quite-a-long-name, key: caller, window: %dm, max: 999999999999999}\n", i, i+1)
	}
	w := ruledWorld(t, hello, text.String(), roomy("a"))
	got := w.act("a", plainCall("tools", ""))
	got.want(t, "many", 200, "", "")
	fields := got.fields(t)
	if len(fields) < 42 {
		t.Errorf("%d policies", len(fields))
	}
	for i := range 40 {
		want := gauge{quota: 999999999999999, window: int64(i+1) * 60, left: 999999999999998}
		g := fields[fmt.Sprintf("rule-number.%d_of-those-with-quite-a-long-name", i)]
		if want.next = g.next; g != want || g.next < 1 || g.next > want.window {
			t.Errorf("rule %d: %+v", i, g)
		}
	}
}

// TestQuotasAreOneNumber: what a registry may ask of a rule is what a limiter can
// keep.
func TestQuotasAreOneNumber(t *testing.T) {
	if ratelimit.MaxQuota != registry.MaxQuota {
		t.Error(ratelimit.MaxQuota, registry.MaxQuota)
	}
}

// TestRulesOfWaitingCalls: a call that waits for a slot is counted when it comes, and
// once; what waits in vain or hangs up is counted no more; and what a rule refuses
// does not wait. A rule that observes tells of the call when it runs.
func TestRulesOfWaitingCalls(t *testing.T) {
	up := newHeldStreams()
	w := setup{
		registry: ruledFile("  - {name: r, key: caller, window: 1h, max: 3}\n  - {name: watch, key: caller, window: 1h, max: 1, mode: observe}\n"),
		settings: func(s *config.Settings) { s.TenantQueue, s.TenantQueueWait = 5, 2*time.Second },
	}.world(t, up.serve, of("one", roomy("a")))
	counted := func() int64 {
		used, _ := w.limiter.Counted(ratelimit.NewRule("r", registry.CountRequests, time.Hour, false), "key:a", w.nanos.Nanos())
		return used
	}
	end := w.hold(up, "a", streamCall("tools", ""))
	served, vain := w.later(t, "a", plainCall("tools", "")), w.later(t, "a", plainCall("tools", ""))
	if counted() != 3 || w.counted("observed", "watch") != 0 {
		t.Errorf("%d counted with one that runs and two that wait, %d observed", counted(), w.counted("observed", "watch"))
	}
	w.act("a", plainCall("tools", "")).want(t, "past the rule", 429, "rate_limited", "r")
	w.clock.Advance(2 * time.Second)
	for _, got := range []told{<-served, <-vain} {
		got.want(t, "after a wait in vain", 429, "concurrency_limited", "tenant")
		if left := got.left(t)["r"]; left != 1 && left != 2 { // what it took is back, and the other's perhaps
			t.Errorf("told of %d left", left)
		}
	}
	if counted() != 1 {
		t.Errorf("%d counted, want the one that runs", counted())
	}
	served = w.later(t, "a", plainCall("tools", ""))
	end()
	got := <-served
	got.want(t, "who got the slot", 200, "", "")
	if counted() != 2 || got.left(t)["r"] != 1 || w.counted("observed", "watch") != 1 {
		t.Errorf("%d counted, told of %d left, %d observed", counted(), got.left(t)["r"], w.counted("observed", "watch"))
	}
}

// TestTheKeysOwnWaitIsNamed: where the key's spent token makes a call wait longer than
// the limit that refused it, the words say whose wait that is, and the key's state is
// told; it has not refused, and is not among those that did.
func TestTheKeysOwnWaitIsNamed(t *testing.T) {
	file := "tenants:\n  t: {rps: 0.5, burst: 1}\nservices:\n" + serviceLine("tools", "") + "rules:\n  - {name: r, key: caller, when: \"caller == 'key:a'\", window: 2s, max: 1}\n"
	w := setup{registry: file}.world(t, hello, limited("a", 0.1, 2), of("t", limited("b", 0.1, 2)), limited("c", 0.1, 3))
	for key, want := range map[string]string{
		"a": "the rule r allows 1 call in each 2s, and they are used up; it has room in 1s, but this key has no token until later (its limit is a burst of 2 calls, refilled over 20s): wait 10s and call again",
		"b": "the tenant limit is a burst of 1 call, refilled over 2s; it has room in 2s, but this key has no token until later (its limit is a burst of 2 calls, refilled over 20s): wait 10s and call again",
	} {
		limit := map[string]string{"a": "r", "b": "tenant"}[key]
		w.act(key, plainCall("tools", "")).want(t, key, 200, "", "")
		got := w.act(key, plainCall("tools", ""))
		got.want(t, key, 429, "rate_limited", limit)
		if !strings.Contains(got.body, `"detail":"`+want+`"`) || !slices.Equal(got.violated(), []string{limit}) {
			t.Errorf("%s: %s", key, got.body)
		}
		if g := got.fields(t)["key"]; g.left != 0 || g.next != 10 {
			t.Errorf("%s: %+v", key, g)
		}
	}
}

// TestARuleThatAllowsNothingSaysSo, and not that it is used up or the call too large.
func TestARuleThatAllowsNothingSaysSo(t *testing.T) {
	w := ruledWorld(t, hello, "  - {name: shut, key: caller, window: 1m, max: \"1 - 1\"}\n  - {name: less, key: caller, window: 1m, max: \"5 - 9\", when: \"service == 'other'\"}\n", roomy("a"))
	got := w.act("a", plainCall("tools", ""))
	got.want(t, "shut", 429, "rate_limited", "shut")
	if !strings.Contains(got.body, `"detail":"the rule shut allows this call nothing"`) {
		t.Error(got.body)
	}
}
