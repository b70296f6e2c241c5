package receipts

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
)

// indexEvery is how much of the log is written before its index is brought up to
// date: what a search has to read at most is that, and a block.
const indexEvery = 2 << 20

// indexer has the index of an open log follow it, beside the committer: nobody
// waits for it, and what goes wrong with it fails nothing.
type indexer struct {
	indexing // of whoever has set busy
	every    int64
	stopped  func() bool
	logger   *slog.Logger

	since  int64 // bytes written since it last began; the committer's
	busy   atomic.Bool
	again  atomic.Bool // what was written of it is to be looked at anew
	warned atomic.Bool
	work   sync.WaitGroup
}

// written says that so many bytes more are in the segments. It is the committer's to
// call, and returns at once.
func (x *indexer) written(n int64) {
	x.since += n
	if x.since < x.every && !x.again.Load() || !x.busy.CompareAndSwap(false, true) {
		return
	}
	x.since = 0
	x.work.Go(func() {
		defer x.busy.Store(false)
		if x.again.Swap(false) {
			x.reset()
		}
		if err := x.catchUp(x.stopped); err != nil && !x.warned.Swap(true) {
			x.logger.Warn("the index of the receipts cannot be written; the log goes on, and it is tried again, but until then lists take longer", "folder", x.folder, "error", err)
		}
	})
}

func (l *Log) isClosing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closing
}

// List is List of the log's own folder, in which bad indexes are written anew. It
// reads no more than 64 MiB that no index covers: the error is ErrNoIndex, for the
// first seconds of a log that was long without one.
func (l *Log) List(ctx context.Context, q Query) (*Page, error) {
	q.MaxScan = maxScan
	p, stale, err := newSearch(l.disk, l.folder, q).page(ctx)
	if stale || errors.Is(err, ErrNoIndex) {
		l.index.again.Store(true) // with the next record
	}
	return p, err
}

// maxScan is more than stands behind the last block, twice, and less than a second
// takes.
const maxScan = 64 << 20
