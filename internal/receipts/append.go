package receipts

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// maxBatch bounds the records that wait for the disk. Past it Append blocks, so
// a slow disk slows the callers down instead of filling the memory.
const maxBatch = 4096

// batch is what is committed together. Places are given out under Log.mu; the
// callers then encode and hash side by side.
type batch struct {
	first    uint64
	began    time.Time // when its first record was queued; interval mode only
	since    time.Time // when the first was queued that somebody waits for
	slots    []*slot
	heads    *Record   // of slots[0], where the batch begins with one: see bind
	calls    int       // records that are not of refusals: a call waits for each of these
	cost     int64     // that its records may take at most
	told     []noted   // its records that the file of what is unrecorded tells of until they are on disk
	passed   []*missed // attempts that were let through, and are accounted for by it
	answer   *answer   // of those who wait for it now
	encoding sync.WaitGroup
	done     chan struct{} // closed when err is final
	err      error
}

// answer is what somebody is told who waits for a batch: how that ended, or before
// that that nobody waits for it any more.
type answer struct {
	given bool          // guarded by Log.mu
	told  chan struct{} // closed when err is final
	err   error
}

func newAnswer() *answer { return &answer{told: make(chan struct{})} }

// giveLocked gives the answer, where none was given yet.
func (a *answer) giveLocked(err error) {
	if !a.given {
		a.given, a.err = true, err
		close(a.told)
	}
}

// slot is the place of one record.
type slot struct {
	line   []byte // with its line end
	leaf   tlog.Hash
	id     string
	key    string
	begins bool    // see Record.Begins
	branch *branch // nil for a record without a tenant
}

// newBatch makes room for as many records as the last batch took.
func newBatch(first uint64, room int) *batch {
	return &batch{first: first, slots: make([]*slot, 0, room), done: make(chan struct{}), answer: newAnswer()}
}

// Append adds r and returns once it is durable (in interval mode: once it is
// queued). It fills in r's ID and Time where they are empty, and Seq, Replica
// and Interval. The error is ErrUnavailable, or about a kind, ending or decision that is
// not on the closed lists. It takes no context: a client that goes away must
// not be able to keep its receipt out of the log.
//
// For the outcome of an attempt whose intent it has taken (it returned nil or
// ErrLate) there is room, if it is given the Record of the intent, with the rest
// filled in. For an attempt without an intent, Promise keeps that room.
func (l *Log) Append(r *Record) (Entry, error) {
	if !r.Kind.Valid() || r.Kind.own() {
		return Entry{}, fmt.Errorf("receipts: kind %q is not on the list of what can be appended", r.Kind)
	}
	if r.Ending != "" && !r.Ending.Valid() {
		return Entry{}, fmt.Errorf("receipts: ending %q is not on the list", r.Ending)
	}
	if !validDecision(r.Decision) {
		return Entry{}, fmt.Errorf("receipts: decision %q is not on the list", r.Decision)
	}
	if r.Kind.counts() && r.Count == 0 {
		return Entry{}, fmt.Errorf("receipts: a %s stands for one attempt at least", r.Kind)
	}
	entry, _, a, err := l.enqueue(r)
	if err != nil {
		return entry, err
	}
	if l.interval {
		select {
		case <-a.told:
		default:
			return entry, nil
		}
	}
	<-a.told
	if a.err != nil {
		return Entry{}, a.err
	}
	return entry, nil
}

