package ratelimit

// How room is made for an entry that comes. Only what would decide the same if it
// were made anew may go.

// roomLocked takes a seat for a new entry, and reports whether there was one or
// could be made. Two may go for one that comes, so that a table which calls have
// left above its size shrinks.
func (s *shard) roomLocked(now int64) bool {
	if s.table.seats.Add(1) <= s.table.size {
		return true
	}
	if !s.evictLocked(now) && !s.evictLingererLocked(now) {
		s.table.seats.Add(-1)
		return false
	}
	if s.table.seats.Load() > s.table.size {
		s.evictLocked(now)
	}
	return true
}

// evictLocked forgets the least recently used entry that can be forgotten, among
// a few from the tail. Those passed over go to the front: the list has no other
// way past its tail, and what still owes, or was used through a Ref since it was
// seated, is not the one to try next.
func (s *shard) evictLocked(now int64) bool {
	for look := range looks {
		_, e, ok := s.idle.GetOldest()
		if !ok {
			return false
		}
		if e.mu.TryLock() {
			used := e.bucket.seen > e.seated && look < looks/2
			if !used && e.freshLocked(now) {
				s.dropLocked(e, now)
				s.table.evicted.Add(1)
				e.mu.Unlock()
				return true
			}
			e.mu.Unlock()
		}
		s.toFrontLocked(e, now)
	}
	return false
}

// evictLingererLocked makes room among a few of the entries that linger: one is
// forgotten, or found pinned again and its seat taken back.
func (s *shard) evictLingererLocked(now int64) bool {
	for range min(lingerers, len(s.linger)) {
		place := &s.linger[s.next]
		s.next = (s.next + 1) % len(s.linger)
		e := *place
		if e == nil || !e.mu.TryLock() {
			continue
		}
		pinned, fresh := e.inFlightLocked() > 0, e.freshLocked(now)
		if pinned || fresh {
			*place, e.lingers = nil, false
		}
		if pinned {
			s.table.seats.Add(-1)
		} else if fresh {
			s.dropLocked(e, now)
			s.table.evicted.Add(1)
		}
		e.mu.Unlock()
		if pinned || fresh {
			return true
		}
	}
	return false
}

func (s *shard) toFrontLocked(e *entry, now int64) {
	s.idle.Get(e.id)
	e.seated = max(e.seated, now)
}

// dropLocked takes e, whose lock is held, out of the table.
func (s *shard) dropLocked(e *entry, now int64) {
	if !e.freshLocked(now) {
		s.table.owing.Add(1)
	}
	e.closeLocked()
	s.idle.Remove(e.id)
	delete(s.busy, e.id) // if it lingered
	s.table.seats.Add(-1)
}
