package gateway_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"go.uber.org/goleak"

	"agentgw/internal/config"
	"agentgw/internal/receipts"
	"agentgw/internal/websocket"
)

// talkers are n WebSockets that are open at once and are to end in one way.
type talkers struct {
	*world
	clients  []*side
	services []*side // their other ends
	mu       sync.Mutex
	gone     atomic.Int64 // services that have seen the end
	faulty   faultyClock
	told     chan struct{} // closed: services flood
}

// parting is a way for a WebSocket to end.
type parting struct {
	name   string
	end    func(t *talkers)
	waits  bool          // for what is left to the other side: the clock moves while the end is awaited
	moves  bool          // end moves the clock
	real   bool          // by the real clock
	code   int           // of the close that the client sees; 0: none, the connection just ends
	rest   string        // all that the client still reads, where a frame is under way
	deaf   bool          // the client sees nothing any more
	flood  bool          // services send without end
	life   time.Duration // of the key
	ending receipts.Ending
}

func (t *talkers) eachClient(f func(*side)) {
	for _, s := range t.clients {
		f(s)
	}
}

func (t *talkers) eachService(f func(*side)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.services {
		f(s)
	}
}

func endSide(s *side)   { _ = tcp(s.Conn).CloseWrite() }
func resetSide(s *side) { _ = tcp(s.Conn).SetLinger(0); _ = s.Close() }

func sends(b ...byte) func(*talkers) {
	return func(t *talkers) { t.eachClient(func(s *side) { _ = s.raw(b) }) }
}

