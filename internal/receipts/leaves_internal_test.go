package receipts

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

// TestLeavesInMemory: what no file has is read from memory, across the border between
// the two, and by a reader from before it was written; what could not be written for
// long is given up, and nothing else is.
func TestLeavesInMemory(t *testing.T) {
	disk := &unwritable{}
	l := &leaves{disk: disk, folder: t.TempDir()}
	leaf := func(i uint64) (h tlog.Hash) {
		binary.BigEndian.PutUint64(h[:], i+1)
		return h
	}
	segment := uint64(0)
	add := func(n int) {
		for range n {
			l.add(segment, leaf(l.next), 0)
		}
	}
	good := func(r *leafReader, first, end uint64) {
		t.Helper()
		defer r.close()
		row, err := r.row(first, end)
		if err != nil || uint64(len(row)) != end-first {
			t.Fatalf("from %d to %d: %d, %v", first, end, len(row), err)
		}
		for i, h := range row {
			if h != leaf(first+uint64(i)) {
				t.Fatalf("from %d to %d: %d is another", first, end, i)
			}
		}
	}
	add(100)
	before := l.reader()
	good(l.reader(), 0, 100)
	if l.due() {
		t.Error("a hundred are due")
	}
	if err := l.keep(); err != nil || len(l.runs) != 0 {
		t.Fatal(err, l.runs)
	}
	good(before, 0, 100)
	add(100)
	good(l.reader(), 0, 200) // half of it in a file
	segment = 200
	add(100)
	if !l.due() {
		t.Error("those of a segment that is full are not due")
	}
	good(l.reader(), 50, 300)
	disk.full = true
	if err := l.keep(); !errors.Is(err, errNoWrite) {
		t.Fatal(err)
	}
	good(l.reader(), 0, 300)
	add(leavesAtMost / leafSize / 2)
	l.keep()
	good(l.reader(), 0, 300)
	add(leavesAtMost / leafSize / 2)
	l.keep()
	if len(l.runs) > 0 {
		t.Errorf("%d bytes are kept, more than the bound", l.gathered())
	}
	given := l.next
	disk.full = false
	add(10)
	if err := l.keep(); err != nil {
		t.Fatal(err)
	}
	good(l.reader(), 0, 100)
	good(l.reader(), given, l.next)
	if row, err := l.reader().row(given-1, given); err == nil && row[0] == leaf(given-1) {
		t.Error("what was given up is there")
	}
}

var errNoWrite = errors.New("this cannot be written")

// unwritable is the real disk, on which now and then nothing can be opened to be written.
type unwritable struct {
	realDisk
	full bool
}

func (d *unwritable) open(path string, flag int, mode fs.FileMode) (file, error) {
	if d.full && flag&os.O_RDWR != 0 {
		return nil, errNoWrite
	}
	return d.realDisk.open(path, flag, mode)
}
