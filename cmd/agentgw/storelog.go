package main

import (
	"log/slog"
	"sync"
	"time"
)

// toldEvery bounds how often the log tells of a store that comes and goes: of its going at
// most so often, and of its coming back as often as of its going.
const toldEvery = 10 * time.Second

// storeLog tells the operator's log whether the limits are shared. It is safe for
// concurrent use.
type storeLog struct {
	log    *slog.Logger
	policy string // while they are not

	mu     sync.Mutex
	reason error     // why they are not shared; nil: they are
	said   sharing   // as the log has it
	told   time.Time // that they are not
	untold int       // changes since
}

// sharing is whether limits are shared, as far as the log knows.
type sharing uint8

const (
	unsaid sharing = iota
	shared
	alone
)

// changed takes in that the store went away, or is away for another reason, or, with none,
// that it decides. So many replicas lived when it last told.
func (l *storeLog) changed(now time.Time, reason error, replicas int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reason = reason
	switch {
	case reason != nil && !l.told.IsZero() && now.Sub(l.told) < toldEvery:
		l.untold++ // what it has come to is told by late
	case reason != nil:
		l.awayLocked(now, replicas)
	case l.said == unsaid:
		l.said = shared
		l.log.Info("the limits are shared")
	case l.said == alone:
		l.said = shared
		l.log.Info("the limits are shared again", "replicas", replicas)
	}
}

func (l *storeLog) awayLocked(now time.Time, replicas int64) {
	l.said, l.told, l.untold = alone, now, 0
	l.log.Warn("the limits are not shared: the store does not decide", "reason", l.reason, "meanwhile", l.policy, "replicas", replicas)
}

// away is why the limits are not shared, as was told last; nil: they are, or nothing is known.
func (l *storeLog) away() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason
}

// late tells of what came too soon after something else. It is to be called from time to
// time.
func (l *storeLog) late(now time.Time, replicas int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.untold == 0 || now.Sub(l.told) < toldEvery:
	case l.reason != nil:
		l.awayLocked(now, replicas)
	default:
		l.log.Warn("the limits were not shared for moments: the store went away and came back", "times", l.untold)
		l.told, l.untold = now, 0
	}
}
