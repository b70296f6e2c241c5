package gateway_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
)

// openLimits has open services with limits of their own.
const openLimits = `
version: 1
services:
  narrow: {base_url: "%[1]s", allow_private: true, access: open, passthrough: true, max_inflight: 1}
  slow: {base_url: "%[1]s", allow_private: true, access: open, passthrough: true, rate_limit: {rps: 0.1, burst: 1}}
  llm: {base_url: "%[1]s", allow_private: true, access: open, passthrough: true}
  keyed: {base_url: "%[1]s", allow_private: true, passthrough: true}
`

// opening is a request for an open service, by x-api-key.
func (w *world) opening(ctx context.Context, target, caller string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, "GET", w.server.URL+"/proxy/"+target, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("X-Api-Key", caller)
	return r
}

// holdOpen opens a stream of an open service, and returns what ends it and its answer,
// for which nobody waits longer than a minute.
func (w *world) holdOpen(s *heldStreams, target, caller string) (finish func(), res *http.Response) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	w.t.Cleanup(cancel)
	id, end := rand.Text(), make(chan struct{})
	s.ends.Store(id, end)
	r := w.opening(ctx, target, caller)
	r.Header.Set("Idempotency-Key", id)
	res, err := w.server.Client().Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != 200 {
		w.t.Fatalf("the stream was refused: %s %s", res.Status, res.Header.Get("Agentgate-Code"))
	}
	return func() {
		w.t.Helper()
		close(end)
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			w.t.Error(err)
		}
	}, res
}

// limitedBy checks that an answer is a refusal by that limit, told in the dialect of
// OpenAI, which names none.
func (w *world) limitedBy(got told, code, limit string) {
	w.t.Helper()
	if got.status != 429 || got.code != code || !strings.Contains(got.body, `"code":"rate_limit_exceeded"`) {
		w.t.Errorf("%d %s %s, want 429 %s", got.status, got.code, got.body, code)
	}
	if last := w.lastClosing(); last.Limit != limit || last.Code != code {
		w.t.Errorf("the receipt says %s by %q, want %s by %q", last.Code, last.Limit, code, limit)
	}
}

// TestOpenCallsHoldSlots of their service and of the process to the last byte, whoever
// calls; who is refused for want of one has his token back, and nobody else waits for
// what the service takes to answer.
func TestOpenCallsHoldSlots(t *testing.T) {
	up := newHeldStreams()
	w := setup{registry: openLimits, settings: func(s *config.Settings) {
		s.RateCallerRPM, s.RateCallerBurst, s.MaxInflight = 1, 1, 3
	}}.world(t, up.serve, everything("k"))
	by := func(target, caller string) told { return w.do(w.opening(t.Context(), target, caller)) }
	tokens := func(caller string) int64 {
		bucket, _ := w.limiter.Peek(w.openCaller(caller), w.nanos.Nanos())
		return bucket.Remaining
	}
	finish, _ := w.holdOpen(up, "narrow/stream", "a")
	if tokens("a") != 0 {
		t.Errorf("%d tokens left", tokens("a"))
	}
	w.limitedBy(by("narrow/x", "b"), "concurrency_limited", "service")
	if tokens("b") != 1 {
		t.Errorf("a refusal for want of a slot cost %d tokens", 1-tokens("b"))
	}
	w.limitedBy(by("narrow/x", "a"), "rate_limited", "caller") // both refuse; time is what helps
	by("llm/x", "c").want(t, "another caller of another service", 200, "", "")
	w.relayedBy("k", "GET", "llm/x", "").want(t, "a key", 200, "", "")
	second, _ := w.holdOpen(up, "llm/stream", "d")
	third, _ := w.holdOpen(up, "llm/stream", "e")
	w.limitedBy(by("llm/x", "b"), "concurrency_limited", "process")
	if tokens("b") != 1 {
		t.Errorf("a refusal for want of a slot cost %d tokens", 1-tokens("b"))
	}
	// Operators are shown, and change, what they like meanwhile.
	w.limiter.Sweep(w.nanos.Nanos())
	w.use(openLimits, everything("k"))
	finish()
	second()
	third()
	eventually(t, "the slots are free", func() bool { return w.pooled() == 0 })
	by("narrow/x", "b").want(t, "who was refused", 200, "", "")
	for _, r := range w.ledger.all() {
		if r.Tenant != "" && r.Key != "k" {
			t.Errorf("%+v", r)
		}
	}
}

