package ratelimit

import "time"

// slots counts a tenant's calls in flight under a cap of the caller's choosing,
// and how long they last. The zero slots is empty. The lock of the entry guards
// it.
type slots struct {
	all     tally // of the process
	service visit // the same calls by service, the first of a list
	most    int64 // the cap at the last admission, for operators
	hold    int64 // moving average of the time from admission to release
	free    *held
	pass    int64 // the tenant's when it last waited: see next
}

// tally is how many calls in flight a tenant has of one pool. It is small, as a
// tenant with its slots fills whole lines of the processor's cache.
type tally struct {
	n int32
	// counted: the pool's own number has them too; see pool.
	counted bool
}

// visit is a tenant's calls in flight at one service. It stays where it is.
type visit struct {
	of *pool
	tally
	next *visit
}

// enter counts a call of p that begins. If it took a slot of a capped p already,
// it is in p's own number.
func (t *tally) enter(p *pool, took bool) {
	if !t.counted && p.counts.Load() {
		t.handOver(p)
	}
	t.n++
	if t.counted && !took {
		p.inUse.Add(1)
	}
}

// handOver has p count these calls, and those to come, itself.
func (t *tally) handOver(p *pool) {
	if !t.counted {
		p.inUse.Add(int64(t.n))
		t.counted = true
	}
}

// visit returns the calls of p among those by service, made if need be.
func (s *slots) visit(p *pool) *visit {
	v := &s.service
	for v.of != p && v.of != nil {
		if v.next == nil {
			v.next = new(visit)
		}
		v = v.next
	}
	v.of = p
	return v
}

// at is how many of the calls are of p.
func (s *slots) at(p *pool) int64 {
	for v := &s.service; v != nil; v = v.next {
		if v.of == p {
			return int64(v.n)
		}
	}
	return 0
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

// averaged moves an average an eighth of the way to a sample.
func averaged(average, sample int64) int64 { return average + (sample-average)/8 }

// slotWait estimates when a slot of most comes free: with calls that last hold,
// one does every hold/most. Between 1 s, as less invites a crowd, and 10 s, as
// more says nothing.
func slotWait(hold, most int64) time.Duration {
	return min(10*time.Second, max(time.Second, time.Duration(hold/max(1, most))))
}
