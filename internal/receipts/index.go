package receipts

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"math/bits"
	"slices"
	"sort"
	"strings"
)

// Beside a segment stands an index of its receipts, in blocks that are added while
// the segment grows. A block is of some entries that stand one behind the other: of
// each tenant, key, service, decision, code and ending it says which of them
// have it, by a hash of the value, as a list of places or a bitmap, whichever is
// shorter. Where a record stands and when it was written it says for each stride of
// 64 entries, so that a record is read among its neighbours.
//
// Names are not in it, and a receipt is never shown from it: it says where to look,
// and what stands there decides. So it is a fiftieth of the log, a hash that two
// values share costs a look, and whatever is wrong with a block costs no more than
// reading the records that it is of.
const (
	indexSuffix = ".idx"

	blockEntries = 1 << 14  // of a block at most; a place takes 16 bits
	blockBytes   = 16 << 20 // of its records, about
	strideLength = 64       // entries; one word of a bitmap
	blockWords   = blockEntries / strideLength

	headerSize = 84
	strideSize = 20
	valueSize  = 16

	// The values stand in pages, each with a sum of its own, so that to look for one
	// takes a page and not all, even where there is none.
	pageValues = 256
	pageSize   = 8 // of what the head says of a page
)

var blockMagic = [8]byte{'a', 'g', 'w', 'i', 'd', 'x', '3', '\n'}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// trait is what a value is of.
type trait byte

const (
	ofAll trait = iota // with the value "": every receipt
	ofTenant
	ofKey
	ofService
	ofDecision
	ofWhy // a code or an ending
)

// valueHash is FNV-1a, of 32 bits.
func valueHash(t trait, value string) uint32 {
	h := (2166136261 ^ uint32(t)) * 16777619
	for i := range len(value) {
		h = (h ^ uint32(value[i])) * 16777619
	}
	return h
}

// listed reports whether a record of that kind can be how an attempt, or many, ended:
// of those that a gap stands for nothing else is known.
// One that begins is listed while it is the last that is known: see openReceipts.
func listed(k Kind) bool {
	return k == KindOutcome || k == KindRefusal || k == KindSummary || k == KindGap
}

// blockHeader is how a block begins; little-endian, as all in it.
type blockHeader struct {
	Magic            [8]byte
	Sum              uint32 // of the header behind it
	HeadSum          uint32 // of the strides and what is said of the pages
	Count            uint32 // entries
	Values           uint32 // values
	Opened, OpenSum  uint32 // bytes of the open receipts
	LastLine, LineOf uint32 // length and sum of the last record
	Size             uint32 // bytes of the block
	First            uint64 // entry
	Begin, End       int64  // of its records in the segment
	Earliest, Latest int64  // microseconds of the Unix time
}

// openReceipts are those that have begun and not ended, by id: which entry each is.
type openReceipts map[string]uint64

func (o openReceipts) see(r *Record, index uint64) {
	if r.Begins() {
		o[strings.Clone(r.ID)] = index // a record's texts are parts of its line
	} else if len(o) > 0 {
		delete(o, r.ID)
	}
}

// glimpse is see for a record that is no summary.
func (o openReceipts) glimpse(g glanced, index uint64) {
	if g.kind() == KindIntent {
		o[string(g.id)] = index
	} else if len(o) > 0 {
		delete(o, string(g.id))
	}
}

func (o openReceipts) append(dst []byte) []byte {
	for _, id := range slices.SortedFunc(maps.Keys(o), func(a, b string) int { return int(int64(o[a] - o[b])) }) {
		dst = binary.LittleEndian.AppendUint64(dst, o[id])
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(id)))
		dst = append(dst, id...)
	}
	return dst
}

func parseOpen(b []byte) (openReceipts, error) {
	o := openReceipts{}
	for len(b) > 0 {
		if len(b) < 10 || len(b) < 10+int(binary.LittleEndian.Uint16(b[8:])) {
			return nil, errStale
		}
		end := 10 + int(binary.LittleEndian.Uint16(b[8:]))
		o[string(b[10:end])] = binary.LittleEndian.Uint64(b)
		b = b[end:]
	}
	return o, nil
}