// openCaller is the bucket of who comes with that as x-api-key, as the settings have it.
func (w *world) openCaller(credential string) *ratelimit.Ref {
	w.t.Helper()
	name, err := pseudonyms.Caller(http.Header{"X-Api-Key": {credential}})
	if err != nil {
		w.t.Fatal(err)
	}
	l, err := ratelimit.PerMinute(w.settings.RateCallerRPM, int64(w.settings.RateCallerBurst))
	if err != nil {
		w.t.Fatal(err)
	}
	return ratelimit.NewRef(ratelimit.OpenCallers, ratelimit.KindCaller, name, l)
}

// TestAServicesRateIsOfEachOpenCaller, with a limit for callers or without; and a refusal
// by one of the two takes nothing of the other.
func TestAServicesRateIsOfEachOpenCaller(t *testing.T) {
	for _, rpm := range []float64{0, 2} {
		w := setup{registry: openLimits, settings: func(s *config.Settings) { s.RateCallerRPM, s.RateCallerBurst = rpm, int(rpm) }}.world(t, hello)
		by := func(target, caller string) told { return w.do(w.opening(t.Context(), target, caller)) }
		by("slow/x", "a").want(t, "the first", 200, "", "")
		w.limitedBy(by("slow/x", "a"), "rate_limited", "service")
		by("slow/x", "b").want(t, "another", 200, "", "")
		by("llm/x", "a").want(t, "elsewhere", 200, "", "")
		if rpm == 0 {
			continue
		}
		w.limitedBy(by("llm/x", "a"), "rate_limited", "caller")
		w.clock.Advance(10 * time.Second)
		got := by("slow/x", "a")
		w.limitedBy(got, "rate_limited", "caller")
		if after := got.retryAfter(t); after < 20*time.Second || after > 24*time.Second {
			t.Errorf("Retry-After is %v", after)
		}
		w.clock.Advance(20 * time.Second)
		by("slow/x", "a").want(t, "with one token of each", 200, "", "")
	}
}

// TestRulesHoldForOpenCallers: as for everybody, by what there is of them.
func TestRulesHoldForOpenCallers(t *testing.T) {
	w := setup{registry: openLimits + `
rules:
  - {name: per-ip, key: client_ip, window: 1h, max: 3}
  - {name: per-tenant, key: tenant, window: 1h, max: 1}
  - {name: per-caller, key: caller, window: 1h, max: 2}
  - {name: kept-out, key: caller, window: 1h, max: "0 * 1", when: "caller == 'open:d2e4b22998fca2a7361beb15af00ecbd'"}
`}.world(t, hello)
	by := func(caller string) told { return w.do(w.opening(t.Context(), "llm/x", caller)) }
	w.limitedBy(by("sk-secret-one"), "rate_limited", "kept-out")
	by("a").want(t, "the first", 200, "", "")
	by("a").want(t, "the second", 200, "", "") // who has no tenant is no tenant's
	w.limitedBy(by("a"), "rate_limited", "per-caller")
	by("b").want(t, "another", 200, "", "")
	w.limitedBy(by("c"), "rate_limited", "per-ip")
}

