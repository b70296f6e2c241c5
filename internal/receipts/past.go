package receipts

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// past is what reading the log from its beginning tells.
type past struct {
	intents map[string]openIntent // and summaries that were begun
	begun   bool                  // there is a segment
	last    uint64                // the first entry of the last one
	end     int64                 // of the good bytes in it
	unsure  int64                 // from there on nothing shows that they were ever synced
	sealed  bool                  // its last record is a seal
}

type openIntent struct {
	index  uint64
	record *Record // where it was only skimmed, what skim takes of it
	at     place
}

// read walks through the segments and settles the tail. It skims them first; only
// a log that is not as it should be, or that a crash has torn, is read with care.
func (l *Log) read() (*past, *walker, error) {
	known, err := l.knownCheckpoint()
	if err != nil {
		return nil, nil, err
	}
	if err := l.readRemoved(); err != nil {
		return nil, nil, err
	}
	if p, w, ok := l.skim(known); ok {
		return p, w, l.anchor.holds(w.tree.size)
	}
	l.recent.forget()
	l.resetNotes()
	if err := l.resetLeaves(); err != nil {
		return nil, nil, err
	}
	p := &past{intents: make(map[string]openIntent)}
	w := l.walker()
	defer w.reader.close()
	checkpoints, err := l.walk(p, w, known)
	var damage *Damage
	switch {
	case errors.As(err, &damage):
		if damage.signed || damage.newer || damage.Index < w.tree.size { // something signed contradicts it: no torn tail
			return nil, nil, damage
		}
	case err != io.EOF:
		return nil, nil, err
	}
	if d := checkpoints.check(); d != nil {
		return nil, nil, d
	}
	if known != nil && known.Size > w.tree.size {
		lost := fmt.Errorf("it holds %d entries, but its own checkpoint covers %d: %w", w.tree.size, known.Size, errMissing)
		if damage != nil {
			lost = fmt.Errorf("%w (%w)", lost, damage)
		}
		return nil, nil, lost
	}
	if d := w.unsigned(); d != nil {
		return nil, nil, cmp.Or(damage, d)
	}
	if err := l.anchor.holds(w.tree.size); err != nil {
		return nil, nil, err
	}
	if w.tree.size == 0 && !l.key.fresh {
		if damage != nil {
			return nil, nil, damage
		}
		return nil, nil, errNoLog
	}
	// Tags speak for the entries that no checkpoint is over yet.
	if err := w.vouched(w.tree.size); err != nil {
		if damage != nil {
			return nil, nil, damage
		}
		return nil, nil, err
	}
	if damage != nil || w.torn() {
		if err := l.settle(p, w, known, damage); err != nil {
			return nil, nil, err
		}
	}
	return p, w, nil
}

// readRemoved reads what is left of removed entries, behind which the log begins.
func (l *Log) readRemoved() (err error) {
	l.pruned, err = readPruned(l.disk, l.folder)
	if err == nil && l.pruned != nil && l.pruned.origin != l.key.origin {
		return fmt.Errorf("%w: it is of another log, %s", errPruned, l.pruned.origin)
	}
	if err == nil && l.pruned != nil && l.anchor.before(l.pruned.before) {
		l.passRemoved()
	}
	return err
}

// passRemoved has an anchor that is older than what was removed look at the
// leaves of that. Where they are gone it cannot be compared any more: that it
// covers no more than there is has to do.
func (l *Log) passRemoved() {
	var tree frontier
	err := l.walker().recall(func(_ string, leaf tlog.Hash) {
		tree.push(leaf)
		l.anchor.pass(&tree)
	})
	if err != nil {
		l.logger.Warn("the anchor is of entries that were removed, and cannot be compared", "file", l.anchor.path, "error", err)
		l.anchor.met, l.anchor.fork = true, false
	}
}

// resetLeaves begins the leaves anew, behind those of removed entries.
func (l *Log) resetLeaves() (err error) {
	l.leaves = leaves{disk: l.disk, folder: l.folder}
	if p := l.pruned; p != nil {
		l.leaves.next = p.before
		l.leaves.firsts, err = leavesIn(l.disk, l.folder, p.before)
	}
	return err
}

func (l *Log) walker() *walker {
	w := newWalker(l.folder)
	w.reader.disk = l.disk
	w.accept, w.acceptsOf, w.origin, w.believes = l.key.tagHolds, l.key.vkey, l.key.origin, true
	w.begin(l.pruned)
	l.anchor.pass(&w.tree)
	return w
}

