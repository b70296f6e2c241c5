package receipts

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"
)

// settle decides what the bytes after the last good line are, and repairs what
// a crash explains: the last write, of which any part may be missing. damage is
// nil where the log just ends too early. On return w.tree is the log as it will be.
func (l *Log) settle(p *past, w *walker, known *checkpoint, damage *Damage) error {
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
	return l.cut(f, p, w, known, at.Offset)
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
			if c, err := openSigned(signed, known); err == nil && c.Size > size {
				return true, nil
			}
		}
	}
}
