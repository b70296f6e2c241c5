package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jonboulle/clockwork"
)

const (
	// pushRest is how long a look that was pushed is the last one: of hundreds of
	// changes in a second each would have all keys read again.
	pushRest = 200 * time.Millisecond
	// pushCheck is how often a connection on which nothing is heard is asked whether it is
	// still one: a firewall that forgets it tells nobody.
	pushCheck = 15 * time.Second
	// A connection that is lost is made anew after that long, and longer with each failure.
	pushRetry, pushRetryMost = 250 * time.Millisecond, 5 * time.Second
)

// Pushes reports whether changes are pushed here: those of PostgreSQL, while Listen has
// its connection.
func (s *Store) Pushes() bool { return s.pushes.Load() }

// Listen has Watch look at once when something has changed, whoever did that, and not at
// its next turn; until ctx ends, and it returns then. It is a hint and no more: Watch
// sees all without it, later. Of a file it does nothing.
//
// A connection that is lost is made anew, for as long as it takes, and Watch looks then.
// changed is told why it was lost, once, and nil when there is one again.
func (s *Store) Listen(ctx context.Context, clock clockwork.Clock, changed func(error)) {
	if s.config == nil {
		return
	}
	wait, lost := pushRetry, false
	for ctx.Err() == nil {
		err := s.hear(ctx, clock, func() {
			if lost {
				changed(nil)
			}
			wait, lost = pushRetry, false
		})
		s.pushes.Store(false)
		if ctx.Err() != nil {
			return
		}
		if !lost {
			changed(err)
			lost = true
		}
		select {
		case <-ctx.Done():
		case <-clock.After(wait):
		}
		wait = min(2*wait, pushRetryMost)
	}
}

// hear listens on a connection of its own until that fails; began is called once it does.
func (s *Store) hear(ctx context.Context, clock clockwork.Clock, began func()) error {
	var conn *pgx.Conn
	err := bounded(ctx, opening, func(ctx context.Context) (err error) {
		if conn, err = pgx.ConnectConfig(ctx, s.config.Copy()); err != nil {
			return err
		}
		_, err = conn.Exec(ctx, `LISTEN agentgate_state`)
		return err
	})
	if conn != nil {
		defer func() { _ = bounded(context.Background(), time.Second, conn.Close) }() // it is no use to anybody
	}
	if err != nil {
		return err
	}
	s.pushes.Store(true)
	began()
	for {
		select { // what changed before it listened, or was heard of: one look is enough for both
		case s.pushed <- struct{}{}:
		default:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-clock.After(pushRest):
		}
		if err := heard(ctx, conn); err != nil {
			return err
		}
	}
}

// heard waits for a push, and looks after the connection meanwhile.
func heard(ctx context.Context, conn *pgx.Conn) error {
	for {
		err := bounded(ctx, pushCheck, func(ctx context.Context) error {
			_, err := conn.WaitForNotification(ctx)
			return err
		})
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if err := bounded(ctx, pgChanging, conn.Ping); err != nil {
			return err
		}
	}
}

func bounded(ctx context.Context, most time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return do(ctx)
}
