package receipts

import (
	"errors"
	"os"
	"path/filepath"
)

const segmentSize = 64 << 20

// segment is the file that is being written. Only the committer uses it.
type segment struct {
	file  file
	path  string
	first uint64
	size  int64 // where the next byte goes; nothing stands behind it
}

// createSegment begins the file for the entries from first on. Its header is
// written with its first batch.
func createSegment(d disk, folder string, first uint64, limit int64) (*segment, error) {
	path := filepath.Join(folder, segmentName(first))
	f, err := d.open(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	_ = f.reserve(limit) // a wish: see openSegment
	if err := d.syncDir(folder); err != nil {
		f.Close()
		return nil, err
	}
	return &segment{file: f, path: path, first: first}, nil
}

// openSegment opens the last file of a log whose good bytes end at size.
func openSegment(d disk, folder string, first uint64, size, limit int64) (*segment, error) {
	path := filepath.Join(folder, segmentName(first))
	f, err := d.open(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	// A file system that cannot do it only loses speed, and a full one is met when
	// bytes are written.
	_ = f.reserve(limit)
	return &segment{file: f, path: path, first: first, size: size}, nil
}

// write puts b behind what is there; it is not on disk before sync.
func (s *segment) write(b []byte) error {
	if err := writeAll(s.file, b, s.size); err != nil {
		return err
	}
	s.size += int64(len(b))
	return nil
}

var errMoved = errors.New("the segment is no longer where it was created: it was removed or renamed")

// sync waits for the disk and then makes sure that the name still leads to this
// file. A log that writes on into a deleted file looks healthy and keeps nothing.
func (s *segment) sync() error {
	if err := syncAll(s.file); err != nil {
		return err
	}
	if !s.file.isAt(s.path) {
		return errMoved
	}
	return nil
}

// close gives back the space that was reserved and not used.
func (s *segment) close() error {
	return errors.Join(s.file.Truncate(s.size), s.file.Close())
}
