package receipts

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncData waits until f's bytes and its size are on disk. fdatasync leaves out
// the times, which fsync would write to another place of the disk each time.
func syncData(f *os.File) error {
	if err := unix.Fdatasync(int(f.Fd())); err != nil {
		return err
	}
	return givenUp(f)
}

// givenUp returns an error where ext4 has given up its journal, on an error of its own
// or of the device, in whatever file. Where it does so while fdatasync waits, that may
// return 0 all the same: the bytes are written, and that they belong to the file can no
// longer be, which the kernel says in its own log alone. What has to begin a
// transaction is told, and a journal that was given up stays so: if it is there now it
// was there then. So room is asked for that the file has, which changes nothing.
func givenUp(f *os.File) error {
	var on unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &on); err != nil || on.Type != unix.EXT4_SUPER_MAGIC {
		return err
	}
	if err := reserve(f, 1); err != nil && !isFull(err) && !errors.Is(err, unix.EOPNOTSUPP) { // which files of ext3 say
		return err
	}
	return nil
}

// reserve keeps space for the first n bytes of f without making it longer.
func reserve(f *os.File, n int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, n)
}
