package ratelimit

import "runtime"

// Ticket is the right to the slots of one admitted call. It is a value; all its
// copies stand for the same slots. The zero Ticket holds none.
type Ticket struct {
	held  *held
	watch *watch
	turn  uint64
}

// watch is what the tickets of a call in flight point to and nothing else does:
// the garbage collector sees it die when the last copy of a ticket is lost. It
// holds nothing, but is large enough not to share its memory with others, any of
// which would keep it alive.
type watch struct{ _ [2]int64 }

// held is a call's slots, used again for the tenant's next call, at another turn.
// The tenant entry's lock guards it.
type held struct {
	local   *Local
	tenant  *entry
	service *visit // among the tenant's by service
	turn    uint64 // odd while a call holds the slots
	since   int64
	more    *more // nil: nothing

	// While no call holds the slots: the watch for the next that does, nil if
	// there was none yet, and the next of the tenant's that are free.
	watch *watch
	next  *held
}

// more is what few calls have.
type more struct {
	guest *Ref   // the tenant, if its entry is a shared one
	lease *lease // of the same slots in a store
}

// lend has the ticket's slots be held in a store too, until they are given back here.
func (t Ticket) lend(l *lease) {
	if t.held.more == nil {
		t.held.more = new(more)
	}
	t.held.more.lease = l
}

// endLocked lets go of what goes with the slots of e, whose lock is held: before anybody can
// see that they are free, as who gets them asks the store next.
func (m *more) endLocked(e *entry) {
	if m.guest != nil {
		e.rare.host.guests.leave(m.guest.partition)
	}
	if m.lease != nil {
		m.lease.end()
	}
}

// Release gives the slots back. It does so once: a second release, of any copy,
// from any goroutine, changes nothing and is counted. Defer it before anything
// that can panic.
func (t Ticket) Release() {
	if t.held != nil {
		t.held.release(t.turn, t.watch)
	}
}

// ticketLocked hands out a ticket for one more slot of e.
func (l *Local) ticketLocked(e *entry, service *visit, guest *Ref, now int64) Ticket {
	c := e.slots.free
	if c == nil {
		c = &held{tenant: e}
	}
	if c.local == nil {
		c.local = l // once: a release reads it without the lock
	}
	w := c.watch
	if w == nil {
		w = new(watch)
		runtime.AddCleanup(w, (*held).reclaim, c)
	}
	e.slots.free, c.next, c.watch = c.next, nil, nil
	c.turn++
	c.service, c.since = service, now
	if guest != nil {
		c.more = &more{guest: guest}
	}
	return Ticket{held: c, watch: w, turn: c.turn}
}

func (c *held) release(turn uint64, w *watch) {
	c.giveBack(turn, w)
	if l := c.local; l.line.waiting.Load() > 0 {
		l.serve(l.now())
	}
}

// giveBack is release but for telling those that wait.
func (c *held) giveBack(turn uint64, w *watch) {
	e := c.tenant
	now := c.local.now()
	e.mu.Lock()
	if c.turn != turn {
		e.mu.Unlock()
		c.local.doubled.Add(1)
		return
	}
	c.turn++
	now = max(now, c.since)
	lasted := now - c.since
	if c.more != nil {
		c.more.endLocked(e)
		c.more = nil
	}
	s := e.slots
	c.watch, c.next, s.free = w, s.free, c
	s.hold = averaged(s.hold, lasted)
	s.all.leave(now)
	c.service.leave(now)
	service, all := *c.service, s.all
	e.bucket.seen = e.bucket.now(now)
	if all.n == 0 {
		e.unpinLocked(now)
	}
	e.mu.Unlock()
	if service.counted {
		service.of.give(lasted)
	}
	if all.counted {
		c.local.process.give(lasted)
	}
}

// reclaim runs when no ticket can reach the slots any more. If a call still
// holds them, it was lost without a release, which is a bug in the caller: it is
// counted and told, and the slots come back.
func (c *held) reclaim() {
	c.tenant.mu.Lock()
	turn := c.turn
	c.tenant.mu.Unlock()
	if turn%2 == 0 {
		return
	}
	c.release(turn, nil)
	c.local.leaked.Add(1)
	if c.local.options.Leaked != nil {
		c.local.options.Leaked(c.tenant.id.partition)
	}
}
