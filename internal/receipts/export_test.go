package receipts

import (
	"os"
	"path/filepath"
)

// What external tests may change or look at.

func SetSegmentSize(o *Options, n int64) { o.segmentSize = n }

func SetKeepRecent(o *Options, n int) { o.keepRecent = n }

func SetNewID(o *Options, f func() string) { o.newID = f }

// SetDisk puts hooks before the real disk; a nil hook is none.
func SetDisk(o *Options, write func(b []byte, at int64) error, sync func() error) {
	d := realDisk
	d.write = func(f *os.File, b []byte, at int64) error {
		if write != nil {
			if err := write(b, at); err != nil {
				return err
			}
		}
		return realDisk.write(f, b, at)
	}
	d.sync = func(f *os.File) error {
		if sync != nil {
			if err := sync(); err != nil {
				return err
			}
		}
		return realDisk.sync(f)
	}
	o.disk = &d
}

// SetTrace tells before of each call of the disk, by its verb and the base names
// of what it is about. An error of before is the call's.
func SetTrace(o *Options, before func(call string) error) {
	o.disk = &disk{
		write: func(f *os.File, b []byte, at int64) error {
			if err := before("write " + filepath.Base(f.Name())); err != nil {
				return err
			}
			return realDisk.write(f, b, at)
		},
		sync: func(f *os.File) error {
			if err := before("sync " + filepath.Base(f.Name())); err != nil {
				return err
			}
			return realDisk.sync(f)
		},
		rename: func(from, to string) error {
			if err := before("rename " + filepath.Base(from) + " to " + filepath.Base(to)); err != nil {
				return err
			}
			return realDisk.rename(from, to)
		},
		syncDir: func(folder string) error {
			if err := before("sync folder " + filepath.Base(folder)); err != nil {
				return err
			}
			return realDisk.syncDir(folder)
		},
	}
}

// SetNoSync leaves out waiting for the disk.
func SetNoSync(o *Options) {
	d := realDisk
	d.sync = func(*os.File) error { return nil }
	d.syncDir = func(string) error { return nil }
	o.disk = &d
}

// Skim is what a start reads of a record line.
func Skim(line []byte) (Record, bool) { return skim(line) }
