package ratelimit

import (
	"sync/atomic"
	"time"
)

// slots counts calls in flight under a cap of the caller's choosing, and how
// long they last. The zero slots is empty. The lock of the entry guards it.
type slots struct {
	inUse int64
	most  int64 // the cap at the last admission, for operators
	hold  int64 // moving average of the time from admission to release
	free  *slotHandle
}

// full reports whether the cap most leaves no slot. Most 0 is no cap. A lowered
// cap lets the running calls finish and admits none until below.
func (s *slots) full(most int64) bool { return most > 0 && s.inUse >= most }

// pool is slots that calls of many tenants share: a service's, or the process's.
// It is counted by atomics, as it has no lock of its own. The zero pool is empty.
type pool struct {
	name  string
	inUse atomic.Int64
	most  atomic.Int64
	hold  atomic.Int64
}

// take takes one slot, and reports whether there was one. Calls are counted also
// without a cap (most 0), so that one set later counts those that run already.
func (p *pool) take(most int64) bool {
	for {
		n := p.inUse.Load()
		if most > 0 && n >= most {
			return false
		}
		if p.inUse.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (p *pool) full(most int64) bool { return most > 0 && p.inUse.Load() >= most }

func (p *pool) give(held int64) {
	if p.most.Load() > 0 {
		// A lost update by a concurrent release costs a sample of an estimate.
		p.hold.Store(averaged(p.hold.Load(), held))
	}
	p.inUse.Add(-1)
}

// averaged moves an average an eighth of the way to a sample.
func averaged(average, sample int64) int64 { return average + (sample-average)/8 }

// slotWait estimates when a slot of most comes free: with calls that last hold,
// one does every hold/most. Between 1 s, as less invites a crowd, and 10 s, as
// more says nothing.
func slotWait(hold, most int64) time.Duration {
	return min(10*time.Second, max(time.Second, time.Duration(hold/max(1, most))))
}
