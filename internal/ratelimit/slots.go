package ratelimit

import "time"

// slots counts a tenant's calls in flight under a cap of the caller's choosing,
// and how long they last. The zero slots is empty. The lock of the entry guards
// it.
type slots struct {
	inUse int64
	most  int64 // the cap at the last admission, for operators
	hold  int64 // moving average of the time from admission to release
	free  *held
	// uncounted is how many of these calls each service has that does not count
	// its own: see pool.
	uncounted []tally
}

type tally struct {
	of *pool
	n  int64
}

// full reports whether the cap most leaves no slot. Most 0 is no cap. A lowered
// cap lets the running calls finish and admits none until below.
func full(inUse, most int64) bool { return most > 0 && inUse >= most }

// forget lets go of the watches of those that are free: a watch keeps its held
// alive, which must not keep the watch in turn.
func (s *slots) forget() {
	for c := s.free; c != nil; c = c.next {
		c.watch = nil
	}
}

// note counts a call of p.
func (s *slots) note(p *pool) {
	for i := range s.uncounted {
		if s.uncounted[i].of == p {
			s.uncounted[i].n++
			return
		}
	}
	s.uncounted = append(s.uncounted, tally{p, 1})
}

// unnote takes a call of p out, and reports whether there was one.
func (s *slots) unnote(p *pool) bool {
	for i := range s.uncounted {
		if t := &s.uncounted[i]; t.of == p && t.n > 0 {
			t.n--
			return true
		}
	}
	return false
}

// averaged moves an average an eighth of the way to a sample.
func averaged(average, sample int64) int64 { return average + (sample-average)/8 }

// slotWait estimates when a slot of most comes free: with calls that last hold,
// one does every hold/most. Between 1 s, as less invites a crowd, and 10 s, as
// more says nothing.
func slotWait(hold, most int64) time.Duration {
	return min(10*time.Second, max(time.Second, time.Duration(hold/max(1, most))))
}
