package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
	"agentgw/internal/vault"
)

const goneRegistry = "tenants:\n  t: {rps: 1, burst: 200, max_inflight: 1}\nservices:\n"

// crowded is a world in which the keys k and other share the one slot of the tenant t.
func crowded(t *testing.T, up *heldStreams, change func(*setup), k, other *identity.Key) *world {
	t.Helper()
	s := setup{
		registry: goneRegistry + serviceLine("tools", ""),
		settings: func(s *config.Settings) { s.TenantQueue, s.TenantQueueWait = 10, 2*time.Second },
	}
	if change != nil {
		change(&s)
	}
	return s.world(t, up.serve, k, other)
}

func (w *world) tenantTokens() int64 { return w.tokens(ratelimit.KindTenant, "tenant:t", 1, 200) }

// refusedAsGone holds that the newest receipt is that of a call whose key is gone.
func (w *world) refusedAsGone(t *testing.T) {
	t.Helper()
	if r := w.lastClosing(); r.Kind != receipts.KindRefusal || r.Code != "unauthenticated" || r.Status != 401 || r.Key != "k" || r.Tenant != "tenant:t" {
		t.Errorf("%+v", r)
	}
}

// TestAKeyThatIsGoneWaitsForNothing: its calls leave the queue at once and have taken
// nothing of the tenant's; those of another key wait on.
func TestAKeyThatIsGoneWaitsForNothing(t *testing.T) {
	up := newHeldStreams()
	k, other := of("t", roomy("k")), of("t", roomy("other"))
	w := crowded(t, up, nil, k, other)
	end := w.hold(up, "other", streamCall("tools", ""))
	w.clock.Advance(time.Minute)
	before := w.tenantTokens()
	gone, stays := w.later(t, "k", plainCall("tools", "")), w.later(t, "other", plainCall("tools", ""))
	w.use(goneRegistry+serviceLine("tools", ""), k, other)
	if w.waiting() != 2 {
		t.Errorf("%d wait after a reload that left both keys", w.waiting())
	}
	w.clock.Advance(300 * time.Millisecond)
	w.use(goneRegistry+serviceLine("tools", ""), other)
	(<-gone).want(t, "the key is gone", 401, "unauthenticated", "")
	w.refusedAsGone(t)
	if r := w.lastClosing(); r.QueueMicros != 300_000 || w.counted("waited", "left") != 1 || w.waitedFor() != 300*time.Millisecond {
		t.Errorf("waited %v µs in the receipt, %v in the metric", r.QueueMicros, w.waitedFor())
	}
	if n := w.tenantTokens(); n != before-1 || w.waiting() != 1 || w.inFlight("tenant:t") != 1 {
		t.Errorf("%d tokens of %d, %d wait, %d in flight", n, before, w.waiting(), w.inFlight("tenant:t"))
	}
	end()
	(<-stays).want(t, "the other key", 200, "", "")
	if n := w.upstreamRequests(); n != 2 {
		t.Errorf("the upstream was called %d times", n)
	}
}

// TestAKeyThatExpiresWhileItWaits leaves the queue at once.
func TestAKeyThatExpiresWhileItWaits(t *testing.T) {
	up := newHeldStreams()
	k := of("t", roomy("k"))
	k.NotAfter = time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)
	w := crowded(t, up, nil, k, of("t", roomy("other")))
	end := w.hold(up, "other", streamCall("tools", ""))
	got := w.later(t, "k", plainCall("tools", ""))
	w.clock.Advance(time.Second - 1)
	if w.waiting() != 1 {
		t.Error("it does not wait as long as its key is valid")
	}
	w.clock.Advance(1)
	(<-got).want(t, "its key has expired", 401, "unauthenticated", "")
	w.refusedAsGone(t)
	if w.inFlight("tenant:t") != 1 {
		t.Error("the other's stream has ended too")
	}
	end()
	eventually(t, "the slot is free", func() bool { return w.waiting() == 0 && w.inFlight("tenant:t") == 0 })
	if n := w.upstreamRequests(); n != 1 {
		t.Errorf("the upstream was called %d times", n)
	}
}

