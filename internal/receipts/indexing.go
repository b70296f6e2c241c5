package receipts

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
)

// indexing writes the indexes of a log's segments: in order, since each block says
// which receipts are open behind it. It reads the segments, as a search does, so it
// is in nobody's way, and may be behind. It is for one goroutine at a time; the log's
// lock is its owner's.
type indexing struct {
	disk   disk
	folder string
	most   uint32 // entries of a block

	begun   bool
	segment uint64 // that it is in
	end     int64  // of the good blocks in its index
	from    int64  // where it goes on reading
	next    uint64 // the entry there
	block   newBlock
	open    openReceipts // behind it
	parser  parser
	record  Record
}

// catchUp adds the blocks that are whole by now. It ends early once stopped says so.
// After an error it begins anew.
func (x *indexing) catchUp(stopped func() bool) error {
	firsts, err := segmentsIn(x.disk, x.folder)
	for i := 0; i < len(firsts) && err == nil && !stopped(); i++ {
		if x.begun && firsts[i] < x.segment {
			continue
		}
		err = x.inSegment(firsts[i], i+1 < len(firsts), stopped)
	}
	if err != nil {
		x.reset()
		return fmt.Errorf("index of the receipts: %w", err)
	}
	return nil
}

var errStopped = errors.New("stopped")

// inSegment reads on in a segment. What is left of one that has another behind it
// is a block too.
func (x *indexing) inSegment(first uint64, sealed bool, stopped func() bool) error {
	p, err := openPart(x.disk, x.folder, first, math.MaxInt)
	if err != nil {
		return err
	}
	defer p.close()
	if !x.begun || first != x.segment {
		if err := x.enter(p); err != nil {
			return err
		}
	}
	err = eachRecord(p.segment, x.from, p.size, func(line []byte, at int64) error {
		// The log has written it, or its start has made sure that it is as it was written.
		if err := x.parser.read(string(line), &x.record); err != nil {
			return fmt.Errorf("%s, byte %d: %w", segmentName(first), at, err)
		}
		x.block.add(x.next, at, line, &x.record)
		x.open.see(&x.record, x.next)
		x.next, x.from = x.next+1, at+int64(len(line))+1
		if x.block.Count < x.most && x.block.End-x.block.Begin < blockBytes {
			return nil
		}
		if stopped() {
			return errStopped
		}
		return x.write()
	})
	if errors.Is(err, errStopped) {
		return nil
	}
	if err == nil && sealed && x.block.Count > 0 {
		err = x.write()
	}
	return err
}

// reset has it begin anew, and look at all that is written.
func (x *indexing) reset() { *x = indexing{disk: x.disk, folder: x.folder, most: x.most} }

// enter begins with a segment, behind the blocks of its index that are good.
func (x *indexing) enter(p *part) error {
	if x.open == nil {
		x.open = openReceipts{}
	}
	x.begun, x.segment, x.end, x.from, x.next, x.block = true, p.first, 0, 0, p.first, newBlock{}
	for _, b := range p.blocks {
		err := b.whole()
		if errors.Is(err, errStale) {
			p.extra = true
			break
		}
		if err != nil {
			return err
		}
		if x.open, err = b.open(); err != nil {
			return err
		}
		x.end, x.from, x.next = b.at+int64(b.Size), b.End, b.First+uint64(b.Count)
	}
	if !p.extra {
		return nil
	}
	f, err := x.disk.open(filepath.Join(x.folder, indexName(p.first)), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(x.end), f.Close())
}

// write adds the block that was gathered.
func (x *indexing) write() error {
	b := x.block.bytes(x.open)
	f, err := x.disk.open(filepath.Join(x.folder, indexName(x.segment)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(writeAll(f, b, x.end), f.Close()); err != nil {
		return err
	}
	x.end += int64(len(b))
	x.block = newBlock{}
	return nil
}
