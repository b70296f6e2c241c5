package gateway_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
)

// queueing is a world in which the tenant t has one slot and calls of it may wait.
func queueing(t *testing.T, up *heldStreams, queue int) *world {
	t.Helper()
	return setup{
		registry: "tenants:\n  t: {rps: 100, burst: 200, max_inflight: 1}\nservices:\n" + serviceLine("tools", "rate_limit: {rps: 10, burst: 50},"),
		settings: func(s *config.Settings) { s.TenantQueue, s.TenantQueueWait = queue, 2*time.Second },
	}.world(t, up.serve, of("t", limited("k", 10, 50)))
}

func (w *world) waiting() int64 { return w.limiter.Stats().Waiting }

// later makes a call that has to wait, and returns where its answer comes.
func (w *world) later(t *testing.T, key, body string) <-chan told {
	t.Helper()
	n, got := w.waiting(), make(chan told, 1)
	go func() { got <- w.act(key, body) }()
	eventually(t, "the call waits", func() bool { return w.waiting() == n+1 })
	return got
}

// levels are what is left of the key, the tenant and the key at the service.
func (w *world) queueLevels() string {
	return fmt.Sprint(w.tokens(ratelimit.KindKey, "key:k", 10, 50), w.tokens(ratelimit.KindTenant, "tenant:t", 100, 200),
		w.tokens(ratelimit.KindService, ratelimit.ServiceBucket("k", "tools"), 10, 50))
}

// nothingIsLeft holds that nobody waits, no slot is taken, and a call runs.
func (w *world) nothingIsLeft(t *testing.T, what string) {
	t.Helper()
	eventually(t, what+": no slot is taken and nobody waits", func() bool { return w.waiting() == 0 && w.inFlight("tenant:t") == 0 && w.pooled() == 0 })
	w.act("k", plainCall("tools", "")).want(t, "a call after: "+what, 200, "", "")
}

// lastClosing is the newest refusal or outcome.
func (w *world) lastClosing() receipts.Record {
	all := w.ledger.all()
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Kind != receipts.KindIntent {
			return all[i]
		}
	}
	return receipts.Record{}
}

// TestAWaiterIsServed once a slot is free, in its turn; its tokens were taken when it
// came, and its receipt tells how long it waited.
func TestAWaiterIsServed(t *testing.T) {
	up := newHeldStreams()
	w := queueing(t, up, 2)
	end := w.hold(up, "k", streamCall("tools", ""))
	if got := w.queueLevels(); got != "49 199 49" {
		t.Fatal(got)
	}
	first := w.later(t, "k", plainCall("tools", ""))
	if got := w.queueLevels(); got != "48 198 48" {
		t.Errorf("while one waits: %s", got)
	}
	w.clock.Advance(1500 * time.Millisecond)
	if e := w.entries(ratelimit.KindTenant)["tenant:t"]; e.Waiting != 1 || e.InFlight != 1 {
		t.Errorf("operators see %+v", e)
	}
	end()
	got := <-first
	got.want(t, "the waiter", 200, "", "")
	if left := got.left(t)["inflight"]; left != 0 {
		t.Errorf("told of %d slots left while it ran", left)
	}
	r := w.lastClosing()
	if r.QueueMicros != 1_500_000 || r.TotalMicros != 1_500_000 || r.Ending != receipts.Complete || w.counted("waited", "served") != 1 {
		t.Errorf("%+v, %d served", r, w.counted("waited", "served"))
	}
	w.nothingIsLeft(t, "a waiter was served")
	if r := w.lastClosing(); r.QueueMicros != 0 {
		t.Errorf("a call that did not wait: %+v", r)
	}
}

