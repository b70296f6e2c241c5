package receipts

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"slices"
)

// ErrNoIndex is List's error where more of the log has no index than it may read.
var ErrNoIndex = errors.New("too much of the receipt log has no index yet")

// Page is some receipts of those that a Query wants, in its order.
type Page struct {
	Receipts []Found
	Next     uint64 // the Query's Cursor for the next page; 0: this is the last
}

// Found is a record as it stands in the log.
type Found struct {
	Index  uint64
	Line   []byte
	Record *Record
}

// List finds receipts in folder, up to what is written when it begins: of each
// attempt its last record, which is its intent while it runs. It uses the indexes
// beside the segments where they are good and reads the segments where not; the result
// is the same. It needs no lock and no key, writes nothing, works while a gateway
// writes, and proves nothing: that is Verify's.
//
// With indexes a page takes some milliseconds, of millions of records (BenchmarkList), and without
// about a second a million. It holds the page, the calls in flight, and what concerns
// one segment in memory.
func List(ctx context.Context, folder string, q Query) (*Page, error) {
	p, _, err := newSearch(realDisk{}, folder, q).page(ctx)
	return p, err
}

// search is one List.
type search struct {
	disk    disk
	folder  string
	query   Query
	hashes  []uint32
	needles [][]byte
	// From and To as records have them.
	fromText, toText string

	good map[uint64]int // of a segment: how many blocks are, once one was not

	firsts  []uint64
	running map[uint64]bool // the entries that begin what has not ended
	last    *part           // the newest, whose rest has been read by findRunning
	scanned int64
	found   []Found
}

func newSearch(d disk, folder string, q Query) *search {
	return &search{disk: d, folder: folder, query: q, hashes: q.hashes(), needles: q.needles(), good: map[uint64]int{},
		fromText: string(appendTime(nil, q.From)), toText: string(appendTime(nil, q.To))}
}

// badBlock says that a block is not as it was written.
type badBlock struct {
	segment uint64
	block   int
}

func (badBlock) Error() string { return errStale.Error() }

// page searches, and once more without it for each block that turns out to be bad.
// stale reports whether there was any.
func (s *search) page(ctx context.Context) (_ *Page, stale bool, err error) {
	for {
		err := s.once(ctx)
		var bad badBlock
		if errors.As(err, &bad) {
			s.good[bad.segment] = bad.block
			continue
		}
		stale := len(s.good) > 0
		if err != nil {
			return nil, stale, err
		}
		p := &Page{Receipts: s.found}
		if n := s.query.Limit; n > 0 && len(s.found) > n {
			p.Receipts, p.Next = s.found[:n], s.found[n-1].Index
			if s.query.Oldest {
				p.Next++
			}
		}
		return p, stale, nil
	}
}

func (s *search) once(ctx context.Context) (err error) {
	s.running, s.scanned, s.found = nil, 0, nil
	if s.firsts, err = segmentsIn(s.disk, s.folder); err != nil {
		return err
	}
	defer s.keep(nil)
	if err := s.findRunning(ctx); err != nil {
		return err
	}
	for i := range s.firsts {
		if !s.query.Oldest {
			i = len(s.firsts) - 1 - i
		}
		first, end := s.firsts[i], uint64(math.MaxUint64)
		if i+1 < len(s.firsts) {
			end = s.firsts[i+1]
		}
		if s.query.passed(first) && s.query.passed(end-1) {
			continue
		}
		err := s.inPart(ctx, first)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // retention has removed it
			return err
		}
		if s.enough() {
			return nil
		}
	}
	return nil
}

// enough is one more than is wanted, which tells that there is a next page.
func (s *search) enough() bool { return s.query.Limit > 0 && len(s.found) > s.query.Limit }

// part opens a segment with the blocks that are still believed.
func (s *search) part(first uint64) (*part, error) {
	most, once := s.good[first]
	if !once {
		most = math.MaxInt
	}
	p, err := openPart(s.disk, s.folder, first, most)
	if err == nil && p.extra && !once {
		s.good[first] = len(p.blocks)
	}
	return p, err
}

// keep holds a part open, and no other.
func (s *search) keep(p *part) {
	if s.last != nil {
		s.last.close()
	}
	s.last = p
}

// findRunning tells the calls in flight: those that the newest block knows of, as
// far as the records behind it do not say otherwise. These are also looked at for
// what is wanted: of a log that is being written a list has to read them anyway.
func (s *search) findRunning(ctx context.Context) error {
	start, open := 0, openReceipts{}
	for i, first := range slices.Backward(s.firsts) {
		p, err := s.part(first)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		newest := len(p.blocks) - 1
		if newest >= 0 {
			start = i
			open, err = p.blocks[newest].open()
		}
		p.close()
		if err != nil {
			return unlessStale(err, first, newest)
		}
		if newest >= 0 {
			break
		}
	}
	for _, first := range s.firsts[start:] {
		p, err := s.part(first)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		s.keep(p)
		err = s.scan(ctx, p, func(line []byte, at int64, index uint64) error {
			g := glance(line)
			p.noteRest(s, g, line, at, index)
			if r := (&Record{}); !g.ok || g.kind() == KindSummary { // which begins or ends
				if new(parser).parse(string(line), r) == nil { // else nobody knows what it was
					open.see(r, index)
				}
			} else {
				open.glimpse(g, index)
			}
			return nil
		})
		if err != nil {
			return err
		}
		p.restRead = true
	}
	s.running = make(map[uint64]bool, len(open))
	for _, index := range open {
		s.running[index] = true
	}
	return nil
}
