package ratelimit

import "runtime"

// Ticket is the right to the slots of one admitted call. It is a value; all its
// copies stand for the same slots. The zero Ticket holds none.
type Ticket struct {
	handle *slotHandle
	turn   uint64
}

// slotHandle is what tickets point to, and what the garbage collector sees die
// when the last copy of a ticket is lost. Nothing else may point to it while a
// call is in flight. It is used again for the tenant's next call, at another turn.
type slotHandle struct {
	held *held
	next *slotHandle // in the tenant's list of those that are free
}

// held is a call's slots. The tenant entry's lock guards it.
type held struct {
	local   *Local
	tenant  *entry
	service *pool
	turn    uint64 // odd while a call holds the slots
	since   int64
	guest   string // the tenant's name, if its entry is the shared one
}

// Release gives the slots back. It does so once: a second release, of any copy,
// from any goroutine, changes nothing and is counted. Defer it before anything
// that can panic.
func (t Ticket) Release() {
	if t.handle == nil {
		return
	}
	t.handle.held.release(t.turn, t.handle)
}

// ticketLocked hands out a ticket for one more slot of e.
func (l *Local) ticketLocked(e *entry, service *pool, guest string, now int64) Ticket {
	h := e.slots.free
	if h == nil {
		h = &slotHandle{held: &held{local: l, tenant: e}}
		runtime.AddCleanup(h, func(lost *held) { lost.reclaim() }, h.held)
	} else {
		e.slots.free, h.next = h.next, nil
	}
	c := h.held
	c.turn++
	c.service, c.since, c.guest = service, now, guest
	return Ticket{handle: h, turn: c.turn}
}

func (c *held) release(turn uint64, h *slotHandle) {
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
	lasted, service := now-c.since, c.service
	if c.guest != "" {
		e.dismissLocked(c.guest)
	}
	s := e.slots
	if h != nil {
		h.next, s.free = s.free, h
	}
	s.hold = averaged(s.hold, lasted)
	s.inUse--
	noted := s.unnote(service)
	e.bucket.seen = max(e.bucket.seen, now)
	if s.inUse == 0 {
		e.unpinLocked(now)
	}
	e.mu.Unlock()
	if !noted {
		service.give(lasted)
	}
	if c.local.options.MaxInFlight > 0 {
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

func (e *entry) dismissLocked(guest string) {
	guests := e.rare.guests
	if guests[guest]--; guests[guest] == 0 {
		delete(guests, guest)
	}
}