func partings() []parting {
	closing := func(s *side) { _ = s.close(websocket.Normal, "done") }
	masked := []byte{1, 2, 3, 4}
	huge := append(append([]byte{0x82, 0xff}, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), masked...)
	large := append(append([]byte{0x82, 0xff}, 0, 0, 0, 0, 0x40, 0, 0, 0), masked...)
	return []parting{
		{name: "the client closes", end: func(t *talkers) { t.eachClient(closing) }, code: 1000, ending: receipts.Complete},
		{name: "the service closes", end: func(t *talkers) { t.eachService(func(s *side) { _ = s.close(4321, "enough") }) }, code: 4321, ending: receipts.Complete},
		{name: "both close at once", end: func(t *talkers) { t.eachService(closing); t.eachClient(closing) }, code: 1000, ending: receipts.Complete},
		{name: "the client closes and goes", end: func(t *talkers) { t.eachClient(func(s *side) { closing(s); endSide(s) }) }, code: 1000, ending: receipts.Complete},
		{name: "the client's process ends", end: func(t *talkers) { t.eachClient(func(s *side) { _ = s.Close() }) }, deaf: true, ending: receipts.ClientCancelled},
		{name: "the client ends its side", end: func(t *talkers) { t.eachClient(endSide) }, ending: receipts.ClientCancelled},
		{name: "the client resets the connection", end: func(t *talkers) { t.eachClient(resetSide) }, deaf: true, ending: receipts.ClientCancelled},
		{name: "the client stops reading", end: func(t *talkers) { close(t.told) }, flood: true, real: true, deaf: true, ending: receipts.SlowClient},

		{name: "the service dies", end: func(t *talkers) { t.eachService(func(s *side) { _ = s.Close() }) }, waits: true, code: 1014, ending: receipts.UpstreamAborted},
		{name: "the service ends its side", end: func(t *talkers) { t.eachService(endSide) }, waits: true, code: 1014, ending: receipts.UpstreamAborted},
		{name: "the service resets the connection", end: func(t *talkers) { t.eachService(resetSide) }, code: 1014, ending: receipts.UpstreamAborted},
		{name: "the service dies in a frame", end: func(t *talkers) { t.eachService(func(s *side) { _ = s.raw([]byte{0x81, 10, 'h', 'a'}); resetSide(s) }) }, rest: "\x81\x0aha", ending: receipts.UpstreamAborted},
		{name: "the service breaks the protocol", end: func(t *talkers) { t.eachService(func(s *side) { _ = s.raw([]byte{0xc1, 1, 'x'}) }) }, code: 1014, ending: receipts.UpstreamAborted},
		{name: "the service masks", end: func(t *talkers) { t.eachService(func(s *side) { _ = s.raw([]byte{0x81, 0x81, 0, 0, 0, 0, 'x'}) }) }, code: 1014, ending: receipts.UpstreamAborted},
		{name: "the service is silent", end: func(t *talkers) { t.clock.Advance(5 * time.Minute) }, moves: true, code: 1008, ending: receipts.Timeout},
		{name: "the connection is too old", end: func(t *talkers) { t.clock.Advance(4 * time.Minute) }, moves: true, code: 1008, ending: receipts.Timeout},

		{name: "an unmasked frame", end: sends(0x81, 1, 'x'), code: 1002, ending: receipts.ClientCancelled},
		{name: "a reserved bit", end: sends(0xc1, 0x80, 1, 2, 3, 4), code: 1002, ending: receipts.ClientCancelled},
		{name: "a reserved opcode", end: sends(0x83, 0x80, 1, 2, 3, 4), code: 1002, ending: receipts.ClientCancelled},
		{name: "a fragmented ping", end: sends(0x09, 0x80, 1, 2, 3, 4), code: 1002, ending: receipts.ClientCancelled},
		{name: "nothing to continue", end: sends(0x80, 0x80, 1, 2, 3, 4), code: 1002, ending: receipts.ClientCancelled},
		{name: "a length of 2^63-1", end: sends(huge...), code: 1002, ending: receipts.ClientCancelled},
		{name: "a message over the cap", end: sends(large...), code: 1009, ending: receipts.Budget},
		{name: "a text that is not UTF-8", end: func(t *talkers) { t.eachClient(func(s *side) { _ = s.send(websocket.Text, "\xff") }) }, code: 1007, ending: receipts.ClientCancelled},
		{name: "half a code", end: func(t *talkers) { t.eachClient(func(s *side) { _ = s.send(websocket.Closing, "x") }) }, code: 1002, ending: receipts.ClientCancelled},
		{name: "a code that is none", end: func(t *talkers) { t.eachClient(func(s *side) { _ = s.close(1005, "") }) }, code: 1002, ending: receipts.ClientCancelled},

		{name: "its key is revoked", end: func(t *talkers) { t.use(wsRegistry) }, code: 1008, ending: receipts.Revoked},
		{name: "its key expires", life: 3 * time.Minute, end: func(t *talkers) { t.clock.Advance(3 * time.Minute) }, moves: true, code: 1008, ending: receipts.Revoked},
		{name: "its tenant is blocked", end: func(t *talkers) { t.gateway.Block("tenant:wide") }, code: 1008, ending: receipts.Blocked},
		{name: "drain", end: func(t *talkers) { t.gateway.Drain() }, code: 1001, ending: receipts.Shutdown},
		{name: "the drain time ends", end: func(t *talkers) { t.gateway.Cut() }, code: 1001, ending: receipts.Shutdown},
		{name: "a panic", end: func(t *talkers) {
			t.faulty.broken.Store(true)
			t.eachService(func(s *side) { _ = s.send(websocket.Text, "hello") })
		}, ending: receipts.Panic},
	}
}

// TestWebSocketsEnd ends WebSockets in every way in which one can end, twenty of them each
// time, or two thousand in full. Whatever the way: the client is told with the code that
// there is for it, the service's connection ends, all slots are free, each connection has
// one intent and one outcome, which says how it ended, and nothing is left running.
func TestWebSocketsEnd(t *testing.T) {
	for _, p := range partings() {
		t.Run(p.name, func(t *testing.T) {
			for range drills(1, 100) {
				t.Run("", func(t *testing.T) { p.run(t, 20) })
			}
		})
	}
}

