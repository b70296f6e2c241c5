package receipts

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"

	"golang.org/x/mod/sumdb/tlog"
)

const (
	leavesSuffix = ".leaves"
	leafSize     = tlog.HashSize + 8 // the hash, and which entry the tenant had before

	// leavesAtOnce is how much is gathered before it is written. Nobody waits
	// for it: a proof that needs what is still in memory has it written first.
	leavesAtOnce = 64 << 10
	// leavesAtMost bounds what is kept in memory while it cannot be written.
	leavesAtMost = 8 << 20
)

// errLeaves: a file of leaves lacks some, since it could not be written for long, or
// does not hold. The next start writes it anew.
var errLeaves = errors.New("the hashes of the log's entries are not at hand until a restart")

// leaves are the hashes of a log's entries, in a file beside each segment: with
// them any record is proven in the time of some hundred short reads. The files
// are derived from the segments, are not synced, and are believed by nobody:
// what is made of them has to come to a root that is known.
//
// Each entry says which one its tenant had before, so that a tenant's newest
// leaves are found from its last, however far apart they stand, and a tenant that
// is idle needs no file and no memory for them.
type leaves struct {
	disk    disk
	folder  string
	firsts  []uint64 // of the segments, in order
	pending []byte   // of the last segment's entries from next-len(pending)/leafSize on
	next    uint64   // the entry that comes next
}

// add takes the next entry, which stands in the segment that begins with first.
// before is the tenant's entry before it and 1, or 0.
func (l *leaves) add(first uint64, leaf tlog.Hash, before uint64) {
	if n := len(l.firsts); n == 0 || l.firsts[n-1] != first {
		_ = l.flush() // what cannot be written is missing, and proves nothing until the next start
		l.pending = l.pending[:0]
		l.firsts = append(l.firsts, first)
	}
	l.pending = append(l.pending, leaf[:]...)
	l.pending = binary.BigEndian.AppendUint64(l.pending, before)
	l.next++
}

// ease writes what has gathered, if it is much. What cannot be written stays in
// memory for the next try, within bounds: a full disk may have room again.
func (l *leaves) ease() error {
	if len(l.pending) < leavesAtOnce {
		return nil
	}
	err := l.flush()
	if err != nil && len(l.pending) > leavesAtMost {
		l.pending = l.pending[:0]
	}
	return err
}

// flush writes what has gathered where the file does not say it already.
func (l *leaves) flush() error {
	if len(l.pending) == 0 {
		return nil
	}
	first := l.firsts[len(l.firsts)-1]
	f, err := l.disk.open(l.path(first), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	at := int64(l.next-first)*leafSize - int64(len(l.pending))
	there := make([]byte, len(l.pending))
	if _, err := f.ReadAt(there, at); err != nil || !bytes.Equal(there, l.pending) {
		if err := writeAll(f, l.pending, at); err != nil {
			return err
		}
	}
	l.pending = l.pending[:0]
	return nil
}

func (l *leaves) path(first uint64) string {
	return filepath.Join(l.folder, fmt.Sprintf("%0*d%s", segmentDigits, first, leavesSuffix))
}

// reader reads what has been written. It stays good while more is added.
func (l *leaves) reader() (*leafReader, error) {
	if err := l.flush(); err != nil {
		return nil, err
	}
	return &leafReader{disk: l.disk, path: l.path, firsts: l.firsts}, nil
}

// leafReader is for one goroutine. Close it.
type leafReader struct {
	disk   disk
	path   func(first uint64) string
	firsts []uint64
	first  uint64 // of the open file
	file   file
}

func (r *leafReader) close() {
	if r.file != nil {
		r.file.Close()
	}
}

// read fills into with the entries from index on that stand in one file with it,
// and returns how many those are.
func (r *leafReader) read(index uint64, into []byte) (n int, err error) {
	i := sort.Search(len(r.firsts), func(i int) bool { return r.firsts[i] > index }) - 1
	if i < 0 {
		return 0, errLeaves
	}
	if first := r.firsts[i]; r.file == nil || r.first != first {
		f, err := r.disk.open(r.path(first), os.O_RDONLY, 0)
		if err != nil {
			return 0, fmt.Errorf("%w: %v", errLeaves, err) // one that is gone is no tree that is not there
		}
		r.close()
		r.first, r.file = first, f
	}
	if i+1 < len(r.firsts) {
		into = into[:min(uint64(len(into)), (r.firsts[i+1]-index)*leafSize)]
	}
	if _, err := r.file.ReadAt(into, int64(index-r.first)*leafSize); err == io.EOF {
		return 0, errLeaves
	} else if err != nil {
		return 0, err
	}
	return len(into) / leafSize, nil
}

// row returns the leaves of the entries from first to before end.
func (r *leafReader) row(first, end uint64) ([]tlog.Hash, error) {
	var list []tlog.Hash
	buf := make([]byte, (end-first)*leafSize)
	for first < end {
		n, err := r.read(first, buf[:(end-first)*leafSize])
		if err != nil {
			return nil, err
		}
		for i := range n {
			list = append(list, tlog.Hash(buf[i*leafSize:][:tlog.HashSize]))
		}
		first += uint64(n)
	}
	return list, nil
}

// chain returns the n leaves of a tenant that end with the entry last-1.
func (r *leafReader) chain(last uint64, n int) ([]tlog.Hash, error) {
	list := make([]tlog.Hash, n)
	buf := make([]byte, leafSize)
	for i := n - 1; i >= 0; i-- {
		if last == 0 {
			return nil, errLeaves
		}
		if _, err := r.read(last-1, buf); err != nil {
			return nil, err
		}
		list[i] = tlog.Hash(buf[:tlog.HashSize])
		last = binary.BigEndian.Uint64(buf[tlog.HashSize:])
	}
	return list, nil
}
