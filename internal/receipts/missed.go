package receipts

import (
	"cmp"
	"slices"
	"time"
)

// Why attempts have no records of their own (FORMAT.md, section 3.5).
const (
	reasonFull   = "disk_full"
	reasonSlow   = "disk_slow"
	reasonFailed = "log_failed"
)

// passPatience is how long a call that is let through waits for the note of it: a
// disk that hangs takes none.
const passPatience = commitTimeout / 4

// missed counts attempts that have no record, until the log can say how many they were.
type missed struct {
	of       missedOf
	id       string // of the record that will say so; "" while the count is 0
	from, to time.Time
	count    uint64

	// Those that were let through and may yet have a record of their own.
	passing   uint64
	passingID string    // of the record that says so where they are lost
	passedAt  time.Time // the first of them
	safe      bool      // the file has told of this since it was last empty
}

// missedOf is what those have in common that are counted together.
type missedOf struct {
	tenant, reason string
	refused        bool
}

type counts map[missedOf]*missed

// Miss counts an attempt that was answered and has no record, since Append has
// returned ErrUnavailable for each: once for each attempt, and not where Append has
// returned ErrLate for one. Only the tenant is taken from r. As soon as the log
// takes records again it says in a signed record how many they were: a gap, or a
// summary of refusals where refused says that they were refused for want of a
// receipt. If the process ends before that, the next one does: exactly after Close,
// and else with the number of about a second before. That is not promised where the
// disk takes no bytes at all.
func (l *Log) Miss(r *Record, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	m := l.missedLocked(r, refused)
	if m.count == 0 {
		m.id, m.from, m.to = l.newID(), now, now
		l.notes.nudge()
	}
	m.count++
	m.to = now
	if m.to.Before(m.from) { // the clock was put back
		m.to = m.from
	}
	if r.passed != nil {
		l.landedLocked(r.passed)
		r.passed = nil
	}
	if !refused {
		l.gaps.Add(1)
	}
	l.nudge()
}

func (l *Log) missedLocked(r *Record, refused bool) *missed {
	of := missedOf{tenant: r.Tenant, reason: cmp.Or(l.reason, reasonSlow), refused: refused}
	m := l.missing[of]
	if m == nil {
		m = &missed{of: of}
		l.missing[of] = m
	}
	return m
}

// Pass is told of an attempt that is about to be let through, or answered, though
// Append has returned ErrUnavailable for a record of it; late where that was ErrLate.
// It returns once the disk has a note of it, so that not even a kill -9 leaves a log
// that does not say that something is missing; or where the disk takes none. The
// attempt is to be followed by another Append of r or by Miss, unless it is late.
func (l *Log) Pass(r *Record, late bool) {
	l.mu.Lock()
	if r.passed != nil {
		l.mu.Unlock()
		return
	}
	b := l.filling
	if late && len(b.slots) == 0 {
		b = l.writing
	}
	if late && b == nil && l.failure == nil { // it is on disk by now
		l.mu.Unlock()
		return
	}
	m := l.missedLocked(r, false)
	if m.passing == 0 {
		m.passingID, m.passedAt = l.newID(), l.clock.Now()
	}
	m.passing++
	switch {
	case !late:
		r.passed = m
	case b != nil:
		b.passed = append(b.passed, m)
	}
	if m.safe || l.notes.hopeless {
		l.mu.Unlock()
		return
	}
	if l.notes.next == nil {
		l.notes.next = make(chan struct{})
	}
	noted := l.notes.next
	l.notes.nudge()
	l.mu.Unlock()
	timer := l.clock.NewTimer(passPatience)
	defer timer.Stop()
	select {
	case <-noted:
	case <-timer.Chan():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-noted:
		m.safe = true
	default:
		l.notes.hopeless = true
	}
}

// landedLocked: one of those who were let through is accounted for.
func (l *Log) landedLocked(m *missed) {
	m.passing--
	m.easeLocked(l)
}

// easeLocked forgets what there is nothing to say of.
func (m *missed) easeLocked(l *Log) {
	if m.passing == 0 && m.count == 0 && l.missing[m.of] == m {
		delete(l.missing, m.of)
	}
}

// declareLocked queues what says how many attempts have no record. It reports
// whether all of it found room.
func (l *Log) declareLocked() bool {
	order := make([]*missed, 0, len(l.missing))
	for _, m := range l.missing {
		if m.count > 0 {
			order = append(order, m)
		}
	}
	slices.SortFunc(order, func(a, b *missed) int {
		return cmp.Or(a.from.Compare(b.from), cmp.Compare(a.of.tenant, b.of.tenant), cmp.Compare(a.of.reason, b.of.reason))
	})
	for _, m := range order {
		n := noted{ID: m.id, Kind: notedGap, Tenant: m.of.tenant, Reason: m.of.reason, From: m.from, To: m.to, Count: m.count, Exact: true}
		if m.of.refused {
			n.Kind = notedRefused
		}
		r := n.record()
		r.Time, r.Replica, r.Interval = l.clock.Now(), l.replica, l.interval
		cost := costOf(r)
		if !l.space.has(cost) {
			l.space.ask(cost, l.clock.Now())
			return false
		}
		l.filling.began = l.clock.Now().Add(-intervalLinger) // nobody is to come with it
		s := slots.Get().(*slot)
		index := l.next
		l.putLocked(s, r, cost)
		l.nameLocked(s, r, index)
		if r.Seq > 1 || s.branch == nil {
			l.encode(s, r, index)
		}
		l.filling.encoding.Done()
		l.filling.told = append(l.filling.told, n)
		m.count = 0
		m.easeLocked(l)
	}
	return true
}
