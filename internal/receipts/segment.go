package receipts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

const segmentSize = 64 << 20

// segment is the file that is being written. Only the committer uses it.
type segment struct {
	file  file
	path  string
	first uint64
	size  int64 // where the next byte goes; nothing stands behind it

	torn     bool // a write was cut short: some of it may stand behind size
	believed bool // the file system keeps no room, and is believed to have what it says is free
}

// createSegment begins the file for the entries from first on, with room for need
// bytes of them. Its header is written with its first batch. The second result is
// the room that there is. The error is a *noRoom where there is not enough, and
// then there is no file.
func createSegment(d disk, folder string, first uint64, need, limit int64) (*segment, int64, error) {
	path := filepath.Join(folder, segmentName(first))
	f, err := d.open(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if isFull(err) {
		return nil, 0, &noRoom{err}
	}
	if err != nil {
		return nil, 0, err
	}
	s := &segment{file: f, path: path, first: first}
	reserved, err := s.reserve(headerRoom+frame, 0, need, limit)
	if err != nil {
		if err := errors.Join(f.Close(), d.remove(path)); err != nil {
			return nil, 0, err
		}
		return nil, 0, &noRoom{err}
	}
	if err := d.syncDir(folder); err != nil {
		f.Close()
		return nil, 0, err
	}
	return s, reserved, nil
}

// openSegment opens the last file of a log whose good bytes end at size.
func openSegment(d disk, folder string, first uint64, size int64) (*segment, error) {
	path := filepath.Join(folder, segmentName(first))
	f, err := d.open(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	// The process that made it may have died before its name was safe.
	if err := d.syncDir(folder); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &segment{file: f, path: path, first: first, size: size}, nil
}

// reserve has the file system keep room for need bytes from end on, and for more
// if there is much, where there is room for so many already. It returns for how
// many there is then; the error says that the disk is full. A file system that
// cannot keep room is believed to have what it says is free: then a full one may
// yet be met when bytes are written.
func (s *segment) reserve(end, reserved, need, limit int64) (int64, error) {
	free, _, err := s.file.free()
	if err != nil {
		free = 1 << 62
	}
	wish, least := toReserve(end, reserved, need, limit, free)
	if wish <= 0 && !s.believed {
		return reserved, nil
	}
	err = s.file.reserve(reserved + wish)
	if isFull(err) && least < wish {
		wish, err = least, nil
		if least > 0 {
			err = s.file.reserve(reserved + least)
		}
	}
	s.believed = err != nil && !isFull(err)
	switch {
	case s.believed && need > free:
		return end + free, syscall.ENOSPC
	case s.believed:
		return min(reserved+max(wish, 0), end+free), nil
	case err != nil:
		return reserved, err
	}
	return reserved + wish, nil
}

// write puts b behind what is there; it is not on disk before sync.
func (s *segment) write(b []byte) error {
	if err := s.stands(); err != nil { // else the bytes would stand behind a hole
		return err
	}
	s.torn = true
	if err := writeAll(s.file, b, s.size); err != nil {
		return err
	}
	s.size, s.torn = s.size+int64(len(b)), false
	return nil
}

var (
	errMoved   = errors.New("the segment is no longer where it was created: it was removed or renamed")
	errResized = errors.New("the segment is not as long as what was written to it: somebody has cut it, or written to it")
)

// stands makes sure that the name still leads to this file, and that it is as long
// as it was left. A log that writes on into a deleted file, or behind a hole, looks
// healthy and keeps nothing. Bytes that were changed in their place it does not see,
// and so not a cut between its look and a write, which leaves zeros in their place.
func (s *segment) stands() error {
	size, is := s.file.isAt(s.path)
	switch {
	case !is:
		return errMoved
	case size < s.size, size > s.size && !s.torn:
		return fmt.Errorf("%w: it has %d bytes, and %d were written", errResized, size, s.size)
	}
	return nil
}

// sync waits for the disk and then makes sure that the file is where it was.
func (s *segment) sync() error {
	if err := syncAll(s.file); err != nil {
		return err
	}
	return s.stands()
}

// close gives back the space that was reserved and not used.
func (s *segment) close() error {
	return errors.Join(s.file.Truncate(s.size), s.file.Close())
}
