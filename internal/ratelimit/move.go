package ratelimit

import "slices"

// move is a change of a bucket's limit: where what the bucket owed stands since.
//
// What is owed is a row, and a charge a piece of it. It keeps its distance from the
// end of the row, in tokens, so that what was charged last is still last. A raised
// burst owes the tokens that nobody has put in yet: they come first, and time pays
// them first, as nobody will ever give them back. A lowered burst forgives, and does
// so at the front, like time: the oldest charges are those of calls that run already,
// and are the least likely to come back.
//
// Whatever order time pays in, what is owed after a refund is no less than had the
// call not been: what paid for it paid for nobody else. So the order is free, and this
// one withholds the least.
type move struct {
	at       int64  // when
	was, is  int64  // tat, before and after
	from, to int64  // a token's interval, before and after
	refunded int64  // of the bucket, at that instant
	gifts    []gift // what was given back under the limit before
}

// maxMoves bounds how many changes of limit a charge outlives. Calls decided by the
// files of before and after a reload change a bucket to and fro, but no longer than
// they are under way.
const maxMoves = 32

// move notes that the bucket was, at an instant when it owed something, and is now
// under another limit.
func (g *given) move(was, is *bucket, at int64) {
	g.follow(was)
	g.prune(was, at)
	if len(g.moves) == maxMoves {
		g.moves = slices.Delete(g.moves, 0, 1)
	}
	g.moves = append(g.moves, move{
		at: at, was: was.tat, is: is.tat, from: was.limit.Interval, to: is.limit.Interval,
		refunded: was.refunded, gifts: g.list,
	})
	g.list, g.changes = nil, is.changes
}

// forget drops the moves, if now lies behind all that was charged before the last.
func (g *given) forget(b *bucket, now int64) {
	n := len(g.moves)
	if n == 0 {
		return
	}
	last := g.moves[n-1].is + g.moves[n-1].refunded
	if _, later, _ := find(g.list, last); b.end(last, later) <= now {
		g.moves = nil
	}
}

// today is a charge as if it had been made under the limit of today: its mark, and
// the most of it that a refund gives back. The amount is 0 if that is nothing.
func (g *given) today(s spent, l Limit) gift {
	first := g.changes - uint32(len(g.moves))
	switch moves := s.changes - first; {
	case s.changes == g.changes:
		return gift{s.mark(), l.Interval}
	case moves >= uint32(len(g.moves)):
		return gift{}
	default:
		c := gift{s.mark(), g.moves[moves].from}
		for i := range g.moves[moves:] {
			c = g.moves[int(moves)+i].carry(c)
		}
		return c
	}
}

// carry is what a charge of before the move is after it: between the two places where
// adopt, which rounds what is owed up, has what stood before it end, and what stood
// before it with it. What stands behind it are whole tokens, which it rounds nowhere.
func (m *move) carry(c gift) gift {
	_, later, twice := find(m.gifts, c.mark)
	end := c.mark - m.refunded + later
	rest := min(c.amount, end-m.at)
	if twice || rest <= 0 {
		return gift{}
	}
	// Whole tokens before it do not change how it is rounded either, and are left out,
	// as there may be more of them than an int64 holds.
	left := 2*m.from - (end-rest-m.at)%m.from
	rest = scale(left, m.to, m.from) - scale(left-rest, m.to, m.from)
	end = m.is - scale(m.was-end, m.to, m.from)
	if end <= m.at {
		return gift{}
	}
	return gift{mark: end + m.refunded, amount: rest}
}
