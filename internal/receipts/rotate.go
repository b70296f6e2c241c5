package receipts

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// nextSigningKeyFile is the key to which the next start hands the log over.
const nextSigningKeyFile = "receipt-signing-key.next"

// PrepareKey makes the next signing key of the log below the data folder dir, and
// returns its verifier key. The next Open hands the log over to it; until then
// nothing has changed, and to remove the file takes it back. It needs no lock. The error is
// fs.ErrExist where one waits already, whose verifier key it returns too, and
// fs.ErrNotExist where there is no log yet.
func PrepareKey(dir string) (vkey string, err error) {
	d := realDisk{}
	now, err := loadSigning(d, dir, signingKeyFile)
	if err != nil {
		return "", err
	}
	waiting, err := loadSigning(d, dir, nextSigningKeyFile)
	switch {
	case err == nil:
		return waiting.vkey, fmt.Errorf("%s: %w", filepath.Join(dir, nextSigningKeyFile), fs.ErrExist)
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	// Under its own name it is whole.
	const half = nextSigningKeyFile + ".new"
	next, err := createSigning(d, dir, half, now.origin)
	if err != nil {
		return "", err
	}
	if err := d.rename(filepath.Join(dir, half), filepath.Join(dir, nextSigningKeyFile)); err != nil {
		return "", err
	}
	return next.vkey, d.syncDir(dir)
}

// heirOf returns the key that waits to take over from key; nil where none does.
func heirOf(d disk, dir string, key *signing) (*signing, error) {
	next, err := loadSigning(d, dir, nextSigningKeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && (next.origin != key.origin || next.signer.KeyHash() == key.signer.KeyHash()) {
		err = fmt.Errorf("%s: not another key of this log", filepath.Join(dir, nextSigningKeyFile))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: remove it, or make another with `agentgw receipts rotate-key`", err)
	}
	return next, nil
}

// handOver hands the log over to the next key: see FORMAT.md, section 4.5. The log
// has been read, and its tail is settled. Each step is on disk before the next one
// is taken, and what it finds done it does not do again: so a start that was killed
// is gone on with by the next. Afterwards the log has to be read anew.
func (l *Log) handOver(p *past, w *walker) error {
	s, err := openSegment(l.disk, l.folder, p.last, p.end)
	if err != nil {
		return err
	}
	// Nothing is signed that is not on disk, and no border is gone on from: a start
	// before this one may have written it, and its sync have failed.
	err = errors.Join(rewrite(s.file, p.unsure, p.end), s.sync())
	border := w.office.current().border
	if err == nil && !w.office.closed {
		border, err = l.writeBorder(s, p, w)
	}
	if err = errors.Join(err, s.close()); err != nil {
		return err
	}
	// Whoever knows one of the two keys can check it, with nothing else at hand.
	l.signed = border
	if err := l.publish(true); err != nil {
		return err
	}
	if err := l.disk.rename(filepath.Join(l.dir, nextSigningKeyFile), filepath.Join(l.dir, signingKeyFile)); err != nil {
		return err
	}
	if err := l.disk.syncDir(l.dir); err != nil {
		return err
	}
	l.logger.Info("the receipt log goes on under another key", "folder", l.folder, "verifier_key", l.heir.vkey, "before", l.key.vkey)
	return nil
}

// writeBorder appends the record of the next key, where it is not the last entry
// already, and the checkpoint that both keys sign. All before them is on disk.
func (l *Log) writeBorder(s *segment, p *past, w *walker) (border []byte, err error) {
	tree := w.tree.clone()
	if w.office.named != l.heir.vkey {
		line := l.keyLine(w)
		unit, err := l.before(s.file, p, w, s.size)
		if err != nil {
			return nil, err
		}
		unit = appendBatchLine(unit, batchLine{First: tree.size, Count: 1, Bytes: int64(len(line))})
		if err := errors.Join(s.write(append(unit, line...)), s.sync()); err != nil {
			return nil, err
		}
		tree.push(tlog.RecordHash(line[:len(line)-1]))
	}
	c := checkpoint{l.key.origin, tree.size, tree.root()}
	border, err = note.Sign(&note.Note{Text: c.text()}, l.key.signer, l.heir.signer)
	if err != nil {
		return nil, err
	}
	return border, errors.Join(s.write(appendCheckpointLine(nil, border)), s.sync())
}

// keyLine is the record of the next key, as the log's next entry.
func (l *Log) keyLine(w *walker) []byte {
	r := &Record{Kind: KindKey, VKey: l.heir.vkey, ID: l.newID(), Time: l.clock.Now(), Replica: l.replica, Interval: l.interval, Seq: 1}
	if b := w.branches[""]; b != nil {
		r.Seq = b.seq + 1
	}
	var s slot
	l.encode(&s, r, w.tree.size)
	return s.line
}
