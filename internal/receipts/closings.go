package receipts

import "hash/maphash"

// lookBack is how many closed receipts a verifier remembers.
const lookBack = 1 << 16

// closings watches that a receipt begins at most once and is closed at most once.
// It remembers all that have begun, which are as many as calls in flight and
// summaries that are being counted, and the last closed receipts. A repetition
// further apart is not noticed here; an exact copy of a record is, by its tenant's
// sequence.
//
// The zero value has seen nothing.
type closings struct {
	seeds [2]maphash.Seed
	seen  map[idHash]standing
	ring  []idHash // those that are closed; the oldest at next once it is full
	next  int

	intents, summaries int    // that have not ended
	alone              uint64 // outcomes of receipts that had not begun
}

// idHash stands for an id: two hashes of it under secret seeds, which no two ids
// share. The ids themselves, in memory, would be most of what a long log costs.
type idHash [2]uint64

// standing is how far a receipt has come.
type standing byte

const (
	unseen   standing = iota
	begun             // by its intent
	counting          // by the beginning of a summary
	closed
)

// see returns what is wrong with a further record of a receipt, or "".
func (c *closings) see(r *Record) string {
	if c.seen == nil {
		c.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
		c.seen = make(map[idHash]standing, lookBack+lookBack/2)
	}
	id := idHash{maphash.String(c.seeds[0], r.ID), maphash.String(c.seeds[1], r.ID)}
	known := c.seen[id]
	switch {
	case r.Begins() && known != unseen:
		return "a second beginning of this receipt"
	case r.Begins() && r.Kind == KindSummary:
		c.seen[id] = counting
		c.summaries++
		return ""
	case r.Begins():
		c.seen[id] = begun
		c.intents++
		return ""
	case known == closed:
		return "a second end of this receipt"
	case known == begun && r.Kind != KindOutcome:
		return "the receipt's intent is followed by a " + string(r.Kind) + " and not by an outcome"
	case known == counting && r.Kind != KindSummary:
		return "the receipt's summary is followed by a " + string(r.Kind) + " and not by its end"
	case known == begun:
		c.intents--
	case known == counting:
		c.summaries--
	case r.Kind == KindOutcome:
		c.alone++
	}
	c.close(id)
	return ""
}

func (c *closings) close(id idHash) {
	c.seen[id] = closed
	if len(c.ring) < lookBack {
		c.ring = append(c.ring, id)
		return
	}
	delete(c.seen, c.ring[c.next])
	c.ring[c.next] = id
	c.next = (c.next + 1) % lookBack
}
