package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/receipts"
)

// gate is an upstream that holds calls until it is told, and knows how many it had at once.
type gate struct {
	mu                      sync.Mutex
	running, peak, all, cut int
	seen                    []string
	open                    chan struct{} // closed: nobody is held; else each held call takes one
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) serve(rw http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	g.all++
	g.running++
	g.peak = max(g.peak, g.running)
	g.seen = append(g.seen, r.URL.Path)
	g.mu.Unlock()
	gone := false
	select {
	case <-g.open:
	case <-r.Context().Done():
		gone = true
	}
	g.mu.Lock()
	g.running--
	if gone {
		g.cut++
	}
	g.mu.Unlock()
	hello(rw, r)
}

func (g *gate) counts() (running, peak, all, cut int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running, g.peak, g.all, g.cut
}

func (g *gate) holds(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " calls are held"), func() bool { running, _, _, _ := g.counts(); return running == n })
}

// inBackground sends a batch, and returns where its answer comes.
func (w *world) inBackground(key, body string) <-chan told {
	got := make(chan told, 1)
	r := w.batchRequest(key, body)
	go func() { got <- w.do(r) }()
	return got
}

func batchOf(calls ...string) string { return `{"calls":[` + strings.Join(calls, ",") + `]}` }

func statuses(results []result) (list string) {
	for _, r := range results {
		list += fmt.Sprintf("%d%s%s ", r.Status, r.code(), limitOf(r))
	}
	return strings.TrimSpace(list)
}

func limitOf(r result) string {
	_, rest, _ := strings.Cut(string(r.Body), `"limit":"`)
	limit, _, ok := strings.Cut(rest, `"`)
	if !ok {
		return ""
	}
	return ":" + limit
}

// TestBatchRunsAsManyAsThereAreSlots at once, never one more, and refuses none of its calls
// because of those: whatever it is that the slots are of.
func TestBatchRunsAsManyAsThereAreSlots(t *testing.T) {
	const calls, slots = 64, 4
	for name, file := range map[string]string{
		"the tenant's":  "tenants:\n  t: {rps: 1000, burst: 1000, max_inflight: 4}\nservices:\n" + serviceLine("tools", ""),
		"the service's": "tenants:\n  t: {rps: 1000, burst: 1000, max_inflight: 0}\nservices:\n" + serviceLine("tools", "max_inflight: 4,"),
		"the process's": "tenants:\n  t: {rps: 1000, burst: 1000, max_inflight: 10}\nservices:\n" + serviceLine("tools", ""),
		"a queue":       "tenants:\n  t: {rps: 1000, burst: 1000, max_inflight: 4}\nservices:\n" + serviceLine("tools", ""),
	} {
		t.Run(name, func(t *testing.T) {
			up := newGate()
			w := setup{registry: file, settings: func(s *config.Settings) {
				if name == "the process's" {
					s.MaxInflight = slots
				}
				if name == "a queue" {
					s.TenantQueue, s.TenantQueueWait = 2, time.Second
				}
			}}.world(t, up.serve, of("t", roomy("k")))
			got := w.inBackground("k", batchOf(times(calls, plainCall("tools", ""))...))
			up.holds(t, slots)
			for range calls - slots {
				up.open <- struct{}{}
			}
			up.holds(t, slots)
			close(up.open)
			results := w.results(soon(t, got))
			if want := strings.TrimSpace(strings.Repeat("200 ", calls)); statuses(results) != want {
				t.Errorf("%s", statuses(results))
			}
			if _, peak, all, _ := up.counts(); peak != slots || all != calls {
				t.Errorf("%d calls, of which %d at once, want %d", all, peak, slots)
			}
			if n := w.inFlight("tenant:t"); n != 0 || w.pooled() != 0 || w.waiting() != 0 {
				t.Errorf("%d slots are taken, %d pooled, %d wait", n, w.pooled(), w.waiting())
			}
			if n := len(w.ledger.all()); n != 2*calls {
				t.Errorf("%d records, want an intent and an outcome of each call", n)
			}
		})
	}
}

// TestBatchAmongOthers: slots that others hold are not there for a batch. It goes on with
// those that it can have; where it can have none, its calls are refused as they would be
// by themselves, and the limit is told.
func TestBatchAmongOthers(t *testing.T) {
	held, up := newHeldStreams(), newGate()
	w := setup{registry: "tenants:\n  t: {rps: 1000, burst: 1000, max_inflight: 3}\nservices:\n" + serviceLine("tools", "") + serviceLine("few", "max_inflight: 1,")}.
		world(t, func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/stream" {
				held.serve(rw, r)
				return
			}
			up.serve(rw, r)
		}, of("t", roomy("k")), of("t", roomy("other")), roomy("stranger"))
	end := w.hold(held, "other", streamCall("tools", ""))
	endFew := w.hold(held, "stranger", streamCall("few", ""))

	few := plainCall("few", "") // whose slot a stranger holds: no call of the batch is waited for
	got := w.inBackground("k", batchOf(append(times(9, plainCall("tools", "")), few)...))
	up.holds(t, 2)
	if n := w.inFlight("tenant:t"); n != 3 {
		t.Errorf("%d slots are taken, want 3", n)
	}
	close(up.open)
	results := w.results(soon(t, got))
	if want := strings.Repeat("200 ", 9) + "429concurrency_limited:service"; statuses(results) != want {
		t.Errorf("%s", statuses(results))
	}
	if _, peak, _, _ := up.counts(); peak != 2 {
		t.Errorf("%d at once beside another, want 2", peak)
	}
	second, third := w.hold(held, "other", streamCall("tools", "")), w.hold(held, "other", streamCall("tools", ""))
	alone := w.act("k", plainCall("tools", ""))
	alone.want(t, "a call by itself", 429, "concurrency_limited", "tenant")
	_, results = w.batch("k", times(3, plainCall("tools", ""))...)
	if want := strings.TrimSpace(strings.Repeat("429concurrency_limited:tenant ", 3)); statuses(results) != want {
		t.Errorf("with no slot: %s", statuses(results))
	}
	if results[0].Headers["Retry-After"] == "" || results[0].Headers["Cache-Control"] != "no-store" || results[0].Headers["Content-Type"] != "application/problem+json" {
		t.Errorf("%+v", results[0])
	}
	for _, finish := range []func(){end, endFew, second, third} {
		finish()
	}
}

