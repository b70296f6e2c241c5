package receipts

import (
	"hash/maphash"
	"slices"
)

// sieve tells which segments may hold a receipt of a key, so that one that nobody has is
// looked for in no file, and an old one in one or two. Otherwise each caller
// with a key could have the whole log read by asking for an id of their own
// invention. It takes two bytes of memory a receipt, which is a five-hundredth of
// what the receipt takes on disk, and errs once in some 2,000 segments.
type sieve struct {
	seed   maphash.Seed
	seeded bool
	sealed []sealedSieve
	first  uint64   // of the segment that is being filled
	hashes []uint64 // of its receipts
}

// sealedSieve is a Bloom filter of a segment that is full.
type sealedSieve struct {
	first uint64
	bits  []uint64
}

const (
	sieveBits   = 16 // per receipt
	sieveProbes = 8
)

// add notes that a record of id stands in the segment. Segments come in order.
func (s *sieve) add(segment uint64, id, key string) {
	if segment != s.first && len(s.hashes) > 0 {
		s.seal()
	}
	s.first = segment
	s.hashes = append(s.hashes, s.hash(id, key))
}

func (s *sieve) hash(id, key string) uint64 {
	if !s.seeded {
		s.seed, s.seeded = maphash.MakeSeed(), true
	}
	return maphash.Comparable(s.seed, [2]string{id, key})
}

func (s *sieve) seal() {
	full := sealedSieve{first: s.first, bits: make([]uint64, (len(s.hashes)*sieveBits+63)/64)}
	for _, h := range s.hashes {
		for bit := range full.probes(h) {
			full.bits[bit/64] |= 1 << (bit % 64)
		}
	}
	s.sealed = append(s.sealed, full)
	s.hashes = s.hashes[:0]
}

// probes are the bits that stand for a hash (Kirsch and Mitzenmacher, "Less
// hashing, same performance", 2006: two halves of one hash do for all).
func (s sealedSieve) probes(h uint64) func(yield func(uint64) bool) {
	return func(yield func(uint64) bool) {
		n, step := uint64(len(s.bits)*64), h>>32|1
		for range sieveProbes {
			if !yield(h % n) {
				return
			}
			h += step
		}
	}
}

func (s sealedSieve) mayHold(h uint64) bool {
	for bit := range s.probes(h) {
		if s.bits[bit/64]&(1<<(bit%64)) == 0 {
			return false
		}
	}
	return true
}

// segments returns those that may hold a record of id and key, in order.
func (s *sieve) segments(id, key string) (firsts []uint64) {
	h := s.hash(id, key)
	for _, full := range s.sealed {
		if full.mayHold(h) {
			firsts = append(firsts, full.first)
		}
	}
	if slices.Contains(s.hashes, h) {
		firsts = append(firsts, s.first)
	}
	return firsts
}
