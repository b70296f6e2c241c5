package receipts

import (
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"
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

// words is how long a bitmap over so many entries is.
func words(entries int) int { return (entries + strideLength - 1) / strideLength }

// longList reports whether a list of so many places, of so many entries, is longer
// than a bitmap.
func longList(places, entries int) bool { return 2*places > 8*words(entries) }