// Promise keeps room for the outcome of an attempt of which r says what is known.
// It returns ErrUnavailable where Append would.
func (l *Log) Promise(r *Record) error {
	owed := owedTo(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.admitLocked(owed); err != nil {
		return err
	}
	l.space.taken += owed
	r.room = owed
	return nil
}

// enqueue puts r into the batch that is filling and returns it.
func (l *Log) enqueue(r *Record) (Entry, *batch, *answer, error) {
	if r.ID == "" {
		r.ID = l.newID()
	}
	r.Replica, r.Interval = l.replica, l.interval
	b, s, index, a, err := l.place(r)
	if err != nil {
		return Entry{}, nil, nil, err
	}
	if r.Seq > 1 || s.branch == nil { // or else place has done it
		l.encode(s, r, index)
	}
	entry := Entry{Index: index, Leaf: s.leaf}
	if s.branch != nil {
		entry.Tree, entry.TreeIndex = s.branch.origin, r.Seq-1
	}
	b.encoding.Done() // from here on the slot is the committer's
	return entry, b, a, nil
}

// admitLocked waits until there is room for so many bytes and one record more. It
// returns why nothing is taken.
func (l *Log) admitLocked(cost int64) error {
	for {
		if l.failure != nil || l.closing || l.contradicted != nil {
			return ErrUnavailable
		}
		if err := l.stalledLocked(); err != nil {
			return err
		}
		room := l.space.has(cost)
		if room && len(l.filling.slots) < maxBatch {
			return nil
		}
		if !room {
			l.space.ask(cost, l.clock.Now())
			l.nudge()
		}
		l.room.Wait()
	}
}

// place gives r its index, sequence and time, in one order. A place once given
// is filled: nothing between here and the write can refuse a record.
func (l *Log) place(r *Record) (*batch, *slot, uint64, *answer, error) {
	s := slots.Get().(*slot)
	cost, owed := costOf(r), int64(0)
	if r.Kind == KindIntent {
		owed = owedTo(r)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if (r.Kind == KindOutcome || r.Kind.own()) && r.room > 0 {
		if l.failure != nil || l.closing || l.contradicted != nil {
			return nil, nil, 0, nil, ErrUnavailable
		}
		l.space.taken -= r.room
	} else if err := l.admitLocked(cost + owed); err != nil {
		return nil, nil, 0, nil, err
	}
	l.space.taken += owed
	r.room = owed
	if r.Time.IsZero() {
		r.Time = l.clock.Now()
	}
	b, index := l.filling, l.next
	b.noteLocked(l, r)
	l.putLocked(s, r, cost)
	l.nameLocked(s, r, index)
	n := len(b.slots)
	if b.since.IsZero() {
		b.since = l.clock.Now()
	}
	if n == 1 && l.interval {
		b.began = l.clock.Now()
	}
	calls := !r.Kind.refuses() && (b.calls == 1 || b.calls == l.expected)
	if n == 1 && l.idle || n == maxBatch || n == manyRefusals || calls {
		l.nudge() // patienceLocked has another answer now
	}
	return b, s, index, b.answer, nil
}

// nameLocked has a record of a tenant count for its tree. The first one it spells.
func (l *Log) nameLocked(s *slot, r *Record, index uint64) {
	if s.branch != nil && r.Seq == 1 {
		// Its hash names the tenant's tree, and the next record of the tenant
		// may be told of it before this one is written.
		l.encode(s, r, index)
		l.byTree[s.branch.name(l.key.origin, s.leaf)] = s.branch
	}
	if s.branch != nil && l.unbound.IsZero() {
		l.unbound = l.clock.Now()
	}
}

// putLocked puts r at the end of what waits, by the slot s. It takes cost bytes at most.
func (l *Log) putLocked(s *slot, r *Record, cost int64) {
	b := l.branches[r.Tenant]
	if b == nil {
		b = new(branch)
		l.branches[r.Tenant] = b
	}
	b.seq++
	r.Seq = b.seq
	if s.branch = b; r.Tenant == "" {
		s.branch = nil
	}
	l.next++
	l.filling.slots = append(l.filling.slots, s)
	if !r.Kind.refuses() {
		l.filling.calls++
	}
	l.filling.encoding.Add(1)
	l.filling.cost += cost
	l.space.taken += cost
}

// noteLocked has the file of what is unrecorded go on telling of what r is to tell,
// until b is on disk.
func (b *batch) noteLocked(l *Log, r *Record) {
	if r.passed != nil {
		b.passed = append(b.passed, r.passed)
		r.passed = nil
	}
	if r.told != nil {
		id := r.told.ID
		l.untold = slices.DeleteFunc(l.untold, func(n noted) bool { return n.ID == id })
		b.told = append(b.told, *r.told)
		r.told = nil
	} else if r.Kind == KindSummary && r.Reason == ReasonFlood && r.Ending == Complete {
		b.told = append(b.told, noted{ID: r.ID, Kind: notedFlood, From: r.From, To: r.To, Count: r.Count, Exact: true})
	}
}

// nudge tells the committer to look again. One that is already on its way is enough.
func (l *Log) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// slots are reused with their buffers: a slot goes back once its batch is written.
var slots = sync.Pool{New: func() any { return new(slot) }}

func (l *Log) encode(s *slot, r *Record, index uint64) {
	s.id, s.key, s.begins = r.ID, r.Key, r.Begins()
	s.line = appendRecord(s.line[:0], r)
	s.line = l.key.appendTag(s.line, 0, index)
	s.leaf = tlog.RecordHash(s.line)
	s.line = append(s.line, '\n')
}
