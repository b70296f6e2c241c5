package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/config"
	"agentgw/internal/ratelimit"
)

// TestLastRefusalIsWhatTheAgentWasTold: after every call of a random history, of
// each tenant the newest refusal by step 5 is remembered as the agent was told
// it, and nothing else is: no admitted call, no refusal by another step, nobody
// else's.
func TestLastRefusalIsWhatTheAgentWasTold(t *testing.T) {
	up := newHeldStreams()
	file := "tenants:\n  a: {rps: 0.5, burst: 3, max_inflight: 2}\n  b: {rps: 0.2, burst: 2, max_inflight: 1}\nservices:\n" +
		serviceLine("tools", "max_inflight: 2,") + serviceLine("slow", "rate_limit: {rps: 0.1, burst: 1},")
	narrow := of("a", limited("narrow", 0.5, 3))
	narrow.Services = []string{"slow"}
	w := setup{registry: file, settings: func(s *config.Settings) { s.MaxInflight = 4; small(s) }}.
		world(t, up.serve, of("a", limited("a1", 0.1, 2)), of("a", roomy("a2")), of("b", roomy("b1")), roomy("own"), narrow, acting("crew", "ann", "bob"))
	tenants := map[string]string{"a1": "tenant:a", "a2": "tenant:a", "b1": "tenant:b", "own": "key:own", "narrow": "tenant:a"}
	random := rand.New(rand.NewPCG(7, 11))
	last, seen := map[string]ratelimit.Refusal{}, map[string]int{}
	var ends []func()
	// call makes a call; a stream that is admitted stays open until its end is called.
	call := func(key, body string, stream bool) told {
		r := w.request(context.Background(), key, body)
		if !stream {
			return w.do(r)
		}
		id, end := fmt.Sprint(len(seen), random.Uint64()), make(chan struct{})
		up.ends.Store(id, end)
		r.Header.Set("Idempotency-Key", id)
		res, err := w.server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		finish := func() {
			close(end)
			_, _ = io.Copy(io.Discard, res.Body) // a block may have cut it
			_ = res.Body.Close()
		}
		if res.StatusCode == 200 {
			ends = append(ends, finish)
			return told{status: 200}
		}
		refusal, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		finish()
		var p struct{ Limit string }
		_ = json.Unmarshal(refusal, &p)
		return told{status: res.StatusCode, code: res.Header.Get("Agentgate-Code"), limit: p.Limit}
	}
	blocked := ""
	for range 1500 {
		w.clock.Advance(time.Duration(random.IntN(4)) * time.Second)
		if random.IntN(25) == 0 && len(ends) > 0 {
			ends[0]()
			ends = ends[1:]
		}
		if random.IntN(30) == 0 {
			w.limiter.Unblock(ratelimit.Registered, blocked)
			blocked = []string{"tenant:a", "key:own", "human:ann", ""}[random.IntN(4)]
			w.limiter.Block(ratelimit.Registered, blocked)
		}
		key := []string{"a1", "a2", "b1", "own", "narrow", "crew"}[random.IntN(6)]
		service, user, tenant := []string{"tools", "tools", "slow", "slow", "slow", "none"}[random.IntN(6)], "", tenants[key]
		if key == "crew" {
			user = []string{"ann", "bob"}[random.IntN(2)]
			tenant = "human:" + user
		}
		rps, burst := 1000.0, int64(100_000)
		if own, scarce := map[string][2]float64{"a1": {0.1, 2}, "narrow": {0.5, 3}}[key]; scarce {
			rps, burst = own[0], int64(own[1])
		}
		step2 := w.tokens(ratelimit.KindKey, "key:"+key, rps, burst) == 0
		body, stream := plainCall(service, user), random.IntN(6) == 0
		if stream {
			body = streamCall(service, user)
		}
		got := call(key, body, stream)
		if !step2 && (got.code == "rate_limited" || got.code == "concurrency_limited" || got.code == "tenant_blocked") {
			last[tenant] = ratelimit.Refusal{At: w.nanos.Nanos(), Code: got.code, Limit: got.limit, Partition: tenant}
		}
		seen[fmt.Sprint(got.code, " ", got.limit)]++
		for _, tenant := range []string{"tenant:a", "tenant:b", "key:own", "human:ann", "human:bob"} {
			look := w.limiter.Look(w.gateway.Tenants()[tenant], w.nanos.Nanos())
			if diff := cmp.Diff(last[tenant], look.LastRefusal); diff != "" {
				t.Fatalf("%s, after a call of %s that got %d %s %s: %s", tenant, key, got.status, got.code, got.limit, diff)
			}
		}
	}
	for _, end := range ends {
		end()
	}
	for _, want := range []string{" ", "rate_limited key", "rate_limited tenant", "rate_limited service", "concurrency_limited tenant", "concurrency_limited service",
		"tenant_blocked ", "scope_denied ", "service_not_found "} {
		if seen[want] == 0 {
			t.Errorf("the history has no %q: %v", want, seen)
		}
	}
}

