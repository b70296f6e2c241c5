package receipts

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// A log that cannot write now is stalled, and one of which nobody knows what it
// has written has failed. A stalled one goes on by itself: there was no room on
// the disk and nothing was written, or the disk takes longer than anybody waits
// and has not said how it ends. Meanwhile it takes what it had promised to take,
// the outcomes of calls under way, and nothing else.

const (
	// commitTimeout is how long the disk may take before nobody waits for it.
	commitTimeout = 2 * time.Second
	// retryEvery is how often a full disk is asked again.
	retryEvery = time.Second
	// A disk of which less than one part in so many, and less than so much, is free is about full.
	lowShare = 10
	lowDisk  = 1 << 30
)

// ErrLate is what Append returns for a record that the log has taken and that is
// not on disk in good time. It will be in the log, unless that fails or the
// process dies before: so it is not missing, and nobody may be told that it is there.
var ErrLate = fmt.Errorf("%w: the record is taken, but the disk takes too long", ErrUnavailable)

var (
	errFull = fmt.Errorf("%w: there is no room on the disk", ErrUnavailable)
	errSlow = fmt.Errorf("%w: the disk has not answered for %v", ErrUnavailable, commitTimeout)
)

// isFull reports whether err says that a disk, or somebody's share of it, is full.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// stalledLocked says why the log takes nothing new for now, or nil.
func (l *Log) stalledLocked() error {
	switch {
	case l.full:
		return errFull
	case l.slow:
		return errSlow
	}
	return nil
}

// watched does what the disk may never come back from. Once somebody has waited
// too long for it, all who wait are told, and nothing new is taken until it is done.
func (l *Log) watched(work func() error) error {
	l.mu.Lock()
	l.busy = true
	if !l.watching {
		l.watchLocked(commitTimeout)
	}
	l.mu.Unlock()
	err := work()
	l.mu.Lock()
	l.busy = false
	answered := l.slow && err == nil
	l.slow = false
	if answered {
		l.resumeLocked()
	}
	l.mu.Unlock()
	if answered {
		l.logger.Info("the disk has answered", "folder", l.folder)
	}
	return err
}

// watchLocked has check look after so long. One timer watches many works: to set
// and to stop one for each would cost a lone caller more than a record.
func (l *Log) watchLocked(after time.Duration) {
	l.watching = true
	l.clock.AfterFunc(after, l.check)
}

// check looks how long the longest has waited while the disk is busy, and comes
// back when that will be too long; where nobody waits, soon, as somebody may then.
func (l *Log) check() {
	if l.tooLong() {
		l.logger.Error("the disk does not answer; until it does, calls are refused, or let through and counted", "folder", l.folder, "after", commitTimeout.String())
	}
}

func (l *Log) tooLong() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watching = l.busy && !l.slow; !l.watching {
		return false
	}
	left := commitTimeout / 4
	if l.space.short > 0 && !l.full { // of a full disk nobody waits for room: it is refused at once
		left = commitTimeout - l.clock.Since(l.space.since)
	}
	for _, b := range []*batch{l.writing, l.filling} {
		if b != nil && !b.answer.given && !b.since.IsZero() {
			left = min(left, commitTimeout-l.clock.Since(b.since))
		}
	}
	if left > 0 {
		l.watchLocked(left)
		return false
	}
	l.watching, l.slow, l.reason = false, true, reasonSlow
	l.tellLocked()
	l.space.short = 0 // who comes later has not waited since then
	l.notes.nudge()
	return true
}

// fillUp notes that there is no room for what is to be written. What is late will
// be written, and those who wait for it are told so.
func (l *Log) fillUp(late bool, err error) {
	l.mu.Lock()
	first := !l.full
	l.full, l.reason = true, reasonFull
	l.retryAt = l.clock.Now().Add(retryEvery)
	if late {
		l.tellLocked()
	}
	l.room.Broadcast()
	l.mu.Unlock()
	if first {
		l.notes.nudge()
		l.logger.Error("there is no room on the disk for receipts; until there is, calls are refused, or let through and counted", "folder", l.folder, "error", err)
	}
}