// walk takes each line into account, and returns the newest checkpoints.
func (l *Log) walk(p *past, w *walker, known *checkpoint) (*newestCheckpoints, error) {
	checkpoints := new(newestCheckpoints)
	err := w.toEnd(func(e event) error {
		switch e.kind {
		case aCheckpoint:
			if !e.border { // whose signatures have been checked
				checkpoints.add(e)
			}
			w.hold()
		case aRecord:
			if e.index == 0 && e.record.VKey != w.office.current().vkey {
				return &Damage{Position: w.office.at, What: "the header names another verifier key than this log's", signed: true}
			}
			l.remember(p, e)
			if l.leaves.add(e.segment, e.leaf, e.before); l.leaves.due() {
				_ = l.leaves.keep() // what cannot be written is tried again, and told of, when all is read
			}
			l.anchor.pass(&w.tree)
			if known != nil && e.index+1 == known.Size && w.tree.root() != known.Root {
				return w.suspect("the file %s", checkpointFile)
			} else if known != nil && e.index+1 == known.Size {
				w.hold()
			}
		}
		return nil
	})
	p.begun, p.last, p.end = w.reader.file != nil, w.reader.first, w.reader.offset
	p.unsure = w.uncheckedFrom(p.last)
	return checkpoints, l.inOffice(w, err)
}

// inOffice returns err, with which the walk has ended, unless the log is then under
// another key than this one: that is no log for it to write to.
func (l *Log) inOffice(w *walker, err error) error {
	now := w.office.current().vkey
	handedOver := l.heir != nil && w.office.closed && now == l.heir.vkey
	if len(w.office.keys) == 0 || now == l.key.vkey || handedOver {
		return err
	}
	var damage *Damage
	if errors.As(err, &damage) {
		damage.signed = true // it is not this key's to cut
		return err
	}
	if w.office.closed {
		return fmt.Errorf("the log was handed over to the key %s, and %s holds another: bring that one back", now, filepath.Join(l.dir, signingKeyFile))
	}
	return &Damage{Position: w.office.at, Index: w.reader.first, What: "the header names another verifier key than this log's", signed: true}
}

// checkedSignatures is of how many checkpoint lines a start checks the signature,
// the newest: some tenths of a second at most. To check all of a million batches
// would take a minute. What is left to Verify is whether older lines were signed
// at all; that each says the root of the entries before it is checked of all, and
// the newest signatures are over those entries too.
const checkedSignatures = 4096

type newestCheckpoints struct {
	ring []event // of their lines; the oldest at next once it is full
	next int
}

func (c *newestCheckpoints) add(e event) {
	e.line = nil // the reader's
	if len(c.ring) < checkedSignatures {
		c.ring = append(c.ring, e)
		return
	}
	c.ring[c.next] = e
	c.next = (c.next + 1) % checkedSignatures
}

// check returns the first of them that the key in office did not sign, or nil.
func (c *newestCheckpoints) check() *Damage {
	for i := range c.ring {
		e := c.ring[(c.next+i)%len(c.ring)]
		if _, err := openStored(e.note, e.key.known); err != nil {
			return &Damage{Position: e.at, Index: e.claims.Size, What: "the checkpoint: " + err.Error(), signed: true}
		}
	}
	return nil
}

// skim is read for a log that is as it was left: ok is false for any other.
func (l *Log) skim(known *checkpoint) (_ *past, _ *walker, ok bool) {
	p := &past{intents: make(map[string]openIntent)}
	w := l.walker()
	defer w.reader.close()
	w.accept = nil
	w.skim()
	if l.resetLeaves() != nil {
		return nil, nil, false
	}
	checkpoints, err := l.walk(p, w, known)
	if err != io.EOF || w.torn() || w.loose != nil || w.vouched(w.tree.size) != nil || w.tree.size == 0 && !l.key.fresh || known != nil && known.Size > w.tree.size {
		return nil, nil, false
	}
	if checkpoints.check() != nil {
		return nil, nil, false
	}
	if w.skimming.check(w.lastCheckpoint, l.key.tagHolds) != nil {
		return nil, nil, false
	}
	for id, o := range p.intents {
		line, err := readPlace(l.disk, l.folder, o.at)
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
	signed, err := readFile(l.disk, path)
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
	p.sealed = e.record.Kind == KindSeal
	if _, asked := l.notes.told[e.record.ID]; asked {
		l.notes.told[e.record.ID] = true
	}
	at := place{e.segment, e.at.Offset, len(e.line) + 1}
	switch begins := e.record.Begins(); {
	case begins:
		p.intents[e.record.ID] = openIntent{e.index, e.record, at}
	case e.record.Kind == KindOutcome, e.record.Kind == KindSummary:
		delete(p.intents, e.record.ID)
	}
	l.recent.mu.Lock()
	defer l.recent.mu.Unlock()
	l.recent.addLocked(e.record.ID, e.record.Key, e.record.Begins(), at)
}
