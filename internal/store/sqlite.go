package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver "sqlite", without cgo
)

// FileName is the database's name in the data folder.
const FileName = "state.db"

// Open opens the embedded store: folder/state.db, one file that several processes may
// have open at once. It makes the folder (mode 0700) and the file (0600) where they are
// missing, and brings its tables up to date.
//
// It returns an error that names the file, and is ErrNewer if the file is ahead
// of this program.
func Open(ctx context.Context, folder string) (*Store, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(folder, FileName)
	if err := makeFile(folder, path); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", dataSource(path))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	// SQLite has one writer in any case. With one connection the waiting is
	// done in Go, in order, rather than in the library by trying again; the
	// few reads there are cost less than a second pool.
	db.SetMaxOpenConns(1)
	if err := migrateSQLite(ctx, db); err != nil {
		return nil, fmt.Errorf("%s: %w", path, errors.Join(err, db.Close()))
	}
	generation, err := db.PrepareContext(ctx, `SELECT generation FROM meta`)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, errors.Join(err, db.Close()))
	}
	return &Store{db: db, generation: generation, engine: engine{clean: cleanFiles}}, nil
}

// dataSource spells the path as a URI, since a '?' or '%' in it would be
// taken for a part of one.
//
// WAL lets others read while one writes; synchronous FULL because a revocation
// that was reported done must outlast a power cut; immediate transactions
// because one that reads first and then writes cannot wait for another writer,
// busy timeout or not, but only fail; secure_delete because what is removed here
// is removed for a reason, and SQLite would leave its bytes in the file.
func dataSource(path string) string {
	u := url.URL{Scheme: "file", Path: path}
	u.RawQuery = "_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=secure_delete(1)&_txlock=immediate"
	return u.String()
}

// makeFile makes the file before SQLite does, which would make it readable to
// all. The write-ahead files take their mode from it.
func makeFile(folder, path string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		// Left by a restore or by another tool under a wide umask.
		if err = f.Chmod(0o600); errors.Is(err, fs.ErrPermission) {
			err = nil // somebody else's file that we may write: theirs to guard
		}
	}
	return errors.Join(err, f.Close())
}
