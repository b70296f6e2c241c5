package tunnel

import (
	"math"
	"time"
)

// Limit is how many bytes a caller may have in a window, up and down together, over all
// of his tunnels. The zero Limit is none.
type Limit struct {
	Bytes  int64 // 0: no limit
	Window time.Duration
	Cut    bool // whoever has used them up gets no more, also in tunnels that are open
}

// window is what one caller has had since the byte that began it. It is a plain value.
// The zero window is one that nothing was counted in; whether it began at the origin of
// time cannot be told, and makes no difference.
type window struct {
	began  int64 // in nanoseconds of the times passed in
	length int64 // as whoever counted last had it
	used   int64
}

// over reports whether, for a caller under l, the window has ended. A clock that went
// back ends none.
func (w window) over(l Limit, now int64) bool { return now-w.began >= int64(l.Window) }

// at is the window as a caller under l finds it: the one under way, or one that has
// not begun.
func (w window) at(l Limit, now int64) window {
	if w.over(l, now) {
		return window{}
	}
	return w
}

// spend counts n bytes that are about to flow. They may, all of them, if anything was left
// before: what is cut off is the next piece and not the rest of this one.
func (w window) spend(l Limit, n, now int64) (window, Lease) {
	w = w.at(l, now)
	if l.Cut && w.used >= l.Bytes {
		return w, Lease{}
	}
	if w.used == 0 {
		w.began = now
	}
	w.length = int64(l.Window)
	before := w.used
	w.used += min(n, math.MaxInt64-w.used)
	return w, Lease{OK: true, Last: before < l.Bytes && w.used >= l.Bytes, began: w.began}
}

// Standing is how a caller stands.
type Standing struct {
	Used int64
	Left int64         // of the limit, never negative
	Ends time.Duration // until the window ends; 0: none has begun
}

// Exhausted is how long a new tunnel has to wait; 0: it has not.
func (s Standing) Exhausted() time.Duration {
	if s.Left > 0 {
		return 0
	}
	return s.Ends
}

func (w window) standing(l Limit, now int64) Standing {
	w = w.at(l, now)
	s := Standing{Used: w.used, Left: max(0, l.Bytes-w.used)}
	if w.used > 0 {
		s.Ends = l.Window - time.Duration(now-w.began)
	}
	return s
}