// TestIdleOpenCallersGoFirst: who owes nothing makes room for who comes, and who has used
// up his limit never comes back with a new one.
func TestIdleOpenCallersGoFirst(t *testing.T) {
	warned := 0
	s := setup{registry: openLimits, settings: func(s *config.Settings) { s.RateCallerRPM, s.RateCallerBurst = 1, 1 }}
	s.limiter = func(o *ratelimit.Options) {
		o.TableSize = 3
		o.Warn = func(table string) {
			if warned++; table != "open_callers" {
				t.Errorf("warned of the table %s", table)
			}
		}
	}
	w := s.world(t, hello)
	by := func(caller string) told { return w.do(w.opening(t.Context(), "llm/x", caller)) }
	table := func() ratelimit.TableStats { return w.limiter.Stats().Tables[ratelimit.OpenCallers] }
	by("idle").want(t, "one", 200, "", "")
	w.clock.Advance(time.Minute)
	by("a").want(t, "one", 200, "", "")
	by("b").want(t, "one", 200, "", "")
	by("c").want(t, "one more than there is room for", 200, "", "")
	if st := table(); st.Entries != 3 || st.Evicted != 1 || st.Overflowed != 0 || warned != 0 {
		t.Errorf("%+v, %d warnings", st, warned)
	}
	for _, caller := range []string{"a", "b", "c"} {
		w.limitedBy(by(caller), "rate_limited", "caller")
	}
	by("d").want(t, "where all owe, the first of those who share one", 200, "", "")
	for i := range 20 {
		w.limitedBy(by(fmt.Sprint("more-", i)), "rate_limited", "caller")
	}
	if st := table(); st.Entries != 3 || st.UnexpiredEvictions != 0 || st.Overflowed == 0 || warned != 1 {
		t.Errorf("%+v, %d warnings", st, warned)
	}
	w.clock.Advance(time.Minute)
	by("more-7").want(t, "when time has passed", 200, "", "")
}

// TestAFloodOfOpenCallers: of a crowd of strangers (a million with DRILLS=full), each with
// a credential that nobody had before, memory has no more than its table; who has used up
// his limit gets no other; who has a key, and who has a token of an issuer, do not notice;
// and operators are warned once a minute.
func TestAFloodOfOpenCallers(t *testing.T) {
	const size, watched = 200, 20
	crowd := drills(2000, 1_000_000)
	var warned []time.Time
	var w *world
	s := setup{registry: openLimits, settings: func(s *config.Settings) { s.RateCallerRPM, s.RateCallerBurst = 60, 1 }}
	s.limiter = func(o *ratelimit.Options) {
		o.TableSize = size
		o.Warn = func(string) { warned = append(warned, w.clock.Now()) }
	}
	w, idp := withIssuer(t, toAnybody, s, hello, limited("k", 1, 5))
	warned = nil
	admitted := map[string]int{}
	call := func(caller string, watch bool) {
		got := w.do(w.opening(t.Context(), "llm/x", caller))
		switch {
		case got.status == 200 && watch:
			admitted[caller]++
		case got.status != 200:
			if got.status != 429 || got.code != "rate_limited" {
				t.Fatalf("%s: %d %s", caller, got.status, got.body)
			}
		}
	}
	began, heaps := w.clock.Now(), []uint64(nil)
	for i := range crowd {
		if i/500%2 == 0 { // else all at once
			w.clock.Advance(10 * time.Millisecond)
		}
		call(fmt.Sprint("stranger-", i), false)
		if i%5 == 0 {
			call(fmt.Sprint("watched-", i/5%watched), true)
		}
		if i%400 == 0 { // each two seconds and more
			w.clock.Advance(2 * time.Second)
			got := w.relayedBy("k", "GET", "keyed/x", "")
			got.want(t, "a key", 200, "", "")
			if left := got.left(t)["key"]; left != 4 {
				t.Fatalf("the key has %d left of 5, after one call", left)
			}
			w.opened("llm/x", "Authorization", "Bearer "+w.token(idp, "alice", nil)).want(t, "a caller of an issuer", 200, "", "")
		}
		if st := w.limiter.Stats().Tables[ratelimit.OpenCallers]; st.Entries > size || st.UnexpiredEvictions != 0 {
			t.Fatalf("after %d: %+v", i, st)
		}
		if i%(crowd/8) == crowd/8-1 {
			w.ledger.mu.Lock()
			w.ledger.records = nil
			w.ledger.mu.Unlock()
			w.logged.mu.Lock()
			w.logged.text.Reset()
			w.logged.mu.Unlock()
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			heaps = append(heaps, m.HeapAlloc>>10)
		}
	}
	for i := 1; i < len(warned); i++ {
		if gap := warned[i].Sub(warned[i-1]); gap < time.Minute {
			t.Errorf("warned twice within %v", gap)
		}
	}
	took := w.clock.Now().Sub(began)
	for caller, n := range admitted {
		if most := 1 + int(took/time.Second); n > most {
			t.Errorf("%s was let through %d times in %v, want at most %d", caller, n, took, most)
		}
	}
	if len(warned) == 0 || len(admitted) == 0 {
		t.Errorf("%d warnings, %d watched were let through: nothing was tested", len(warned), len(admitted))
	}
	if first, last := heaps[1], heaps[len(heaps)-1]; last > first+first/2+4096 {
		t.Errorf("the heap grew, in KiB: %v", heaps)
	}
	t.Logf("%d strangers in %v of their time; heap in KiB %v; %d warnings; %+v", crowd, took, heaps, len(warned), w.limiter.Stats().Tables[ratelimit.OpenCallers])
}

