package gateway_test

import (
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"go.uber.org/goleak"

	"agentgw/internal/config"
	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
)

// drill is n streams that are open at once and are to end in one way.
type drill struct {
	*world
	streams []*open
	faulty  faultyClock
	child   func() // kills the process that holds the streams
	started atomic.Int64
	gone    atomic.Int64  // calls that the upstream has seen end
	told    chan struct{} // closed: the upstream does what is its part
	tell    func()
}

// way is a way for a stream to end.
type way struct {
	name     string
	protocol string                                                  // of the client; "": both
	upstream func(d *drill, rw http.ResponseWriter, r *http.Request) // "": one event, then silence until hung up on
	end      func(d *drill)
	sees     string        // what the client must see: "whole", "cut", or nothing where it is gone
	more     string        // what it may still read before that; "*": anything
	process  bool          // the client is a process of its own
	unary    bool          // the upstream has not begun to answer
	life     time.Duration // of the key; 0: for ever
	ending   receipts.Ending
	out      int64 // bytes sent, by the outcome; -1: some
}

func ways() []way {
	first := int64(len(event))
	return []way{
		{name: "the upstream ends it", upstream: untilTold(func(http.ResponseWriter, *http.Request) {}), end: func(d *drill) { d.tell() },
			sees: "whole", ending: receipts.Complete, out: first},

		{name: "the client closes", end: func(d *drill) { d.each((*open).hangUp) }, ending: receipts.ClientCancelled, out: first},
		{name: "the client resets the connection", end: func(d *drill) { d.each((*open).reset) }, ending: receipts.ClientCancelled, out: first},
		{name: "the client cancels", end: func(d *drill) { d.each(func(c *open) { c.cancel() }) }, ending: receipts.ClientCancelled, out: first},
		{name: "the client's process is killed", process: true, end: func(d *drill) { d.child() }, ending: receipts.ClientCancelled, out: first},

		{name: "the client closes before the answer", unary: true, end: func(d *drill) { d.each((*open).hangUp) }, ending: receipts.ClientCancelled},
		{name: "the client resets the connection before the answer", unary: true, end: func(d *drill) { d.each((*open).reset) }, ending: receipts.ClientCancelled},
		{name: "the client cancels before the answer", unary: true, end: func(d *drill) { d.each(func(c *open) { c.cancel() }) }, ending: receipts.ClientCancelled},

		{name: "the client stops reading a flood", upstream: untilTold(flood(strings.Repeat("x", 32<<10) + "\n\n")), end: func(d *drill) { d.tell() },
			sees: "cut", more: "*", ending: receipts.SlowClient, out: -1},
		{name: "the client stops reading small events", upstream: untilTold(flood("data: " + strings.Repeat("x", 3000) + "\n\n")), end: func(d *drill) { d.tell() },
			sees: "cut", more: "*", ending: receipts.SlowClient, out: -1},

		{name: "the upstream dies", upstream: untilTold(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), end: func(d *drill) { d.tell() },
			sees: "cut", ending: receipts.UpstreamAborted, out: first},
		{name: "the upstream resets the connection", upstream: untilTold(resetUpstream), end: func(d *drill) { d.tell() },
			sees: "cut", ending: receipts.UpstreamAborted, out: first},
		{name: "the upstream dies in a declared body", upstream: untilTold(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "Content-Length", "1000"),
			end: func(d *drill) { d.tell() }, sees: "cut", ending: receipts.UpstreamAborted, out: first},

		{name: "the upstream stalls", end: func(d *drill) { d.clock.Advance(5 * time.Minute) }, sees: "cut", ending: receipts.Timeout, out: first},
		{name: "the stream is too old", end: func(d *drill) { d.clock.Advance(4 * time.Minute) }, sees: "cut", ending: receipts.Timeout, out: first},
		{name: "drain", end: func(d *drill) { d.gateway.Drain() }, sees: "cut", ending: receipts.Shutdown, out: first},
		{name: "the drain time ends", end: func(d *drill) { d.gateway.Cut() }, sees: "cut", ending: receipts.Shutdown, out: first},

		{name: "its key is revoked", end: func(d *drill) { d.use(worldRegistry) }, sees: "cut", ending: receipts.Revoked, out: first},
		{name: "its key expires", life: 3 * time.Minute, end: func(d *drill) { d.clock.Advance(3 * time.Minute) }, sees: "cut", ending: receipts.Revoked, out: first},

		{name: "a panic between two events", upstream: untilTold(func(rw http.ResponseWriter, r *http.Request) {
			send(rw, event)
			<-r.Context().Done()
		}), end: func(d *drill) { d.faulty.broken.Store(true); d.tell() }, sees: "cut", ending: receipts.Panic, out: first},
		{name: "a panic at the end", upstream: untilTold(func(http.ResponseWriter, *http.Request) {}), end: func(d *drill) {
			d.ledger.mu.Lock()
			d.ledger.panicAt = receipts.KindOutcome
			d.ledger.mu.Unlock()
			d.tell()
		}, sees: "cut", ending: receipts.Panic, out: first},
	}
}

