package receipts

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Retention removes whole segments from the front of the log. It never waits for
// a caller, nor has one wait: it reads what it is to remove once more, as a
// verifier does, and what is left of it is bound into the log by a record like any
// other. Only then, step by step and each on disk before the next, does the file
// change that says so, and go the segment.

const (
	// retainEvery is how often it looks whether anything is old enough.
	retainEvery = time.Minute
	// A segment of a log with retention is closed once it is a part of that time
	// old, a day at most: a log that is written to little would keep its receipts
	// for as long as it takes to fill one.
	retainPart    = 4
	retainSegment = 24 * time.Hour
)

// retire removes what is old, until the log ends.
func (l *Log) retire() {
	defer close(l.retired)
	ticker := l.clock.NewTicker(retainEvery)
	defer ticker.Stop()
	told := ""
	l.promised = [2]*Record{{Kind: KindPruned}, {Kind: KindHeartbeat}}
	for {
		l.promiseOwn()
		removed, err := true, error(nil)
		for removed && err == nil {
			removed, err = l.removeOldest()
		}
		if err != nil && !errors.Is(err, ErrUnavailable) && err.Error() != told {
			told = err.Error()
			l.logger.Error("old receipts cannot be removed; it is tried again each minute", "folder", l.folder, "error", err)
		}
		select {
		case <-ticker.Chan():
		case <-l.quit:
			return
		}
	}
}

// removeOldest removes the first segment, if there is one behind it and its newest
// record is old enough.
func (l *Log) removeOldest() (removed bool, err error) {
	select {
	case <-l.quit:
		return false, nil
	default:
	}
	firsts, err := segmentsIn(l.disk, l.folder)
	if err != nil || len(firsts) < 2 {
		return false, err
	}
	oldest := firsts[0]
	if l.youngest == nil || l.youngest.segment != oldest {
		t, err := l.newestIn(oldest)
		if err != nil {
			return false, err
		}
		l.youngest = &youngest{oldest, t}
	}
	if l.clock.Since(l.youngest.t) < l.retention {
		return false, nil
	}
	p, leaves, err := l.remains(firsts[1])
	if p == nil || err != nil {
		return false, err
	}
	text := p.append(nil)
	if err := l.keepLeaves(oldest, leaves); err != nil {
		return false, err
	}
	if err := l.declare(p); err != nil {
		return false, err
	}
	if err := l.replacePruned(text); err != nil {
		return false, err
	}
	l.pruned = p
	l.recent.prune(p.before)
	l.logger.Info("a segment of old receipts is removed", "folder", l.folder, "file", segmentName(oldest), "entries_before", p.before)
	return true, l.removeSegment(oldest)
}

// youngest is the time of the newest record of a segment, by its record's word.
type youngest struct {
	segment uint64
	t       time.Time
}

// newestIn returns the latest time in a segment: the clock may have gone back.
func (l *Log) newestIn(first uint64) (newest time.Time, err error) {
	r := newReader(l.folder)
	r.disk, r.only = l.disk, &first
	defer r.close()
	for {
		line, _, _, err := r.next()
		if err == io.EOF {
			return newest, nil
		}
		if err != nil {
			return newest, err
		}
		if rec, err := ParseRecord(line); err == nil && rec.Time.After(newest) {
			newest = rec.Time
		}
	}
}

// remains reads the entries before the given one, which is the first of a segment,
// and returns what is to be kept of them and the leaves of those that are still
// there, as they stand beside the segment. It is nil where it is too early to
// remove them: no checkpoint is over all of them yet, or a call is still running.
func (l *Log) remains(before uint64) (p *pruned, leaves []byte, err error) {
	w := l.walker()
	defer w.reader.close()
	w.accept = nil
	g := newPruning(l.pruned)
	open := make(map[string]bool) // that are begun here and not ended
	err = w.toEnd(func(e event) error {
		switch {
		case e.kind == aHeader && e.header.First == before:
			p = g.done(w.origin, w.waiting(), w.office.keys)
		case e.kind == aCheckpoint && e.border && p == nil:
			g.border(e.note)
		case e.kind == aRecord && p == nil:
			g.take(e)
			if e.record.Begins() {
				open[strings.Clone(e.record.ID)] = true // its texts are parts of its line
			} else {
				delete(open, e.record.ID)
			}
			leaves = binary.BigEndian.AppendUint64(append(leaves, e.leaf[:]...), e.before)
		case e.kind == aCheckpoint && p != nil:
			if _, err := openStored(e.note, e.key.known); err != nil && !e.border {
				return &Damage{Position: e.at, Index: w.tree.size, What: "the checkpoint: " + err.Error(), signed: true}
			}
			return errCovered
		}
		return nil
	})
	if err == io.EOF {
		return nil, nil, nil
	}
	if !errors.Is(err, errCovered) {
		return nil, nil, fmt.Errorf("what was to be removed does not hold, and stays: %w", err)
	}
	for id := range open {
		if l.recent.isOpen(id) {
			return nil, nil, nil
		}
	}
	return p, leaves, nil
}