// newBlock gathers a block. The zero value has no entry.
type newBlock struct {
	blockHeader
	strides  []byte
	postings map[uint32][]uint16
	earliest int64 // of the stride that is filling
	latest   int64
}

// add takes the next record, whose line stands at that offset.
func (b *newBlock) add(index uint64, at int64, line []byte, r *Record) {
	t := r.Time.UnixMicro()
	if b.Count == 0 {
		b.First, b.Begin, b.Earliest, b.Latest = index, at, t, t
		b.postings = make(map[uint32][]uint16)
	}
	if b.Count%strideLength == 0 {
		b.endStride()
		b.earliest, b.latest = t, t
		b.strides = binary.LittleEndian.AppendUint32(b.strides, uint32(at-b.Begin))
	}
	b.Earliest, b.Latest = min(b.Earliest, t), max(b.Latest, t)
	b.earliest, b.latest = min(b.earliest, t), max(b.latest, t)
	b.End, b.LastLine, b.LineOf = at+int64(len(line))+1, uint32(len(line)), sum(line)
	if listed(r.Kind) && !r.Begins() {
		b.note(ofAll, "")
		for _, v := range []struct {
			of    trait
			value string
		}{{ofTenant, r.Tenant}, {ofKey, r.Key}, {ofService, r.Service}, {ofDecision, r.Decision}, {ofWhy, r.Code}, {ofWhy, string(r.Ending)}} {
			if v.value != "" {
				b.note(v.of, v.value)
			}
		}
	}
	b.Count++
}

func (b *newBlock) note(of trait, value string) {
	h, place := valueHash(of, value), uint16(b.Count)
	if list := b.postings[h]; len(list) == 0 || list[len(list)-1] != place {
		b.postings[h] = append(list, place)
	}
}

func (b *newBlock) endStride() {
	if b.Count > 0 {
		b.strides = binary.LittleEndian.AppendUint64(b.strides, uint64(b.earliest))
		b.strides = binary.LittleEndian.AppendUint64(b.strides, uint64(b.latest))
	}
}

// bytes is the block as it is stored, behind which the open receipts are those.
func (b *newBlock) bytes(open openReceipts) []byte {
	b.endStride()
	var values, places []byte
	for _, h := range slices.Sorted(maps.Keys(b.postings)) {
		at, list := len(places), b.postings[h]
		if longList(len(list), int(b.Count)) {
			set := make([]uint64, words(int(b.Count)))
			for _, p := range list {
				set[p/strideLength] |= 1 << (p % strideLength)
			}
			for _, w := range set {
				places = binary.LittleEndian.AppendUint64(places, w)
			}
		} else {
			for _, p := range list {
				places = binary.LittleEndian.AppendUint16(places, p)
			}
		}
		for _, n := range []uint32{h, uint32(at), uint32(len(list)), sum(places[at:])} {
			values = binary.LittleEndian.AppendUint32(values, n)
		}
	}
	opened := open.append(nil)
	head := b.strides
	for page := range slices.Chunk(values, pageValues*valueSize) {
		head = append(head, page[:4]...) // its first hash
		head = binary.LittleEndian.AppendUint32(head, sum(page))
	}
	h := b.blockHeader
	h.Magic, h.HeadSum, h.Values = blockMagic, sum(head), uint32(len(b.postings))
	h.Opened, h.OpenSum = uint32(len(opened)), sum(opened)
	h.Size = uint32(headerSize + len(head) + len(values) + len(places) + len(opened))
	out, _ := binary.Append(nil, binary.LittleEndian, h) // it has a fixed size
	binary.LittleEndian.PutUint32(out[8:], sum(out[12:]))
	return slices.Concat(out, head, values, places, opened)
}

// words is how long a bitmap over so many entries is.
func words(entries int) int { return (entries + strideLength - 1) / strideLength }

// longList reports whether a list of so many places, of so many entries, is longer
// than a bitmap.
func longList(places, entries int) bool { return 2*places > 8*words(entries) }

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
