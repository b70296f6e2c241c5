//go:build !linux

package bench

import (
	"testing"
	"time"
)

// cpuTime falls back on the wall's time, where a thread's own is not to be had.
func cpuTime(_ testing.TB, f func()) time.Duration {
	from := time.Now()
	f()
	return time.Since(from)
}