// TestNobodyWaitsPastTheLimit: then it is refused by the cap that was full, to the
// moment, and for nothing; and with the queue full at once.
func TestNobodyWaitsPastTheLimit(t *testing.T) {
	up := newHeldStreams()
	w := queueing(t, up, 2)
	end := w.hold(up, "k", streamCall("tools", ""))
	w.clock.Advance(time.Minute)
	before := w.queueLevels()
	first := w.later(t, "k", plainCall("tools", ""))
	w.clock.Advance(time.Second)
	second := w.later(t, "k", plainCall("tools", ""))
	atOnce := w.act("k", plainCall("tools", ""))
	atOnce.want(t, "with two waiting", 429, "concurrency_limited", "tenant")
	if !strings.Contains(atOnce.body, " taken, and 2 calls wait already, as many as may; nothing was charged; ") {
		t.Error(atOnce.body)
	}
	if r := w.lastClosing(); r.QueueMicros != 0 {
		t.Errorf("refused at once: %+v", r)
	}
	w.clock.Advance(time.Second - time.Nanosecond)
	select {
	case got := <-first:
		t.Fatalf("a nanosecond early: %+v", got)
	default:
	}
	w.clock.Advance(time.Nanosecond)
	got := <-first
	got.want(t, "two seconds", 429, "concurrency_limited", "tenant")
	if !strings.Contains(got.body, " taken, and none came free in the 2s that a call may wait; nothing was charged; ") {
		t.Error(got.body)
	}
	if d := got.retryAfter(t); d < time.Second || d > 10*time.Second {
		t.Errorf("Retry-After %v", d)
	}
	if r := w.lastClosing(); r.Kind != receipts.KindRefusal || r.QueueMicros != 2_000_000 || r.Code != "concurrency_limited" || r.Limit != "tenant" {
		t.Errorf("%+v", r)
	}
	if w.waiting() != 1 {
		t.Errorf("%d wait", w.waiting())
	}
	w.clock.Advance(time.Second)
	(<-second).want(t, "the second", 429, "concurrency_limited", "tenant")
	if after := w.queueLevels(); after != before || w.counted("waited", "refused") != 2 {
		t.Errorf("%s became %s; %d refused", before, after, w.counted("waited", "refused"))
	}
	end()
	w.nothingIsLeft(t, "waits that were over")
}

// TestHangUpWhileWaiting: over HTTP/1.1 and HTTP/2 a caller that hangs up leaves the
// queue at once and has taken nothing, also when its slot comes in the same moment.
func TestHangUpWhileWaiting(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			up := newHeldStreams()
			w := queueing(t, up, 10)
			client, base := w.server.Client(), w.server.URL
			if protocol == "HTTP/2.0" {
				address, pool := overHTTP2(t, w)
				client = &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "example.com"}}}
				t.Cleanup(client.CloseIdleConnections)
				base = "https://" + address
			}
			end := w.hold(up, "k", streamCall("tools", ""))
			w.clock.Advance(time.Minute)
			before := w.queueLevels()
			hungUp := func() (hangUp func()) {
				t.Helper()
				n := w.waiting()
				ctx, cancel := context.WithCancel(context.Background())
				t.Cleanup(cancel)
				r := w.request(ctx, "k", plainCall("tools", ""))
				u, err := http.NewRequest("POST", base+"/v1/act", nil)
				if err != nil {
					t.Fatal(err)
				}
				r.URL = u.URL
				done := make(chan struct{})
				go func() {
					defer close(done)
					if res, err := client.Do(r); err == nil {
						_ = res.Body.Close()
					}
				}()
				eventually(t, "it waits", func() bool { return w.waiting() == n+1 })
				return func() { cancel(); <-done }
			}
			hungUp()()
			eventually(t, "it left", func() bool { return w.waiting() == 0 })
			eventually(t, "its receipt", func() bool { return w.lastClosing().Ending == receipts.ClientCancelled })
			r := w.lastClosing()
			if r.Kind != receipts.KindRefusal || r.Code != "concurrency_limited" || r.Limit != "tenant" || r.Status != 0 || w.counted("concurrency_limited", "tenant") != 1 {
				t.Errorf("%+v", r)
			}
			if after := w.queueLevels(); after != before {
				t.Errorf("%s became %s", before, after)
			}
			// The slot and the hang-up at one moment, over and over: whoever is
			// first, nothing stays taken.
			for range 20 {
				hangUp := hungUp()
				go end()
				hangUp()
				eventually(t, "no slot is taken", func() bool { return w.waiting() == 0 && w.inFlight("tenant:t") == 0 && w.pooled() == 0 })
				w.clock.Advance(time.Minute)
				end = w.hold(up, "k", streamCall("tools", ""))
			}
			end()
			w.nothingIsLeft(t, "hang-ups")
		})
	}
}

