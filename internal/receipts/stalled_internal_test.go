package receipts

import (
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
)

// TestNobodyWatchesAnIdleLog: the timer that watches the disk is set while something
// is done there, once, and not again when it finds that nothing is.
func TestNobodyWatchesAnIdleLog(t *testing.T) {
	clock := &countingClock{Clock: clockwork.NewFakeClock()}
	l := &Log{clock: clock, filling: newBatch(0, 0)}
	for range 3 {
		if err := l.watched(func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if clock.timers != 1 {
		t.Errorf("%d timers for three short works, want one", clock.timers)
	}
	l.check() // as that timer does
	if clock.timers != 1 {
		t.Error("an idle log goes on being watched")
	}
	if err := l.watched(func() error { l.check(); return nil }); err != nil || clock.timers != 3 {
		t.Errorf("%d timers, want one for the next work, and one more as that is not done", clock.timers)
	}
}

type countingClock struct {
	clockwork.Clock
	timers int
}

func (c *countingClock) AfterFunc(time.Duration, func()) clockwork.Timer {
	c.timers++
	return nil
}
