package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate applies the migrations that the database has not seen, all in one
// transaction: PRAGMA user_version, which counts them, is part of it, so a
// crash leaves the old tables and two processes that start together apply each
// once. There is no way back: a program does not know what comes after it.
func migrate(ctx context.Context, db *sql.DB) error {
	// ReadDir sorts by name, and the names begin with their number.
	files, err := fs.ReadDir(migrations, "migrations")
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // says ErrTxDone after Commit
	var version int
	if err := tx.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&version); err != nil {
		return err
	}
	if version > len(files) {
		return fmt.Errorf("%w: its tables are version %d, known are %d", ErrNewer, version, len(files))
	}
	for _, file := range files[version:] {
		text, err := migrations.ReadFile("migrations/" + file.Name())
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, string(text)); err != nil {
			return fmt.Errorf("migration %s: %w", file.Name(), err)
		}
	}
	// A pragma takes no parameters.
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(`PRAGMA user_version = %d`, len(files))); err != nil {
		return err
	}
	return tx.Commit()
}
