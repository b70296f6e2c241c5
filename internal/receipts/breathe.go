package receipts

import (
	"time"
)

// linger gathers records, in interval mode, where nobody waits for the disk, until
// the oldest of them has waited for its time, and else for as long as breatheLocked
// said. It ends early for a full batch and for Close.
func (l *Log) linger() {
	for left := l.patience(); left > 0; left = l.patience() {
		timer := l.clock.NewTimer(left)
		select {
		case <-timer.Chan():
		case <-l.wake:
		}
		timer.Stop()
	}
}

// patience is how much longer the batch that is filling may wait. In interval
// mode it counts from its first record, not from the end of the commit before:
// behind a slow disk a record has waited long enough.
func (l *Log) patience() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.patienceLocked()
}

func (l *Log) patienceLocked() time.Duration {
	n := len(l.filling.slots)
	switch {
	case n >= maxBatch || l.closing || l.failure != nil:
		return 0
	case !l.interval && l.filling.calls > 0 && l.filling.calls >= l.expected:
		return 0
	case !l.interval:
		until := l.notBefore
		if n > 0 && n < manyRefusals && l.filling.calls == 0 && l.refusals.After(until) {
			until = l.refusals
		}
		return until.Sub(l.clock.Now())
	case n == 0:
		return 0
	}
	return intervalLinger - l.clock.Since(l.filling.began)
}

// A batch with the records of so many calls is a crowd's, and after it the disk
// gets a pause.
const (
	crowd    = 8
	maxPause = 2 * time.Millisecond
)

// Refusals alone may have the disk for one part in so many of the time, unless
// there are too many: all that are released together are answered together, and a
// call would wait for the processor while they are.
const (
	refusalPart     = 20
	maxRefusalPause = 5 * time.Millisecond
	manyRefusals    = 32
)

// breatheLocked puts the next commit off after a crowd's, for as long as that took but
// never for long, nor for longer than until as many calls wait as were released and
// had come meanwhile: callers who come back as soon as they are released are all
// there then, and more will not come. The batches are larger and fewer: a sync and a signature
// take the processor as long as two or three calls, and under load a call costs
// a sixth less and is over sooner, since it waits for the processor before it
// waits for the disk. Callers who are few wait for nobody.
//
// And it puts off the next commit of refusals alone, for many times as long: what
// a flood of them takes of the disk, the calls of those who keep to their limits
// would wait for. A call's record does not wait with them but takes them along. One
// that is refused while few are waits for nothing either.
func (l *Log) breatheLocked(records, calls int, took time.Duration, now time.Time) {
	if calls >= crowd {
		l.notBefore = now.Add(min(took, maxPause))
	}
	l.expected = calls + l.filling.calls
	if records > calls {
		l.refusals = now.Add(min(refusalPart*took, maxRefusalPause))
	}
}
