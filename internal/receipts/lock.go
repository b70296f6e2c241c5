package receipts

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrLocked is the cause of Open's error where another process, or another Log
// in this one, writes to the same folder.
var ErrLocked = errors.New("another process is writing to this receipt log")

// lockFolder takes the folder for this process. The lock is on the folder itself:
// a file in it could be removed, and the next process would lock another of that
// name. Whoever moves the folder away leaves the next process none, which a start
// refuses, and the writer sees that its segment is gone. It is flock and not
// fcntl: a second Open in the same process is refused too, and closing some other
// descriptor of the folder does not let go of it. The kernel lets go when the
// process dies, so there is nothing stale to clear away.
func lockFolder(folder string) (*os.File, error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w", folder, ErrLocked)
		}
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	return f, nil
}
