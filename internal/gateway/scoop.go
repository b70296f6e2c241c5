package gateway

import "sync"

// buffers lends copy buffers of one size.
type buffers struct {
	size int
	pool sync.Pool
}

const (
	answerBuffer = 32 << 10
	eventBuffer  = 4 << 10 // as large a one as other answers get would be half of what a stream costs that waits
	quietBuffer  = 512
)

func (b *buffers) get() *[]byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return p
	}
	p := make([]byte, b.size)
	return &p
}

func (b *buffers) put(p *[]byte) { b.pool.Put(p) }

// scoop is what an answer is copied with. A stream of events keeps a buffer while
// nothing comes: a quiet one of its own, until an event does not go into it, and then one
// that is lent, until two in a row would.
type scoop struct {
	lent  *buffers
	quiet []byte  // nil: it is no stream of events
	large *[]byte // nil: none is lent
	small int     // how many in a row would have gone into quiet
}

func (s *scoop) next() []byte {
	if s.large == nil && s.quiet != nil && s.small > 0 {
		return s.quiet
	}
	if s.large == nil {
		s.large = s.lent.get()
	}
	return *s.large
}

// took is told how much was read into what next returned.
func (s *scoop) took(n int) {
	switch {
	case s.quiet == nil:
	case n > len(s.quiet) || n == len(s.quiet) && s.large == nil:
		s.small = 0
	default:
		if s.small++; s.small > 1 {
			s.giveBack()
		}
	}
}

func (s *scoop) giveBack() {
	if s.large != nil {
		s.lent.put(s.large)
		s.large = nil
	}
}
