package bench

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the processor time that f took on its own thread: other load on
// the machine lengthens the wall's time, and this hardly.
func cpuTime(tb testing.TB, f func()) time.Duration {
	tb.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	read := func() time.Duration {
		// Not getrusage, whose times advance by the scheduler's ticks.
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
			tb.Fatal(err)
		}
		return time.Duration(t.Nano())
	}
	from := read()
	f()
	return read() - from
}
