package gateway

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
)

// TestALateRingCutsNobody: a timer that rang for one write, and is heard when
// another is under way or none is, cuts neither.
func TestALateRingCutsNobody(t *testing.T) {
	clock := clockwork.NewFakeClock()
	s := &stall{clock: clock, limit: time.Second, control: http.NewResponseController(httptest.NewRecorder())}
	s.begin()
	clock.Advance(999 * time.Millisecond)
	s.end()
	clock.Advance(time.Second)
	s.expire()
	if s.cut() {
		t.Error("a pause was cut")
	}
	s.begin()
	s.expire()
	if s.cut() {
		t.Error("a write that had only begun was cut")
	}
	clock.Advance(time.Second)
	s.expire()
	if !s.cut() {
		t.Error("a write that lasted for the whole limit was not cut")
	}
}
