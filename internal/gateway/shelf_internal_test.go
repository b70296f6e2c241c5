package gateway

import "testing"

// TestAShelfHasRoomAgain for as much as it lets go.
func TestAShelfHasRoomAgain(t *testing.T) {
	s := newShelf(3)
	for i := range 2 {
		if got, more := s.next(); got != i || !more {
			t.Fatalf("%d %v", got, more)
		}
		s.put(i, &keptAnswer{body: make([]byte, manyKept)})
	}
	if next := s.sent(0); !next || s.bytes != manyKept {
		t.Errorf("%d bytes, the next is there: %v", s.bytes, next)
	}
	if next := s.sent(1); next || s.bytes != 0 {
		t.Errorf("%d bytes, the next is there: %v", s.bytes, next)
	}
}
