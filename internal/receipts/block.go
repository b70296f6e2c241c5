package receipts

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/bits"
	"slices"
	"sort"
)

// errStale: a block of an index does not belong to the segment as it is, or is not
// as it was written.
var errStale = errors.New("the index is not of this log")

// block is one that was read.
type block struct {
	blockHeader
	file    io.ReaderAt // of the index
	at      int64       // in it
	segment io.ReaderAt
	strides []byte // see head
	pages   []byte
}

// readBlock reads the header of the block at that offset of an index, and looks
// whether the segment has what the block says that it ends with.
func readBlock(file, segment io.ReaderAt, at int64) (*block, error) {
	head := make([]byte, headerSize)
	if _, err := file.ReadAt(head, at); err != nil {
		return nil, unlessEnd(err)
	}
	b := &block{file: file, at: at, segment: segment}
	if _, err := binary.Decode(head, binary.LittleEndian, &b.blockHeader); err != nil {
		return nil, err
	}
	if b.Magic != blockMagic || b.Sum != sum(head[12:]) || b.Count == 0 || b.Count > blockEntries || b.First > maxInteger ||
		b.Values > 8*blockEntries || int64(b.Size) < int64(b.openAt()) || b.LastLine > maxLine || b.Begin < 0 || b.End-int64(b.LastLine) <= b.Begin {
		return nil, errStale
	}
	line := make([]byte, b.LastLine)
	if _, err := segment.ReadAt(line, b.End-1-int64(len(line))); err != nil {
		return nil, unlessEnd(err)
	}
	if sum(line) != b.LineOf {
		return nil, errStale
	}
	return b, nil
}

// unlessEnd is err, or errStale where a file was to be longer.
func unlessEnd(err error) error {
	if err == io.EOF {
		return errStale
	}
	return err
}

func (b *block) headSize() int { return words(int(b.Count))*strideSize + b.pageCount()*pageSize }

func (b *block) pageCount() int { return (int(b.Values) + pageValues - 1) / pageValues }

// placesAt is where the places are, in the block.
func (b *block) placesAt() int64 { return headerSize + int64(b.headSize()) + int64(b.Values)*valueSize }

// openAt is where the open receipts are, in the block.
func (b *block) openAt() int { return int(b.Size) - int(b.Opened) }

// head reads the strides and what is said of the pages.
func (b *block) head() error {
	if b.strides != nil {
		return nil
	}
	head := make([]byte, b.headSize())
	if _, err := b.file.ReadAt(head, b.at+headerSize); err != nil {
		return unlessEnd(err)
	}
	if sum(head) != b.HeadSum {
		return errStale
	}
	n := words(int(b.Count)) * strideSize
	b.strides, b.pages = head[:n], head[n:]
	return nil
}

// page reads the values of a page.
func (b *block) page(n int) ([]byte, error) {
	values := make([]byte, min(pageValues, int(b.Values)-n*pageValues)*valueSize)
	if _, err := b.file.ReadAt(values, b.at+headerSize+int64(b.headSize()+n*pageValues*valueSize)); err != nil {
		return nil, unlessEnd(err)
	}
	if sum(values) != binary.LittleEndian.Uint32(b.pages[n*pageSize+4:]) {
		return nil, errStale
	}
	return values, nil
}

// find returns what is said of a value, or nil.
func (b *block) find(hash uint32) ([]byte, error) {
	first := func(list []byte, size int) func(int) bool {
		return func(i int) bool { return binary.LittleEndian.Uint32(list[i*size:]) > hash }
	}
	n := sort.Search(b.pageCount(), first(b.pages, pageSize)) - 1
	if n < 0 {
		return nil, nil
	}
	values, err := b.page(n)
	if err != nil {
		return nil, err
	}
	i := sort.Search(len(values)/valueSize, first(values, valueSize)) - 1
	if i < 0 || binary.LittleEndian.Uint32(values[i*valueSize:]) != hash {
		return nil, nil
	}
	return values[i*valueSize:][:valueSize], nil
}

// stride is some entries of a block.
type stride struct {
	begin, end       int64
	earliest, latest int64
}

