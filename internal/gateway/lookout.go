package gateway

import (
	"net"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/hangup"
)

// lookEvery is how often a client is looked at of which nobody reads.
const lookEvery = time.Second / 2

// lookout looks at a client while what it has sent is written to a side that does not take
// it: meanwhile nobody reads from the client, and its reset would be seen when that side goes
// on, which may be never. begin and end are around each write, one at a time.
type lookout struct {
	clock  clockwork.Clock
	at     net.Conn
	broken func() // told that the client is gone

	mu    sync.Mutex
	on    bool
	timer timer
}

func (l *lookout) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.on = true; l.timer == nil {
		l.timer = l.clock.AfterFunc(lookEvery, l.look)
		return
	}
	l.timer.Reset(lookEvery)
}

func (l *lookout) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on = false
	l.timer.Stop()
}

func (l *lookout) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.on:
	case hangup.Broken(l.at):
		l.broken()
	default:
		l.timer.Reset(lookEvery)
	}
}