// untilTold sends the first event and goes on with then when told to. The
// answer has the given header, or else that of an event stream.
func untilTold(then http.HandlerFunc, header ...string) func(*drill, http.ResponseWriter, *http.Request) {
	return func(d *drill, rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		if len(header) == 2 {
			rw.Header().Set(header[0], header[1])
		}
		send(rw, event)
		select {
		case <-d.told:
			then(rw, r)
		case <-r.Context().Done():
		}
	}
}

func send(w http.ResponseWriter, text string) {
	_, _ = io.WriteString(w, text)
	_ = http.NewResponseController(w).Flush()
}

// flood sends without end.
func flood(text string) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			send(rw, text)
		}
	}
}

func resetUpstream(rw http.ResponseWriter, _ *http.Request) {
	c, _, err := http.NewResponseController(rw).Hijack()
	if err == nil {
		_ = tcp(c).SetLinger(0)
		_ = c.Close()
	}
}

// faultyClock is a clock that panics, once it is broken, when it is read because
// something came from an upstream: the nearest thing to a fault of the gateway's
// own in the middle of an answer.
type faultyClock struct {
	clockwork.Clock
	broken atomic.Bool
}

func (c *faultyClock) Now() time.Time {
	if c.broken.Load() {
		if pc, _, _, ok := runtime.Caller(1); ok && strings.HasSuffix(runtime.FuncForPC(pc).Name(), "(*patience).heard") {
			panic("a fault of ours")
		}
	}
	return c.Clock.Now()
}

func (d *drill) each(f func(*open)) {
	for _, s := range d.streams {
		f(s)
	}
}

// TestStreamsEnd ends streams in every way in which a stream can end, fifty of
// them each time, or two thousand in full. Whatever the way: the client never
// takes a broken stream for a whole one, the upstream's call is cancelled, the
// slots are free within two seconds, each call has one intent and one outcome,
// which says how it ended, and nothing is left running.
func TestStreamsEnd(t *testing.T) {
	for _, w := range ways() {
		for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
			if w.protocol != "" && w.protocol != protocol {
				continue
			}
			t.Run(w.name+" "+protocol, func(t *testing.T) {
				for range drills(1, 40) {
					t.Run("", func(t *testing.T) { w.run(t, protocol, 50) })
				}
			})
		}
	}
}

