package receipts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
)

// inPart finds the receipts of one segment.
func (s *search) inPart(ctx context.Context, first uint64) error {
	p := s.last
	if p == nil || p.first != first {
		var err error
		if p, err = s.part(first); err != nil {
			return err
		}
		defer p.close()
	}
	if !s.query.Oldest {
		if err := s.inRest(ctx, p); err != nil {
			return err
		}
	}
	for i := range p.blocks {
		if !s.query.Oldest {
			i = len(p.blocks) - 1 - i
		}
		if s.enough() || ctx.Err() != nil {
			return ctx.Err()
		}
		if err := s.inBlock(p.blocks[i]); err != nil {
			return unlessStale(err, first, i)
		}
	}
	if s.query.Oldest {
		return s.inRest(ctx, p)
	}
	return nil
}

func unlessStale(err error, segment uint64, block int) error {
	if errors.Is(err, errStale) {
		return badBlock{segment, block}
	}
	return err
}

// inBlock looks at the records of which a block says that they may be wanted.
func (s *search) inBlock(b *block) error {
	from, to := s.query.micros()
	last := b.First + uint64(b.Count) - 1
	if b.Latest < from || b.Earliest >= to || s.query.passed(b.First) && s.query.passed(last) {
		return nil
	}
	set, err := s.places(b)
	if err != nil || set.empty() {
		return err
	}
	if err := b.head(); err != nil {
		return err
	}
	within := b.within(from, to)
	for i := range set {
		set[i] &= within[i]
	}
	var lines [][]byte
	read := -1 // the stride that lines are of
	for place := range set.inOrder(!s.query.Oldest) {
		index := b.First + uint64(place)
		if s.query.passed(index) {
			continue
		}
		if n := place / strideLength; n != read {
			if lines, err = b.lines(n); err != nil {
				return err
			}
			read = n
		}
		if place%strideLength >= len(lines) {
			return errStale
		}
		line := lines[place%strideLength]
		r, err := ParseRecord(line)
		if err != nil {
			return errStale // reading all of it tells what is wrong
		}
		if s.wants(r, index) {
			s.found = append(s.found, Found{index, bytes.Clone(line), r})
		}
		if s.enough() {
			return nil
		}
	}
	return nil
}

// places are those of the block's entries that may be wanted, by all but the time.
func (s *search) places(b *block) (set places, err error) {
	for i, h := range s.hashes {
		more, err := b.with(h)
		if err != nil {
			return set, err
		}
		if i == 0 {
			set = more
		}
		for j := range set {
			set[j] &= more[j]
		}
		if set.empty() {
			break
		}
	}
	for index := range s.running {
		if index >= b.First && index < b.First+uint64(b.Count) {
			place := index - b.First
			set[place/strideLength] |= 1 << (place % strideLength)
		}
	}
	return set, nil
}

func (s *search) wants(r *Record, index uint64) bool {
	return (listed(r.Kind) && !r.Begins() || s.running[index]) && s.query.Wants(r)
}

// inRest reads what no block is of: first it only looks at all the lines, and then
// at what is left from the end where the search begins.
func (s *search) inRest(ctx context.Context, p *part) error {
	if !p.restRead {
		err := s.scan(ctx, p, func(line []byte, at int64, index uint64) error {
			p.noteRest(s, glance(line), line, at, index)
			return nil
		})
		if err != nil {
			return err
		}
	}
	spots := p.rest
	if !s.query.Oldest {
		slices.Reverse(spots)
	}
	for _, at := range spots {
		if s.enough() {
			return nil
		}
		if at.intent && !s.running[at.index] {
			continue
		}
		line := make([]byte, at.size)
		if _, err := p.segment.ReadAt(line, at.at); err != nil {
			return err
		}
		r, err := ParseRecord(line)
		if err != nil {
			return &Damage{Position: Position{File: segmentName(p.first), Offset: at.at}, Index: at.index, ID: idOf(line), What: err.Error()}
		}
		if s.wants(r, at.index) {
			s.found = append(s.found, Found{at.index, line, r})
		}
	}
	return nil
}

// noteRest notes a record of the rest that s may want: without reading the whole
// line, and while it is not known what runs.
func (p *part) noteRest(s *search, g glanced, line []byte, at int64, index uint64) {
	if s.query.passed(index) || !s.mayWant(g, line) {
		return
	}
	p.rest = append(p.rest, spot{at, len(line), index, g.kind() == KindIntent})
}

// mayWant is wants for a record that may run: where it is false that would be.
func (s *search) mayWant(g glanced, line []byte) bool {
	may := !g.ok
	switch k := g.kind(); {
	case may:
	case listed(k) && s.query.Why != Running, k == KindIntent, k == KindSummary:
		may = (s.query.From.IsZero() || string(g.t) >= s.fromText) && (s.query.To.IsZero() || string(g.t) <= s.toText)
	}
	return may && holdsAll(line, s.needles)
}

// scan calls visit for each record line of a segment that no block is of.
func (s *search) scan(ctx context.Context, p *part, visit func(line []byte, at int64, index uint64) error) error {
	if s.scanned += p.size - p.from; s.query.MaxScan > 0 && s.scanned > s.query.MaxScan {
		return ErrNoIndex
	}
	index := p.next
	err := eachRecord(p.segment, p.from, p.size, func(line []byte, at int64) error {
		index++
		if index%strideLength == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		return visit(line, at, index-1)
	})
	if errors.Is(err, errLongLine) {
		return fmt.Errorf("%s: %w", segmentName(p.first), err)
	}
	return err
}
