package redact

import "io"

// Reader reads what src says with what shows the secret marked, byte for byte
// as long. Use NewReader.
//
// It hands on what there is. Held back are only bytes at the end that may turn
// out to begin a piece of the secret, until the next ones are there or there are
// no more: never any behind a line's end, so an event that is whole is not held.
type Reader struct {
	src   io.ReadCloser
	r     *tables
	tail  []byte // as src said it: what went out last, as far as r reaches, and behind it
	held  int    // so many that are still to go out
	own   []byte // for readers with less room than that takes
	ready []byte // of own, to go out,
	ended error  // and behind it
	spans []span
	found bool
}

// NewReader returns src redacted, for one goroutine. r MUST NOT be empty.
func (r Redactor) NewReader(src io.ReadCloser) *Reader {
	return &Reader{src: src, r: *r.t, tail: make([]byte, 0, 2*(*r.t).reach)}
}

// Found reports whether anything was marked so far.
func (b *Reader) Found() bool { return b.found }

// Close closes src.
func (b *Reader) Close() error { return b.src.Close() }

// Read reads into p. Where p is shorter than four times what it may take to see the
// secret it reads into a buffer of its own first.
func (b *Reader) Read(p []byte) (int, error) {
	if len(b.ready) > 0 || b.ended != nil {
		return b.give(p)
	}
	if enough := 4 * b.r.reach; len(p) < enough {
		if b.own == nil {
			b.own = make([]byte, enough)
		}
		n, err := b.read(b.own)
		b.ready, b.ended = b.own[:n], err
		return b.give(p)
	}
	return b.read(p)
}

// give hands on what is ready, and then what came behind it.
func (b *Reader) give(p []byte) (int, error) {
	n := copy(p, b.ready)
	b.ready = b.ready[n:]
	if len(b.ready) > 0 {
		return n, nil
	}
	err := b.ended
	b.ended = nil
	return n, err
}

// read reads into p, which is longer than the tail.
func (b *Reader) read(p []byte) (int, error) {
	for {
		kept := copy(p, b.tail)
		n, err := b.src.Read(p[kept:])
		if n == 0 && err == nil {
			return 0, nil
		}
		text := p[:kept+n]
		told := kept - b.held
		b.held = 0
		if err == nil {
			b.held = min(b.r.open(text), len(text)-told)
		}
		b.spans = find(b.r, text, b.spans[:0])
		b.tail = append(b.tail[:0], text[max(0, len(text)-b.held-b.r.reach):]...)
		b.found = b.found || len(b.spans) > 0
		mask(text, b.spans)
		if n = copy(p, text[told:len(text)-b.held]); n > 0 || err != nil {
			return n, err
		}
	}
}