func (c way) run(t *testing.T, protocol string, n int) {
	leak := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leak) }) // after the world has gone
	d := &drill{told: make(chan struct{})}
	d.tell = sync.OnceFunc(func() { close(d.told) })
	upstream := c.upstream
	switch {
	case c.unary:
		upstream = func(_ *drill, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	case upstream == nil:
		upstream = untilTold(func(http.ResponseWriter, *http.Request) {})
	}
	k := wide("k")
	if c.life > 0 {
		k.NotAfter = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(c.life)
	}
	d.world = setup{
		registry: strings.Replace(worldRegistry, "  tools:\n", "  tools:\n    max_inflight: "+strconv.Itoa(n)+"\n", 1) +
			"rules: [{name: flow, key: tenant, window: 1h, max: 1024GiB, count: bytes}, {name: calls, key: tenant, window: 1h, max: 1000000}]\n",
		settings: func(s *config.Settings) {
			s.MaxInflight, s.TenantQueue, s.TenantQueueWait = n, 8, time.Second // nobody comes who would have to wait
			s.StreamMax = 4 * time.Minute
			if c.name == "the upstream stalls" {
				s.StreamMax = 0
			}
			switch c.ending {
			case receipts.SlowClient:
				s.ClientStall = 400 * time.Millisecond
			case receipts.Timeout, receipts.Revoked: // the clock moves, and may while a write has not quite ended
				s.ClientStall = 0
			}
		},
		clock: func(fake *clockwork.FakeClock) clockwork.Clock {
			if c.ending == receipts.SlowClient {
				return clockwork.NewRealClock()
			}
			d.faulty.Clock = fake
			return &d.faulty
		},
	}.world(t, func(rw http.ResponseWriter, r *http.Request) {
		d.started.Add(1)
		defer d.gone.Add(1)
		upstream(d, rw, r)
	}, k)
	d.front(protocol)
	t.Cleanup(d.tell)
	c.begin(t, d, n)
	if got := d.inFlight("tenant:wide"); got != int64(n) {
		t.Fatalf("%d streams are open and %d slots taken", n, got)
	}
	if process, service := d.room(n); process > 0 || service > 0 {
		t.Fatalf("%d streams are open; under a cap of as many the process has room for %d and the service for %d", n, process, service)
	}

	c.end(d)

	limit := 2 * time.Second
	if c.ending == receipts.SlowClient {
		limit += 5 * time.Second // to fill the kernel's buffers, before the client is felt to have stopped
	}
	within(t, limit, "every call has ended at the upstream", func() bool { return d.gone.Load() == int64(n) })
	within(t, 2*time.Second, "all slots are free", func() bool {
		process, service := d.room(n)
		return d.inFlight("tenant:wide") == 0 && process == n && service == n && d.pooled() == 0
	})
	c.checkClients(d)
	c.checkReceipts(d, n)
	panics := 0
	if c.ending == receipts.Panic {
		panics = n
	}
	if log := d.logged.String(); strings.Count(log, "a handler panicked") != panics || strings.Contains(log, "http: panic") {
		t.Errorf("%d panics of the gateway's own, and the log:\n%.2000s", panics, log)
	}
}

// room is how many calls still find a slot of a process, and of a service, whose cap
// is n. It asks for them, as no other look shows what an admission goes by.
func (d *drill) room(n int) (process, service int) {
	fill := func(a ratelimit.Admission) (found int) {
		for range n + 1 {
			ticket, v := d.limiter.Admit(ratelimit.Charge{}, a, d.nanos.Nanos())
			defer ticket.Release()
			if v.Outcome == ratelimit.Admitted {
				found++
			}
		}
		return found
	}
	return fill(ratelimit.Admission{Service: ratelimit.NewService("another", 0), Process: int64(n)}),
		fill(ratelimit.Admission{Service: ratelimit.NewService("tools", int64(n))})
}