// TestBatchWaitsInTheQueue: where its tenant's slots are others', one of its calls waits in
// the queue, and the rest for that one; and who waits there is not overtaken by them.
func TestBatchWaitsInTheQueue(t *testing.T) {
	held := newHeldStreams()
	w := setup{
		registry: "tenants:\n  t: {rps: 100, burst: 200, max_inflight: 1}\nservices:\n" + serviceLine("tools", ""),
		settings: func(s *config.Settings) { s.TenantQueue, s.TenantQueueWait = 2, time.Hour },
	}.world(t, held.serve, of("t", roomy("k")))
	end := w.hold(held, "k", streamCall("tools", ""))
	got := w.inBackground("k", batchOf(times(5, plainCall("tools", ""))...))
	eventually(t, "one call of the batch waits", func() bool { return w.waiting() == 1 })
	other := w.later(t, "k", plainCall("tools", "someone"))
	end()
	soon(t, other).want(t, "another caller", 200, "", "")
	if results := w.results(soon(t, got)); statuses(results) != "200 200 200 200 200" {
		t.Errorf("%s", statuses(results))
	}
	var order []string
	for _, r := range w.ledger.all() {
		if r.Kind == receipts.KindIntent && r.Action == "get" {
			order = append(order, r.Principal)
		}
	}
	if len(order) != 6 || order[1] != "someone" {
		t.Errorf("they ran in the order %q: the other came second", order)
	}
	w.nothingIsLeft(t, "a batch")
}

// TestBatchOfManyTenants: each person's calls are held to that person's slots.
func TestBatchOfManyTenants(t *testing.T) {
	up := newGate()
	k := roomy("k")
	k.Users = []string{"ann", "bob"}
	w := setup{registry: "services:\n" + serviceLine("tools", ""), settings: func(s *config.Settings) { s.TenantMaxInflight = 2 }}.world(t, up.serve, k)
	call := func(user string) string { return plainCall("tools", user) }
	got := w.inBackground("k", batchOf(call("ann"), call("bob"), call("ann"), call("bob"), call("ann"), call("ann")))
	up.holds(t, 4)
	if ann, bob := w.inFlight("human:ann"), w.inFlight("human:bob"); ann != 2 || bob != 2 {
		t.Errorf("%d and %d are in flight, want what each has", ann, bob)
	}
	close(up.open)
	if results := w.results(soon(t, got)); statuses(results) != "200 200 200 200 200 200" {
		t.Errorf("%s", statuses(results))
	}
	body := `{"on_behalf_of":"ann","calls":[` + plainCall("tools", "") + `,` + plainCall("tools", "") + `]}`
	if results := w.results(w.do(w.batchRequest("k", body))); statuses(results) != "200 200" {
		t.Errorf("one person for all: %s", statuses(results))
	}
	records := w.ledger.all()
	if r := records[len(records)-1]; r.Principal != "ann" || r.Tenant != "human:ann" {
		t.Errorf("%+v", r)
	}
}

// TestNestedBatch: a batch that serves a call of its tenant's never waits for that; and its
// own calls are waited for all the same.
func TestNestedBatch(t *testing.T) {
	var w *world
	var inner []result
	var calls []string
	w = setup{registry: "tenants:\n  t: {rps: 100, burst: 200, max_inflight: 2}\nservices:\n" + serviceLine("tools", ""),
		settings: func(s *config.Settings) { s.TenantQueue, s.TenantQueueWait = 8, time.Hour }}.
		world(t, func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/stream" {
				nested := w.batchRequest("k", batchOf(calls...))
				nested.Header.Set("X-Request-Id", r.Header.Get("X-Request-Id"))
				inner = w.results(w.do(nested))
			}
			hello(rw, r)
		}, of("t", roomy("k")))
	calls = times(5, plainCall("tools", ""))
	w.act("k", streamCall("tools", "")).want(t, "the outer call", 200, "", "")
	if statuses(inner) != "200 200 200 200 200" {
		t.Errorf("with one slot beside its parent's: %s", statuses(inner))
	}
	outer := batchOf(streamCall("tools", ""), streamCall("tools", ""))
	w.use("tenants:\n  t: {rps: 100, burst: 200, max_inflight: 1}\nservices:\n"+serviceLine("tools", ""), of("t", roomyLike(w, "k")[0]))
	if results := w.results(w.do(w.batchRequest("k", outer))); statuses(results) != "200 200" {
		t.Errorf("the outer batch: %s", statuses(results))
	}
	if want := strings.TrimSpace(strings.Repeat("409nested_call:tenant ", 5)); statuses(inner) != want {
		t.Errorf("with no slot beside its parent's: %s", statuses(inner))
	}
	w.nothingIsLeft(t, "nested batches")
}
