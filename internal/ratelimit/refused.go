package ratelimit

// Refusal is the last time that a tenant's call was refused, and why. The zero
// Refusal is none.
type Refusal struct {
	At   int64  // as all times that the limiter is told
	Code string // as the caller was told, as is Limit
	// Limit is the one that decided; "" where none did.
	Limit string
	// Partition is the tenant whose call it was: of an entry that many share, one
	// of them.
	Partition string
}

// Refused notes for operators that a call of the tenant r was refused. No
// decision depends on it. It is kept for as long as the tenant's entry is, and so
// bounded with the table, and costs nobody who is admitted anything.
func (l *Local) Refused(r *Ref, code, limit string, now int64) {
	e := l.tables[r.table].lock(r, now)
	defer e.mu.Unlock()
	rare := e.rareLocked()
	if rare.refused.Code == "" || now >= rare.refused.At { // two refusals may come here in another order
		rare.refused = Refusal{At: now, Code: code, Limit: limit, Partition: r.partition}
	}
}

// Look reads how the partition key of r stands under the limits of r: what is
// left, what runs, whether it is blocked, when it was last refused. It makes no
// entry and keeps none alive. Overflow says that it has none of its own and that
// something is known of it all the same.
func (l *Local) Look(r *Ref, now int64) Entry {
	bucket, _ := l.Peek(r, now)
	d := Entry{
		Table: r.table, Kind: r.kind, Partition: r.partition,
		Limit: r.limit, Remaining: bucket.Remaining, Cap: r.slots,
		Blocked: r.kind == KindTenant && l.Blocked(r.table, r.partition),
	}
	if r.kind == KindTenant {
		d.Waiting = l.waits(r.table, r.partition)
	}
	t := l.tables[r.table]
	if e := t.peek(r.id()); e != nil {
		d.InFlight, d.LastRefusal = e.standing()
		return d
	}
	over := t.overflow[r.kind]
	d.InFlight = over.guests.count(r.partition)
	if e := over.peek(r.limit); e != nil {
		if _, last := e.standing(); last.Partition == r.partition {
			d.LastRefusal = last
		}
	}
	d.Overflow = d.InFlight > 0 || d.LastRefusal.Code != ""
	return d
}

// standing is how many calls run, and the last refusal.
func (e *entry) standing() (inFlight int64, last Refusal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rare != nil {
		last = e.rare.refused
	}
	return e.inFlightLocked(), last
}