// begin opens the n streams.
func (c way) begin(t *testing.T, d *drill, n int) {
	if c.process {
		child := anotherProcess(t, d.server.URL, d.keys["k"], n)
		d.child = func() { _ = child.Kill() }
		return
	}
	caller := d.caller("k")
	var err error
	if c.unary {
		for i := range n {
			one, err := caller.start(action("get", `{"id":"1"}`))
			if err != nil {
				t.Fatal(err)
			}
			d.streams = append(d.streams, one)
			within(t, 10*time.Second, "the upstream is called", func() bool { return d.started.Load() == int64(i+1) })
		}
	} else {
		d.streams, err = caller.streams(n)
	}
	t.Cleanup(func() {
		for _, s := range d.streams {
			if s != nil {
				s.cancel()
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (c way) checkClients(d *drill) {
	if c.sees == "" {
		return
	}
	for i, s := range d.streams {
		more, err := s.rest()
		if c.more != "*" && more != c.more {
			d.t.Fatalf("stream %d: after the first event came %q, want %q", i, more, c.more)
		}
		if c.sees == "whole" && err != nil || c.sees == "cut" && !cut(err) {
			d.t.Fatalf("stream %d ended with %v; it must look %s", i, err, c.sees)
		}
	}
}

func (c way) checkReceipts(d *drill, n int) {
	status, least := 200, int64(len(event))
	if c.unary {
		status, least = 0, 0
	}
	within(d.t, 2*time.Second, "an outcome of each call", func() bool { return len(d.ledger.all()) >= 2*n })
	intents, outcomes := map[string]int{}, map[string]int{}
	for _, r := range d.ledger.all() {
		switch r.Kind {
		case receipts.KindIntent:
			intents[r.ID]++
		case receipts.KindOutcome:
			outcomes[r.ID]++
			if r.Ending != c.ending || r.Status != status || c.out >= 0 && r.Out != c.out || r.Out < least {
				d.t.Fatalf("an outcome: ending %q, status %d, %d bytes; want %q, %d, %d", r.Ending, r.Status, r.Out, c.ending, status, c.out)
			}
		default:
			d.t.Fatalf("a record of kind %s", r.Kind)
		}
	}
	for id, times := range intents {
		if times != 1 || outcomes[id] != 1 {
			d.t.Fatalf("a call has %d intents and %d outcomes", times, outcomes[id])
		}
	}
	if len(intents) != n || len(outcomes) != n {
		d.t.Fatalf("%d calls have %d intents and %d outcomes", n, len(intents), len(outcomes))
	}
}

// TestHTTP2ResetEndsOneStream: half of the streams of a connection are reset,
// and the other half goes on.
func TestHTTP2ResetEndsOneStream(t *testing.T) {
	const n = 50
	next := make(chan struct{})
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		send(rw, event)
		select {
		case <-next:
			send(rw, "data: 2\n\n")
		case <-r.Context().Done():
		}
	}, wide("k"))
	w.front("HTTP/2")
	streams, err := w.caller("k").streams(n)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range streams[:n/2] {
		s.cancel()
	}
	within(t, 2*time.Second, "half of the slots are free", func() bool { return w.inFlight("tenant:wide") == n/2 })
	close(next)
	shared := <-streams[0].conn
	for _, s := range streams[n/2:] {
		if <-s.conn != shared {
			t.Fatal("the streams have connections of their own")
		}
		if more, err := s.rest(); err != nil || more != "data: 2\n\n" {
			t.Errorf("a stream that was not reset: %q, %v", more, err)
		}
	}
	within(t, 2*time.Second, "all slots are free", func() bool { return w.inFlight("tenant:wide") == 0 })
	within(t, 2*time.Second, "all outcomes are there", func() bool { return len(w.ledger.all()) == 2*n })
	endings := map[receipts.Ending]int{}
	for _, r := range w.ledger.all() {
		endings[r.Ending]++
	}
	if endings[receipts.ClientCancelled] != n/2 || endings[receipts.Complete] != n/2 {
		t.Errorf("the endings: %v", endings)
	}
}

// TestDrainWaitsForTheEventBorder: a stream that is in the middle of an event
// when the drain begins is cut when the event is whole, whatever the upstream
// ends its lines with. All three ways, mixed, are in the event stream format.
func TestDrainWaitsForTheEventBorder(t *testing.T) {
	for _, c := range []struct{ name, begun, rest string }{
		{"LF", "id: 1\ndata: 2", "3\n\n"},
		{"CR LF", "id: 1\r\ndata: 2", "3\r\n\r\n"},
		{"CR", "id: 1\rdata: 2", "3\r\r"},
		{"LF and CR LF", "id: 1\rdata: 2", "3\n\r\n"},
		{"CR LF and LF", "id: 1\ndata: 2", "3\r\n\n"},
		{"CR and CR LF", "id: 1\ndata: 2", "3\r\r\n"},
		{"CR LF and CR", "id: 1\ndata: 2", "3\r\n\r"},
		{"LF and CR", "id: 1\ndata: 2", "3\n\r"},
		{"the border alone", "data: 2\n", "\n"},
		{"between two lines, LF", "id: 1\n", "data: 2\n\n"},
		{"between two lines, CR LF", "id: 1\r\n", "data: 2\r\n\r\n"},
		{"between two lines, CR", "id: 1\r", "data: 2\r\r"},
	} {
		t.Run(c.name, func(t *testing.T) {
			next := make(chan string)
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Content-Type", "text/event-stream")
				send(rw, event+c.begun)
				for text := range next {
					send(rw, text)
				}
				<-r.Context().Done()
			}, wide("k"))
			finish := sync.OnceFunc(func() { close(next) })
			defer finish()
			w.front("HTTP/1.1")
			stream, err := w.caller("k").call("stream", "{}")
			if err != nil {
				t.Fatal(err)
			}
			defer stream.cancel()
			if err := stream.expect(event + c.begun); err != nil {
				t.Fatal(err)
			}
			w.gateway.Drain()
			next <- c.rest
			if err := stream.expect(c.rest); err != nil {
				t.Fatalf("the rest of the event: %v", err)
			}
			if more, err := stream.rest(); !cut(err) || more != "" {
				t.Errorf("after the border: %q, %v; want a cut and nothing more", more, err)
			}
			eventually(t, "no slot is taken", func() bool { return w.inFlight("tenant:wide") == 0 })
			if r := w.ledger.all(); r[len(r)-1].Ending != receipts.Shutdown || r[len(r)-1].Out != int64(len(event+c.begun+c.rest)) {
				t.Errorf("the outcome: %q after %d bytes", r[len(r)-1].Ending, r[len(r)-1].Out)
			}
		})
	}
}

// TestEventsBuyIdleTime: the idle time begins again with each event, and the age
// of a stream does not.
func TestEventsBuyIdleTime(t *testing.T) {
	p := newPaced("Content-Type", "text/event-stream")
	w := setup{settings: func(s *config.Settings) {
		s.StreamMax = 14 * time.Minute
		s.ClientStall = 0 // the clock moves, and may while a write has not quite ended
	}}.world(t, p.serve, wide("k"))
	t.Cleanup(p.finish)
	got, err := w.caller("k").call("stream", "{}")
	if err != nil {
		t.Fatal(err)
	}
	defer got.cancel()
	for at := range 3 {
		w.clock.Advance(4 * time.Minute)
		p.next <- []byte(event)
		if err := got.expect(event); err != nil {
			t.Fatalf("after %d minutes, 4 of them silent: %v", 4*(at+1), err)
		}
	}
	w.clock.Advance(2 * time.Minute)
	if more, err := got.rest(); !cut(err) || more != "" {
		t.Errorf("after 14 minutes: %q, %v; want a cut", more, err)
	}
}

// TestStreamWhoseOutcomeIsLost: an answer that has begun and whose outcome
// cannot be written is cut, since it must not look like one that is recorded,
// and nothing of the refusal stands in it.
func TestStreamWhoseOutcomeIsLost(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			p := newPaced("Content-Type", "text/event-stream")
			w := newWorld(t, p.serve, wide("k"))
			t.Cleanup(p.finish)
			w.front(protocol)
			got, err := w.caller("k").call("stream", "{}")
			if err != nil {
				t.Fatal(err)
			}
			defer got.cancel()
			p.next <- []byte(event)
			if err := got.expect(event); err != nil {
				t.Fatal(err)
			}
			w.ledger.mu.Lock()
			w.ledger.fail = receipts.ErrUnavailable
			w.ledger.mu.Unlock()
			p.finish()
			if more, err := got.rest(); !cut(err) || more != "" {
				t.Errorf("after the event: %q, %v; want a cut and nothing more", more, err)
			}
			within(t, 2*time.Second, "no slot is taken", func() bool { return w.inFlight("tenant:wide") == 0 })
		})
	}
}

