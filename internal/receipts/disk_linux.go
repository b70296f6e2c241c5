package receipts

import (
	"os"

	"golang.org/x/sys/unix"
)

// reserveShare: one part in so many of the free space may be reserved ahead, so
// that a small volume is not taken up by a file that is almost empty.
const reserveShare = 8

// syncData waits until f's bytes and its size are on disk. fdatasync leaves out
// the times, which fsync would write to another place of the disk each time.
func syncData(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// reserve asks for n bytes of space behind f's end without making f longer.
func reserve(f *os.File, n int64) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return err
	}
	n = min(n, int64(fs.Bavail)*fs.Bsize/reserveShare)
	if n <= 0 {
		return unix.ENOSPC
	}
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, n)
}
