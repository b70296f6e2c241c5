package ratelimit

import (
	"math"
	"sync"
	"time"
)

// windows counts for the partition keys of one rule. Windows lie at multiples of
// their length in Unix time, so that they are the same wherever the clock is the
// same: all counts are of one window, and when the next begins they are over
// together. There is nothing to evict one by one, and no order to keep.
//
// One lock for all of a rule's partition keys: it is held for a part of a
// microsecond, within a call that takes a thousand times as long.
type windows struct {
	number int // place in the order of locks
	id     ruleID
	size   int
	warn   func(table string)

	mu sync.Mutex
	// at is the number of the window. A clock that stands behind it counts in
	// it all the same, so that nobody gets two windows at once.
	at     int64
	counts map[string]int64
	// shared is what those count for together that found counts full. It stays
	// full to the end of the window, and so each of them is here until then.
	shared     int64
	overflowed int64
	warnedAt   int64 // Unix time
}

const (
	// maxCount keeps counts that only grow far from the end of int64.
	maxCount = 1 << 60
	// reused is the most counts whose memory the next window takes over.
	reused = 1024
)

// windowAt is the number of the window that a Unix time lies in.
func windowAt(unix, length int64) int64 {
	n := unix / length
	if unix%length < 0 {
		n--
	}
	return n
}

// fits reports whether a window that has counted used has room for count more
// under most.
func fits(used, count, most int64) bool { return most >= 0 && (count == 0 || count <= most-used) }

// rollLocked has a new window begin if it is time.
func (w *windows) rollLocked(unix int64) {
	at := windowAt(unix, w.id.length)
	if at <= w.at {
		return
	}
	w.at, w.shared = at, 0
	if len(w.counts) <= reused {
		clear(w.counts)
		return
	}
	w.counts = make(map[string]int64)
}

// leftLocked is how long it is until the window ends. A clock that stands behind it is
// taken for one that stands at its beginning.
func (w *windows) leftLocked(unix int64) int64 {
	begin := w.at * w.id.length
	return begin + w.id.length - max(unix, begin)
}

func (w *windows) usedLocked(partition string) int64 {
	n, own := w.counts[partition]
	if !own && len(w.counts) >= w.size {
		return w.shared
	}
	return n
}

// addLocked counts n more, which may be negative, and returns what that makes.
func (w *windows) addLocked(partition string, n int64) int64 {
	used, own := w.counts[partition]
	if !own && len(w.counts) >= w.size {
		w.shared = min(maxCount, max(0, w.shared+n))
		if n > 0 {
			w.overflowed++
			w.warnLocked()
		}
		return w.shared
	}
	used = min(maxCount, max(0, used+n))
	w.counts[partition] = used
	return used
}

func (w *windows) warnLocked() {
	now := w.at * w.id.length
	if w.warn != nil && (w.warnedAt == math.MinInt64 || now-w.warnedAt >= int64(time.Minute)) {
		w.warnedAt = now
		w.warn("rule " + w.id.name)
	}
}

// windows returns the counts of r, made if need be. Rules are named by the operator,
// not by callers, so they are few and stay, those that are gone from the file with
// nothing counted.
func (l *Local) windows(r *Rule) *windows {
	if w := r.windows.Load(); w != nil {
		return w
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.rules[r.id]
	if w == nil {
		w = &windows{
			number: len(l.rules) + 1, id: r.id, size: l.options.TableSize, warn: l.options.Warn,
			at: math.MinInt64, counts: make(map[string]int64), warnedAt: math.MinInt64,
		}
		l.rules[r.id] = w
	}
	r.windows.Store(w)
	return w
}

// unix is the Unix time of now.
func (l *Local) unix(now int64) int64 { return l.options.Epoch + now }

// sweepRules lets the counts of windows that are over go.
func (l *Local) sweepRules(now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.rules {
		w.mu.Lock()
		w.rollLocked(l.unix(now))
		w.mu.Unlock()
	}
}
