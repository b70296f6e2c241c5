package receipts

import (
	"errors"
	"os"
)

// disk is how bytes and names get onto the disk. Tests put faults here, and look
// at the order; everything else of a file system is used as it is.
type disk struct {
	write   func(f *os.File, b []byte, at int64) error
	sync    func(f *os.File) error
	rename  func(from, to string) error
	syncDir func(folder string) error
}

var realDisk = disk{
	write: func(f *os.File, b []byte, at int64) error {
		_, err := f.WriteAt(b, at) // whole or an error; it goes on after a short count and EINTR
		return err
	},
	sync:    syncData,
	rename:  os.Rename,
	syncDir: syncDir,
}

// syncDir makes a created or renamed name in folder survive a crash.
func syncDir(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