// TestDrainEmptiesTheQueue at once; what runs goes on.
func TestDrainEmptiesTheQueue(t *testing.T) {
	up := newHeldStreams()
	w := queueing(t, up, 10)
	w.hold(up, "k", streamCall("tools", ""))
	before := w.queueLevels()
	var waiters []<-chan told
	for range 3 {
		waiters = append(waiters, w.later(t, "k", plainCall("tools", "")))
	}
	if streams, others := w.gateway.Drain(); streams != 1 || others != 0 {
		t.Errorf("%d streams, %d others", streams, others)
	}
	for _, got := range waiters {
		got := <-got
		got.want(t, "draining", 503, "draining", "")
		got.retryAfter(t)
	}
	eventually(t, "nobody waits", func() bool { return w.waiting() == 0 && w.inFlight("tenant:t") == 0 && w.pooled() == 0 })
	refused := 0
	for _, r := range w.ledger.all() {
		if r.Kind == receipts.KindRefusal && r.Code == "draining" && r.Status == 503 {
			refused++
		}
	}
	if after := w.queueLevels(); after != before || refused != 3 || w.counted("waited", "left") != 3 {
		t.Errorf("%s became %s, %d receipts, %d left", before, after, refused, w.counted("waited", "left"))
	}
}

// TestBlockEndsWaiting, of that tenant alone.
func TestBlockEndsWaiting(t *testing.T) {
	up := newHeldStreams()
	w := queueing(t, up, 10)
	w.hold(up, "k", streamCall("tools", ""))
	before := w.queueLevels()
	first, second := w.later(t, "k", plainCall("tools", "")), w.later(t, "k", plainCall("tools", ""))
	w.gateway.Block("tenant:other")
	if w.waiting() != 2 {
		t.Errorf("%d wait after another was blocked", w.waiting())
	}
	w.limiter.Block(ratelimit.Registered, "tenant:t")
	if n := w.gateway.Block("tenant:t"); n != 3 {
		t.Errorf("%d were ended", n)
	}
	(<-first).want(t, "the first", 403, "tenant_blocked", "")
	(<-second).want(t, "the second", 403, "tenant_blocked", "")
	if after := w.queueLevels(); after != before {
		t.Errorf("%s became %s", before, after)
	}
	w.limiter.Unblock(ratelimit.Registered, "tenant:t")
	w.gateway.Unblock("tenant:t")
	w.nothingIsLeft(t, "a block")
}

// TestReloadServesThoseThatWait: a raised cap admits them at once, whosever it is;
// and a tenant or service that is gone from the file strands nobody.
func TestReloadServesThoseThatWait(t *testing.T) {
	file := func(tenant, service string) string {
		return "tenants:\n  t: {rps: 100, burst: 200, " + tenant + "}\nservices:\n" + serviceLine("tools", service) + serviceLine("other", "")
	}
	for _, c := range []struct {
		name                     string
		tenant, service          string
		process                  int
		newTenant, newService    string
		newProcess, servedAtOnce int
	}{
		{"tenant", "max_inflight: 1", "", 0, "max_inflight: 3", "", 0, 2},
		{"service", "max_inflight: 0", "max_inflight: 1,", 0, "max_inflight: 0", "max_inflight: 3,", 0, 2},
		{"process", "max_inflight: 0", "", 1, "max_inflight: 0", "", 3, 2},
		{"none any more", "max_inflight: 1", "", 0, "max_inflight: 0", "", 0, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := newHeldStreams()
			key := of("t", roomy("k"))
			w := setup{registry: file(c.tenant, c.service), settings: func(s *config.Settings) {
				s.TenantQueue, s.TenantQueueWait, s.MaxInflight = 10, time.Minute, c.process
			}}.world(t, up.serve, key)
			end := w.hold(up, "k", streamCall("tools", ""))
			ends := make(chan func(), 3)
			for range 3 {
				n := w.waiting()
				go func() { ends <- w.hold(up, "k", streamCall("tools", "")) }()
				eventually(t, "it waits", func() bool { return w.waiting() == n+1 })
			}
			settings := *w.settings
			settings.MaxInflight = c.newProcess
			w.settings = &settings
			w.use(file(c.newTenant, c.newService), key)
			served := []func(){end}
			for range c.servedAtOnce {
				served = append(served, <-ends)
			}
			for _, end := range served {
				end()
			}
			for range 3 - c.servedAtOnce {
				(<-ends)()
			}
			w.nothingIsLeft(t, c.name)
		})
	}
	t.Run("gone", func(t *testing.T) {
		up := newHeldStreams()
		key := of("t", roomy("k"))
		w := crowded(t, up, nil, key, of("t", roomy("other")))
		end := w.hold(up, "k", streamCall("tools", ""))
		got := w.later(t, "k", plainCall("tools", ""))
		w.use("services:\n"+serviceLine("else", ""), key)
		end()
		(<-got).want(t, "its tenant and service are gone", 200, "", "")
		eventually(t, "nothing is left", func() bool { return w.waiting() == 0 && w.inFlight("tenant:t") == 0 && w.pooled() == 0 })
	})
}

