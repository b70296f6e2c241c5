package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
)

//go:embed migrations
var migrations embed.FS

// migrate applies the migrations of a folder that the database has not seen, which has
// counted them up to version. All of them are of one transaction, as must be the count
// that advance writes: a crash leaves the old tables. There is no way back: a program
// does not know what comes after it.
func migrate(ctx context.Context, tx *sql.Tx, folder string, version int, advance func(version int) error) error {
	// ReadDir sorts by name, and the names begin with their number.
	files, err := fs.ReadDir(migrations, "migrations/"+folder)
	if err != nil {
		return err
	}
	if version > len(files) {
		return fmt.Errorf("%w: its tables are version %d, known are %d", ErrNewer, version, len(files))
	}
	for _, file := range files[version:] {
		text, err := migrations.ReadFile("migrations/" + folder + "/" + file.Name())
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, string(text)); err != nil {
			return fmt.Errorf("migration %s: %w", file.Name(), err)
		}
	}
	return advance(len(files))
}

// migrateSQLite brings the tables of a file up to date. Its transactions wait for each
// other from their beginning, so that two processes that start together apply each
// migration once.
func migrateSQLite(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // says ErrTxDone after Commit
	var version int
	if err := tx.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&version); err != nil {
		return err
	}
	err = migrate(ctx, tx, "sqlite", version, func(version int) error {
		// A pragma takes no parameters.
		_, err := tx.ExecContext(ctx, fmt.Sprintf(`PRAGMA user_version = %d`, version))
		return err
	})
	if err != nil {
		return err
	}
	return tx.Commit()
}
