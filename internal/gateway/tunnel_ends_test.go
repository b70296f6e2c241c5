package gateway_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"go.uber.org/goleak"

	"agentgw/internal/config"
	"agentgw/internal/receipts"
)

// tunnels are many that are open at once and are to end in one way.
type tunnels struct {
	*world
	faulty  faultyClock
	section string
	open    []*through
	told    chan struct{} // closed: the other side does its part
	ended   atomic.Int64  // other sides that have seen a clean end,
	broken  atomic.Int64  // or one that was none
}

// tunnelWay is a way for a tunnel to end. Each has carried "hi" both ways before.
type tunnelWay struct {
	name   string
	far    func(d *tunnels, c *net.TCPConn) // what the other side does after that; nil: it reads to the end, and ends
	end    func(d *tunnels)
	waits  time.Duration // and then this long; -1: as long as it takes to be felt, and then to end
	sees   string        // the client: "end", "cut", or nothing where it is gone; behind "*" anything
	far2   string        // the other side: "end" or "cut"; "" where it does not look
	life   time.Duration // of the key; -1: of the tunnel, and nothing else bounds its silence
	ending receipts.Ending
	in     int64 // bytes up; -1: some
	out    int64
}

func (d *tunnels) each(f func(c *through)) {
	for _, c := range d.open {
		f(c)
	}
}

func tcpOf(c *through) *net.TCPConn { return c.Conn.(*net.TCPConn) }

