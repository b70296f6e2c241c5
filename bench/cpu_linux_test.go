package bench

import (
	"runtime"
	"syscall"
	"testing"
	"time"
)

// cpuTime returns the processor time that f took on its own thread: other load on
// the machine lengthens the wall's time, and this hardly.
func cpuTime(tb testing.TB, f func()) time.Duration {
	tb.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	read := func() time.Duration {
		const thread = 1 // RUSAGE_THREAD
		var u syscall.Rusage
		if err := syscall.Getrusage(thread, &u); err != nil {
			tb.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	from := read()
	f()
	return read() - from
}
