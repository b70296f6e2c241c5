package redisstore

import "sync/atomic"

// offset is how far the store's clock is ahead of ours, in microseconds, as deadlines
// need it. Each answer tells a time that had passed when it came, and so an offset that
// is too small by as long as the answer took: the largest of late is the best. It is
// never used for a decision.
type offset struct {
	best, before atomic.Int64 // of this span and of the one before it; 0: unknown
	since        atomic.Int64
}

const offsetSpan = int64(5e9)

// learn takes a time that the store told into account, which came at now. One goroutine
// calls it.
func (o *offset) learn(micros, now int64) {
	ahead := micros - now/1000
	if now-o.since.Load() >= offsetSpan { // a clock that was set back is believed in the end
		o.before.Store(o.best.Load())
		o.best.Store(ahead)
		o.since.Store(now)
		return
	}
	if best := o.best.Load(); best == 0 || ahead > best {
		o.best.Store(ahead)
	}
}

// microseconds is 0 as long as nothing is known.
func (o *offset) microseconds() int64 { return max(o.best.Load(), o.before.Load()) }
