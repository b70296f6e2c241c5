package receipts

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"
	"golang.org/x/mod/sumdb/tlog"
)

// ErrUnavailable is what Append returns when the log cannot take records: it is
// closed, there is no room on the disk or no answer from it, which both pass, or a
// write or sync failed and nothing is trusted until a restart.
var ErrUnavailable = errors.New("receipt log is unavailable")

// The values of Options.Sync.
const (
	SyncAlways   = "always"   // Append returns once the record is on disk
	SyncInterval = "interval" // Append returns at once; on disk within 100 ms
)

// intervalLinger is how long interval mode gathers records before it writes:
// half of the promised 100 ms, the other half is for the disk.
const intervalLinger = 50 * time.Millisecond

// maxBatch bounds the records that wait for the disk. Past it Append blocks, so
// a slow disk slows the callers down instead of filling the memory.
const maxBatch = 4096

// Options are the settings of a Log.
type Options struct {
	Clock   clockwork.Clock // required
	Replica string          // stands in each record
	Sync    string          // SyncAlways (also when empty) or SyncInterval
	// Retention is how long records are kept at least: a segment whose newest is
	// older is removed, but for the hashes of its entries. Zero keeps all.
	Retention time.Duration
	Logger    *slog.Logger // nil: nothing is logged
	// OnCommit, where set, is told of each commit: how many records it held,
	// and how long writing, syncing and signing took together. It is called by
	// the one committer, in order, and MUST NOT call the log.
	OnCommit func(records int, took time.Duration)
	// Anchor, where not empty, is a file outside of the data folder, best on another
	// volume, that holds the log's newest signed checkpoint, or one of a second or
	// so before: see anchor. A start that cannot read it, or finds a log there that
	// this one does not extend, is refused. A running log that cannot reach it
	// goes on without; one that finds another there takes no more records.
	Anchor string
	// OnAnchor, where set, is told after each look at the anchor whether it could
	// be read, is of this log and is up to date.
	OnAnchor func(ok bool)

	disk        disk          // tests: nil is realDisk
	segmentSize int64         // tests: 0 is segmentSize
	newID       func() string // tests: nil is NewID
	keepRecent  int           // tests: 0 is keepRecent
	indexEvery  int64         // tests: 0 is indexEvery
	indexBlock  uint32        // tests: 0 is blockEntries
}

// Entry says where a record stands in the log.
type Entry struct {
	Index uint64   // counted from 0
	Leaf  [32]byte // RFC 6962 leaf hash

	// Tree is the origin of the tenant's tree, in which the record is leaf
	// TreeIndex; both are zero for a record without a tenant.
	Tree      string
	TreeIndex uint64
}

// Stats are counters since Open.
type Stats struct {
	Size     uint64 // entries that are on disk
	Appended uint64 // records committed since Open
	Batches  uint64 // commits since Open
	Missed   uint64 // attempts that were let through without a record, see Miss
	Free     int64  // bytes that were free on the disk when the log looked last, less than 0 where it cannot
}