// TestAKeyThatIsGoneBeforeItsBodyCame is refused once the body is there, and has paid
// nothing of its tenant's.
func TestAKeyThatIsGoneBeforeItsBodyCame(t *testing.T) {
	k, other := of("t", limited("k", 10, 50)), of("t", roomy("other"))
	w := crowded(t, newHeldStreams(), nil, k, other)
	c, err := net.Dial("tcp", w.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	body := plainCall("tools", "")
	if _, err := fmt.Fprintf(c, "POST /v1/act HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", w.keys["k"], len(body), body[:5]); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the key is charged", func() bool { return w.tokens(ratelimit.KindKey, "key:k", 10, 50) == 49 })
	w.use(goneRegistry+serviceLine("tools", ""), other)
	if _, err := fmt.Fprint(c, body[5:]); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 401 || res.Header.Get("Agentgate-Code") != "unauthenticated" || !strings.HasPrefix(res.Header.Get("Agentgate-Receipt"), `id="`) {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
	w.refusedAsGone(t)
	if n := w.tenantTokens(); n != 200 || w.upstreamRequests() != 0 || w.inFlight("tenant:t") != 0 {
		t.Errorf("%d tokens, %d at the upstream, %d in flight", n, w.upstreamRequests(), w.inFlight("tenant:t"))
	}
}

// openedOnce does something while a credential is opened: a call has its slot by then.
type openedOnce struct {
	empty
	do atomic.Pointer[func()]
}

func (o *openedOnce) Open(ctx context.Context, r vault.Ref, f vault.Form) (vault.Credential, error) {
	if do := o.do.Swap(nil); do != nil {
		(*do)()
	}
	return o.empty.Open(ctx, r, f)
}

// TestAKeyThatIsGoneBeforeTheIntent, of a call that has its slot, calls no upstream.
func TestAKeyThatIsGoneBeforeTheIntent(t *testing.T) {
	k, other := of("t", roomy("k")), of("t", roomy("other"))
	var open openedOnce
	w := crowded(t, newHeldStreams(), func(s *setup) { s.vault = &open }, k, other)
	without := func() { w.use(goneRegistry+serviceLine("tools", ""), other) }
	open.do.Store(&without)
	w.act("k", plainCall("tools", "")).want(t, "the key is gone", 401, "unauthenticated", "")
	w.refusedAsGone(t)
	if w.upstreamRequests() != 0 || w.inFlight("tenant:t") != 0 {
		t.Errorf("%d at the upstream, %d in flight", w.upstreamRequests(), w.inFlight("tenant:t"))
	}

	w.use(goneRegistry+serviceLine("tools", ""), k, other)
	w.act("k", plainCall("tools", "")).want(t, "the key is back", 200, "", "")
	elsewhere := func() {
		k.Services = []string{"else"}
		w.use(goneRegistry+serviceLine("else", ""), k, other)
	}
	open.do.Store(&elsewhere)
	w.act("k", plainCall("tools", "")).want(t, "the service is gone, and the key's scope is another", 200, "", "")
	k.Services = []string{"*"}
	w.use(goneRegistry+serviceLine("tools", ""), k, other)
	expired := func() {
		k.NotAfter = w.clock.Now()
		w.use(goneRegistry+serviceLine("tools", ""), k, other)
	}
	open.do.Store(&expired)
	w.act("k", plainCall("tools", "")).want(t, "the key has an end now, and it is past", 401, "unauthenticated", "")
}

// waitClock does something when a call has its place in the queue and is on its way to
// wait there, and counts the timers of waits that are neither over nor stopped.
type waitClock struct {
	clockwork.Clock
	world  atomic.Pointer[world] // nil: nothing is done yet
	do     atomic.Pointer[func()]
	timers atomic.Int64
}

func (c *waitClock) Now() time.Time {
	if w := c.world.Load(); w != nil && w.waiting() == 1 {
		if do := c.do.Swap(nil); do != nil {
			(*do)()
		}
	}
	return c.Clock.Now()
}

func (c *waitClock) AfterFunc(d time.Duration, f func()) clockwork.Timer {
	if d != 2*time.Second { // not that of a wait
		return c.Clock.AfterFunc(d, f)
	}
	c.timers.Add(1)
	return &waitTimer{c.Clock.AfterFunc(d, f), c}
}

type waitTimer struct {
	clockwork.Timer
	clock *waitClock
}

func (t *waitTimer) Stop() bool {
	t.clock.timers.Add(-1)
	return t.Timer.Stop()
}

// TestWhatComesAsACallBeginsToWait ends it, though it is not among those that wait yet;
// and no timer outlives its wait.
func TestWhatComesAsACallBeginsToWait(t *testing.T) {
	k, other := of("t", roomy("k")), of("t", roomy("other"))
	for _, c := range []struct {
		what   string
		do     func(*world)
		status int
		code   string
	}{
		{"a drain", func(w *world) { w.gateway.Drain() }, 503, "draining"},
		{"a block", func(w *world) { w.gateway.Block("tenant:t") }, 403, "tenant_blocked"},
		{"its key goes", func(w *world) { w.use(goneRegistry+serviceLine("tools", ""), other) }, 401, "unauthenticated"},
		{"nothing", func(*world) {}, 200, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			up := newHeldStreams()
			clock := new(waitClock)
			w := crowded(t, up, func(s *setup) {
				s.clock = func(of *clockwork.FakeClock) clockwork.Clock { clock.Clock = of; return clock }
			}, k, other)
			end := w.hold(up, "other", streamCall("tools", ""))
			clock.world.Store(w)
			done := make(chan struct{})
			do := func() { c.do(w); close(done) }
			clock.do.Store(&do)
			got := make(chan told, 1)
			go func() { got <- w.act("k", plainCall("tools", "")) }()
			<-done
			if c.status == 200 {
				eventually(t, "it waits", func() bool { return clock.timers.Load() == 1 })
				end()
			}
			(<-got).want(t, c.what, c.status, c.code, "")
			eventually(t, "nobody waits, and no timer is left", func() bool { return w.waiting() == 0 && clock.timers.Load() == 0 })
		})
	}
}
