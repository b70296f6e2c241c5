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
	h.held.turn++
	h.held.service, h.held.since, h.held.guest = service, now, guest
	return Ticket{handle: h, turn: h.held.turn}
}

func (c *held) release(turn uint64, h *slotHandle) {
	e := c.tenant
	now := c.local.now(0)
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
	if h != nil {
		h.next, e.slots.free = e.slots.free, h
	}
	e.slots.hold = averaged(e.slots.hold, lasted)
	e.slots.inUse--
	e.last = max(e.last, now)
	if e.slots.inUse == 0 {
		e.unpinLocked(now)
	}
	e.mu.Unlock()
	service.give(lasted)
	c.local.process.give(lasted)
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

// welcomeLocked and dismissLocked keep the guests of an overflow entry.
func (e *entry) welcomeLocked(partition string) {
	if e.guests == nil {
		e.guests = make(map[string]int)
	}
	e.guests[partition]++
}

func (e *entry) dismissLocked(partition string) {
	if e.guests[partition]--; e.guests[partition] == 0 {
		delete(e.guests, partition)
	}
}
