package ratelimit

import "time"

// slots counts a tenant's calls in flight under a cap of the caller's choosing,
// and how long they last. The zero slots is empty. The lock of the entry guards
// it.
type slots struct {
	all     tally // of the process
	service visit // the same calls by service, the first of a list
	hold    int64 // moving average of the time from admission to release
	free    *held
}

// tally is how many calls in flight a tenant has of one pool. It is small, as a
// tenant with its slots fills whole lines of the processor's cache.
type tally struct {
	time int64 // see had
	n    int32
	// counted: the pool's own number has them too; see pool.
	counted bool
}

// had is for how long the tenant has had slots of the pool, each by itself and all
// together, at now. It goes on with the slots that it has, and costs an addition when
// a call begins and ends. What it is says nothing, as it may begin anew, but how much
// more it is than before does.
func (t *tally) had(now int64) int64 { return t.time + int64(t.n)*now }

// visit is a tenant's calls in flight at one service. It stays where it is.
type visit struct {
	of *pool
	tally
	next *visit
}

// enter counts a call of p that begins. If it took a slot of a capped p already,
// it is in p's own number.
func (t *tally) enter(p *pool, took bool, now int64) {
	if !t.counted && p.counts.Load() {
		t.handOver(p)
	}
	t.n++
	t.time -= now
	if t.counted && !took {
		p.inUse.Add(1)
	}
}

// leave counts one that ends. Giving its slot back is left to the caller.
func (t *tally) leave(now int64) {
	t.n--
	t.time += now
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

// at is those of the calls that are of p.
func (s *slots) at(p *pool) tally {
	for v := &s.service; v != nil; v = v.next {
		if v.of == p {
			return v.tally
		}
	}
	return tally{}
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
