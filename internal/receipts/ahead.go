package receipts

import (
	"runtime"
	"sync"
)

// ahead looks at the lines of a log before they are asked for, on all processors:
// one goroutine reads, some look, and the one that walks gets the lines in order.
// A walk ends the same, at the same line, as with oneByOne: there is one that
// looks at a line, and one that takes lines into account. The reader has to be
// bound, and is the goroutine's until next has returned an error or stop has.
//
// Its memory is that of a few pieces of the log, however long that is.
type ahead struct {
	reader *reader
	free   chan *piece // that nobody needs
	read   chan *piece // in order
	quit   chan struct{}
	atOnce int // lines of a piece at most
	ended  sync.WaitGroup
	piece  *piece // whose lines are being given out
	given  int
}

// piece is some lines that stand one behind the other.
type piece struct {
	text    []byte
	lines   []looked
	records []Record
	at      Position // where the lines ended with err; nil: they go on in the next piece
	err     error
	done    chan struct{} // of capacity 1: it has been looked at
}

const (
	pieceSize  = 256 << 10
	pieceLines = 1024 // an empty line is one too
)

// newAhead begins to read. Its owner has to stop it.
func newAhead(r *reader, how looker, atOnce int) *ahead {
	workers := runtime.GOMAXPROCS(0)
	pieces := 2*workers + 2
	a := &ahead{reader: r, free: make(chan *piece, pieces), read: make(chan *piece, pieces), quit: make(chan struct{}), atOnce: atOnce}
	for range pieces {
		a.free <- &piece{done: make(chan struct{}, 1)}
	}
	unseen := make(chan *piece, pieces)
	a.ended.Go(func() { a.fill(unseen) })
	for range workers {
		a.ended.Go(func() {
			l := how
			for p := range unseen {
				p.look(&l)
				p.done <- struct{}{}
			}
		})
	}
	return a
}

// fill reads to the end, or until it is to quit.
func (a *ahead) fill(unseen chan<- *piece) {
	defer close(unseen)
	for {
		select {
		case <-a.quit:
			return
		case p := <-a.free:
			p.fill(a.reader, a.atOnce)
			a.read <- p
			unseen <- p
			if p.err != nil {
				return
			}
		}
	}
}

func (p *piece) fill(r *reader, atOnce int) {
	if p.text == nil {
		p.text = make([]byte, 0, pieceSize+maxLine) // never outgrown: lines are parts of it
	}
	p.text, p.lines, p.err = p.text[:0], p.lines[:0], nil
	for len(p.text) < pieceSize && len(p.lines) < atOnce {
		line, at, begins, err := r.next()
		if err != nil {
			p.at, p.err = at, err
			return
		}
		start := len(p.text)
		p.text = append(p.text, line...)
		p.lines = append(p.lines, looked{line: p.text[start:], at: at, segment: r.first, begins: begins})
	}
}

func (p *piece) look(l *looker) {
	if len(p.records) < len(p.lines) {
		p.records = make([]Record, len(p.lines))
	}
	text := string(p.text) // at once: a string for each line would be half of what a verifier allocates
	for i := range p.lines {
		x := &p.lines[i]
		x.record, x.text, text = &p.records[i], text[:len(x.line)], text[len(x.line):]
		l.look(x)
	}
}

// next returns the next line, or why there is none; once it has returned an error
// it does so again.
func (a *ahead) next() (looked, error) {
	for a.piece == nil || a.given == len(a.piece.lines) {
		if p := a.piece; p != nil && p.err != nil {
			return looked{at: p.at}, p.err
		} else if p != nil {
			a.free <- p
		}
		a.piece, a.given = <-a.read, 0
		<-a.piece.done
	}
	a.given++
	return a.piece.lines[a.given-1], nil
}

// stop ends the reading, wherever it is.
func (a *ahead) stop() {
	close(a.quit)
	a.ended.Wait()
}
