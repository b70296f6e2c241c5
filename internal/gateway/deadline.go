package gateway

import "time"

// deadline returns the wall time d from now, for the kernel's timers on a
// connection. It is the one place below cmd that reads the wall clock.
func deadline(d time.Duration) time.Time { return time.Now().Add(d) }
