package receipts

import (
	"errors"
	"os"
	"path/filepath"
)

const segmentSize = 64 << 20

// segment is the file that is being written. Only the committer uses it.
type segment struct {
	disk  disk
	file  *os.File
	self  os.FileInfo // of file: which one it is, not how it stands
	path  string
	first uint64
	size  int64 // where the next byte goes; nothing stands behind it
}

// createSegment begins the file for the entries from first on. Its header is
// written with its first batch.
func createSegment(d disk, folder string, first uint64, limit int64) (*segment, error) {
	path := filepath.Join(folder, segmentName(first))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	reserve(f, limit)
	if err := d.syncDir(folder); err != nil {
		f.Close()
		return nil, err
	}
	return newSegment(d, f, path, first, 0)
}

// openSegment opens the last file of a log whose good bytes end at size.
func openSegment(d disk, folder string, first uint64, size, limit int64) (*segment, error) {
	path := filepath.Join(folder, segmentName(first))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	reserve(f, limit)
	return newSegment(d, f, path, first, size)
}

func newSegment(d disk, f *os.File, path string, first uint64, size int64) (*segment, error) {
	self, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &segment{disk: d, file: f, self: self, path: path, first: first, size: size}, nil
}

// write puts b behind what is there; it is not on disk before sync.
func (s *segment) write(b []byte) error {
	if err := s.disk.write(s.file, b, s.size); err != nil {
		return err
	}
	s.size += int64(len(b))
	return nil
}

var errMoved = errors.New("the segment is no longer where it was created: it was removed or renamed")

// sync waits for the disk and then makes sure that the name still leads to this
// file. A log that writes on into a deleted file looks healthy and keeps nothing.
func (s *segment) sync() error {
	if err := s.disk.sync(s.file); err != nil {
		return err
	}
	named, err := os.Stat(s.path)
	if err != nil || !os.SameFile(s.self, named) {
		return errMoved
	}
	return nil
}

// close gives back the space that was reserved and not used.
func (s *segment) close() error {
	return errors.Join(s.file.Truncate(s.size), s.file.Close())
}
