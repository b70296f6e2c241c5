package receipts

import "time"

// State is what the end of a log tells of the gateway that writes it.
type State string

// The states. Only Sealed is proven, as the seal is an entry under a signature.
const (
	Sealed  State = "sealed"  // it was stopped in good order, and nothing came after
	Lively  State = "lively"  // no seal, and a record of just now: it runs, or was killed just now
	Silent  State = "silent"  // no seal, and no record for longer than one that runs leaves between two
	Unknown State = "unknown" // there is no record to tell by
)

// silence is how long a gateway that runs leaves its log without a record at most: a
// heartbeat is due each minute, and the same again is for a disk and a clock.
const silence = 2 * heartbeatEvery

// State tells it by the time at which the log was read. A copy of a log is as old as it
// is: Silent may be a gateway that has been running since it was made.
func (r *Report) State(now time.Time) State {
	switch {
	case r.Last == nil || r.Verdict == Broken:
		return Unknown
	case r.Sealed:
		return Sealed
	case now.Sub(r.Last.Time) <= silence:
		return Lively
	}
	return Silent
}
