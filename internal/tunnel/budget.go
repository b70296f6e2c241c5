// Package tunnel counts the bytes that flow through tunnels against what callers may have
// of them. It is arithmetic on numbers and time: it knows neither connections nor what a
// caller is.
//
// A caller has a number of bytes for a window of time that begins with his first byte, up
// and down together, over all his tunnels. When the window is over the next byte begins
// another. Nothing happens in between: no task runs, and time is an argument. Every piece
// is counted before it flows, so that of any number of tunnels one piece at most passes the
// limit: the one that some of the limit was left for.
//
//	lease := budgets.Spend("key:ci-bot", limit, n, now)
//	if !lease.OK { ... } // nothing more may flow: end the tunnel
//
// Counts are in memory: a process that starts anew has forgotten them. A Fleet has several
// processes count together, in windows that somebody keeps for them.
package tunnel

import (
	"container/list"
	"sync"
	"time"
)

// looks is how many of the oldest windows are looked at to make room for one.
const looks = 8

// Budgets are the windows of all callers. A table of Budgets is bounded: what is over goes
// when others come, and who finds no room shares one window with all others who do not.
// Make it with NewBudgets. Safe for concurrent use.
type Budgets struct {
	size int
	warn func()

	mu     sync.Mutex
	of     map[string]*list.Element // of *budget
	oldest *list.List               // by when their windows began
	shared window
	warned bool
	last   int64 // time of the last warning
}

type budget struct {
	caller string
	window window
}

// NewBudgets returns budgets of which nothing is used. It keeps the windows of size
// callers; warn is called, at most once a minute, when there is no room for another.
func NewBudgets(size int, warn func()) *Budgets {
	return &Budgets{size: max(1, size), warn: warn, of: map[string]*list.Element{}, oldest: list.New()}
}

// Lease is the answer to bytes that want to flow.
type Lease struct {
	OK   bool // they may
	Last bool // and with them the limit is reached

	began int64 // of the window that they are counted in
	loan  int64 // when the window began that they were lent of; 0: none
}

// Spend counts n bytes of a caller that are about to flow, at least 1, in the window of
// now, or refuses them, which only a Limit that cuts does.
func (b *Budgets) Spend(caller string, l Limit, n, now int64) Lease {
	if l.Bytes <= 0 {
		return Lease{OK: true}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.windowLocked(caller, now)
	began, fresh := w.began, w.at(l, now).used == 0
	var lease Lease
	*w, lease = w.spend(l, n, now)
	if e := b.of[caller]; e != nil && fresh && w.began != began {
		b.oldest.MoveToBack(e)
	}
	return lease
}

// Return takes back what was counted under a lease and did not flow, unless another
// window has begun since.
func (b *Budgets) Return(caller string, lease Lease, unused int64) {
	if !lease.OK || unused <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	w := &b.shared
	if e := b.of[caller]; e != nil {
		w = &e.Value.(*budget).window
	}
	if w.began == lease.began {
		w.used = max(0, w.used-unused)
	}
}

// Standing reads how a caller stands. It makes no entry.
func (b *Budgets) Standing(caller string, l Limit, now int64) Standing {
	if l.Bytes <= 0 {
		return Standing{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.of[caller]; e != nil {
		return e.Value.(*budget).window.standing(l, now)
	}
	return b.shared.standing(l, now)
}

// Open implements Counter.
func (b *Budgets) Open(string) {}

// Close implements Counter.
func (b *Budgets) Close(string) {}

// Exhausted implements Counter.
func (b *Budgets) Exhausted(caller string, l Limit, now int64) bool {
	return b.Standing(caller, l, now).Exhausted() > 0
}

// Len is how many callers have a window of their own in the table.
func (b *Budgets) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.of)
}

// windowLocked is where the bytes of a caller are counted. A new one begins with what is
// used of the shared window: it may be who used it.
func (b *Budgets) windowLocked(caller string, now int64) *window {
	if e := b.of[caller]; e != nil {
		return &e.Value.(*budget).window
	}
	if !b.roomLocked(now) {
		b.warnLocked(now)
		return &b.shared
	}
	n := &budget{caller: caller, window: b.shared}
	b.of[caller] = b.oldest.PushBack(n)
	return &n.window
}

// roomLocked lets the oldest windows go that are over, two for each that comes, so that a
// table that was full once does not stay so; and looks at a few more where there is no room.
func (b *Budgets) roomLocked(now int64) bool {
	e := b.oldest.Front()
	for look := 0; e != nil && (look < 2 || look < looks && len(b.of) >= b.size); look++ {
		next, old := e.Next(), e.Value.(*budget)
		if now-old.window.began >= old.window.length {
			b.oldest.Remove(e)
			delete(b.of, old.caller)
		}
		e = next
	}
	return len(b.of) < b.size
}

func (b *Budgets) warnLocked(now int64) {
	if b.warned && now-b.last < int64(time.Minute) {
		return
	}
	b.warned, b.last = true, now
	if b.warn != nil {
		b.warn()
	}
}
