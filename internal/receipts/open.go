package receipts

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Open opens the receipt log below the data folder dir, or begins one: the
// segments in dir/receipts, the signing key beside that folder. It reads the
// whole log, repairs a torn tail, and closes the intents that a crash has left
// without an outcome. Reading takes some 2 to 3 s of one core for a million records
// (560 MB); three times as long after a crash that left a torn tail, and for a
// log that does not hold, to say where. Of the signatures the newest 4,096
// are checked; Verify does not leave it at that.
//
// The error is ErrLocked where somebody else has the log, ErrAnchor where its
// anchor tells of another or of more, and a *Damage, which
// names file and place, where it does not hold: then nothing has been changed.
func Open(dir string, o Options) (*Log, error) {
	if o.Sync != "" && o.Sync != SyncAlways && o.Sync != SyncInterval {
		return nil, fmt.Errorf("receipts: sync mode %q: want %q or %q", o.Sync, SyncAlways, SyncInterval)
	}
	folder := filepath.Join(dir, logFolder)
	if o.disk == nil {
		o.disk = realDisk{}
	}
	for _, f := range []string{dir, folder} {
		if err := makeFolder(o.disk, f); err != nil {
			return nil, err
		}
	}
	lock, err := o.disk.lock(folder)
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
	l.index.written(p.end + 256*int64(p.last)) // about
	go l.run()
	go l.keepNotes()
	if l.retention > 0 {
		go l.retire()
	} else {
		close(l.retired)
	}
	err = l.begin(p, started)
	if err == nil && l.anchor != nil {
		if err = l.lookAtAnchor(); err != nil {
			err = fmt.Errorf("receipt log: the anchor cannot be kept up to date: %w", err)
		}
		go l.tendAnchor()
	} else if l.anchor != nil {
		close(l.anchor.stopped)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// refusal says what can be done about a log that does not hold. There is no
// command that repairs one: whatever was acknowledged and is gone, is gone.
func refusal(dir, folder string, err error) error {
	var damage *Damage
	if errors.Is(err, errNoLog) {
		return fmt.Errorf("receipt log %s: %w. Bring the folder's files back from a copy; or, to begin a new log with a new key and another name, "+
			"move %s away, and what is left in the folder with it. With the old key a new log would contradict what that key has signed",
			folder, err, filepath.Join(dir, signingKeyFile))
	}
	if errors.As(err, &damage) && damage.newer {
		return fmt.Errorf("receipt log %s: %w. It was written by a newer version of agentgw: start that one. Nothing was changed", folder, err)
	}
	if errors.As(err, &damage) || errors.Is(err, errMissing) || errors.Is(err, errPruned) || errors.Is(err, errUnvouched) {
		return fmt.Errorf("receipt log %s: %w. Nothing was changed. Bring the folder back from a copy; or, to begin a new log, "+
			"move it away together with %s. `agentgw receipts verify` shows how far this one holds", folder, err, filepath.Join(dir, signingKeyFile))
	}
	return fmt.Errorf("receipt log: %w", err)
}

var errMissing = errors.New("acknowledged entries are missing")

// errNoLog: the key has its own name, so its log had an entry on disk.
var errNoLog = errors.New("there is a signing key, and of the log that it has signed no entry")

func open(dir, folder string, o Options) (*Log, *past, error) {
	firsts, err := segmentsIn(o.disk, folder)
	if err != nil {
		return nil, nil, err
	}
	key, err := signingOf(o.disk, dir, len(firsts) > 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%s holds a log, but its signing key %s is missing: bring the key back, or move the folder away to begin a new log", folder, filepath.Join(dir, signingKeyFile))
	}
	if err != nil {
		return nil, nil, err
	}
	l := &Log{
		dir: dir, folder: folder, key: key, clock: o.Clock, replica: o.Replica,
		interval: o.Sync == SyncInterval, limit: segmentSize, disk: o.disk, newID: NewID,
		logger: o.Logger, onCommit: o.OnCommit, onAnchor: o.OnAnchor,
		wake: make(chan struct{}, 1), stopped: make(chan struct{}), closed: make(chan struct{}),
		quit: make(chan struct{}), retired: make(chan struct{}), retention: o.Retention,
	}
	l.room = sync.NewCond(&l.mu)
	l.floods = newFloods()
	if l.logger == nil {
		l.logger = slog.New(slog.DiscardHandler)
	}
	if o.segmentSize > 0 {
		l.limit = o.segmentSize
	}
	if o.newID != nil {
		l.newID = o.newID
	}
	l.recent.keep = cmp.Or(o.keepRecent, keepRecent)
	l.index = indexer{indexing: indexing{disk: o.disk, folder: folder, most: cmp.Or(o.indexBlock, blockEntries)},
		every: cmp.Or(o.indexEvery, indexEvery), stopped: l.isClosing, logger: l.logger}
	if l.heir, err = heirOf(o.disk, dir, key); err != nil {
		return nil, nil, err
	}
	if l.pruned, err = readPruned(o.disk, folder); err != nil {
		return nil, nil, err
	}
	if l.anchor, err = anchorAt(o.Anchor, keysNamed(o.disk, folder, newOfficeKey(key.vkey, key.origin), l.pruned).logs()); err != nil {
		return nil, nil, err
	}
	l.notes = notes{wake: make(chan struct{}, 1), quit: make(chan struct{}), stopped: make(chan struct{})}
	if l.notes.book, l.untold, err = readNotebook(o.disk, folder, key, l.heir); err != nil {
		return nil, nil, err
	}
	l.resetNotes()
	p, w, err := l.read()
	if err != nil {
		return nil, nil, err
	}
	if l.heir != nil {
		if w.tree.size == 0 {
			return nil, nil, fmt.Errorf("%s waits to take over a log that has not begun: remove it", filepath.Join(dir, nextSigningKeyFile))
		}
		if now := w.office.current().vkey; w.office.has(l.heir.vkey) && (now != l.heir.vkey || !w.office.closed) {
			return nil, nil, fmt.Errorf("%s: the key was in office before, and cannot take over again: remove it, or make another with `agentgw receipts rotate-key`", filepath.Join(dir, nextSigningKeyFile))
		}
		if err := l.notes.book.handOver(o.disk, folder, l.heir); err != nil {
			return nil, nil, err
		}
		if err := l.handOver(p, w); err != nil {
			return nil, nil, fmt.Errorf("handing over to the next key: %w; the next start goes on with it", err)
		}
		return open(dir, folder, o)
	}
	if err := l.load(p, w); err != nil {
		return nil, nil, err
	}
	if err := l.notes.book.open(o.disk, folder); err != nil {
		l.logger.Warn("there is no file that could be told what is counted while receipts cannot be written; a process that is killed then takes the number with it", "file", filepath.Join(folder, unrecordedFile), "error", err)
	}
	return l, p, nil
}

// load brings the log into the state that its files say.
func (l *Log) load(p *past, w *walker) (err error) {
	l.tree, l.branches, l.grown, l.next = w.tree, w.branches, w.grown, w.tree.size
	l.tiles, l.byTree = w.tiles, w.byTree
	if err := l.leaves.keep(); err != nil {
		l.warnOfLeaves(err)
	}
	if err := w.recall(nil); err != nil {
		l.logger.Warn("the hashes of removed entries are not what they were; the log goes on, but some of what is left can no longer be proven", "folder", l.folder, "error", err)
	}
	if err := l.removeLeftovers(); err != nil {
		return err
	}
	if len(l.grown.waiting) > 0 {
		l.unbound = l.clock.Now()
	}
	l.filling, l.wroteAt, l.missing = newBatch(l.next, 0), l.clock.Now(), make(counts)
	if w.office.closed && p.last != w.tree.size {
		p.begun, p.last, p.end, p.unsure = false, w.tree.size, 0, 0
	}
	if p.begun {
		l.segment, err = openSegment(l.disk, l.folder, p.last, p.end)
	} else {
		l.segment, l.space.reserved, err = createSegment(l.disk, l.folder, p.last, firstRoom, l.limit)
	}
	if err != nil {
		return err
	}
	// Nothing is signed that is not on disk.
	err = errors.Join(rewrite(l.segment.file, p.unsure, p.end), l.segment.sync())
	if err == nil && l.key.fresh && l.tree.size > 0 {
		err = l.key.place(l.disk, l.dir) // a first start was killed before it could
	}
	if err != nil {
		return errors.Join(err, l.segment.file.Close())
	}
	signed, err := checkpoint{l.key.origin, l.tree.size, l.tree.root()}.sign(l.key.signer)
	if err != nil {
		return err
	}
	l.began = l.firstTime()
	l.size.Store(l.tree.size)
	l.signed = signed
	// The empty tree's checkpoint is never stored: it says nothing.
	l.signedIn = l.tree.size == 0 || w.lastCheckpoint == l.tree.size && !w.office.closed
	// Behind a border the file holds the border, which each of the two keys can
	// check, until a header that names the new key is on disk.
	l.published = l.tree.size == 0 || w.office.closed
	if err := l.storeSigned(); err != nil {
		return errors.Join(err, l.segment.file.Close())
	}
	l.space.end = l.segment.size + headerRoom + frame
	l.space.reserved = max(l.space.reserved, l.segment.size)
	return nil
}

// resetNotes has a walk through the log look for what the file of what is unrecorded
// tells of.
func (l *Log) resetNotes() {
	l.notes.told = make(map[string]bool, len(l.untold))
	for _, n := range l.untold {
		l.notes.told[n.ID] = false
	}
}

// unnote returns what the file of what is unrecorded tells of and the log does not:
// the ends of summaries by their ids, and what has no record at all.
func (l *Log) unnote(p *past) (floods map[string]*noted, lost []noted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	floods = make(map[string]*noted)
	left := l.untold[:0]
	for _, n := range l.untold {
		switch begun := p.intents[n.ID].record; {
		case n.Kind == notedFlood && begun != nil && begun.Kind == KindSummary:
			floods[n.ID] = &n
		case n.Kind != notedFlood && !l.notes.told[n.ID]:
			lost = append(lost, n)
		default:
			continue
		}
		left = append(left, n)
	}
	l.untold, l.notes.told = left, nil
	return floods, lost
}

// begin appends what the start itself has to say, in one batch.
func (l *Log) begin(p *past, size uint64) (err error) {
	var records []*Record
	if size == 0 {
		records = append(records, &Record{Kind: KindKey, VKey: l.key.vkey})
	}
	if p.sealed { // which it is no longer
		records = append(records, &Record{Kind: KindHeartbeat})
	}
	floods, lost := l.unnote(p)
	open := slices.SortedFunc(maps.Values(p.intents), func(a, b openIntent) int {
		return cmp.Compare(a.index, b.index)
	})
	calls := 0
	for _, o := range open {
		r := *o.record // who called what; how it ended is what nobody knows
		r.Ending, r.Time = OutcomeUnknown, time.Time{}
		if r.Kind == KindIntent {
			r.Kind = KindOutcome
			calls++
		}
		if n, told := floods[r.ID]; told {
			r.Ending, r.Count, r.To, r.told = n.ending(), max(n.Count, r.Count), n.To, n
		}
		records = append(records, &r)
	}
	for i := range lost {
		records = append(records, lost[i].record())
	}
	var last *answer
	for _, r := range records {
		if _, _, last, err = l.enqueue(r); err != nil {
			return err
		}
	}
	if calls > 0 {
		l.logger.Warn("calls of the last run have no outcome and are recorded as unknown", "count", calls)
	}
	if n := len(open) - calls - len(floods); n > 0 {
		l.logger.Warn("refusals were being counted when the last run ended, and how many is not known", "summaries", n)
	}
	if n := len(lost); n > 0 {
		l.logger.Warn("attempts of the last run have no record; the log now says how many, or that there were some", "records", n)
	}
	if last == nil || l.interval {
		return nil
	}
	<-last.told
	if errors.Is(last.err, ErrLate) {
		return l.Healthy()
	}
	return last.err
}
