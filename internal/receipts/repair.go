package receipts

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"
)

// settle decides what the bytes after the last good line are, and repairs what
// a crash explains: the last write, of which any part may be missing. damage is
// nil where the log just ends too early. On return w.tree is the log as it will be.
func (l *Log) settle(p *past, w *walker, damage *Damage) error {
	at := w.reader.at()
	if damage != nil {
		at = damage.Position
	} else {
		damage = w.damage(at, "", "the log ends in the middle of a batch")
	}
	firsts, err := segmentsIn(l.disk, l.folder)
	if err != nil {
		return err
	}
	if firsts[len(firsts)-1] != p.last || at.Offset == 0 && (w.left > 0 || p.last != w.tree.size) {
		return damage
	}
	path := filepath.Join(l.folder, segmentName(p.last))
	f, err := l.disk.open(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	synced, err := syncedAfter(f, at.Offset, w.tree.size, l.key.verify, l.key.tagHolds)
	if err != nil {
		return err
	}
	if synced {
		return damage
	}
	return l.cut(f, p, w, at.Offset)
}

// syncedAfter reports whether something stands behind from that was written only
// after entry size had been synced: a checkpoint over more that is signed by one
// of known, or a batch that begins further on with a record that ours accepts.
// Then what is wrong here was once right, and no crash explains it. A batch that
// begins with entry size itself may have been part of the write that was torn.
func syncedAfter(f io.ReaderAt, from int64, size uint64, known note.Verifiers, ours func(line []byte, index uint64) bool) (bool, error) {
	lines := bufio.NewReaderSize(io.NewSectionReader(f, from, 1<<62), maxLine+1)
	var announced *batchLine
	var begun []byte // the end of what was too long for a line: a checkpoint may begin in it
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			announced, begun = nil, append(begun[:0], line[len(line)-maxCheckpoint:]...)
			continue
		}
		if err == io.EOF {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		line = append(begun, line[:len(line)-1]...)
		begun = nil
		if announced != nil && announced.First > size && ours(line, announced.First) {
			return true, nil
		}
		announced = nil
		if b, err := parseBatchLine(line); err == nil {
			announced = &b
			continue
		}
		// The line end before it may be what is damaged.
		if signed, err := parseCheckpointLine(line[max(0, bytes.LastIndex(line, []byte(checkpointPrefix))):]); err == nil {
			if c, err := openStored(signed, known); err == nil && c.Size > size {
				return true, nil
			}
		}
	}
}

// cut removes the bytes from offset on, after keeping them in the quarantine
// folder. Records of a torn batch that stand before offset are kept: their
// batch line is written again for as many as there are.
func (l *Log) cut(f file, p *past, w *walker, offset int64) error {
	var again []byte // the batch that stays, to be written at begin
	begin := offset
	kept := w.batch.Count - w.left
	if w.left > 0 {
		begin = w.batchAt.Offset
		if kept > 0 {
			old := int64(len(appendBatchLine(nil, w.batch)))
			records := make([]byte, offset-begin-old)
			if _, err := f.ReadAt(records, begin+old); err != nil {
				return err
			}
			again = appendBatchLine(nil, batchLine{w.batch.First, kept, int64(len(records))})
			l.recent.move(place{segment: p.last, at: begin}, int64(len(again))-old)
			again = append(again, records...)
		} else {
			offset = begin
		}
	} else {
		kept = 0
	}
	repair, err := l.quarantine(f, segmentName(p.last), offset)
	if err != nil {
		return err
	}
	if repair != nil {
		repair.Kept = int64(kept)
		l.logger.Warn("the receipt log had a torn tail; it was cut", "file", repair.File, "offset", repair.Offset, "bytes", repair.Bytes, "kept", kept)
	}
	if len(again) > 0 {
		if err := writeAll(f, again, begin); err != nil {
			return err
		}
	}
	p.end, p.repair = begin+int64(len(again)), repair
	if err := f.Truncate(p.end); err != nil {
		return err
	}
	return syncAll(f)
}

// quarantine copies what stands from offset on into a file of its own. Nothing
// but zeros is no data: space that a file system has given to the file and not
// filled. Then, and where nothing stands there, the result is nil.
func (l *Log) quarantine(f file, name string, offset int64) (*Recovery, error) {
	folder := filepath.Join(l.folder, quarantine)
	if err := makeFolder(l.disk, folder); err != nil {
		return nil, err
	}
	// One name for all: what a crash leaves there the next start writes anew.
	path := filepath.Join(folder, ".new")
	tmp, err := l.disk.open(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer l.disk.remove(path)
	defer tmp.Close()
	hash := sha256.New()
	var seen zeros
	n, err := io.Copy(io.MultiWriter(&appender{file: tmp}, hash, &seen), io.NewSectionReader(f, offset, 1<<62))
	if err != nil || !seen.other {
		return nil, err
	}
	sum := hex.EncodeToString(hash.Sum(nil))
	kept := fmt.Sprintf("%s-%d-%s", name, offset, sum[:16])
	if err := errors.Join(syncAll(tmp), l.disk.rename(path, filepath.Join(folder, kept)), l.disk.syncDir(folder)); err != nil {
		return nil, err
	}
	return &Recovery{File: name, Offset: offset, Bytes: n, SHA256: sum}, nil
}

// appender writes to a file from its beginning.
type appender struct {
	file file
	at   int64
}

func (a *appender) Write(b []byte) (int, error) {
	if err := writeAll(a.file, b, a.at); err != nil {
		return 0, err
	}
	a.at += int64(len(b))
	return len(b), nil
}

// zeros is a writer that notices whether anything but zero bytes came by.
type zeros struct{ other bool }

func (z *zeros) Write(b []byte) (int, error) {
	z.other = z.other || len(bytes.Trim(b, "\x00")) > 0
	return len(b), nil
}
