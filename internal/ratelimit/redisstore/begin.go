package redisstore

import "agentgw/internal/ratelimit"

// begin asks a server that is all of the store whether it decides, and goes on asking until
// it does. The store counts as away until then: nothing is shared yet, and a password that
// nobody has tried is no reason to believe that it will be.
func (s *Store) begin(l *lane) {
	l.away.Store(true)
	s.away.Add(1)
	s.running.Add(1)
	go func() {
		// The first answer may take as long as a connection. Nobody was decided by anything
		// else yet, so that there is nothing that the store would have to be told of.
		_, err := l.askFor(ratelimit.Probe(), s.connecting.dial()+s.connecting.wire())
		if err == nil || s.ended.Err() != nil {
			defer s.running.Done()
			l.isBack()
			close(s.tried)
			return
		}
		why := s.count(err)
		s.tell(why) // before anybody meets it
		close(s.tried)
		l.probe(why, false)
	}()
}

// Begun waits, for as long as a decision may take, until the store has been asked for the
// first time: who comes before that waits for a first connection, and who comes later for
// nothing.
func (s *Store) Begun() {
	select {
	case <-s.tried:
		return
	default:
	}
	patience := s.options.Clock.NewTimer(s.options.Timeout)
	defer patience.Stop()
	select {
	case <-s.tried:
	case <-patience.Chan():
	case <-s.ended.Done():
	}
}
