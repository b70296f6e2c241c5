package receipts

import "strings"

// lookBack is how many closed receipts a verifier remembers.
const lookBack = 1 << 16

// closings watches that a receipt begins at most once and is closed at most once.
// It remembers all that have begun, which are as many as calls in flight and
// summaries that are being counted, and the last closed receipts. A repetition
// further apart is not noticed here; an exact copy of a record is, by its tenant's
// sequence.
type closings struct {
	seen map[string]*closing
	ring []*closing // those that are closed; the oldest at next once it is full
	next int

	intents, summaries int // that have not ended
}

type closing struct {
	id     string
	kind   Kind // of its beginning; "" where it had none
	closed bool
}

// see returns what is wrong with a further record of a receipt, or "".
func (c *closings) see(r *Record) string {
	if c.seen == nil {
		c.seen = make(map[string]*closing, 2*lookBack)
	}
	known := c.seen[r.ID]
	switch {
	case r.Begins() && known != nil:
		return "a second beginning of this receipt"
	case r.Begins():
		c.add(r.ID).kind = r.Kind
		*c.open(r.Kind)++
		return ""
	case known == nil:
		c.close(c.add(r.ID))
		return ""
	case known.closed:
		return "a second end of this receipt"
	case known.kind == KindIntent && r.Kind != KindOutcome:
		return "the receipt's intent is followed by a " + string(r.Kind) + " and not by an outcome"
	case known.kind == KindSummary && r.Kind != KindSummary:
		return "the receipt's summary is followed by a " + string(r.Kind) + " and not by its end"
	}
	*c.open(known.kind)--
	c.close(known)
	return ""
}

// open is the number of those that began with a record of that kind.
func (c *closings) open(began Kind) *int {
	if began == KindSummary {
		return &c.summaries
	}
	return &c.intents
}

func (c *closings) add(id string) *closing {
	n := &closing{id: strings.Clone(id)} // a record's texts are parts of its line
	c.seen[n.id] = n
	return n
}

func (c *closings) close(n *closing) {
	n.closed = true
	if len(c.ring) < lookBack {
		c.ring = append(c.ring, n)
		return
	}
	delete(c.seen, c.ring[c.next].id)
	c.ring[c.next] = n
	c.next = (c.next + 1) % lookBack
}
