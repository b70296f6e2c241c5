package receipts

import "time"

// heartbeatEvery is how long a log stays without a record. What is silent for
// longer was stopped, or records of it are gone.
const heartbeatEvery = time.Minute

// heartbeatDue is how much longer the log may be silent.
func (l *Log) heartbeatDue() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heartbeatDueLocked()
}

func (l *Log) heartbeatDueLocked() time.Duration {
	if l.stalledLocked() != nil || !l.space.has(ownCost) {
		return heartbeatEvery // what comes first then tells why it was silent
	}
	return max(0, heartbeatEvery-l.clock.Since(l.wroteAt))
}

// queueOwnLocked queues what the log itself has to say next, where nothing else
// waits: heads that are due, a heartbeat after a silence, and at the end of a log
// that is being sealed the heads of all trees and then the seal. A log that is
// only closed ends with what callers gave it, as one does that was killed.
func (l *Log) queueOwnLocked() {
	switch {
	case l.sealing && len(l.missing) > 0:
		l.sealing = false // it would vouch for a log that does not say what it lacks
	case l.sealing && !l.unbound.IsZero(), !l.closing && l.headsDueLocked() == 0:
		l.queueHeadsLocked()
	case l.sealing:
		l.sayLocked(KindSeal)
		l.sealing = false
	case !l.closing && l.heartbeatDueLocked() == 0:
		l.sayLocked(KindHeartbeat)
	}
}

// sayLocked queues a record of the log's own that is of a kind and no more.
func (l *Log) sayLocked(kind Kind) {
	now, index := l.clock.Now(), l.next
	r := &Record{Kind: kind, ID: l.newID(), Time: now, Replica: l.replica, Interval: l.interval}
	s := slots.Get().(*slot)
	l.putLocked(s, r, ownCost)
	l.encode(s, r, index)
	l.filling.began = now.Add(-intervalLinger) // nobody is to come with it
	l.filling.encoding.Done()
}

// Seal is Close for a gateway that stops in good order: behind all that was
// queued it has heads records tell of every tenant's tree that has grown, and
// makes a seal the last entry. Where a seal cannot be written the log is closed
// without one, and the error says why.
func (l *Log) Seal() error { return l.end(true) }

// Close commits what is queued, writes the newest checkpoint and lets go of the
// folder. Append calls that begin later get ErrUnavailable. The error is that
// of the log, where it had failed, or of writing the last checkpoint. A second
// Close, and one after Seal, returns nil.
func (l *Log) Close() error { return l.end(false) }

func (l *Log) end(seal bool) error {
	l.endFloods() // while the log still takes records
	l.mu.Lock()
	if l.closing {
		l.mu.Unlock()
		<-l.closed
		return nil
	}
	l.closing, l.sealing = true, seal
	l.room.Broadcast()
	l.mu.Unlock()
	l.nudge()
	<-l.stopped
	close(l.quit)
	<-l.retired
	err := l.finish()
	l.awaitAnchor()
	close(l.closed)
	return err
}