func (b *block) stride(n int) (s stride) {
	at := b.strides[n*strideSize:]
	s.begin, s.end = b.Begin+int64(binary.LittleEndian.Uint32(at)), b.End
	s.earliest, s.latest = int64(binary.LittleEndian.Uint64(at[4:])), int64(binary.LittleEndian.Uint64(at[12:]))
	if next := at[strideSize:]; len(next) > 0 {
		s.end = b.Begin + int64(binary.LittleEndian.Uint32(next))
	}
	return s
}

// places is a set of a block's entries.
type places [blockWords]uint64

func (p *places) empty() bool { return *p == places{} }

// with returns the entries that have one of the values of that hash.
func (b *block) with(hash uint32) (p places, err error) {
	if err := b.head(); err != nil {
		return p, err
	}
	value, err := b.find(hash)
	if value == nil {
		return p, err
	}
	return b.places(value)
}

// places reads those of a value.
func (b *block) places(value []byte) (p places, err error) {
	at, count := int64(binary.LittleEndian.Uint32(value[4:])), int(binary.LittleEndian.Uint32(value[8:]))
	long := longList(count, int(b.Count))
	raw := make([]byte, 2*min(count, blockEntries))
	if long {
		raw = make([]byte, 8*words(int(b.Count)))
	}
	if _, err := b.file.ReadAt(raw, b.at+b.placesAt()+at); err != nil {
		return p, unlessEnd(err)
	}
	if sum(raw) != binary.LittleEndian.Uint32(value[12:]) {
		return p, errStale
	}
	for i := 0; long && i < len(raw); i += 8 {
		p[i/8] = binary.LittleEndian.Uint64(raw[i:])
	}
	for i := 0; !long && i < len(raw); i += 2 {
		if place := binary.LittleEndian.Uint16(raw[i:]); place < blockEntries {
			p[place/strideLength] |= 1 << (place % strideLength)
		}
	}
	return p, nil
}

// open reads which receipts have not ended by the end of the block.
func (b *block) open() (openReceipts, error) {
	raw := make([]byte, b.Opened)
	if _, err := b.file.ReadAt(raw, b.at+int64(b.openAt())); err != nil && b.Opened > 0 {
		return nil, unlessEnd(err)
	}
	if sum(raw) != b.OpenSum {
		return nil, errStale
	}
	return parseOpen(raw)
}

// whole reports whether all of the block is as it was written.
func (b *block) whole() error {
	if err := b.head(); err != nil {
		return err
	}
	for n := range b.pageCount() {
		values, err := b.page(n)
		if err != nil {
			return err
		}
		for value := range slices.Chunk(values, valueSize) {
			if _, err := b.places(value); err != nil {
				return err
			}
		}
	}
	_, err := b.open()
	return err
}

// lines reads the record lines of a stride.
func (b *block) lines(n int) ([][]byte, error) {
	s := b.stride(n)
	if s.begin < b.Begin || s.end > b.End || s.end < s.begin {
		return nil, errStale
	}
	text := make([]byte, s.end-s.begin)
	if _, err := b.segment.ReadAt(text, s.begin); err != nil {
		return nil, unlessEnd(err)
	}
	var records [][]byte
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte(`{"v":`)) {
			records = append(records, bytes.TrimSuffix(line, []byte("\n")))
		}
	}
	if want := min(strideLength, int(b.Count)-n*strideLength); len(records) != want {
		return nil, errStale
	}
	return records, nil
}

// inOrder are the places of p, the last first if it is backwards.
func (p *places) inOrder(backwards bool) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for i := range p {
			w := i
			if backwards {
				w = len(p) - 1 - i
			}
			for set := p[w]; set != 0; {
				bit := bits.TrailingZeros64(set)
				if backwards {
					bit = 63 - bits.LeadingZeros64(set)
				}
				set &^= 1 << bit
				if !yield(w*strideLength + bit) {
					return
				}
			}
		}
	}
}

// within are the entries of the strides in which one may be from the first to
// before the second moment, in microseconds.
func (b *block) within(from, to int64) (p places) {
	for n := range words(int(b.Count)) {
		if s := b.stride(n); s.latest >= from && s.earliest < to {
			p[n] = math.MaxUint64
		}
	}
	return p
}
