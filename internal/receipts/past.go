package receipts

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"
)

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
	if d := w.unsigned(); d != nil {
		return nil, nil, cmp.Or(damage, d)
	}
	if w.tree.size == 0 && !l.key.fresh {
		if damage != nil {
			return nil, nil, damage
		}
		return nil, nil, errNoLog
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
			w.hold()
		case aRecord:
			l.remember(p, e)
			if known != nil && e.index+1 == known.Size && w.tree.root() != known.Root {
				return w.suspect("the file %s", checkpointFile)
			} else if known != nil && e.index+1 == known.Size {
				w.hold()
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
	if err != io.EOF || w.torn() || w.loose != nil || w.tree.size == 0 && !l.key.fresh || known != nil && known.Size > w.tree.size {
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
