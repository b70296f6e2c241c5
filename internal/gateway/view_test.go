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
	"agentgw/internal/rules"
)

// use gives the world's gateway another registry and other keys.
func (w *world) use(file string, keys ...*identity.Key) {
	w.t.Helper()
	w.useDefaults(registry.Defaults{KeyRPS: 20, KeyBurst: 40, TenantRPS: 100, TenantBurst: 200, TenantMaxInflight: 32}, file, keys...)
}

// useDefaults is use, with other limits for whoever has none of its own.
func (w *world) useDefaults(defaults registry.Defaults, file string, keys ...*identity.Key) {
	w.t.Helper()
	directory, err := identity.NewDirectory(keys)
	if err != nil {
		w.t.Fatal(err)
	}
	snapshot, err := registry.Parse("registry.yaml", []byte(strings.ReplaceAll(file, "%[1]s", w.upstream.URL)))
	if err != nil {
		w.t.Fatal(err)
	}
	effective, err := snapshot.Effective(defaults)
	if err != nil {
		w.t.Fatal(err)
	}
	set, err := rules.Compile(snapshot)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.gateway.Use(w.settings, snapshot, effective, set, directory); err != nil {
		w.t.Fatal(err)
	}
}

// partitions lists the live entries of a kind.
func (w *world) partitions(kind ratelimit.Kind) (names []string) {
	w.limiter.Each(ratelimit.Registered, kind, 0, func(e ratelimit.Entry) bool {
		names = append(names, e.Partition)
		return true
	})
	slices.Sort(names)
	return names
}

// TestStateOutlivesTheView: with other keys before it, other rates and another
// cap, a key meets the same buckets and the same calls in flight as before.
func TestStateOutlivesTheView(t *testing.T) {
	more := make(chan struct{})
	upstream := func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			rw.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(rw, "data: 1\n\n")
			rw.(http.Flusher).Flush()
			select {
			case <-more:
			case <-r.Context().Done():
			}
		}
	}
	key := func(id string, burst int) *identity.Key {
		return &identity.Key{ID: id, Services: []string{"*"}, Users: []string{"*"}, Tenant: "small", Limits: &identity.Limits{RPS: 1, Burst: burst}}
	}
	k, other := key("k", 3), key("other", 9)
	w := newWorld(t, upstream, k, other)
	get := func(key, service string) string {
		got := w.act(key, fmt.Sprintf(`{"service":%q,"action":"get","params":{"id":"1"}}`, service))
		return fmt.Sprint(got.status, " ", got.limit)
	}
	want := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	want("first", get("k", "slow"), "200 ")
	want("the service's bucket is empty", get("k", "slow"), "429 service")
	stream := w.request(context.Background(), "k", `{"service":"tools","action":"stream"}`)
	res, err := w.server.Client().Do(stream)
	if err != nil || res.StatusCode != 200 {
		t.Fatal(err, res)
	}
	defer func() { _ = res.Body.Close() }()
	want("the key's bucket is empty", get("k", "slow"), "429 key")

	// a and b come before k, whose number among the keys changes.
	k.Limits.Burst, k.Limits.RPS = 10, 2
	wider := strings.Replace(worldRegistry, "small: {rps: 1, burst: 2, max_inflight: 1}", "small: {rps: 9, burst: 90, max_inflight: 1}", 1)
	wider = strings.Replace(wider, "rate_limit: {rps: 0.1, burst: 1}", "rate_limit: {rps: 0.2, burst: 5}", 1)
	a, b := key("a", 5), key("b", 5)
	a.Digest, b.Digest = [32]byte{1}, [32]byte{2}
	w.use(wider, a, b, k, other)
	want("a raised burst mints nothing", get("k", "slow"), "429 key")
	w.clock.Advance(time.Second)
	want("a raised rate holds at once; so does the stream's slot", get("k", "tools"), "429 tenant")
	want("nor for the other key of the tenant", get("other", "tools"), "429 tenant")
	want("the service's bucket", get("k", "slow"), "429 service")
	if n := w.inFlight("tenant:small"); n != 1 {
		t.Errorf("%d in flight, want the stream", n)
	}
	close(more)
	_, _ = io.Copy(io.Discard, res.Body)
	eventually(t, "the slot is free", func() bool { return w.inFlight("tenant:small") == 0 })
	w.clock.Advance(5 * time.Second)
	want("one token of the service's new interval", get("k", "slow"), "200 ")
	want("and no second", get("k", "slow"), "429 service")
	if keys := w.partitions(ratelimit.KindKey); fmt.Sprint(keys) != "[key:k key:other]" {
		t.Errorf("entries of keys: %v", keys)
	}
	if n := len(w.partitions(ratelimit.KindService)); n != 1 {
		t.Errorf("%d buckets of keys at services, want k's at slow", n)
	}
}

