package receipts

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"golang.org/x/mod/sumdb/tlog"
)

const (
	leavesSuffix = ".leaves"
	leafSize     = tlog.HashSize + 8 // the hash, and which entry the tenant had before

	// leavesAtOnce is how much is gathered before it is written: nobody waits for
	// it, as a proof takes from memory what no file has yet.
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
//
// Only one goroutine may add and write, and only to add or to let go does it hold
// the lock that those who ask for a reader hold: so a disk that hangs is between
// the writer and the disk.
type leaves struct {
	disk   disk
	folder string
	firsts []uint64 // of the segments, in order
	runs   []leafRun
	next   uint64 // the entry that comes next
}

// leafRun is of entries one behind the other in one segment, which no file has yet.
// It is only ever added to, so that who has a copy of it may read it without a lock.
type leafRun struct {
	segment uint64
	first   uint64 // entry
	entries []byte
}

// at returns what the run has from index on, if it has that.
func (r leafRun) at(index uint64) []byte {
	if n := uint64(len(r.entries) / leafSize); index < r.first || index >= r.first+n {
		return nil
	}
	return r.entries[(index-r.first)*leafSize:]
}

// add takes the next entry, which stands in the segment that begins with first.
// before is the tenant's entry before it and 1, or 0.
func (l *leaves) add(first uint64, leaf tlog.Hash, before uint64) {
	if n := len(l.firsts); n == 0 || l.firsts[n-1] != first {
		l.firsts = append(l.firsts, first)
	}
	if n := len(l.runs); n == 0 || l.runs[n-1].segment != first {
		l.runs = append(l.runs, leafRun{segment: first, first: l.next})
	}
	run := &l.runs[len(l.runs)-1]
	run.entries = append(run.entries, leaf[:]...)
	run.entries = binary.BigEndian.AppendUint64(run.entries, before)
	l.next++
}

// due reports whether it is time to write: much has gathered, or of a segment to
// which nothing more comes, which retention may remove.
func (l *leaves) due() bool { return len(l.runs) > 1 || l.gathered() >= leavesAtOnce }

func (l *leaves) gathered() (bytes int) {
	for _, r := range l.runs {
		bytes += len(r.entries)
	}
	return bytes
}

// write writes the runs where the files do not say it already, and returns how many
// of them there are then.
func (l *leaves) write() (done int, err error) {
	for i, r := range l.runs {
		if err := l.writeRun(r); err != nil {
			return i, err
		}
	}
	return len(l.runs), nil
}

func (l *leaves) writeRun(r leafRun) error {
	f, err := l.disk.open(l.path(r.segment), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	at := int64(r.first-r.segment) * leafSize
	there := make([]byte, len(r.entries))
	if _, err := f.ReadAt(there, at); err == nil && bytes.Equal(there, r.entries) {
		return nil
	}
	return writeAll(f, r.entries, at)
}

// letGo keeps the runs behind the first so many, which are written, for the next
// try, within bounds: a full disk may have room again.
func (l *leaves) letGo(written int) {
	if l.runs = slices.Clone(l.runs[written:]); l.gathered() > leavesAtMost {
		l.runs = nil
	}
}

// keep is write and letGo for whoever is alone with them.
func (l *leaves) keep() error {
	n, err := l.write()
	l.letGo(n)
	return err
}

func (l *leaves) path(first uint64) string {
	return filepath.Join(l.folder, fmt.Sprintf("%0*d%s", segmentDigits, first, leavesSuffix))
}

// reader reads what has been added. It stays good while more is.
func (l *leaves) reader() *leafReader {
	return &leafReader{disk: l.disk, path: l.path, firsts: l.firsts, runs: slices.Clone(l.runs)}
}

// leafReader is for one goroutine. Close it.
type leafReader struct {
	disk   disk
	path   func(first uint64) string
	firsts []uint64
	runs   []leafRun
	first  uint64 // of the open file
	file   file
}

func (r *leafReader) close() {
	if r.file != nil {
		r.file.Close()
	}
}

// read fills into with the entries from index on that stand in one file with it, or
// in no file yet, and returns how many those are.
func (r *leafReader) read(index uint64, into []byte) (n int, err error) {
	for _, run := range r.runs {
		if there := run.at(index); there != nil {
			return copy(into, there) / leafSize, nil
		}
		if run.first > index { // what is before it is in a file
			into = into[:min(uint64(len(into)), (run.first-index)*leafSize)]
			break
		}
	}
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
