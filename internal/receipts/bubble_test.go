package receipts_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/jonboulle/clockwork"
)

// inBubble runs a test in a bubble of testing/synctest, from noon on. There the
// clock goes on only once every goroutine of the test waits, for it or for another:
// what the log has to do it has done by then, however busy the machine is, and
// whoever waits for the clock need not have anybody who advances it. A clockwork
// fake clock can be advanced while a commit is under way, which then has taken that
// long, or between reading it and setting a timer, which then rings so much later:
// where the log runs beside the test, that is no clock to expect anything by.
//
// Waiting for a mutex or a file does not count, so neither takes any time.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(noon))
		test(t)
	})
}

// bubbleClock is the clock in a bubble.
type bubbleClock struct{ clockwork.Clock }

func newBubbleClock() bubbleClock { return bubbleClock{clockwork.NewRealClock()} }

// Advance lets d pass, with all that falls due in it, and returns once everybody
// waits again.
func (bubbleClock) Advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// advancing is a clock that a test can let go on.
type advancing interface {
	clockwork.Clock
	Advance(d time.Duration)
}
