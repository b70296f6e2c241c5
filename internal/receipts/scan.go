package receipts

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/jonboulle/clockwork"
)

// Stored is a record as it stands in a log.
type Stored struct {
	Index  uint64
	At     Position
	Line   []byte // the leaf; good until the next record
	Record *Record
}

// Scan calls visit for each record in folder, in log order, up to the last one
// that is wholly written when it begins. It needs no lock and no key, works while a gateway
// writes, and proves nothing: that is Verify's. An error of visit ends it and
// is returned.
func Scan(folder string, visit func(Stored) error) error {
	w, err := startWalker(realDisk{}, folder)
	if err != nil {
		return err
	}
	defer w.reader.close()
	if err := w.reader.bound(); err != nil {
		return err
	}
	return scan(w, visit)
}

// followEvery is how often Follow looks for more.
const followEvery = 200 * time.Millisecond

// Follow is Scan that waits for more at the end, until ctx is done; what was
// written by then it still visits. Each time
// that it has come to the end it calls atEnd.
func Follow(ctx context.Context, clock clockwork.Clock, folder string, visit func(Stored) error, atEnd func() error) error {
	w, err := startWalker(realDisk{}, folder)
	if err != nil {
		return err
	}
	defer w.reader.close()
	for {
		last := ctx.Err() != nil
		if err := scan(w, visit); err != nil {
			return err
		}
		if err := atEnd(); err != nil || last {
			return err
		}
		select {
		case <-ctx.Done():
		case <-clock.After(followEvery):
		}
	}
}

func scan(w *walker, visit func(Stored) error) error {
	err := w.toEnd(func(e event) error {
		if e.kind != aRecord {
			return nil
		}
		return visit(Stored{e.index, e.at, e.line, e.record})
	})
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