// waiting are the tenants whose trees wait for a heads record, in their order.
func (w *walker) waiting() []string {
	names := make(map[*branch]string, len(w.branches))
	for name, b := range w.branches {
		names[b] = name
	}
	var list []string
	for _, b := range w.grown.waiting {
		list = append(list, names[b])
	}
	return list
}

// keepLeaves makes the leaves of a segment last, which could be derived so far.
func (l *Log) keepLeaves(first uint64, leaves []byte) error {
	f, err := l.disk.open(l.leaves.path(first), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	there := make([]byte, len(leaves))
	if _, err = f.ReadAt(there, 0); err != nil || !slices.Equal(there, leaves) {
		err = writeAll(f, leaves, 0)
	}
	return errors.Join(err, syncAll(f), f.Close(), l.disk.syncDir(l.folder))
}

// declare writes the record that binds p into the log. When it returns, a
// checkpoint over it is on disk too: the one that was made with it is written
// with the next batch, which the heartbeat is.
func (l *Log) declare(p *pruned) error {
	l.promised[0].Pruned = &Pruned{p.before, p.sum}
	for i, r := range l.promised {
		_, b, _, err := l.enqueue(r)
		if err != nil {
			return err
		}
		l.promised[i] = &Record{Kind: r.Kind}
		<-b.done
		if b.err != nil {
			return b.err
		}
	}
	return nil
}

// promiseOwn keeps room for what retention itself has to write, so that a full
// disk does not keep it from making room.
func (l *Log) promiseOwn() {
	for _, r := range l.promised {
		if r.room == 0 {
			_ = l.Promise(r) // there is none: it is tried with what room there is then
		}
	}
	if f, err := l.openRemains(); err == nil {
		room := int64(16 << 10)
		if l.pruned != nil {
			room += 2 * l.pruned.bytes
		}
		_ = f.reserve(room)
		_ = f.Close()
	}
}

// openRemains opens the file that is to become the one of what is left. It is
// there ahead, for the sake of its room.
func (l *Log) openRemains() (file, error) {
	return l.disk.open(filepath.Join(l.folder, ".pruned.new"), os.O_CREATE|os.O_RDWR, 0o600)
}

func (l *Log) replacePruned(text []byte) error {
	f, err := l.openRemains()
	if err != nil {
		return err
	}
	err = writeAll(f, text, 0)
	if err == nil {
		err = errors.Join(f.Truncate(int64(len(text))), syncAll(f))
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := l.disk.rename(filepath.Join(l.folder, ".pruned.new"), filepath.Join(l.folder, prunedFile)); err != nil {
		return err
	}
	return l.disk.syncDir(l.folder)
}

// removeSegment removes a segment and what is derived from it, but for its leaves.
func (l *Log) removeSegment(first uint64) error {
	for _, name := range []string{indexName(first), segmentName(first)} {
		err := l.disk.remove(filepath.Join(l.folder, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return l.disk.syncDir(l.folder)
}

// removeLeftovers removes the segments that a retention which was cut short has
// left: what is kept of them is proven by now.
func (l *Log) removeLeftovers() error {
	firsts, err := segmentsIn(l.disk, l.folder)
	for _, first := range firsts {
		if err != nil || l.pruned == nil || first >= l.pruned.before {
			break
		}
		err = l.removeSegment(first)
	}
	return err
}

// firstTime is the time of the first record of the segment that is being written,
// and now where there is none.
func (l *Log) firstTime() time.Time {
	r := newReader(l.folder)
	r.disk, r.only = l.disk, &l.segment.first
	defer r.close()
	for l.retention > 0 {
		line, _, _, err := r.next()
		if err != nil {
			break
		}
		if rec, err := ParseRecord(line); err == nil {
			return rec.Time
		}
	}
	return l.clock.Now()
}

// old reports whether a segment that began then is to be closed, of a log with retention.
func (l *Log) old(began time.Time) bool {
	return l.retention > 0 && l.clock.Since(began) >= min(l.retention/retainPart, retainSegment)
}
