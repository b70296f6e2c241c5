package store

import (
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"agentgw/internal/pgaddr"
)

// ErrAway says that the database could not be asked, or did not answer in time. Whether
// a change was made is not known then: read again. It passes by itself.
var ErrAway = errors.New("the state database is away")

// What ErrAway is where the database has been asked and does not answer: in time, and since then.
var (
	errSlow  = fmt.Errorf("%w: it does not answer in time", ErrAway)
	errHangs = fmt.Errorf("%w: it does not answer", ErrAway)
)

const (
	// opening bounds a start: what waits for the lock of migrations waits for those of another.
	opening = 30 * time.Second
	// A change takes a dozen round trips on a new connection, a whole table some megabytes.
	// Longer than that is a database that hangs, of which who waits must hear.
	pgChanging, pgReading = 5 * time.Second, 10 * time.Second
	// pgConns is how many connections there are: a process asks little, and hundreds of
	// replicas have one server.
	pgConns = 4
	// migrating is the advisory lock of migrations, a number like any other.
	migrating = 0x6167656e74677731
)

// onlyWriter makes a transaction wait for the row that every transaction locks first, as
// SQLite's wait for its one writer: what was read stays true to the end, generations
// are committed in their order, and no two can wait for each other. A process that is halted
// with the lock loses it, with what it did: all others would wait for it.
const onlyWriter = `SELECT set_config('idle_in_transaction_session_timeout', '5s', true) FROM meta FOR UPDATE`

// postgres is the engine of PostgreSQL. Its transactions see what was committed
// while they waited for the lock, whatever the database's own default is.
var postgres = engine{
	begin: &sql.TxOptions{Isolation: sql.LevelReadCommitted}, lock: onlyWriter,
	changing: pgChanging, reading: pgReading,
	kept: pgKept, told: pgTold,
	explain: away,
}

// OpenPostgres opens the state in the database at url (postgres://...), which any number
// of processes on any machines have open at once, and brings its tables up to date; where
// there are none it makes them. Give it a database, or at least a schema, of its own.
//
// The error does not hold the url. ErrNewer: the tables are ahead of this program.
// ErrAway: the database does not answer.
//
// What is removed there is gone for whoever asks, but not for who reads the server's
// files: dead rows stay until VACUUM, and the log of writes and backups for as long
// as they are kept.
func OpenPostgres(ctx context.Context, url string) (*Store, error) {
	config, err := pgaddr.Parse(url)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(pgConns)
	db.SetMaxIdleConns(pgConns)
	db.SetConnMaxLifetime(10 * time.Minute) // after a failover the way may lead to another server
	bounded, cancel := context.WithTimeout(ctx, opening)
	defer cancel()
	if err := migratePostgres(bounded, db); err != nil {
		return nil, errors.Join(away(ctx, err), db.Close())
	}
	return &Store{db: db, engine: postgres, config: config, pushed: make(chan struct{}, 1)}, nil
}

// migratePostgres brings the tables up to date, one process at a time. Where there is nothing
// to do it needs no right to make tables.
func migratePostgres(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, postgres.begin)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // says ErrTxDone after Commit
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(`SELECT pg_advisory_xact_lock(%d)`, migrating)); err != nil {
		return err
	}
	var counted bool
	if err := tx.QueryRowContext(ctx, `SELECT to_regclass('state_version') IS NOT NULL`).Scan(&counted); err != nil {
		return err
	}
	if !counted {
		if _, err := tx.ExecContext(ctx, `CREATE TABLE state_version (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL);
			INSERT INTO state_version (one, version) VALUES (1, 0)`); err != nil {
			return err
		}
	}
	var version int
	if err := tx.QueryRowContext(ctx, `SELECT version FROM state_version`).Scan(&version); err != nil {
		return err
	}
	err = migrate(ctx, tx, "postgres", version, func(version int) error {
		_, err := tx.ExecContext(ctx, fmt.Sprintf(`UPDATE state_version SET version = %d`, version))
		return err
	})
	if err != nil {
		return err
	}
	return tx.Commit()
}

// away makes ErrAway of what says that the database cannot be asked now, unless it is who asks
// that has gone.
func away(asking context.Context, err error) error {
	if asking.Err() != nil || errors.Is(err, ErrAway) {
		return err
	}
	var stranger *tls.CertificateVerificationError // which passes for one of the network
	var network net.Error
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &stranger):
		return err
	case errors.As(err, &refused):
		switch refused.Code[:2] {
		case "08", "53", "57", "58": // connection, resources, an operator, the system
		default:
			if refused.Code != "25006" && refused.Code != "25P03" && refused.Code != "55P03" { // a standby; it was we who were halted; a lock
				return err
			}
		}
	case errors.Is(err, context.DeadlineExceeded):
		return errSlow
	case errors.As(err, &network), errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), pgconn.SafeToRetry(err):
	default:
		return err
	}
	return fmt.Errorf("%w: %w", ErrAway, err)
}