// tellLocked sends those away who wait for the disk, and for a place.
func (l *Log) tellLocked() {
	for _, b := range []*batch{l.writing, l.filling} {
		if b != nil {
			b.answer.giveLocked(ErrLate)
		}
	}
	l.room.Broadcast()
}

// resumeLocked lets records come again, those first that tell what is missing.
func (l *Log) resumeLocked() {
	if l.stalledLocked() != nil {
		return
	}
	if !l.declareLocked() {
		l.full, l.reason = true, reasonFull // of so many tenants something is missing; it goes on with more room
		l.retryAt = l.clock.Now().Add(retryEvery)
		return
	}
	l.notes.hopeless = false
	if b := l.filling; b.answer.given {
		b.answer, b.since = newAnswer(), time.Time{}
	}
	l.room.Broadcast()
}

// noRoom: there was no room for a batch, and nothing counts as written.
type noRoom struct{ error }

// Unwrap returns what the system said.
func (e *noRoom) Unwrap() error { return e.error }

// waitForRoom returns when a full disk is to be tried again, and false where that
// is the last time.
func (l *Log) waitForRoom() bool {
	timer := l.clock.NewTimer(retryEvery)
	defer timer.Stop()
	for {
		l.mu.Lock()
		closing := l.closing
		l.mu.Unlock()
		if closing {
			return false
		}
		select {
		case <-timer.Chan():
			return true
		case <-l.wake:
		}
	}
}

// retryDue is how long until a full disk is asked again: less than 0 where it is not full.
func (l *Log) retryDue() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.full {
		return -1
	}
	return max(0, l.retryAt.Sub(l.clock.Now()))
}

// Look has the log look soon at how much room there is on the disk, as it does by
// itself while records come.
func (l *Log) Look() { l.nudge() }

// look notes how much room there is, and warns once when it becomes little.
func (l *Log) look() {
	if !l.lookedAt.IsZero() && l.clock.Since(l.lookedAt) < retryEvery {
		return
	}
	l.lookedAt = l.clock.Now()
	free, total, err := l.segment.file.free()
	if err != nil {
		free = -1
	}
	l.free.Store(free)
	low := min(total/lowShare, lowDisk)
	switch {
	case err == nil && free < low && !l.lowWarned:
		l.lowWarned = true
		l.logger.Warn("there is little room left on the disk for receipts", "folder", l.folder, "free_bytes", free)
	case free >= low+low/4:
		l.lowWarned = false
	}
}

// provide sees to the room for what comes. It is called by the committer, when
// nothing is being written.
func (l *Log) provide() {
	l.mu.Lock()
	wants, need := l.space.wants(), l.space.taken
	if l.full {
		if l.clock.Now().Before(l.retryAt) && !l.closing {
			l.mu.Unlock()
			return
		}
		wants = max(wants, healRoom)
	}
	end, full, reserved := l.space.end, l.full, l.space.reserved
	l.mu.Unlock()
	if wants == 0 {
		if l.clock.Since(l.lookedAt) < retryEvery {
			return
		}
		if l.segment.believed { // and somebody else may have taken it since
			wants = 1
		}
	}
	var got int64
	err := l.watched(func() (err error) {
		l.look()
		if wants > 0 {
			got, err = l.segment.reserve(end, reserved, need+wants, l.limit)
		}
		return err
	})
	l.mu.Lock()
	if wants > 0 {
		l.space.reserved = got
	}
	short := l.space.short
	l.mu.Unlock()
	if err != nil && (full || short > 0) {
		l.fillUp(false, err)
		return
	}
	l.mu.Lock()
	if err == nil {
		l.space.short, l.full = 0, false
	} // else it was a wish
	l.resumeLocked()
	l.room.Broadcast()
	healed := full && !l.full
	l.mu.Unlock()
	if healed {
		l.logger.Info("there is room on the disk again; receipts are taken", "folder", l.folder)
	}
}