// TestCutBeforeTheAnswer: a call whose upstream has not begun to answer goes on
// while the gateway drains, and is told so when it is cut.
func TestCutBeforeTheAnswer(t *testing.T) {
	called, gone := make(chan struct{}), make(chan struct{})
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		close(called)
		<-r.Context().Done()
		close(gone)
	}, wide("k"))
	got, err := w.caller("k").start(action("get", `{"id":"1"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer got.cancel()
	<-called
	w.gateway.Drain()
	if n := w.inFlight("tenant:wide"); n != 1 {
		t.Errorf("%d slots are taken during the drain, want 1", n)
	}
	w.gateway.Cut()
	<-got.done
	<-gone
	if got.err != nil || got.StatusCode != 503 || got.Header.Get("Agentgate-Code") != "draining" || got.Header.Get("X-Should-Retry") != "false" {
		t.Fatalf("%+v, %v; want 503 draining, and no second try", got.Response, got.err)
	}
	if r := w.ledger.all(); len(r) != 2 || r[1].Ending != receipts.Shutdown || r[1].Code != "draining" {
		t.Errorf("%d records, the last %q %s", len(r), r[len(r)-1].Ending, r[len(r)-1].Code)
	}
}

// TestDrainingRefusesNewCalls: and keeps nothing of them.
func TestDrainingRefusesNewCalls(t *testing.T) {
	w := newWorld(t, hello, everything("k"))
	w.gateway.Drain()
	got := w.act("k", `{"service":"tools","action":"get","params":{"id":"1"}}`)
	if got.status != 503 || got.code != "draining" || got.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", got.status, got.body)
	}
}