// Log is one replica's receipt log, open for writing. It is safe for concurrent
// use. Make one with Open; the zero Log is of no use.
//
// It promises that a record whose Append returned without error is in the log
// once, at the index that it was told, after any crash of the process or the
// machine (in interval mode: all but those of the last 100 ms). It does not
// promise the opposite: a record whose Append failed may be there after a
// restart, since a failed sync says nothing of what reached the disk.
//
// It takes an intent only where there is room for the outcome too, and takes that
// while it takes nothing else for want of room or of an answer from the disk.
type Log struct {
	// Fixed by Open.
	dir       string // the data folder
	folder    string // dir/receipts
	key       *signing
	heir      *signing // that waits to take over; nil: none does
	clock     clockwork.Clock
	replica   string
	interval  bool
	limit     int64         // of a segment
	retention time.Duration // 0: all is kept
	newID     func() string
	disk      disk
	logger    *slog.Logger
	onCommit  func(int, time.Duration)
	onAnchor  func(bool)
	anchor    *anchor // nil: none is kept
	floods    *floods
	lock      io.Closer

	// The queue, under mu for the length of a few assignments.
	mu      sync.Mutex
	room    *sync.Cond // filling has been taken, or the log has failed
	filling *batch
	next    uint64 // index of the next record to queue
	// By tenant; of each the seq, here of the last record queued, and the origin.
	branches map[string]*branch
	byTree   map[treeID]*branch // those that have a tree
	unbound  time.Time          // when a tree first grew since heads were last queued; zero: none has
	failure  error
	closing  bool
	sealing  bool // a seal is still to be queued, as the last record
	// Another log stands in the anchor: nothing is queued any more. What was
	// is still written, so that nobody waits for it in vain.
	contradicted error
	// How it stands with the disk: see stalled.go.
	space   space
	full    bool
	retryAt time.Time // of a full disk
	slow    bool
	turn    uint64 // of what is watched
	watch   clockwork.Timer
	reason  string // of the last stall
	writing *batch
	missing counts
	untold  []noted // records that another process, or a batch that failed, was to write
	notes   notes

	// The committer's own; nobody else looks.
	segment      *segment
	began        time.Time // the segment was, or its first record says so
	tree         frontier
	signed       []byte    // checkpoint of tree
	signedIn     bool      // signed stands in the segments
	published    bool      // signed stands in the checkpoint file
	publishedAt  time.Time // or tried at
	warned       bool      // that the checkpoint file cannot be written
	leavesWarned bool
	notBefore    time.Time // of the next commit
	wroteAt      time.Time // when the last commit ended, or Open
	lookedAt     time.Time // at the disk
	lowWarned    bool      // that it is about full
	refusals     time.Time // not before this, of the next commit of refusals alone
	unit         []byte    // buffer

	// The tenants' trees, of entries that are on disk. The committer lets them
	// grow, for the time of a few hashes for each record.
	trees  sync.Mutex
	grown  grown
	tiles  []tlog.Hash // the roots of the full tiles of the log's own tree
	leaves leaves

	wake    chan struct{} // of capacity 1: there is something to do
	stopped chan struct{} // closed when the committer has ended
	closed  chan struct{} // closed when Close has let go of everything

	newest  atomic.Pointer[[]byte] // checkpoint over durable entries
	gaps    atomic.Uint64          // attempts counted by Miss that were let through
	free    atomic.Int64           // on the disk
	size    atomic.Uint64          // durable entries
	added   atomic.Uint64
	commits atomic.Uint64
	recent  recent

	searching sync.Mutex // one search through the segments at a time
	index     indexer

	// Of the one who removes what is old, and before it begins of load.
	pruned   *pruned // what is left of removed entries; nil: none were
	youngest *youngest
	promised [2]*Record    // what it writes next, with the room for it
	quit     chan struct{} // closed when it is to end
	retired  chan struct{} // and when it has
}

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
	late     chan struct{}
	waived   bool // late is closed: nobody waits for it
	encoding sync.WaitGroup
	done     chan struct{} // closed when err is final
	err      error
}

// slot is the place of one record.
type slot struct {
	line   []byte // with its line end
	leaf   tlog.Hash
	id     string
	begins bool    // see Record.Begins
	branch *branch // nil for a record without a tenant
}

// newBatch makes room for as many records as the last batch took.
func newBatch(first uint64, room int) *batch {
	return &batch{first: first, slots: make([]*slot, 0, room), done: make(chan struct{}), late: make(chan struct{})}
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
	entry, b, late, err := l.enqueue(r)
	if err != nil {
		return entry, err
	}
	if !l.interval {
		select {
		case <-b.done:
		case <-late:
		}
	}
	select {
	case <-b.done:
		if b.err != nil {
			return Entry{}, b.err
		}
	case <-late:
		return Entry{}, ErrLate
	default: // in interval mode
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
func (l *Log) enqueue(r *Record) (Entry, *batch, <-chan struct{}, error) {
	if r.ID == "" {
		r.ID = l.newID()
	}
	r.Replica, r.Interval = l.replica, l.interval
	b, s, index, late, err := l.place(r)
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
	return entry, b, late, nil
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
func (l *Log) place(r *Record) (*batch, *slot, uint64, <-chan struct{}, error) {
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
	if n == 1 || n == maxBatch || n == manyRefusals || !r.Kind.refuses() && b.calls == 1 {
		l.nudge() // patienceLocked has another answer now
	}
	return b, s, index, b.late, nil
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
	s.id, s.begins = r.ID, r.Begins()
	s.line = appendRecord(s.line[:0], r)
	s.line = l.key.appendTag(s.line, 0, index)
	s.leaf = tlog.RecordHash(s.line)
	s.line = append(s.line, '\n')
}

// Checkpoint returns the newest signed checkpoint. It covers durable entries only.
func (l *Log) Checkpoint() []byte { return *l.newest.Load() }

// VerifierKey returns the log's public key as sumdb/note writes it.
func (l *Log) VerifierKey() string { return l.key.vkey }

// Origin returns the log's name, as it stands in checkpoints.
func (l *Log) Origin() string { return l.key.origin }

// Healthy returns nil while the log takes records, and otherwise why not.
func (l *Log) Healthy() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil && l.closing {
		return fmt.Errorf("%w: it is closed", ErrUnavailable)
	}
	return cmp.Or(l.failure, l.contradicted, l.stalledLocked())
}

// Stats returns the counters.
func (l *Log) Stats() Stats {
	return Stats{Size: l.size.Load(), Appended: l.added.Load(), Batches: l.commits.Load(), Missed: l.gaps.Load(), Free: l.free.Load()}
}
