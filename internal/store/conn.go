package store

import (
	"context"
	"database/sql"
)

// conn runs statements in a transaction, or each by itself, and has texts kept as the
// database can.
type conn struct {
	on interface {
		ExecContext(ctx context.Context, statement string, args ...any) (sql.Result, error)
		QueryContext(ctx context.Context, statement string, args ...any) (*sql.Rows, error)
		QueryRowContext(ctx context.Context, statement string, args ...any) *sql.Row
	}
	engine *engine
}

func (c conn) exec(ctx context.Context, statement string, args ...any) (sql.Result, error) {
	return c.on.ExecContext(ctx, statement, c.engine.keptAll(args)...)
}

// row runs a statement that yields at most one row; its scan is sql.ErrNoRows of none.
func (c conn) row(ctx context.Context, statement string, args ...any) scan {
	return c.engine.scanner(c.on.QueryRowContext(ctx, statement, c.engine.keptAll(args)...).Scan)
}

// each hands every row to read.
func (c conn) each(ctx context.Context, read func(scan) error, statement string, args ...any) error {
	rows, err := c.on.QueryContext(ctx, statement, c.engine.keptAll(args)...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // rows.Err has told by then
	for rows.Next() {
		if err := read(c.engine.scanner(rows.Scan)); err != nil {
			return err
		}
	}
	return rows.Err()
}

// list reads a whole table, in the order of the statement.
func list[T any](ctx context.Context, s *Store, read func(scan) (T, error), statement string) (all []T, err error) {
	err = s.ask(ctx, s.engine.reading, func(ctx context.Context, c conn) error {
		return c.each(ctx, func(row scan) error {
			one, err := read(row)
			all = append(all, one)
			return err
		}, statement)
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// scan copies the columns of a row into what the pointers point at.
type scan func(into ...any) error

// keptAll are the arguments of a statement, with texts as the database can keep them.
func (e *engine) keptAll(args []any) []any {
	if e.kept == nil {
		return args
	}
	kept := make([]any, len(args))
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			arg = e.kept(text)
		}
		kept[i] = arg
	}
	return kept
}

// scanner undoes in what is read what keptAll did.
func (e *engine) scanner(of scan) scan {
	if e.told == nil {
		return of
	}
	return func(into ...any) error {
		if err := of(into...); err != nil {
			return err
		}
		for _, column := range into {
			if text, ok := column.(*string); ok {
				*text = e.told(*text)
			}
		}
		return nil
	}
}
