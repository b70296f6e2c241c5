package receipts

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData waits until f's bytes and its size are on disk. fdatasync leaves out
// the times, which fsync would write to another place of the disk each time.
func syncData(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// reserve keeps space for the first n bytes of f without making it longer.
func reserve(f *os.File, n int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, n)
}
