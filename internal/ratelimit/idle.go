package ratelimit

// What becomes of an entry when calls begin and end, and with time.

// pinLocked takes e, whose lock is held and which has its first call in flight,
// out of reach of eviction.
func (e *entry) pinLocked() {
	s := e.home
	if s == nil || e.lingers {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle.Remove(e.id)
	s.busy[e.id] = e
	s.table.seats.Add(-1)
}

// unpinLocked is its reverse, when the last call has ended.
func (e *entry) unpinLocked(now int64) {
	s := e.home
	if s == nil || e.lingers {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lingerLocked(e) {
		return
	}
	s.parkLocked(e, now)
	if s.table.seats.Add(1) > s.table.size {
		s.evictLocked(now)
	}
}

// parkLocked puts e, whose lock is held and which was busy, into the list.
func (s *shard) parkLocked(e *entry, now int64) {
	delete(s.busy, e.id)
	s.idle.Add(e.id, e)
	e.seated = max(e.seated, now)
}

// lingerLocked lets e linger, in the place of another that then goes to the list.
// It reports whether it could: if somebody uses the other right now, or the table
// is full, e goes to the list itself.
func (s *shard) lingerLocked(e *entry) bool {
	if len(s.linger) == 0 || s.table.seats.Load() >= s.table.size {
		return false
	}
	place := &s.linger[s.next]
	s.next = (s.next + 1) % len(s.linger)
	if !s.vacateLocked(place) {
		return false
	}
	*place, e.lingers = e, true
	s.table.seats.Add(1)
	return true
}

// vacateLocked empties a place, unless the entry there is being used.
func (s *shard) vacateLocked(place **entry) bool {
	e := *place
	if e == nil {
		return true
	}
	if !e.mu.TryLock() {
		return false
	}
	defer e.mu.Unlock()
	*place, e.lingers = nil, false
	if e.inFlightLocked() > 0 {
		s.table.seats.Add(-1) // pinned again meanwhile, and not to the list's knowledge
		return true
	}
	s.parkLocked(e, e.bucket.seen)
	return true
}

// sweepLocked forgets entries that were idle for long enough and are full.
func (s *shard) sweepLocked(now, idle int64) {
	if len(s.busy) == 0 && s.idle.Len() == 0 { // nobody lingers either: those are busy
		return
	}
	for range min(sweepBatch, len(s.linger)) {
		place := &s.linger[s.swept]
		s.swept = (s.swept + 1) % len(s.linger)
		e := *place
		if e == nil || !e.mu.TryLock() {
			continue
		}
		if now-e.bucket.seen >= idle && e.freshLocked(now) {
			*place = nil
			s.dropLocked(e, now)
			s.table.swept.Add(1)
		}
		e.mu.Unlock()
	}
	for range sweepBatch {
		_, e, ok := s.idle.GetOldest()
		if !ok || now-e.seated < idle {
			return
		}
		if e.mu.TryLock() {
			if now-e.bucket.seen >= idle && e.freshLocked(now) {
				s.dropLocked(e, now)
				s.table.swept.Add(1)
				e.mu.Unlock()
				continue
			}
			e.mu.Unlock()
		}
		s.toFrontLocked(e, now)
	}
}
