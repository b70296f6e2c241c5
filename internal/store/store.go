package store

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// Store is the state in one database: Open's, a file that processes of one machine
// share, or OpenPostgres'. What holds of one holds of the other; each statement stands
// once. Safe for concurrent use.
type Store struct {
	db     *sql.DB
	engine engine
	// generation is asked for every second: to parse it anew each time was half
	// of what an idle gateway did. nil: the driver remembers statements itself.
	generation *sql.Stmt
	config     *pgx.ConnConfig // nil: a file
	pushed     chan struct{}   // has Watch look at once; nil: nobody does
	pushes     atomic.Bool
	away       atomic.Bool
	hung       atomic.Bool // away, and whoever asks would wait to be told
	watched    atomic.Bool // Watch runs

	// AwayChanged, where set before the first use, is told once when the database is away,
	// with the reason, and once with nil when it has answered again. It MUST NOT block.
	AwayChanged func(error)
}

// Away reports whether the database did not answer when it was asked last. One that
// is a file is never away.
func (s *Store) Away() bool { return s.away.Load() }

// engine is in what one database differs from the other. The SQL does not: both take $1,
// "user" in quotes (a word of PostgreSQL's own), ON CONFLICT with what conflicts, and
// RETURNING.
type engine struct {
	begin *sql.TxOptions
	// lock has a transaction wait until it is the only one, so that what it reads
	// stays true until it ends; "": a transaction is that from its beginning.
	lock string
	// How long a change, and the reading of a whole table, may take; 0: as long as
	// the caller waits.
	changing, reading time.Duration
	// kept and told make a text into one that the database can keep, and back.
	kept, told func(string) string
	// clean takes what was removed out of the database's files; nil: nobody can.
	clean func(ctx context.Context, db *sql.DB) error
	// explain says of an error that the database is away, where that is so; nil: it
	// is always there.
	explain func(asking context.Context, err error) error
}

// ask is try, but for one that hangs: while Watch finds out whether it answers again, nobody
// else waits for it.
func (s *Store) ask(ctx context.Context, most time.Duration, do func(ctx context.Context, c conn) error) error {
	if s.hung.Load() && s.watched.Load() {
		return errHangs
	}
	return s.try(ctx, most, do)
}

// try has do ask the database something that is to take so long at most; 0 is no bound.
func (s *Store) try(ctx context.Context, most time.Duration, do func(ctx context.Context, c conn) error) error {
	bounded := ctx
	if most > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, most)
		defer cancel()
	}
	err := do(bounded, conn{s.db, &s.engine})
	if s.engine.explain == nil {
		return err
	}
	if err != nil {
		err = s.engine.explain(ctx, err)
	}
	if ctx.Err() == nil { // or who asked has gone, and nothing is known
		s.note(err)
	}
	return err
}

// note keeps whether the database answered, and tells of a change.
func (s *Store) note(err error) {
	away := errors.Is(err, ErrAway)
	s.hung.Store(errors.Is(err, errSlow))
	if s.away.Swap(away) == away || s.AwayChanged == nil {
		return
	}
	if !away {
		err = nil
	}
	s.AwayChanged(err)
}

// transact runs do in a transaction, of which there is one at a time, whoever has the
// database open. What do changed is kept if it returns nil, and lasts then.
func (s *Store) transact(ctx context.Context, do func(ctx context.Context, tx conn) error) error {
	return s.ask(ctx, s.engine.changing, func(ctx context.Context, _ conn) error {
		begun, err := s.db.BeginTx(ctx, s.engine.begin)
		if err != nil {
			return err
		}
		defer func() { _ = begun.Rollback() }() // says ErrTxDone after Commit
		tx := conn{begun, &s.engine}
		if s.engine.lock != "" {
			if _, err := tx.exec(ctx, s.engine.lock); err != nil {
				return err
			}
		}
		if err := do(ctx, tx); err != nil {
			return err
		}
		return begun.Commit()
	})
}

// change is transact for what others have to act on: it moves the generation.
func (s *Store) change(ctx context.Context, do func(ctx context.Context, tx conn) error) error {
	return s.transact(ctx, func(ctx context.Context, tx conn) error {
		if err := do(ctx, tx); err != nil {
			return err
		}
		_, err := tx.exec(ctx, `UPDATE meta SET generation = generation + 1`)
		return err
	})
}

// once runs one statement that is its own transaction, and needs no other to wait. It is
// none where that touches no row.
func (s *Store) once(ctx context.Context, none error, statement string, args ...any) error {
	return s.ask(ctx, s.engine.changing, func(ctx context.Context, c conn) error {
		r, err := c.exec(ctx, statement, args...)
		return changed(r, err, none)
	})
}

// changed turns a statement that touched no row into the error none.
func changed(result sql.Result, err, none error) error {
	if err != nil || none == nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		return none
	}
	return err
}

// Close lets the database go. Nothing that was acknowledged is lost without it.
func (s *Store) Close() error {
	if s.generation != nil {
		_ = s.generation.Close() // which closing the database does as well
	}
	return s.db.Close()
}