func (p parting) run(t *testing.T, n int) {
	leak := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leak) }) // after the world has gone
	k := wide("k")
	if p.life > 0 {
		k.NotAfter = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(p.life)
	}
	d := &talkers{told: make(chan struct{})}
	d.world = wsWorld(t, setup{
		registry: strings.ReplaceAll(wsRegistry, "  llm: {", fmt.Sprintf("  llm: {max_inflight: %d, ", n)),
		settings: func(s *config.Settings) {
			s.StreamMax = 4 * time.Minute
			if p.name == "the service is silent" {
				s.StreamMax = 0
			}
			if p.real {
				s.ClientStall = 400 * time.Millisecond
			}
			if p.waits || p.moves { // the clock moves, and may while a write has not quite ended
				s.ClientStall = 0
			}
		},
		clock: func(fake *clockwork.FakeClock) clockwork.Clock {
			if p.real {
				return clockwork.NewRealClock()
			}
			d.faulty.Clock = fake
			return &d.faulty
		},
	}, func(rw http.ResponseWriter, r *http.Request) {
		s, err := accept(rw, r)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = s.Close(); d.gone.Add(1) }()
		d.mu.Lock()
		d.services = append(d.services, s)
		d.mu.Unlock()
		if p.flood {
			text := strings.Repeat("x", 60<<10)
			<-d.told
			for s.send(websocket.Text, text) == nil {
			}
			return
		}
		for {
			f, err := s.next()
			if err != nil {
				return
			}
			if f.Opcode == websocket.Closing {
				_ = s.send(f.Opcode, f.payload)
				return
			}
		}
	}, k)
	d.front("HTTP/1.1")
	for range n {
		d.clients = append(d.clients, d.talk("llm/x", "k"))
	}
	if got := d.inFlight("tenant:wide"); got != int64(n) {
		t.Fatalf("%d WebSockets are open and %d slots taken", n, got)
	}
	within(t, 10*time.Second, "every service is spoken to", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.services) == n
	})

	p.end(d)

	limit := 5 * time.Second
	within(t, limit, "all slots are free", func() bool {
		if p.waits {
			d.clock.Advance(time.Second)
		}
		return d.inFlight("tenant:wide") == 0 && d.pooled() == 0
	})
	within(t, limit, "every service has seen the end", func() bool { return d.gone.Load() == int64(n) })
	for i, c := range d.clients {
		if p.deaf {
			break
		}
		if p.rest != "" { // no close stands within a frame
			_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
			if got, err := io.ReadAll(c.r); string(got) != p.rest {
				t.Fatalf("WebSocket %d: %q, %v; want %q", i, got, err, p.rest)
			}
			continue
		}
		f, err := c.next()
		if p.code == 0 && err == nil || p.code != 0 && (err != nil || f.code() != p.code) {
			t.Fatalf("WebSocket %d: %v (code %d), %v; want code %d", i, f, f.code(), err, p.code)
		}
		if _, err := c.next(); err == nil || p.code != 0 && !errors.Is(err, io.EOF) {
			t.Fatalf("WebSocket %d: behind the close: %v", i, err)
		}
		_ = c.Close()
	}
	p.checkReceipts(d, n)
	panics := 0
	if p.ending == receipts.Panic {
		panics = n
	}
	within(t, 2*time.Second, "every panic is in the log", func() bool { return strings.Count(d.logged.String(), "a handler panicked") >= panics })
	if log := d.logged.String(); strings.Count(log, "a handler panicked") != panics || strings.Contains(log, "http: panic") {
		t.Errorf("%d panics of the gateway's own, and the log:\n%.2000s", panics, log)
	}
}

func (p parting) checkReceipts(d *talkers, n int) {
	d.t.Helper()
	within(d.t, 2*time.Second, "an outcome of each", func() bool { return len(d.ledger.all()) >= 2*n })
	intents, outcomes := map[string]int{}, map[string]int{}
	for _, r := range d.ledger.all() {
		switch r.Kind {
		case receipts.KindIntent:
			intents[r.ID]++
		case receipts.KindOutcome:
			outcomes[r.ID]++
			if r.Ending != p.ending || r.Status != 101 {
				d.t.Fatalf("an outcome: ending %q, status %d; want %q", r.Ending, r.Status, p.ending)
			}
		default:
			d.t.Fatalf("a record of kind %s: %s", r.Kind, r.Code)
		}
	}
	for id, times := range intents {
		if times != 1 || outcomes[id] != 1 {
			d.t.Fatalf("a call has %d intents and %d outcomes", times, outcomes[id])
		}
	}
	if len(intents) != n || len(outcomes) != n {
		d.t.Fatalf("%d WebSockets have %d intents and %d outcomes", n, len(intents), len(outcomes))
	}
}
