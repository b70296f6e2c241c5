package receipts

import (
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
)

// TestPauseAfterACrowd: the commit after one that many shared waits as long as
// that took, and 2 ms at most; after one that few shared it does not wait, and
// neither does a full batch or one that is the last.
func TestPauseAfterACrowd(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		records            int
		took, passed, want time.Duration
		change             func(*Log)
	}{
		{records: 1, took: ms},
		{records: 7, took: ms},
		{records: 8, took: ms, want: ms},
		{records: 8, took: ms, passed: ms / 4, want: 3 * ms / 4},
		{records: 64, took: 9 * ms, want: 2 * ms},
		{records: 64, took: ms, change: func(l *Log) { l.closing = true }},
		{records: 64, took: ms, change: func(l *Log) { l.failure = ErrUnavailable }},
		{records: 64, took: ms, change: func(l *Log) { l.filling.slots = make([]*slot, maxBatch) }},
	} {
		clock := clockwork.NewFakeClockAt(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
		l := &Log{clock: clock, filling: newBatch(0, 0)}
		if c.change != nil {
			c.change(l)
		}
		l.breathe(c.records, c.took, clock.Now())
		clock.Advance(c.passed)
		if got := max(0, l.patience()); got != c.want {
			t.Errorf("%+v: the next commit waits %v", c, got)
		}
	}
}
