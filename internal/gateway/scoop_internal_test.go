package gateway

import (
	"fmt"
	"testing"
)

// TestAQuietStreamKeepsLittle: a stream of events reads into a small buffer until an event
// does not go into it, and again when two in a row would have; no other answer does.
func TestAQuietStreamKeepsLittle(t *testing.T) {
	lent := &buffers{size: eventBuffer}
	s := scoop{lent: lent, quiet: make([]byte, quietBuffer), small: 1}
	had := ""
	for _, n := range []int{40, 300, quietBuffer - 1, quietBuffer, 200, 700, 40, 700, 40, 40, 40, quietBuffer, 10, quietBuffer, 10, 10, 0, 0, quietBuffer, eventBuffer, eventBuffer} {
		to := s.next()
		if n > len(to) {
			t.Fatalf("there is no room for %d bytes in %d", n, len(to))
		}
		had += fmt.Sprint(" ", len(to))
		s.took(n)
	}
	if want := " 512 512 512 512 4096 4096 4096 4096 4096 4096 512 512 4096 4096 512 512 512 512 512 4096 4096"; had != want {
		t.Errorf("it had%s, want%s", had, want)
	}
	s.giveBack()
	s = scoop{lent: &buffers{size: answerBuffer}}
	for range 3 {
		if n := len(s.next()); n != answerBuffer {
			t.Errorf("an answer that is no stream has %d", n)
		}
		s.took(1)
	}
}
