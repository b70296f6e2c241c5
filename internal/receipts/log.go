package receipts

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	mu        sync.Mutex
	room      *sync.Cond // filling has been taken, or the log has failed
	filling   *batch
	next      uint64    // index of the next record to queue
	idle      bool      // the committer waits for a first record
	expected  int       // calls with which a batch waits for no more: see breatheLocked
	notBefore time.Time // of the next commit,
	refusals  time.Time // and of the next one of refusals alone
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
	space    space
	full     bool
	retryAt  time.Time // of a full disk
	slow     bool
	busy     bool   // with what is watched
	watching bool   // check will look
	reason   string // of the last stall
	writing  *batch
	missing  counts
	untold   []noted // records that another process, or a batch that failed, was to write
	notes    notes

	// The committer's own; nobody else looks.
	segment      *segment
	began        time.Time // the segment was, or its first record says so
	signedIn     bool      // signed stands in the segments
	published    bool      // signed stands in the checkpoint file
	publishedAt  time.Time // or tried at
	warned       bool      // that the checkpoint file cannot be written
	leavesWarned bool
	wroteAt      time.Time // when the last commit ended, or Open
	lookedAt     time.Time // at the disk
	lowWarned    bool      // that it is about full
	unit         []byte    // buffer

	// The trees, of entries that are on disk. The committer alone lets them grow,
	// for the time of a few hashes for each record and of a signature.
	trees  sync.Mutex
	tree   frontier
	tiles  []tlog.Hash // the roots of its full tiles
	grown  grown       // of the tenants'
	leaves leaves

	// The committer holds it from when it tells of records until they are under signed.
	signing sync.Mutex
	signed  []byte // checkpoint of tree

	wake    chan struct{} // of capacity 1: there is something to do
	stopped chan struct{} // closed when the committer has ended
	closed  chan struct{} // closed when Close has let go of everything

	gaps    atomic.Uint64 // attempts counted by Miss that were let through
	free    atomic.Int64  // on the disk
	size    atomic.Uint64 // durable entries
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

// Checkpoint returns the newest signed checkpoint. It covers durable entries only,
// and all of which Append has told its caller.
func (l *Log) Checkpoint() []byte {
	l.signing.Lock()
	defer l.signing.Unlock()
	return l.signed
}

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
