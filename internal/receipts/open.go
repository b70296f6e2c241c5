package receipts

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// Open opens the receipt log below the data folder dir, or begins one: the
// segments in dir/receipts, the signing key beside that folder. It reads the
// whole log, repairs a torn tail, and closes the intents that a crash has left
// without an outcome. Reading takes some 2 s of one core for a million records
// (560 MB); three times as long after a crash that left a torn tail, and for a
// log that does not hold, to say where. Of the signatures only the last is
// checked; Verify does not leave it at that. The error is ErrLocked where somebody else has the log,
// and a *Damage, which names file and place, where it does not hold: then
// nothing has been changed.
func Open(dir string, o Options) (*Log, error) {
	if o.Sync != "" && o.Sync != SyncAlways && o.Sync != SyncInterval {
		return nil, fmt.Errorf("receipts: sync mode %q: want %q or %q", o.Sync, SyncAlways, SyncInterval)
	}
	folder := filepath.Join(dir, logFolder)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	lock, err := lockFolder(folder)
	if err != nil {
		return nil, err
	}
	l, p, err := open(dir, folder, o)
	if err != nil {
		lock.Close()
		return nil, refusal(dir, folder, err)
	}
	l.lock = lock
	started := l.tree.size
	go l.run()
	if err := l.begin(p, started); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// refusal says what can be done about a log that does not hold. There is no
// command that repairs one: whatever was acknowledged and is gone, is gone.
func refusal(dir, folder string, err error) error {
	var damage *Damage
	if errors.As(err, &damage) || errors.Is(err, errMissing) {
		return fmt.Errorf("receipt log %s: %w. Nothing was changed. Bring the folder back from a copy; or, to begin a new log, "+
			"move it away together with %s. `agentgw receipts verify` shows how far this one holds", folder, err, filepath.Join(dir, signingKeyFile))
	}
	return fmt.Errorf("receipt log: %w", err)
}

var errMissing = errors.New("acknowledged entries are missing")

func open(dir, folder string, o Options) (*Log, *past, error) {
	firsts, err := listSegments(folder)
	if err != nil {
		return nil, nil, err
	}
	key, err := loadSigning(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if len(firsts) > 0 {
			return nil, nil, fmt.Errorf("%s holds a log, but its signing key %s is missing: bring the key back, or move the folder away to begin a new log", folder, filepath.Join(dir, signingKeyFile))
		}
		key, err = createSigning(dir)
	}
	if err != nil {
		return nil, nil, err
	}
	l := &Log{
		dir: dir, folder: folder, key: key, clock: o.Clock, replica: o.Replica,
		interval: o.Sync == SyncInterval, limit: segmentSize, disk: realDisk, newID: NewID,
		logger: o.Logger, onCommit: o.OnCommit,
		wake: make(chan struct{}, 1), stopped: make(chan struct{}),
	}
	l.room = sync.NewCond(&l.mu)
	if l.logger == nil {
		l.logger = slog.New(slog.DiscardHandler)
	}
	if o.disk != nil {
		l.disk = *o.disk
	}
	if o.segmentSize > 0 {
		l.limit = o.segmentSize
	}
	if o.newID != nil {
		l.newID = o.newID
	}
	l.recent.keep = cmp.Or(o.keepRecent, keepRecent)
	p, err := l.load()
	return l, p, err
}

// past is what reading the log from its beginning tells.
type past struct {
	intents map[string]openIntent
	begun   bool   // there is a segment
	last    uint64 // the first entry of the last one
	end     int64  // of the good bytes in it
	repair  *Recovery
}

type openIntent struct {
	index  uint64
	record *Record // where it was only skimmed, what skim takes of it
	at     place
}

// load brings the log into the state that its files say.
func (l *Log) load() (*past, error) {
	p, w, err := l.read()
	if err != nil {
		return nil, err
	}
	l.tree, l.seqs, l.next = w.tree, w.seqs, w.tree.size
	l.filling = newBatch(l.next, 0)
	if p.begun {
		l.segment, err = openSegment(l.disk, l.folder, p.last, p.end, l.limit)
	} else {
		l.segment, err = createSegment(l.disk, l.folder, 0, l.limit)
	}
	if err != nil {
		return nil, err
	}
	// What was read may be in memory only: the process that wrote it can have
	// died before its sync. Nothing is signed that is not on disk.
	if err := l.segment.sync(); err != nil {
		return nil, errors.Join(err, l.segment.file.Close())
	}
	signed, err := checkpoint{l.key.origin, l.tree.size, l.tree.root()}.sign(l.key.signer)
	if err != nil {
		return nil, err
	}
	l.newest.Store(&signed)
	l.size.Store(l.tree.size)
	l.signed = signed
	// The empty tree's checkpoint is never stored: it says nothing.
	l.signedIn = l.tree.size == 0 || w.lastCheckpoint == l.tree.size
	l.published = l.tree.size == 0
	return p, nil
}

// read walks through the segments and settles the tail. It skims them first; only
// a log that is not as it should be, or that a crash has torn, is read with care.
func (l *Log) read() (*past, *walker, error) {
	known, err := l.knownCheckpoint()
	if err != nil {
		return nil, nil, err
	}
	if p, w, ok := l.skim(known); ok {
		return p, w, nil
	}
	l.recent.forget()
	p := &past{intents: make(map[string]openIntent)}
	w := l.walker()
	defer w.reader.close()
	lastNote, noteAt, err := l.walk(p, w, known)
	var damage *Damage
	switch {
	case errors.As(err, &damage):
		if damage.Index < w.tree.size { // whole entries that something signed contradicts: no torn tail
			return nil, nil, damage
		}
	case err != io.EOF:
		return nil, nil, err
	}
	// The tags have shown that this key wrote the records, and the roots that
	// the checkpoints are over them. One signature shows that these are ours;
	// to check them all would take a minute for a million batches.
	if lastNote != nil {
		if _, err := openStored(lastNote, l.key.verify); err != nil {
			return nil, nil, &Damage{Position: noteAt, Index: w.tree.size, What: err.Error()}
		}
	}
	if known != nil && known.Size > w.tree.size {
		lost := fmt.Errorf("it holds %d entries, but its own checkpoint covers %d: %w", w.tree.size, known.Size, errMissing)
		if damage != nil {
			lost = fmt.Errorf("%w (%w)", lost, damage)
		}
		return nil, nil, lost
	}
	if damage != nil || w.torn() {
		if err := l.settle(p, w, damage); err != nil {
			return nil, nil, err
		}
	}
	return p, w, nil
}

func (l *Log) walker() *walker {
	w := newWalker(l.folder)
	w.accept, w.origin, w.known = l.key.tagHolds, l.key.origin, l.key.verify
	return w
}

// walk takes each line into account, and returns the last checkpoint.
func (l *Log) walk(p *past, w *walker, known *checkpoint) (lastNote []byte, noteAt Position, err error) {
	err = w.toEnd(func(e event) error {
		switch e.kind {
		case aCheckpoint:
			lastNote, noteAt = append(lastNote[:0], e.note...), e.at
		case aRecord:
			l.remember(p, e)
			if known != nil && e.index+1 == known.Size && w.tree.root() != known.Root {
				return w.suspect("the file %s", checkpointFile)
			}
		}
		return nil
	})
	p.begun, p.last, p.end = w.reader.file != nil, w.reader.first, w.reader.offset
	return lastNote, noteAt, err
}

// skim is read for a log that is as it was left: ok is false for any other.
func (l *Log) skim(known *checkpoint) (_ *past, _ *walker, ok bool) {
	p := &past{intents: make(map[string]openIntent)}
	w := l.walker()
	defer w.reader.close()
	w.accept, w.skimming = nil, new(uncovered)
	lastNote, _, err := l.walk(p, w, known)
	if err != io.EOF || w.torn() || known != nil && known.Size > w.tree.size {
		return nil, nil, false
	}
	if lastNote != nil {
		if _, err := openStored(lastNote, l.key.verify); err != nil {
			return nil, nil, false
		}
	}
	if w.skimming.check(w.lastCheckpoint, l.key.tagHolds) != nil {
		return nil, nil, false
	}
	for id, o := range p.intents {
		line, err := readPlace(l.folder, o.at)
		if err != nil {
			return nil, nil, false
		}
		if o.record, err = ParseRecord(line); err != nil {
			return nil, nil, false
		}
		p.intents[id] = o
	}
	return p, w, true
}

// knownCheckpoint reads the checkpoint file; nil where there is none.
func (l *Log) knownCheckpoint() (*checkpoint, error) {
	path := filepath.Join(l.folder, checkpointFile)
	signed, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	c, err := openCheckpoint(signed, l.key.verify)
	var unverified *note.UnverifiedNoteError
	switch {
	case errors.As(err, &unverified):
		return nil, fmt.Errorf("%s: not signed by the key in %s: the two do not belong together", path, filepath.Join(l.dir, signingKeyFile))
	case err != nil:
		// It is written without a sync, so a machine that lost its power may
		// have left anything. It is a copy: the segments decide.
		l.logger.Warn("checkpoint file is not readable and is written anew", "file", path, "error", err)
		return nil, nil
	}
	return &c, nil
}

// remember keeps what has to be known of a record once the log is open.
func (l *Log) remember(p *past, e event) {
	at := place{e.segment, e.at.Offset, len(e.line) + 1}
	switch e.record.Kind {
	case KindIntent:
		p.intents[e.record.ID] = openIntent{e.index, e.record, at}
	case KindOutcome:
		delete(p.intents, e.record.ID)
	}
	l.recent.mu.Lock()
	defer l.recent.mu.Unlock()
	l.recent.addLocked(e.record.ID, e.record.Kind, at)
}

// begin appends what the start itself has to say, in one batch.
func (l *Log) begin(p *past, size uint64) error {
	var records []*Record
	if size == 0 {
		records = append(records, &Record{Kind: KindKey, VKey: l.key.vkey})
	}
	if p.repair != nil {
		records = append(records, &Record{Kind: KindRecovery, Recovery: p.repair})
	}
	open := slices.SortedFunc(maps.Values(p.intents), func(a, b openIntent) int {
		return cmp.Compare(a.index, b.index)
	})
	for _, o := range open {
		r := *o.record // who called what; how it ended is what nobody knows
		r.Kind, r.Ending, r.Time = KindOutcome, OutcomeUnknown, time.Time{}
		records = append(records, &r)
	}
	var last *batch
	for _, r := range records {
		_, b, err := l.enqueue(r)
		if err != nil {
			return err
		}
		last = b
	}
	if len(open) > 0 {
		l.logger.Warn("calls of the last run have no outcome and are recorded as unknown", "count", len(open))
	}
	if last == nil || l.interval {
		return nil
	}
	<-last.done
	return last.err
}
