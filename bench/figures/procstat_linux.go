package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// missing says what of a process cannot be measured here: nothing.
const missing = ""

// cpuOf returns the processor time that the process has used, to the
// nanosecond. /proc/PID/stat has the same in ticks of 10 ms, too coarse for a
// process that does nothing. The clock's number is what clock_getcpuclockid(3)
// computes.
func cpuOf(pid int) (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|2, &t); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// rssOf returns the process's resident memory in bytes.
func rssOf(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0, err
	}
	return resident * int64(os.Getpagesize()), nil
}
