package receipts

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// realDisk is the operating system's.
type realDisk struct{}

func (realDisk) open(path string, flag int, mode fs.FileMode) (file, error) {
	f, err := os.OpenFile(path, flag, mode)
	if err != nil {
		return nil, err
	}
	return &realFile{File: f}, nil
}

func (realDisk) mkdir(path string) error                      { return os.Mkdir(path, 0o700) }
func (realDisk) readDir(folder string) ([]fs.DirEntry, error) { return os.ReadDir(folder) }
func (realDisk) stat(path string) (fs.FileInfo, error)        { return os.Stat(path) }
func (realDisk) rename(from, to string) error                 { return os.Rename(from, to) }
func (realDisk) remove(path string) error                     { return os.Remove(path) }
func (realDisk) lock(folder string) (io.Closer, error)        { return lockFolder(folder) }

func (realDisk) syncDir(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

type realFile struct {
	*os.File
	self fs.FileInfo // which file it is, not how it stands; nil until isAt needs it
}

func (f *realFile) sync() error           { return syncData(f.File) }
func (f *realFile) reserve(n int64) error { return reserve(f.File, n) }

func (f *realFile) free() (free, total int64, err error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return 0, 0, err
	}
	size := int64(fs.Bsize)
	return int64(fs.Bavail) * size, int64(fs.Blocks) * size, nil
}

func (f *realFile) isAt(path string) (int64, bool) {
	if f.self == nil {
		self, err := f.Stat()
		if err != nil {
			return 0, false
		}
		f.self = self
	}
	named, err := os.Stat(path)
	if err != nil || !os.SameFile(f.self, named) {
		return 0, false
	}
	return named.Size(), true
}
