package identity

import (
	"sync"
	"sync/atomic"
	"time"
)

// Uses remembers when each secret came last with a call that it was valid for, to
// the second, from one Directory to the next. The zero value is ready. Safe for
// concurrent use.
type Uses struct {
	mu    sync.Mutex
	cells map[[32]byte]*use
}

type use struct {
	at   atomic.Int64 // seconds since 1970; 0: never
	kept int64        // what Keep has handed on; under the mutex
}

// Track has the uses of d's secrets remembered in u. It is called before anybody else
// has d.
func (d *Directory) Track(u *Uses) {
	u.mu.Lock()
	defer u.mu.Unlock()
	next := make(map[[32]byte]*use, len(d.byDigest))
	for digest, s := range d.byDigest {
		cell := u.cells[digest]
		if cell == nil {
			cell = new(use)
		}
		next[digest], s.used = cell, &cell.at
	}
	for digest, cell := range u.cells {
		if next[digest] == nil && cell.at.Load() > cell.kept {
			next[digest] = cell // a secret that is gone was used all the same
		}
	}
	u.cells = next
}

// Keep hands to write the secrets that were used since it last did, by digest, each
// with the time of its last use; if there are any. What write fails to keep is handed
// on again.
func (u *Uses) Keep(write func(map[[32]byte]time.Time) error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	used, cells := map[[32]byte]time.Time{}, map[*use]int64{}
	for digest, cell := range u.cells {
		if at := cell.at.Load(); at > cell.kept {
			used[digest], cells[cell] = time.Unix(at, 0).UTC(), at
		}
	}
	if len(used) == 0 {
		return nil
	}
	if err := write(used); err != nil {
		return err
	}
	for cell, at := range cells {
		cell.kept = at
	}
	return nil
}

// Came notes that the secret came with a call at now. It writes once a second at
// most, as all calls of a key share the place.
func (s *Secret) Came(now time.Time) {
	if at := now.Unix(); s.used != nil && s.used.Load() < at {
		s.used.Store(at)
	}
}
