package receiptindex

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/stdlib"

	"agentgw/internal/pgaddr"
	"agentgw/internal/receipts"
)

//go:embed schema.sql
var schema string

// ErrMoved: the database has shipped entries of this log up to another one than was thought.
var ErrMoved = errors.New("the database says that the log was shipped up to another entry")

// Index is the receipts of a fleet in PostgreSQL. Safe for concurrent use; an error of any
// method is PostgreSQL's or the network's, and passes with them, unless it says otherwise.
type Index struct{ db *sql.DB }

// Open returns the index in the database at url (postgres://...). It connects when it is asked
// for something, so that the database need not be there yet. The error never holds the url.
func Open(url string) (*Index, error) {
	config, err := pgaddr.Parse(url)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(4) // one ships, the others are for lists
	db.SetMaxIdleConns(2)
	return &Index{db}, nil
}

// Close lets its connections go.
func (x *Index) Close() error { return x.db.Close() }

// Prepare makes the tables where they are missing. Several may do so at once.
func (x *Index) Prepare(ctx context.Context) error {
	return x.transact(ctx, func(tx *sql.Tx) error {
		// Two that make the same table at once get in each other's way, in spite of IF NOT EXISTS.
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtext('receipt_rows'))`); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, schema)
		return err
	})
}

// Next is up to which entry the log of that origin was shipped; 0 where it never was.
func (x *Index) Next(ctx context.Context, origin string) (next uint64, err error) {
	err = x.db.QueryRowContext(ctx, `SELECT next FROM receipt_logs WHERE origin = $1`, origin).Scan(&next)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return next, err
}

// Add takes the entries of a log from one on up to, and without, another, or nothing. It is
// ErrMoved where that is not where the log was shipped up to.
func (x *Index) Add(ctx context.Context, origin string, from, to uint64, entries []receipts.Stored) error {
	rows, ended := rowsOf(entries)
	return x.transact(ctx, func(tx *sql.Tx) error {
		statement := `UPDATE receipt_logs SET next = $3 WHERE origin = $1 AND next = $2`
		if from == 0 {
			statement = `INSERT INTO receipt_logs AS l (origin, next) VALUES ($1, $3) ON CONFLICT (origin) DO UPDATE SET next = $3 WHERE l.next = $2`
		}
		result, err := tx.ExecContext(ctx, statement, origin, from, to)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n != 1 {
			return errors.Join(err, ErrMoved)
		}
		if err := insert(ctx, tx, origin, rows); err != nil {
			return err
		}
		if len(ended) == 0 {
			return nil
		}
		_, err = tx.ExecContext(ctx, `UPDATE receipt_rows SET listed = false WHERE origin = $1 AND id = ANY($2) AND begins AND listed AND entry < $3`, origin, ended, from)
		return err
	})
}

// insert adds the rows with one statement.
func insert(ctx context.Context, tx *sql.Tx, origin string, rows []row) error {
	if len(rows) == 0 {
		return nil
	}
	var entries, times []int64
	var begins, listed []bool
	texts := make([][]string, 9)
	for _, r := range rows {
		entries, times = append(entries, int64(r.entry)), append(times, r.at)
		begins, listed = append(begins, r.begins), append(listed, r.listed)
		for i, text := range []string{r.id, r.tenant, r.caller, r.service, r.decision, r.code, r.ending, r.request, r.line} {
			texts[i] = append(texts[i], text)
		}
	}
	args := []any{origin, entries, times, begins, listed}
	for _, column := range texts {
		args = append(args, column)
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO receipt_rows (origin, entry, at, begins, listed, id, tenant, caller, service, decision, code, ending, request, line)
		SELECT $1, * FROM unnest($2::bigint[], $3::bigint[], $4::boolean[], $5::boolean[],
			$6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[])`, args...)
	return err
}

// pruneMost is how many rows Prune takes away at a time.
const pruneMost = 10_000

// Prune takes away the rows of a log's entries before one. It reports whether that
// was all of them.
func (x *Index) Prune(ctx context.Context, origin string, before uint64) (all bool, err error) {
	result, err := x.db.ExecContext(ctx, `DELETE FROM receipt_rows WHERE (origin, entry) IN
		(SELECT origin, entry FROM receipt_rows WHERE origin = $1 AND entry < $2 ORDER BY entry LIMIT $3)`, origin, before, pruneMost)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n < pruneMost, err
}

func (x *Index) transact(ctx context.Context, do func(tx *sql.Tx) error) error {
	tx, err := x.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("the database of receipts: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // says ErrTxDone after Commit
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}
