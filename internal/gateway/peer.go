package gateway

import (
	"crypto/rand"
	"errors"
	"io"
	"sync"
	"sync/atomic"
)

var (
	errShut    = errors.New("nothing more goes to this side")
	errCrowded = errors.New("too many frames wait for the end of a message")
)

// manyWaiting is how many frames of the gateway's own may wait for the end of a message of
// the other side's.
const manyWaiting = 256

// peer is a side of a conversation as one writes to it: the other side's bytes, and frames
// of the gateway's own between them. Safe for concurrent use.
type peer struct {
	to    io.Writer
	bound interface { // around each write
		begin()
		end()
	}
	sent atomic.Int64

	mu        sync.Mutex
	inFrame   bool // what was written ends within a frame,
	inMessage bool // within a message
	waiting   [][]byte
	isShut    bool
	replies   bool // once it is: one frame may come in reply
	failed    bool
}

// write writes what is no part of the conversation, before it.
func (p *peer) write(b []byte) error {
	p.bound.begin()
	defer p.bound.end()
	_, err := p.to.Write(b)
	return err
}

func (p *peer) writeLocked(b []byte) error {
	p.bound.begin()
	defer p.bound.end()
	n, err := p.to.Write(b)
	p.sent.Add(int64(n))
	p.failed = p.failed || err != nil
	return err
}

// stands is where bytes of a side end: within a frame, within a message; and how many of
// them end between two messages, if any do.
type stands struct {
	inFrame, inMessage bool
	border             int
}

// pass writes bytes of the other side's, which end as it says.
func (p *peer) pass(b []byte, end stands) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isShut {
		return errShut
	}
	if n := end.border; n > 0 && len(p.waiting) > 0 {
		if err := p.writeLocked(b[:n]); err != nil {
			return err
		}
		b = b[n:]
		for _, frame := range p.waiting {
			if err := p.writeLocked(frame); err != nil {
				return err
			}
		}
		p.waiting = nil
	}
	if len(b) > 0 {
		if err := p.writeLocked(b); err != nil {
			return err
		}
	}
	p.inFrame, p.inMessage = end.inFrame, end.inMessage
	return nil
}

// put writes a message of the gateway's own, or has it wait until no other is under way.
func (p *peer) put(frame []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.isShut:
		return errShut
	case !p.inMessage:
		return p.writeLocked(frame)
	case len(p.waiting) == manyWaiting:
		return errCrowded
	}
	p.waiting = append(p.waiting, frame)
	return nil
}

// shut has nothing of the other side's be written any more, but for a reply if it may come.
func (p *peer) shut(replies bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isShut, p.replies = true, replies
}

// closed reports whether it was shut.
func (p *peer) closed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isShut
}

// last shuts it and writes a last frame, where one can stand.
func (p *peer) last(frame []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isShut = true
	if len(frame) > 0 && !p.inFrame && !p.failed {
		_ = p.writeLocked(frame) // it may be gone
	}
}

// reply writes a last frame of the other side's where it was shut, if one may come. It
// reports whether it was.
func (p *peer) reply(frame []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isShut && p.replies && !p.inFrame && !p.failed {
		_ = p.writeLocked(frame)
	}
	return p.isShut
}

// endSide passes on that the other side has ended, of which c is the connection.
func (p *peer) endSide(c io.Writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isShut = true
	closeWrite(c)
}

// newMask is that of a frame to a service, which nobody can foretell (RFC 6455, section
// 5.3).
func newMask() *[4]byte {
	var mask [4]byte
	_, _ = rand.Read(mask[:]) // never fails
	return &mask
}
