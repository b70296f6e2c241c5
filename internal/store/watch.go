package store

import (
	"context"
	"time"

	"github.com/jonboulle/clockwork"
)

// DefaultPoll is how often to look for changes so that each is acted on well
// within two seconds.
const DefaultPoll = time.Second

// Generation returns the number of changes made so far. Of all that is asked it alone waits
// for a database that hangs while Watch runs, which asks for it.
func (s *Store) Generation(ctx context.Context) (generation int64, err error) {
	err = s.try(ctx, s.engine.changing, func(ctx context.Context, c conn) error {
		if s.generation != nil {
			return s.generation.QueryRowContext(ctx).Scan(&generation)
		}
		return c.row(ctx, `SELECT generation FROM meta`)(&generation)
	})
	return generation, err
}

// Watch calls onChange with the generation whenever it has moved, looking every
// so often (DefaultPoll if not positive), and at once when a change is pushed (Listen, by
// which one Watch has a push), until ctx ends; it returns then. The
// first look counts as a move, so that what changed between the caller's own
// reading and this call is not missed.
//
// A failed look, or a failure that onChange returns, is handed to onError, and
// the next look comes all the same, with onChange if it failed: what was known
// stays known, but a revocation would go unseen, so somebody must be told. Both
// are called from this goroutine, one at a time; a change during a call is seen
// at the next look.
func (s *Store) Watch(ctx context.Context, clock clockwork.Clock, every time.Duration, onChange func(generation int64) error, onError func(error)) {
	if every <= 0 {
		every = DefaultPoll
	}
	s.watched.Store(true)
	defer s.watched.Store(false)
	ticker := clock.NewTicker(every)
	defer ticker.Stop()
	acted := int64(-1)
	for {
		generation, err := s.Generation(ctx)
		if err == nil && generation != acted {
			if err = onChange(generation); err == nil {
				acted = generation
			}
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			onError(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.Chan():
		case <-s.pushed:
		}
	}
}