func tunnelWays() []tunnelWay {
	tell := func(d *tunnels) { close(d.told) }
	whenTold := func(then func(c *net.TCPConn)) func(*tunnels, *net.TCPConn) {
		return func(d *tunnels, c *net.TCPConn) {
			<-d.told
			then(c)
		}
	}
	half := func(d *tunnels) { d.each(func(c *through) { _ = tcpOf(c).CloseWrite() }) }
	silent := func(d *tunnels, c *net.TCPConn) { // and does not end when the client does
		_, err := io.Copy(io.Discard, c)
		d.saw(err)
		<-d.told
	}
	return []tunnelWay{
		{name: "the client ends its side, and then the other", end: half, sees: "end", far2: "end", ending: receipts.Complete, in: 2, out: 2},
		{name: "the client closes", end: func(d *tunnels) { d.each(func(c *through) { _ = c.Close() }) }, far2: "end", ending: receipts.Complete, in: 2, out: 2},
		{name: "the other side ends, and then the client", far: whenTold(func(c *net.TCPConn) { _ = c.CloseWrite(); _, _ = io.Copy(io.Discard, c) }),
			end: func(d *tunnels) { tell(d); d.each(func(c *through) { _, _ = io.ReadAll(c) }); half(d) }, sees: "end", ending: receipts.Complete, in: 2, out: 2},
		{name: "the client resets", end: func(d *tunnels) { d.each(func(c *through) { _ = tcpOf(c).SetLinger(0); _ = c.Close() }) }, far2: "cut", ending: receipts.ClientCancelled, in: 2, out: 2},
		{name: "the other side resets", far: whenTold(func(c *net.TCPConn) { _ = c.SetLinger(0) }), end: tell, sees: "cut", ending: receipts.UpstreamAborted, in: 2, out: 2},
		{name: "the client resets in the middle of a flood", far: func(d *tunnels, c *net.TCPConn) { d.saw(floods(c)) },
			end: func(d *tunnels) {
				d.each(func(c *through) { _, _ = c.Peek(1); _ = tcpOf(c).SetLinger(0); _ = c.Close() })
			}, far2: "cut", ending: receipts.ClientCancelled, in: 2, out: -1},
		{name: "the client closes and the other side says goodbye", far: func(d *tunnels, c *net.TCPConn) {
			_, err := io.Copy(io.Discard, c)
			d.saw(err)
			<-d.told
			goodbyes(c)
		}, end: func(d *tunnels) { d.each(func(c *through) { _ = c.Close() }); d.otherSidesSee(&d.ended); tell(d) }, far2: "end", ending: receipts.Complete, in: 2, out: -1},
		{name: "the other side closes and the client says goodbye", far: whenTold(func(*net.TCPConn) {}), end: func(d *tunnels) {
			tell(d)
			d.each(func(c *through) { _, _ = io.ReadAll(c); go goodbyes(tcpOf(c)) })
		}, ending: receipts.Complete, in: -1, out: 2},
		{name: "the client stops reading a flood", far: func(d *tunnels, c *net.TCPConn) { d.saw(floods(c)) },
			end: func(*tunnels) {}, waits: -1, sees: "*cut", far2: "cut", ending: receipts.SlowClient, in: 2, out: -1},
		{name: "the other side stops reading a flood", far: func(d *tunnels, c *net.TCPConn) { <-d.told },
			end: func(d *tunnels) { d.each(func(c *through) { go func() { _ = floods(tcpOf(c)) }() }) }, waits: -1, ending: receipts.Timeout, in: -1, out: 2},
		{name: "nothing flows", end: func(*tunnels) {}, waits: 5 * time.Minute, sees: "cut", far2: "cut", ending: receipts.Timeout, in: 2, out: 2},
		{name: "it is too old", end: func(*tunnels) {}, waits: 14 * time.Minute, life: -1, sees: "cut", far2: "cut", ending: receipts.Timeout, in: 2, out: 2},
		{name: "the other side ends and the client is silent", far: whenTold(func(c *net.TCPConn) { _ = c.CloseWrite(); _, _ = io.Copy(io.Discard, c) }),
			end: func(d *tunnels) { tell(d); d.each(func(c *through) { _, _ = io.ReadAll(c) }) }, waits: 30 * time.Second, ending: receipts.Timeout, in: 2, out: 2},
		{name: "the client ends and the other side is silent", far: silent, end: func(d *tunnels) { half(d); d.otherSidesSee(&d.ended) }, waits: 5 * time.Minute, sees: "cut", far2: "end", ending: receipts.Timeout, in: 2, out: 2},
		{name: "the drain time ends", end: func(d *tunnels) { d.gateway.Drain(); d.gateway.Cut() }, sees: "cut", far2: "cut", ending: receipts.Shutdown, in: 2, out: 2},
		{name: "its tenant is blocked", end: func(d *tunnels) { d.gateway.Block("tenant:wide") }, sees: "cut", far2: "cut", ending: receipts.Blocked, in: 2, out: 2},
		{name: "its key is revoked", end: func(d *tunnels) { d.use(d.section) }, sees: "cut", far2: "cut", ending: receipts.Revoked, in: 2, out: 2},
		{name: "its key expires", life: 3 * time.Minute, end: func(*tunnels) {}, waits: 3 * time.Minute, sees: "cut", far2: "cut", ending: receipts.Revoked, in: 2, out: 2},
		{name: "a panic on the way", end: func(d *tunnels) {
			d.faulty.broken.Store(true)
			d.each(func(c *through) { _, _ = io.WriteString(c, "x") })
		}, sees: "cut", far2: "cut", ending: receipts.Panic, in: 2, out: 2},
		{name: "a panic at the end", end: func(d *tunnels) {
			d.ledger.mu.Lock()
			d.ledger.panicAt = receipts.KindOutcome
			d.ledger.mu.Unlock()
			half(d)
		}, sees: "cut", far2: "end", ending: receipts.Panic, in: 2, out: 2},
	}
}

