package receipts

import (
	"encoding/binary"
	"maps"
	"slices"
)

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
		}{{ofTenant, r.Tenant}, {ofKey, r.who()}, {ofService, r.Service}, {ofDecision, r.Decision}, {ofWhy, r.Code}, {ofWhy, string(r.Ending)}} {
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