// TestTenantsThatCallsAreChargedTo: every one of the keys in force, the named
// ones without a key too, and of each the keys that charge it.
func TestTenantsThatCallsAreChargedTo(t *testing.T) {
	file := "tenants:\n  a: {rps: 1}\n  unused: {max_inflight: 5}\nservices:\n" + serviceLine("tools", "") + serviceLine("slow", "rate_limit: {rps: 1},")
	scoped := of("a", roomy("scoped"))
	scoped.Services = []string{"tools"}
	w := setup{registry: file, settings: func(s *config.Settings) { s.KeyMaxPrincipals = 2 }}.
		world(t, hello, of("a", roomy("first")), scoped, roomy("own"), acting("crew", "ann", "bob", "cid"), acting("pair", "bob", "dan"))
	got := map[string][]string{}
	for id, ref := range w.gateway.Tenants() {
		if ref.Partition() != id || ref.Kind() != ratelimit.KindTenant {
			t.Errorf("%s is %v %s", id, ref.Kind(), ref.Partition())
		}
		keys := []string{}
		for _, k := range w.gateway.KeysOf(id) {
			text := k.ID + " " + k.Key.Partition()
			for _, s := range k.Services {
				text += " " + s.Name + " " + s.Bucket.Partition()
			}
			keys = append(keys, text)
		}
		got[id] = keys
	}
	slow := func(id string) string {
		return id + " key:" + id + " slow " + ratelimit.ServiceBucket(id, "slow")
	}
	want := map[string][]string{
		"tenant:a": {slow("first"), "scoped key:scoped"}, "tenant:unused": {}, "key:own": {slow("own")},
		"human:ann": {slow("crew")}, "human:bob": {slow("crew"), slow("pair")}, "human:dan": {slow("pair")},
		"key:crew:overflow": {slow("crew")}, // cid is beyond the first two
		"key:pair:overflow": {},             // and nobody is, of this key
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestLastRefusalOfThoseWhoWait: who waits is refused when the wait is over, or
// blocked while he waits, and that is remembered; one who hangs up was told nothing.
func TestLastRefusalOfThoseWhoWait(t *testing.T) {
	up := newHeldStreams()
	file := "tenants:\n  t: {rps: 0, max_inflight: 1}\nservices:\n" + serviceLine("tools", "")
	w := setup{registry: file, settings: func(s *config.Settings) { s.TenantQueue, s.TenantQueueWait = 3, time.Minute }}.world(t, up.serve, of("t", roomy("k")))
	look := func() ratelimit.Entry { return w.limiter.Look(w.gateway.Tenants()["tenant:t"], w.nanos.Nanos()) }
	end := w.hold(up, "k", streamCall("tools", ""))
	wait := func(ctx context.Context) (answer chan told) {
		t.Helper()
		before := look().Waiting
		answer = make(chan told, 1)
		go func() {
			res, err := w.server.Client().Do(w.request(ctx, "k", plainCall("tools", "")))
			if err != nil {
				answer <- told{}
				return
			}
			defer func() { _ = res.Body.Close() }()
			answer <- told{status: res.StatusCode, code: res.Header.Get("Agentgate-Code")}
		}()
		eventually(t, "one more waits", func() bool { return look().Waiting == before+1 })
		return answer
	}

	ctx, hangUp := context.WithCancel(context.Background())
	left := wait(ctx)
	hangUp()
	<-left
	eventually(t, "nobody waits", func() bool { return look().Waiting == 0 && len(w.ledger.all()) == 2 }) // the stream's intent, and the one that left
	if got := look().LastRefusal; got != (ratelimit.Refusal{}) {
		t.Errorf("of one who hung up: %+v", got)
	}

	late := wait(context.Background())
	w.clock.Advance(time.Minute)
	if got := <-late; got.code != "concurrency_limited" || look().LastRefusal != (ratelimit.Refusal{At: w.nanos.Nanos(), Code: "concurrency_limited", Limit: "tenant", Partition: "tenant:t"}) {
		t.Errorf("of one who waited in vain: %+v, %+v", got, look().LastRefusal)
	}

	blocked := wait(context.Background())
	w.limiter.Block(ratelimit.Registered, "tenant:t")
	w.gateway.Block("tenant:t")
	if got := <-blocked; got.code != "tenant_blocked" || look().LastRefusal.Code != "tenant_blocked" {
		t.Errorf("of one who was blocked: %+v, %+v", got, look().LastRefusal)
	}
	_ = end // the block has ended it
}

// TestLastRefusalOfACallThatABlockEnds: it was admitted, and its agent is told of
// the block all the same, where no answer has begun.
func TestLastRefusalOfACallThatABlockEnds(t *testing.T) {
	arrived := make(chan struct{}, 1)
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) { arrived <- struct{}{}; <-r.Context().Done() }, roomy("k"))
	answer := make(chan told, 1)
	go func() { answer <- w.act("k", streamCall("tools", "")) }()
	<-arrived
	w.limiter.Block(ratelimit.Registered, "key:k")
	w.gateway.Block("key:k")
	if got := <-answer; got.code != "tenant_blocked" {
		t.Errorf("%d %s", got.status, got.code)
	}
	if got := w.limiter.Look(w.gateway.Tenants()["key:k"], w.nanos.Nanos()).LastRefusal; got.Code != "tenant_blocked" {
		t.Errorf("%+v", got)
	}
}
