package receipts

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jonboulle/clockwork"
)

// TestPauseAfterACrowd: the commit after one that many calls shared waits as long
// as that took, and 2 ms at most, or until those wait again, and with them
// who came meanwhile; after one that few shared it does not wait, and
// neither does a full batch or one that is the last. Refusals alone wait 20 times
// as long as the last commit with one took, and 5 ms at most, unless they are many;
// with a call's record among them they do not.
func TestPauseAfterACrowd(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		calls, refusals int // of the last batch
		took, passed    time.Duration
		waiting, asking int // refusals and calls of the next, that came meanwhile
		back            int // calls that came after it
		want            time.Duration
		change          func(*Log)
	}{
		{calls: 1, took: ms},
		{calls: 7, took: ms},
		{calls: 7, refusals: 100, took: ms},
		{calls: 8, took: ms, want: ms},
		{calls: 8, took: ms, passed: ms / 4, want: 3 * ms / 4},
		{calls: 64, took: 9 * ms, want: 2 * ms},
		{calls: 64, took: ms, back: 63, want: ms},
		{calls: 64, took: ms, back: 64},
		{calls: 32, took: ms, asking: 32, back: 31, want: ms},
		{calls: 32, took: ms, asking: 32, back: 32},
		{calls: 64, refusals: 64, took: ms, back: 64},
		{calls: 64, took: ms, change: func(l *Log) { l.closing = true }},
		{calls: 64, took: ms, change: func(l *Log) { l.failure = ErrUnavailable }},
		{calls: 64, took: ms, change: func(l *Log) { l.filling.slots = make([]*slot, maxBatch) }},
		{calls: 7, took: ms, waiting: 1},
		{refusals: 1, took: ms / 10, waiting: 1, want: 2 * ms},
		{refusals: 1, took: ms, waiting: 1, want: 5 * ms},
		{calls: 1, refusals: 1, took: ms, waiting: 31, want: 5 * ms},
		{calls: 8, refusals: 1, took: ms, waiting: 1, passed: ms / 4, want: 19 * ms / 4},
		{refusals: 1, took: ms, waiting: 32},
		{refusals: 1, took: ms, waiting: 1, passed: 2 * ms, want: 3 * ms},
		{refusals: 100, took: ms, waiting: 1, asking: 1},
		{refusals: 100, took: ms, asking: 1},
		{calls: 8, refusals: 1, took: ms, waiting: 1, asking: 1, want: ms},
		{refusals: 1, took: ms, waiting: 1, change: func(l *Log) { l.closing = true }},
	} {
		clock := clockwork.NewFakeClockAt(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
		l := &Log{clock: clock, filling: newBatch(0, 0)}
		l.filling.slots, l.filling.calls = make([]*slot, c.waiting+c.asking), c.asking
		if c.change != nil {
			c.change(l)
		}
		l.breatheLocked(c.calls+c.refusals, c.calls, c.took, clock.Now())
		clock.Advance(c.passed)
		l.filling.slots, l.filling.calls = append(l.filling.slots, make([]*slot, c.back)...), c.asking+c.back
		if got := max(0, l.patience()); got != c.want {
			t.Errorf("%+v: the next commit waits %v", c, got)
		}
	}
}

// TestACrowdThatIsBackIsNotWaitedFor: callers who come back soon after they were
// released share each sync, and once they all are there nothing else is waited for.
func TestACrowdThatIsBackIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sync, soon, callers, each = time.Millisecond, time.Millisecond / 10, 2 * crowd, 20
		l := openOnSlow(t, sync)
		began, before := time.Now(), l.Stats().Batches
		done := make(chan error)
		for range callers {
			go func() {
				var err error
				for range each {
					_, e := l.Append(&Record{Kind: KindOutcome, Decision: Allowed})
					err = errors.Join(err, e)
					time.Sleep(soon)
				}
				done <- err
			}()
		}
		for range callers {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		// The first batches may be of those who came first, with a pause behind them.
		if took, n := time.Since(began), l.Stats().Batches-before; took > (each+each/4)*(sync+soon) || n > each+each/4 {
			t.Errorf("%d commits in %v, want about %d in as many syncs", n, took, each)
		}
	})
}

// TestACallDoesNotWaitForRefusals: while a flood of refusals waits for its time at
// the disk, the record of a call goes there at once, and takes theirs along. So
// does a refusal that is one of many, and one that comes when their time has come.
func TestACallDoesNotWaitForRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sync = time.Millisecond
		l := openOnSlow(t, sync)
		appended := func(k Kind) chan error {
			done := make(chan error, 1)
			r := &Record{Kind: k, Decision: Refused}
			if k != KindRefusal {
				r.Decision = Allowed
			}
			go func() { _, err := l.Append(r); done <- err }()
			return done
		}
		committed := func(what string, within time.Duration, all ...chan error) {
			t.Helper()
			began := time.Now()
			for _, done := range all {
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(began); took > within {
				t.Errorf("committed after %v: %s", took, what)
			}
		}
		// waiting adds refusals that the committer has seen, and leaves alone.
		waiting := func(n int) (all []chan error) {
			t.Helper()
			for range n {
				all = append(all, appended(KindRefusal))
			}
			synctest.Wait()
			if queued := l.Queued(); queued != n {
				t.Fatalf("%d of %d refusals wait", queued, n)
			}
			return all
		}
		committed("a refusal while there was none", sync, appended(KindRefusal))
		before := l.Stats().Batches
		for i, kind := range []Kind{KindIntent, KindOutcome} {
			flood := waiting(3)
			committed("a call's record", sync, appended(kind))
			committed("what waited when it came", 0, flood...)
			if n := l.Stats().Batches - before; n != uint64(i+1) {
				t.Errorf("%d commits, want %d", n, i+1)
			}
		}
		flood := waiting(manyRefusals - 1)
		committed("one of many", sync, appended(KindRefusal))
		committed("the others", 0, flood...)
		committed("a refusal whose time has come", maxRefusalPause+sync, waiting(1)...)
		if n := l.Stats().Batches - before; n != 4 {
			t.Errorf("%d commits, want 4", n)
		}
	})
}

// openOnSlow opens a log in a bubble, on a disk that takes so long for each sync.
func openOnSlow(t *testing.T, sync time.Duration) *Log {
	slow := hooks{disk: realDisk{}, sync: func(string) error { time.Sleep(sync); return errLeaveOut }}
	l, err := Open(t.TempDir(), Options{Clock: clockwork.NewRealClock(), disk: slow})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestWhatWasMissedWaitsNoLongerThanRefusals: what tells of refusals that have no
// record is queued by the committer itself, so that nobody wakes it for that: it goes
// to the disk when the time of refusals has come, and so do those that come with it.
func TestWhatWasMissedWaitsNoLongerThanRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sync = time.Millisecond
		l := openOnSlow(t, sync)
		refusal := func() *Record { return &Record{Kind: KindRefusal, Decision: Refused} }
		if _, err := l.Append(refusal()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the committer has nothing to do
		began, before := time.Now(), l.Stats().Size
		l.Miss(refusal(), true)
		synctest.Wait()
		if _, err := l.Append(refusal()); err != nil {
			t.Fatal(err)
		}
		if took, n := time.Since(began), l.Stats().Size-before; took > maxRefusalPause+sync || n != 2 {
			t.Errorf("%d records after %v, want 2 after %v at most", n, took, maxRefusalPause+sync)
		}
	})
}
