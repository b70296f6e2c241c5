package receipts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// ErrLocked is the cause of Open's error where another process, or another Log
// in this one, writes to the same folder.
var ErrLocked = errors.New("another process is writing to this receipt log")

// lockFolder takes the folder for this process. It is flock and not fcntl: a
// second Open in the same process is refused too, and closing some other file
// descriptor of the lock file does not let go of it. The kernel lets go when
// the process dies, so there is nothing stale to clear away.
func lockFolder(folder string) (*os.File, error) {
	path := filepath.Join(folder, lockFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w", folder, ErrLocked)
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}
