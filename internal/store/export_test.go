package store

import (
	"context"
	"fmt"
	"time"
)

// SetBusyTimeout is how long to wait for other processes from now on.
func (s *Store) SetBusyTimeout(ctx context.Context, d time.Duration) error {
	_, err := s.db.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", d.Milliseconds()))
	return err
}

// Migrations are those of both engines.
var Migrations = migrations

// OnlyWriter is what a transaction begins with.
const OnlyWriter = onlyWriter