// TestViewsShareOneBucket: while views come and go under a crowd of calls, a key
// with a burst of 60 gets 60, in a time that stands still.
func TestViewsShareOneBucket(t *testing.T) {
	k := &identity.Key{ID: "k", Services: []string{"*"}, Users: []string{"*"}, Limits: &identity.Limits{RPS: 1, Burst: 60}}
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {}, k)
	var admitted, refused atomic.Int64
	var crowd sync.WaitGroup
	for range 4 {
		crowd.Go(func() {
			for range 30 {
				switch got := w.act("k", `{"service":"tools","action":"get","params":{"id":"1"}}`); got.status {
				case 200:
					admitted.Add(1)
				case 429:
					refused.Add(1)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { crowd.Wait(); close(done) }()
	for views := 0; ; views++ {
		w.use(worldRegistry, k)
		select {
		case <-done:
			if admitted.Load() != 60 || refused.Load() != 60 || views == 0 {
				t.Errorf("%d admitted and %d refused under %d views, want 60 each", admitted.Load(), refused.Load(), views)
			}
			return
		default:
		}
	}
}

// TestAViewChargesWhomTheKeySays: a named tenant, the key itself, the principal,
// and for those beyond the first ones the overflow of the key.
func TestAViewChargesWhomTheKeySays(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {},
		&identity.Key{ID: "named", Services: []string{"*"}, Users: []string{"u1"}, Tenant: "small"},
		&identity.Key{ID: "open", Services: []string{"*"}, Users: []string{"*"}},
		&identity.Key{ID: "one", Services: []string{"*"}, Users: []string{"u1", "u2"}},
		&identity.Key{ID: "two", Services: []string{"*"}, Users: []string{"u2", "u3"}})
	for _, c := range []struct{ key, principal, tenant string }{
		{"named", "u1", "tenant:small"},
		{"open", "anybody", "key:open"},
		{"one", "u1", "human:u1"},
		{"one", "u2", "human:u2"},
		{"two", "u2", "human:u2"},
	} {
		got := w.act(c.key, fmt.Sprintf(`{"service":"tools","action":"get","on_behalf_of":%q,"params":{"id":"1"}}`, c.principal))
		if got.status != 200 {
			t.Errorf("%+v: %d %s", c, got.status, got.code)
		}
		if !slices.Contains(w.partitions(ratelimit.KindTenant), c.tenant) {
			t.Errorf("%+v: tenants are %v", c, w.partitions(ratelimit.KindTenant))
		}
	}
	if got := fmt.Sprint(w.partitions(ratelimit.KindTenant)); got != "[human:u1 human:u2 key:open tenant:small]" {
		t.Errorf("tenants are %s", got)
	}
}

// TestABurstOfZeroDisablesAKeysLimit as a rate of 0 does.
func TestABurstOfZeroDisablesAKeysLimit(t *testing.T) {
	w := setup{settings: func(s *config.Settings) { s.RateTenantRPS = 0 }}.world(t, func(http.ResponseWriter, *http.Request) {},
		&identity.Key{ID: "k", Services: []string{"*"}, Users: []string{"*"}, Limits: &identity.Limits{RPS: 1, Burst: 0}})
	for range 5 {
		if got := w.act("k", `{"service":"tools","action":"get","params":{"id":"1"}}`); got.status != 200 {
			t.Fatalf("%d %s", got.status, got.code)
		}
	}
}
