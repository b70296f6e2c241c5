//go:build !linux

package receipts

import (
	"errors"
	"os"
)

// syncData waits until f is on disk; on macOS os.File.Sync asks the drive to
// empty its cache too, which fsync alone does not do there.
func syncData(f *os.File) error { return f.Sync() }

// reserve cannot: there is no portable way that keeps the file's size.
func reserve(*os.File, int64) error { return errors.ErrUnsupported }
