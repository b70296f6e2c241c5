package gateway

import (
	"net/http"
	"sync"
)

// manyKept is how many bytes of results may wait for the client before no further call of
// the batch is begun. Those that run may add what a result may hold, each.
const manyKept = 4 << 20

// shelf is the results of a batch from when they are there until they have gone out, in
// order. It hands out the calls, too: in order, and while it has room. Safe for concurrent
// use.
type shelf struct {
	mu      sync.Mutex
	changed sync.Cond
	results []*keptAnswer // nil: it is not there yet, or has gone out
	begun   int           // calls that were handed out
	bytes   int           // of the results that are there
	closed  bool
}

func newShelf(n int) *shelf {
	s := &shelf{results: make([]*keptAnswer, n)}
	s.changed.L = &s.mu
	return s
}

// close has no further call be handed out, and nobody wait for a result.
func (s *shelf) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.changed.Broadcast()
}

// next hands out the next call, once there is room for what it answers.
func (s *shelf) next() (i int, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && s.begun < len(s.results) && s.bytes > manyKept {
		s.changed.Wait()
	}
	if s.closed || s.begun == len(s.results) {
		return 0, false
	}
	s.begun++
	return s.begun - 1, true
}

func (s *shelf) put(i int, k *keptAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results[i] = k
	s.bytes += k.size()
	s.changed.Broadcast()
}

// wait returns a result as soon as it is there; nil: it will not be.
func (s *shelf) wait(i int) *keptAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && s.results[i] == nil {
		s.changed.Wait()
	}
	if s.closed {
		return nil
	}
	return s.results[i]
}

// sent lets a result go that is with the client, and reports whether the next is there.
func (s *shelf) sent(i int) (next bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes -= s.results[i].size()
	s.results[i] = nil
	s.changed.Broadcast()
	return i+1 < len(s.results) && s.results[i+1] != nil
}

// writeTo answers with the results as they come. An error is that they did not all get to
// the client.
func (s *shelf) writeTo(out *answer) error {
	text := []byte(`{"results":[`)
	for i := range s.results {
		k := s.wait(i)
		if k == nil {
			return errHungUp
		}
		if i == 0 {
			out.Header()["Content-Type"] = []string{"application/json"}
			out.WriteHeader(http.StatusOK)
		} else {
			text = append(text, ',')
		}
		text = k.appendResult(text)
		if i == len(s.results)-1 {
			text = append(text, "]}"...)
		}
		if err := writeInPieces(out, text); err != nil {
			return err
		}
		text = text[:0]
		if next := s.sent(i); !next && i < len(s.results)-1 {
			if err := out.FlushError(); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeInPieces writes as other answers are written, so that a client is held to no more
// bytes in the time that it may take none.
func writeInPieces(out *answer, b []byte) error {
	for len(b) > 0 {
		n := min(answerBuffer, len(b))
		if _, err := out.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
