package receiptindex

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

const (
	// lookEvery is how often the log is looked at for what is new.
	lookEvery = 250 * time.Millisecond
	// retryAfter is how long is waited after a failure, and mostAfter after many.
	retryAfter, mostAfter = 250 * time.Millisecond, 10 * time.Second
	// pruneEvery is how often rows of what retention has removed are taken away.
	pruneEvery = 10 * time.Minute
	// batchBytes is how much of the log goes into one transaction, which is what a
	// shipper holds in memory, a few times over.
	batchBytes = 256 << 10
	// patience bounds one transaction: a database that hangs is one that is away.
	patience = 10 * time.Second
)

// errAhead: rows of entries are in the database that the log has no more.
var errAhead = errors.New("the database has rows of entries that the log does not have: the data folder is of an earlier time than the database")

// Target is where a Shipper ships to: an Index.
type Target interface {
	Prepare(ctx context.Context) error
	Next(ctx context.Context, origin string) (uint64, error)
	Add(ctx context.Context, origin string, from, to uint64, entries []receipts.Stored) error
	Prune(ctx context.Context, origin string, before uint64) (all bool, err error)
}

// Shipper ships the entries of one log. Make one with NewShipper and have Run run.
type Shipper struct {
	log    *receipts.Log
	folder string // with the log's segments
	to     Target
	clock  clockwork.Clock
	logger *slog.Logger

	mu      sync.Mutex
	shipped uint64 // as far as is known
	known   bool
	failing error
}

// NewShipper returns one for a log, whose data folder is dir.
func NewShipper(log *receipts.Log, dir string, to Target, clock clockwork.Clock, logger *slog.Logger) (*Shipper, error) {
	folder, err := receipts.Folder(dir)
	if err != nil {
		return nil, err
	}
	return &Shipper{log: log, folder: folder, to: to, clock: clock, logger: logger}, nil
}

// Lag is how many entries of the log are on disk and not yet in the database, and ok
// whether the last that was tried succeeded. Until the database has said how far the log was
// shipped it is all of them.
func (s *Shipper) Lag() (entries uint64, ok bool) {
	size := s.log.Stats().Size
	s.mu.Lock()
	defer s.mu.Unlock()
	return size - min(size, s.shipped), s.known && s.failing == nil
}

// Run ships what is in the log and what comes, until ctx is done. Nothing waits for it: while the
// database is away it tries again, and begins where that says.
func (s *Shipper) Run(ctx context.Context) {
	wait := retryAfter
	for ctx.Err() == nil {
		before, _ := s.Lag()
		err := s.follow(ctx, func() bool { return !s.sleep(ctx, lookEvery) })
		if ctx.Err() != nil {
			return
		}
		s.note(err)
		if after, _ := s.Lag(); after < before {
			wait = retryAfter
		}
		if s.sleep(ctx, wait) {
			return
		}
		wait = min(2*wait, mostAfter)
	}
}

// Finish ships what is left, once Run has ended and the log is closed, so that the index
// has the end of a replica that never comes back.
func (s *Shipper) Finish(ctx context.Context) error {
	return s.follow(ctx, func() bool { return true })
}

// follow ships from where the database says, until an error, or until ended says so
// when there is nothing new.
func (s *Shipper) follow(ctx context.Context, ended func() bool) error {
	next, err := s.begin(ctx)
	if err != nil {
		return err
	}
	feed := s.log.Feed(next)
	defer feed.Close()
	var pruned time.Time
	for {
		entries, to, err := feed.Next(batchBytes)
		if err != nil {
			return fmt.Errorf("reading the receipt log: %w", err)
		}
		if to > next {
			if err := s.within(ctx, func(ctx context.Context) error { return s.to.Add(ctx, s.log.Origin(), next, to, entries) }); err != nil {
				return err
			}
			next = to
			s.reached(next)
			continue
		}
		if now := s.clock.Now(); now.Sub(pruned) >= pruneEvery {
			if err := s.prune(ctx); err != nil {
				return err
			}
			pruned = now
		}
		if ended() {
			return nil
		}
	}
}

// begin is where the database says that shipping goes on.
func (s *Shipper) begin(ctx context.Context) (next uint64, err error) {
	err = s.within(ctx, func(ctx context.Context) error {
		if err := s.to.Prepare(ctx); err != nil {
			return err
		}
		next, err = s.to.Next(ctx, s.log.Origin())
		return err
	})
	if err != nil {
		return 0, err
	}
	if size := s.log.Stats().Size; next > size {
		return 0, fmt.Errorf("%w (%d and %d)", errAhead, next, size)
	}
	s.reached(next)
	return next, nil
}

// reached notes how far the log was shipped: the database has said so.
func (s *Shipper) reached(next uint64) {
	s.mu.Lock()
	again := s.failing != nil
	s.shipped, s.known, s.failing = next, true, nil
	s.mu.Unlock()
	if again {
		s.logger.Info("receipts go into the database again", "entries_behind", s.log.Stats().Size-next)
	}
}

// note tells once of a failure, and keeps it for Lag.
func (s *Shipper) note(err error) {
	if err == nil || errors.Is(err, ErrMoved) { // the next begins where the database says
		return
	}
	s.mu.Lock()
	first := s.failing == nil
	s.failing = err
	s.mu.Unlock()
	if first {
		s.logger.Warn("receipts do not go into the database, and will later; calls go on", "error", err)
	}
}

// prune takes away the rows of what retention has removed.
func (s *Shipper) prune(ctx context.Context) error {
	before, err := receipts.PrunedBefore(s.folder)
	if err != nil {
		return err
	}
	for all := before == 0; !all; {
		if err := s.within(ctx, func(ctx context.Context) error {
			all, err = s.to.Prune(ctx, s.log.Origin(), before)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

func (s *Shipper) within(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return do(ctx)
}

// sleep reports whether ctx is done.
func (s *Shipper) sleep(ctx context.Context, d time.Duration) (over bool) {
	select {
	case <-ctx.Done():
	case <-s.clock.After(d):
	}
	return ctx.Err() != nil
}