// TestNestedCall: a tool calls back through the gateway, by the request id that it was
// given, while its own caller holds the tenant's only slot.
func TestNestedCall(t *testing.T) {
	var w *world
	var nested, inner func(id string) told
	var mu sync.Mutex
	var lastID string
	up := func(rw http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Request-Id")
		mu.Lock()
		lastID = id
		mu.Unlock()
		within := map[string]func(string) told{"/get/parent": nested, "/get/inner": inner}[r.URL.Path]
		if within != nil {
			got := within(id)
			_, _ = io.WriteString(rw, fmt.Sprint(got.status, " ", got.code, " ", got.limit, " ", got.header.Get("X-Should-Retry")))
			return
		}
		hello(rw, r)
	}
	parent := strings.Replace(plainCall("tools", ""), `"1"`, `"parent"`, 1)
	for _, queue := range []int{0, 10} {
		w = setup{
			registry: "tenants:\n  t: {rps: 100, burst: 200, max_inflight: 1}\n  u: {rps: 100, burst: 200, max_inflight: 1}\nservices:\n" +
				serviceLine("tools", "rate_limit: {rps: 10, burst: 50},"),
			settings: func(s *config.Settings) { s.TenantQueue, s.TenantQueueWait = queue, time.Hour },
		}.world(t, up, of("t", limited("k", 10, 50)), of("u", roomy("other")))
		call := func(key, id string) told {
			r := w.request(context.Background(), key, plainCall("tools", ""))
			r.Header.Set("X-Request-Id", id)
			return w.do(r)
		}
		nested = func(id string) told { return call("k", id) }
		if got := w.act("k", parent); got.body != "409 nested_call tenant false" {
			t.Fatalf("queue %d: %d %s", queue, got.status, got.body)
		}
		var refusal receipts.Record
		for _, r := range w.ledger.all() {
			if r.Kind == receipts.KindRefusal {
				refusal = r
			}
		}
		if refusal.Code != "nested_call" || refusal.Limit != "tenant" || refusal.Status != 409 || w.counted("nested_call", "tenant") != 1 || w.counted("waited", "served") != 0 {
			t.Errorf("queue %d: %+v", queue, refusal)
		}
		if got := w.queueLevels(); got != "49 199 49" { // the parent's alone
			t.Errorf("queue %d: %s", queue, got)
		}
		// Of another tenant, and with room, it is a call like any other.
		nested = func(id string) told { return call("other", id) }
		if got := w.act("k", parent); got.body != "200   " {
			t.Errorf("queue %d, another tenant's: %s", queue, got.body)
		}
		// Another tenant that has no room does not wait for this one's slot: its
		// call is an ordinary one, whatever id it brings.
		if queue == 0 {
			var innermost string
			nested = func(id string) told {
				inner = func(string) told { return call("other", id) }
				got := w.act("other", strings.Replace(parent, "parent", "inner", 1))
				innermost = got.body
				return got
			}
			if w.act("k", parent); !strings.HasPrefix(innermost, "429 concurrency_limited tenant") {
				t.Errorf("another tenant's, without room: %s", innermost)
			}
		}
		w.nothingIsLeft(t, "nested calls")
		if got := call("k", lastID); got.status != 200 { // of a call that has ended
			t.Errorf("queue %d: %s", queue, got.body)
		}
	}
	// An id that is not that of a running call of the tenant's: an ordinary call,
	// which waits.
	nested = func(string) told {
		for _, id := range []string{"", "unknown", lastID + "x"} {
			r := w.request(context.Background(), "k", plainCall("tools", ""))
			r.Header.Set("X-Request-Id", id)
			go func() {
				if res, err := w.server.Client().Do(r); err == nil {
					_ = res.Body.Close()
				}
			}()
		}
		eventually(t, "three wait", func() bool { return w.waiting() == 3 })
		return told{status: 1}
	}
	if got := w.act("k", parent); !strings.HasPrefix(got.body, "1 ") {
		t.Error(got.body)
	}
	w.nothingIsLeft(t, "ordinary calls")
}
