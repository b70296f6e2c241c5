package receipts

// lookBack is how many closed receipts a verifier remembers.
const lookBack = 1 << 16

// closings watches that a receipt has at most one intent and is closed at most
// once. It remembers every open intent, which are as many as calls in flight,
// and the last closed receipts. A repetition further apart is not noticed here;
// an exact copy of a record is, by its tenant's sequence.
type closings struct {
	open   map[string]struct{}
	closed map[string]struct{}
	ring   []string
	next   int
}

// see returns what is wrong with a further record of a receipt, or "".
func (c *closings) see(r *Record) string {
	if c.open == nil {
		c.open, c.closed = make(map[string]struct{}), make(map[string]struct{})
	}
	_, open := c.open[r.ID]
	_, closed := c.closed[r.ID]
	switch {
	case r.Kind == KindIntent && (open || closed):
		return "a second beginning of this receipt"
	case r.Kind == KindIntent:
		c.open[r.ID] = struct{}{}
		return ""
	case closed:
		return "a second end of this receipt"
	case r.Kind != KindOutcome && open:
		return "the receipt's intent is followed by a " + string(r.Kind) + " and not by an outcome"
	}
	delete(c.open, r.ID)
	c.close(r.ID)
	return ""
}

func (c *closings) close(id string) {
	if len(c.ring) < lookBack {
		c.ring = append(c.ring, id)
	} else {
		delete(c.closed, c.ring[c.next])
		c.ring[c.next] = id
		c.next = (c.next + 1) % lookBack
	}
	c.closed[id] = struct{}{}
}
