package receipts

import "strings"

// lookBack is how many closed receipts a verifier remembers.
const lookBack = 1 << 16

// closings watches that a receipt has at most one intent and is closed at most
// once. It remembers every open intent, which are as many as calls in flight,
// and the last closed receipts. A repetition further apart is not noticed here;
// an exact copy of a record is, by its tenant's sequence.
type closings struct {
	seen map[string]*closing
	ring []*closing // those that are closed; the oldest at next once it is full
	next int
	open int
}

type closing struct {
	id     string
	closed bool
}

// see returns what is wrong with a further record of a receipt, or "".
func (c *closings) see(r *Record) string {
	if c.seen == nil {
		c.seen = make(map[string]*closing, 2*lookBack)
	}
	known := c.seen[r.ID]
	switch {
	case r.Kind == KindIntent && known != nil:
		return "a second beginning of this receipt"
	case r.Kind == KindIntent:
		c.add(r.ID)
		c.open++
		return ""
	case known == nil:
		c.close(c.add(r.ID))
		return ""
	case known.closed:
		return "a second end of this receipt"
	case r.Kind != KindOutcome:
		return "the receipt's intent is followed by a " + string(r.Kind) + " and not by an outcome"
	}
	c.open--
	c.close(known)
	return ""
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
