package receipts

import (
	"cmp"
	"slices"
	"time"
)

// Why attempts have no records of their own (FORMAT.md, section 3.5).
const (
	reasonFull = "disk_full"
	reasonSlow = "disk_slow"
)

// missed counts attempts that have no record, until the log can say how many they were.
type missed struct {
	from, to time.Time
	count    uint64
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
// receipt. A process that ends before that takes the number with it.
func (l *Log) Miss(r *Record, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := missedOf{tenant: r.Tenant, reason: cmp.Or(l.reason, reasonSlow), refused: refused}
	now := l.clock.Now()
	m := l.missing[of]
	if m == nil {
		m = &missed{from: now}
		l.missing[of] = m
	}
	m.count++
	m.to = now
	if m.to.Before(m.from) { // the clock was put back
		m.to = m.from
	}
	if !refused {
		l.gaps.Add(1)
	}
	l.nudge()
}

// declareLocked queues what says how many attempts have no record. It reports
// whether all of it found room.
func (l *Log) declareLocked() bool {
	if len(l.missing) == 0 {
		return true
	}
	order := make([]missedOf, 0, len(l.missing))
	for of := range l.missing {
		order = append(order, of)
	}
	slices.SortFunc(order, func(a, b missedOf) int {
		return cmp.Or(l.missing[a].from.Compare(l.missing[b].from), cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.reason, b.reason))
	})
	for _, of := range order {
		m := l.missing[of]
		r := &Record{Kind: KindGap, ID: l.newID(), Tenant: of.tenant, Time: l.clock.Now(), Replica: l.replica, Interval: l.interval,
			From: m.from, To: m.to, Count: m.count, Reason: of.reason}
		if of.refused {
			r.Kind, r.Decision, r.Code, r.Status = KindSummary, Refused, "receipt_unavailable", 503
		}
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
		delete(l.missing, of)
	}
	return true
}

// total is how many attempts are counted that no record tells of yet.
func (m counts) total() (n uint64) {
	for _, m := range m {
		n += m.count
	}
	return n
}
