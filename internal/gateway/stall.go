package gateway

import (
	"sync"
	"time"

	"github.com/jonboulle/clockwork"
)

// stall cuts a client that takes no bytes: one write may last for limit, and
// the pauses between writes for ever. It does not leave a deadline on the
// connection, though that would be less code: HTTP/2 resets a stream whose
// deadline passes, whether anything is being written or not, and would end each
// stream that is quiet for longer than a client may be.
//
// begin and end are for whoever writes, one at a time.
type stall struct {
	clock   clockwork.Clock
	limit   time.Duration // 0: none
	control interface{ SetWriteDeadline(time.Time) error }

	mu    sync.Mutex
	timer timer
	until time.Time // when the write under way is given up; zero: there is none
	over  bool      // one was
}

func (s *stall) begin() {
	if s.limit <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = s.clock.Now().Add(s.limit)
	if s.timer == nil {
		s.timer = s.clock.AfterFunc(s.limit, s.expire)
		return
	}
	s.timer.Reset(s.limit)
}

func (s *stall) end() {
	if s.limit <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Time{}
	s.timer.Stop()
}

// expire fails the write under way. It may have been called for an earlier one,
// hence the look at the time; and it holds the lock, since the connection is not
// this call's any more once its handler has returned.
func (s *stall) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until.IsZero() || s.clock.Now().Before(s.until) {
		return
	}
	s.over = true
	_ = s.control.SetWriteDeadline(time.Unix(1, 0)) // long past
}

// cut reports whether the client was cut.
func (s *stall) cut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// last bounds what the server writes when the handler has returned: what is
// buffered, and the terminator.
func (s *stall) last() {
	if s.limit > 0 {
		_ = s.control.SetWriteDeadline(deadline(s.limit))
	}
}