// TestReloadsAndOpenCallers: balances carry over, also where the limit is another now, or
// comes and goes; and what runs at a service that is open no more ends.
func TestReloadsAndOpenCallers(t *testing.T) {
	up := newHeldStreams()
	w := setup{registry: openLimits, settings: func(s *config.Settings) {
		s.RateCallerRPM, s.RateCallerBurst, s.StreamIdle, s.ClientStall = 1, 2, 0, 0
	}}.world(t, up.serve, everything("k"))
	by := func(target, caller string) told { return w.do(w.opening(t.Context(), target, caller)) }
	limit := func(rpm float64, burst int) {
		next := *w.settings
		next.RateCallerRPM, next.RateCallerBurst = rpm, burst
		w.settings = &next
		w.use(openLimits, everything("k"))
	}
	by("llm/x", "a").want(t, "one of two", 200, "", "")
	limit(1, 2)
	by("llm/x", "a").want(t, "two of two", 200, "", "")
	w.limitedBy(by("llm/x", "a"), "rate_limited", "caller")
	limit(60, 2)
	w.limitedBy(by("llm/x", "a"), "rate_limited", "caller")
	w.clock.Advance(time.Second)
	by("llm/x", "a").want(t, "at the new rate", 200, "", "")
	limit(0, 0)
	for range 5 {
		by("llm/x", "a").want(t, "without a limit", 200, "", "")
	}
	limit(1, 1)
	by("llm/x", "b").want(t, "with one again", 200, "", "")
	w.limitedBy(by("llm/x", "b"), "rate_limited", "caller")

	limit(60, 1) // which counts from now on, whenever he comes back
	w.clock.Advance(time.Second)
	by("llm/x", "b").want(t, "a second at the new rate", 200, "", "")

	finish, kept := w.holdOpen(up, "llm/stream", "stays")
	_, ended := w.holdOpen(up, "narrow/stream", "goes")
	w.use(strings.ReplaceAll(openLimits, "access: open, passthrough: true, max_inflight: 1", "passthrough: true, max_inflight: 1"), everything("k"))
	if _, err := io.ReadAll(ended.Body); !cut(err) {
		t.Errorf("a stream of a service that is open no more ended with %v; it must look cut", err)
	}
	by("narrow/x", "c").want(t, "a new call", 401, "unauthenticated", "")
	finish()
	if kept.StatusCode != 200 {
		t.Error(kept.Status)
	}
	endings := map[string]receipts.Ending{}
	for _, r := range w.ledger.all() {
		if r.Kind == receipts.KindOutcome {
			endings[r.Service] = r.Ending
		}
	}
	if endings["narrow"] != receipts.Revoked || endings["llm"] != receipts.Complete {
		t.Errorf("%v", endings)
	}
	eventually(t, "the slots are free", func() bool { return w.pooled() == 0 })
}

// TestOpenCallersWait for a slot where calls may, as one crowd, whoever they say they are.
func TestOpenCallersWait(t *testing.T) {
	up := newHeldStreams()
	w := setup{registry: openLimits, settings: func(s *config.Settings) {
		s.RateCallerRPM, s.RateCallerBurst, s.StreamIdle, s.TenantQueue, s.TenantQueueWait = 1, 1, 0, 1, time.Minute
	}}.world(t, up.serve, everything("k"))
	finish, _ := w.holdOpen(up, "narrow/stream", "first")
	got := make(chan told, 1)
	go func() { got <- w.do(w.opening(context.Background(), "narrow/x", "second")) }()
	eventually(t, "it waits", func() bool { return w.waiting() == 1 })
	w.limitedBy(w.do(w.opening(t.Context(), "narrow/x", "third")), "concurrency_limited", "service")
	finish()
	(<-got).want(t, "who has waited", 200, "", "")
}
