package receipts

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// disk is the file system as far as a log uses it: all that Open and a Log write,
// and read of what they have written, goes through it. realDisk is the one that
// there is; tests put another in its place, which fails and forgets as a real one
// may. What only reads a log (Verify, Scan, exports) is on the real one always:
// it has nothing to lose.
//
// It promises no more than POSIX does. Bytes last once their file was synced, and
// names (of what was created, renamed or removed) once their folder was; before
// that a crash may leave any part of them, in any order. A call that has failed
// may have done its work all the same.
type disk interface {
	// open is os.OpenFile.
	open(path string, flag int, mode fs.FileMode) (file, error)
	// mkdir makes one folder, for this user alone. See makeFolder.
	mkdir(path string) error
	readDir(folder string) ([]fs.DirEntry, error)
	stat(path string) (fs.FileInfo, error)
	rename(from, to string) error
	remove(path string) error
	syncDir(folder string) error
	// lock takes the folder for this process until the result is closed.
	lock(folder string) (io.Closer, error)
}

// file is an open file of a disk. writeAll and syncAll are how to use two of its methods.
type file interface {
	io.ReaderAt
	io.Closer
	// WriteAt is pwrite: it may take fewer bytes than it was given, or be interrupted.
	WriteAt(b []byte, at int64) (int, error)
	// sync waits until bytes and size are on disk. It may be interrupted.
	sync() error
	Truncate(size int64) error
	// reserve keeps space for the first n bytes of the file without making it longer.
	reserve(n int64) error
	// free says how much of the disk that the file is on anybody may take, and how large it is.
	free() (free, total int64, err error)
	// isAt reports whether path leads to this very file, and how long that is.
	isAt(path string) (size int64, is bool)
}

// writeAll writes all of b, or returns an error.
func writeAll(f file, b []byte, at int64) error {
	for len(b) > 0 {
		n, err := f.WriteAt(b, at)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return err
		}
		if n == 0 && err == nil {
			return io.ErrShortWrite
		}
		b, at = b[n:], at+int64(n)
	}
	return nil
}

// syncAll waits until f is on disk. That the wait was interrupted says nothing
// about the disk; any other error says that nobody knows what is there.
func syncAll(f file) error {
	for {
		if err := f.sync(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// readFile returns the whole of a file.
func readFile(d disk, path string) ([]byte, error) {
	f, err := d.open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.NewSectionReader(f, 0, 1<<62))
}

// makeFolder makes a folder, and those above it that are not there, so that their
// names last. One that is there may have been made a moment ago by somebody who
// did not see to that, or died before: its name is synced too, where the folder
// above it may be read.
func makeFolder(d disk, path string) error {
	above := filepath.Dir(path)
	err := d.mkdir(path)
	if errors.Is(err, fs.ErrNotExist) && above != path {
		if err := makeFolder(d, above); err != nil {
			return err
		}
		err = d.mkdir(path)
	}
	there := errors.Is(err, fs.ErrExist)
	if err != nil && !there {
		return err
	}
	if err := d.syncDir(above); err != nil && !(there && errors.Is(err, fs.ErrPermission)) {
		return err
	}
	return nil
}