// goodbyes says one after the other until the connection is over, to a side that has closed:
// it answers one by a reset, and those behind that go nowhere.
func goodbyes(c net.Conn) {
	for {
		if _, err := io.WriteString(c, "bye"); err != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func floods(c net.Conn) error {
	piece := []byte(strings.Repeat("x", 16<<10))
	for {
		if _, err := c.Write(piece); err != nil {
			return err
		}
	}
}

func (d *tunnels) saw(err error) {
	if err == nil {
		d.ended.Add(1)
	} else {
		d.broken.Add(1)
	}
}

// otherSidesSee waits until all of them have seen the same.
func (d *tunnels) otherSidesSee(what *atomic.Int64) {
	within(d.t, 20*time.Second, "the other sides see it", func() bool { return what.Load() == int64(len(d.open)) })
}

func (w tunnelWay) run(t *testing.T, n int) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) }) // the last, as it is the first here
	d := &tunnels{told: make(chan struct{})}
	to := far(t, func(c *net.TCPConn) {
		_ = c.SetReadBuffer(16 << 10) // who stops reading is felt soon
		b := make([]byte, 2)
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		_, _ = c.Write(b)
		if w.far != nil {
			w.far(d, c)
			return
		}
		_, err := io.Copy(io.Discard, c)
		d.saw(err)
	})
	d.section = worldRegistry + fmt.Sprintf("tunnels: {allow: [%q], allow_private: true}\n", to)
	key := wide("k")
	if w.life > 0 {
		key.NotAfter = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(w.life) // as long after the world's beginning
	}
	d.world = setup{
		registry: d.section,
		settings: func(s *config.Settings) {
			if w.life < 0 {
				s.StreamIdle, s.StreamMax = 0, 14*time.Minute
			}
		},
		clock: func(c *clockwork.FakeClock) clockwork.Clock {
			d.faulty.Clock = c
			return &d.faulty
		},
	}.world(t, hello, key)
	d.open = make([]*through, n)
	for i := range n {
		c := d.world.open(to, "k")
		c.say("hi")
		c.hear("hi")
		d.open[i] = c
	}
	if got := d.inFlight("tenant:wide"); got != int64(n) {
		t.Errorf("%d slots are taken", got)
	}
	w.end(d)
	free := func() bool { return d.inFlight("tenant:wide") == 0 && d.pooled() == 0 }
	d.clock.Advance(max(0, w.waits))
	within(t, 20*time.Second, "all slots are free", func() bool {
		if w.waits < 0 {
			d.clock.Advance(time.Second)
		}
		return free()
	})

	for _, r := range d.outcomes(n) {
		if r.Ending != w.ending || r.Code != "" && w.ending != receipts.Panic || r.In != w.in && (w.in >= 0 || r.In <= 2) || r.Out != w.out && (w.out >= 0 || r.Out <= 2) {
			t.Fatalf("%s %q, %d up, %d down; want %s, %d, %d", r.Ending, r.Code, r.In, r.Out, w.ending, w.in, w.out)
		}
	}
	if all := d.ledger.all(); len(all) != 2*n {
		t.Errorf("%d records of %d tunnels", len(all), n)
	}
	var all sync.WaitGroup
	d.each(func(c *through) {
		want, any := strings.CutPrefix(w.sees, "*")
		if want == "" {
			return
		}
		all.Go(func() {
			rest, err := io.ReadAll(c)
			if (err == nil) != (want == "end") || errors.Is(err, os.ErrDeadlineExceeded) || len(rest) > 0 && !any {
				t.Errorf("the client reads %d bytes and %v, want its %s", len(rest), err, want)
			}
		})
	})
	all.Wait()
	switch w.far2 {
	case "end":
		d.otherSidesSee(&d.ended)
	case "cut":
		d.otherSidesSee(&d.broken)
	}
	select {
	case <-d.told:
	default:
		close(d.told)
	}
	d.each(func(c *through) { _ = c.Close() })
}

// TestTunnelsEnd ends tunnels in every way in which a tunnel can end, ten each time or two
// thousand in full. Whatever the way: the slots are free, each has one intent and one outcome
// with its bytes and the way it ended, who is still there sees an end where it was one and
// a break where it was none, on both sides, and no goroutine is left.
func TestTunnelsEnd(t *testing.T) {
	for _, w := range tunnelWays() {
		t.Run(w.name, func(t *testing.T) {
			for range drills(1, 20) {
				w.run(t, drills(10, 100))
			}
		})
	}
}
