package receipts_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/receipts"
)

// TestAHangTripsABreaker: a sync that does not return lets nobody wait for longer
// than two seconds. New attempts are refused at once, of those under way the records
// are taken, and once it has returned all that was taken is in the log, and the log
// goes on.
func TestAHangTripsABreaker(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		l, d, clock := onSmallDisk(t, dir, 64<<20, true)
		open := []*receipts.Record{intent("o0"), intent("o1"), intent("o2")}
		mustAppend(t, l, open...)
		goOn := d.Hold()
		var wg sync.WaitGroup
		results := make(chan error, 40)
		add := func(r *receipts.Record) {
			wg.Go(func() { _, err := l.Append(r); results <- err })
		}
		add(intent("a"))
		eventually(t, "a sync waits", func() bool { return d.Held() == 1 })
		for i := range 20 {
			add(intent(fmt.Sprint("b", i)))
		}
		eventually(t, "the others wait behind it", func() bool { return l.Queued() == 20 })
		clock.Advance(1900 * time.Millisecond)
		if l.Healthy() != nil || len(results) > 0 {
			t.Errorf("not two seconds yet: %v, %d answered", l.Healthy(), len(results))
		}
		eventually(t, "all are sent away", func() bool { clock.Advance(100 * time.Millisecond); return len(results) == 21 })
		for range 21 {
			if err := <-results; !errors.Is(err, receipts.ErrLate) || !errors.Is(err, receipts.ErrUnavailable) {
				t.Errorf("one that waited: %v", err)
			}
		}
		if err := l.Healthy(); err == nil || !strings.Contains(err.Error(), "not answered") {
			t.Errorf("healthy: %v", err)
		}
		queued, goroutines := l.Queued(), runtime.NumGoroutine()
		for range 1000 {
			if _, err := l.Append(intent("x")); !errors.Is(err, receipts.ErrUnavailable) || errors.Is(err, receipts.ErrLate) {
				t.Fatalf("a new attempt: %v", err)
			}
			if err := l.Promise(intent("x")); !errors.Is(err, receipts.ErrUnavailable) {
				t.Fatalf("a promise: %v", err)
			}
		}
		if l.Queued() != queued || runtime.NumGoroutine() > goroutines+5 {
			t.Errorf("%d records wait, were %d; %d goroutines, were %d", l.Queued(), queued, runtime.NumGoroutine(), goroutines)
		}
		for _, r := range open { // at once, though nobody knows whether it will be on disk
			r.Kind, r.Ending = receipts.KindOutcome, receipts.Complete
			if _, err := l.Append(r); !errors.Is(err, receipts.ErrLate) {
				t.Errorf("an outcome: %v", err)
			}
		}
		for range 5 {
			l.Miss(intent("m"), false)
		}
		goOn()
		healthy(t, l, clock)
		mustAppend(t, l, intent("later"))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		r := verdict(t, dir, keyOf(t, dir), l.Checkpoint())
		if r.Verdict != receipts.Unproven || r.Kinds["intent"] != 25 || r.Kinds["outcome"] != 3 || r.Attempts != 5 || r.Gaps != 1 {
			t.Errorf("%+v", r)
		}
		if g := recordsOf(t, dir, receipts.KindGap); len(g) != 1 || g[0].Reason != "disk_slow" {
			t.Errorf("%+v", g)
		}
	})
}

// TestAHangBehindTheRecords: the files that proofs are made of hang, which are written
// when callers have been told: nobody waits for longer than two seconds for that
// either, and a proof waits for nothing.
func TestAHangBehindTheRecords(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		clock, hold, hangs := newBubbleClock(), make(chan struct{}), make(chan struct{}, 1)
		l := openLog(t, t.TempDir(), func(o *receipts.Options) {
			o.Clock = clock
			receipts.SetTrace(o, func(call string) error {
				if strings.HasPrefix(call, "write ") && strings.HasSuffix(call, ".leaves") {
					hangs <- struct{}{}
					<-hold
				}
				return nil
			})
		})
		for n := 0; len(hangs) == 0 && n < 5000; n++ {
			mustAppend(t, l, of("tenant:acme", fmt.Sprint(n)))
			clock.Advance(0)
		}
		late := make(chan error, 1)
		go func() { _, err := l.Append(intent("late")); late <- err }()
		clock.Advance(1900 * time.Millisecond)
		if len(late) > 0 || l.Healthy() != nil {
			t.Errorf("not two seconds yet: %v, %d answered", l.Healthy(), len(late))
		}
		if _, err := prove(l, "7"); err != nil {
			t.Errorf("a proof meanwhile: %v", err)
		}
		eventually(t, "it is sent away", func() bool { clock.Advance(100 * time.Millisecond); return len(late) == 1 })
		if err := <-late; !errors.Is(err, receipts.ErrLate) {
			t.Errorf("one that waited: %v", err)
		}
		if _, err := l.Append(intent("x")); !errors.Is(err, receipts.ErrUnavailable) || errors.Is(err, receipts.ErrLate) {
			t.Errorf("a new attempt: %v", err)
		}
		close(hold)
		<-hangs
		healthy(t, l, clock)
		mustAppend(t, l, intent("later"))
		if _, err := prove(l, "7"); err != nil {
			t.Errorf("a proof after it: %v", err)
		}
	})
}

// TestASlowDiskIsNoHang: as long as nobody waits for two seconds it is waited for.
func TestASlowDiskIsNoHang(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l, d, clock := onSmallDisk(t, t.TempDir(), 64<<20, true)
		for i := range 5 {
			goOn := d.Hold()
			done := make(chan error, 1)
			go func() { _, err := l.Append(intent(fmt.Sprint(i))); done <- err }()
			eventually(t, "a sync waits", func() bool { return d.Held() == 1 })
			clock.Advance(1900 * time.Millisecond)
			goOn()
			if err := <-done; err != nil || l.Healthy() != nil {
				t.Fatalf("%v, %v", err, l.Healthy())
			}
		}
	})
}

// TestAFullDiskIsNoHang: of a full disk nobody waits for room. However long it has
// been full, and though it is being asked again just when it is looked whether
// somebody has waited for too long, it is not called slow.
func TestAFullDiskIsNoHang(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		l, d, clock := onSmallDisk(t, dir, 1<<20, true)
		d.Fill(0)
		for i := 0; l.Healthy() == nil; i++ {
			if l.Append(intent(fmt.Sprint("i", i))); i > 1000 {
				t.Fatal("the disk never became full")
			}
		}
		d.SlowLooks(600 * time.Millisecond) // there are two each time it is asked again
		for range 100 {
			clock.Advance(100 * time.Millisecond)
			l.Miss(intent("m"), false)
		}
		d.SlowLooks(0)
		d.Free(500 << 10)
		healthy(t, l, clock)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if gaps := recordsOf(t, dir, receipts.KindGap); len(gaps) != 1 || gaps[0].Reason != "disk_full" || gaps[0].Count != 100 {
			t.Errorf("%+v", gaps)
		}
	})
}

// TestWhoWasSentAwayWaitsForNothing: those who waited for room when the disk hung
// have been told. Once it has answered, a further wait begins with who comes then.
func TestWhoWasSentAwayWaitsForNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l, d, clock := onSmallDisk(t, t.TempDir(), 8<<20, true)
		goOn := d.Hold()
		results := make(chan error, 2000)
		for i := range cap(results) { // more than there is room for
			go func() { _, err := l.Append(intent(fmt.Sprint("i", i))); results <- err }()
		}
		eventually(t, "all are sent away", func() bool { clock.Advance(100 * time.Millisecond); return len(results) == cap(results) })
		for refused := 0; refused == 0; {
			if len(results) == 0 {
				t.Fatal("none of them waited for room")
			}
			if err := <-results; !errors.Is(err, receipts.ErrLate) {
				refused++
			}
		}
		clock.Advance(time.Minute)
		d.SlowLooks(1100 * time.Millisecond)
		goOn()
		for range 100 {
			clock.Advance(100 * time.Millisecond)
			if err := l.Healthy(); err != nil {
				t.Fatalf("nobody waits: %v", err)
			}
		}
	})
}

// TestAnErrorBehindAHang: that a sync comes back with an error is still the end of
// the log until a restart.
func TestAnErrorBehindAHang(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		var mu sync.Mutex
		var told bytes.Buffer
		l, d, clock := onSmallDisk(t, dir, 64<<20, true, func(o *receipts.Options) { o.Logger = slog.New(slog.NewTextHandler(lockedWriter{&mu, &told}, nil)) })
		mustAppend(t, l, intent("a"))
		before := l.Checkpoint()
		d.FailNextSync(errDisk)
		goOn := d.Hold()
		late := make(chan error, 1)
		go func() { _, err := l.Append(intent("b")); late <- err }()
		eventually(t, "a sync waits", func() bool { return d.Held() == 1 })
		eventually(t, "it is sent away", func() bool { clock.Advance(100 * time.Millisecond); return len(late) == 1 })
		goOn()
		eventually(t, "the log has failed", func() bool { return errors.Is(l.Healthy(), errDisk) })
		if _, err := l.Append(intent("c")); !errors.Is(err, receipts.ErrUnavailable) || errors.Is(err, receipts.ErrLate) {
			t.Errorf("after it: %v", err)
		}
		l.Miss(intent("c"), false)
		if n := l.Stats().Missed; n != 1 {
			t.Errorf("%d counted, want 1", n)
		}
		if string(l.Checkpoint()) != string(before) {
			t.Error("a checkpoint over what may not be on disk")
		}
		mu.Lock()
		text := told.String()
		mu.Unlock()
		if strings.Contains(text, "has answered") || !strings.Contains(text, "log failed") {
			t.Errorf("it is told of as if it went on:\n%s", text)
		}
		l.Close()
		mustAppend(t, openLog(t, dir), intent("d"))
	})
}

// TestAHangBetweenCommits: nothing is being written, and the disk hangs all the same,
// on the file checkpoint: who comes meanwhile waits for no longer than two seconds.
func TestAHangBetweenCommits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		disk, clock := receipts.NewSimDisk(), newBubbleClock()
		var armed, held atomic.Bool
		goOn := make(chan struct{})
		disk.Before = func(c receipts.SimCall) (f receipts.SimFault) {
			if c.Op == "rename" && c.Name == "checkpoint" && armed.Load() {
				held.Store(true)
				f.Hold = goOn
			}
			return f
		}
		o := receipts.Options{Clock: clock, Replica: "gw-1"}
		receipts.SetSimDisk(&o, disk)
		l, err := receipts.Open(simData, o)
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, l, intent("a"))
		armed.Store(true)
		eventually(t, "the disk hangs", func() bool { clock.Advance(100 * time.Millisecond); return held.Load() })
		late := make(chan error, 1)
		go func() { _, err := l.Append(intent("b")); late <- err }()
		began := clock.Now()
		eventually(t, "it is sent away", func() bool { clock.Advance(100 * time.Millisecond); return len(late) == 1 })
		if err := <-late; !errors.Is(err, receipts.ErrLate) || clock.Since(began) > 3*time.Second {
			t.Errorf("after %v: %v", clock.Since(began), err)
		}
		armed.Store(false)
		close(goOn)
		eventually(t, "it goes on", func() bool { clock.Advance(100 * time.Millisecond); return l.Healthy() == nil })
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestALateEndOfASummaryIsNotWrittenTwice: what ends a summary is taken while the disk
// hangs, and told of too late: it is in the log once.
func TestALateEndOfASummaryIsNotWrittenTwice(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		l, d, clock := onSmallDisk(t, dir, 64<<20, true)
		for range 1007 {
			mustRefuse(t, l, refused("a"), "")
		}
		goOn := d.Hold()
		eventually(t, "the end is being written", func() bool { clock.Advance(500 * time.Millisecond); return d.Held() > 0 })
		eventually(t, "it is late", func() bool { clock.Advance(500 * time.Millisecond); return l.Healthy() != nil })
		clock.Advance(time.Second)
		goOn()
		healthy(t, l, clock)
		clock.Advance(5 * time.Second) // in which it would be tried again
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if b := floodBooksOf(t, dir); b.begun != 1 || b.ended != 1 || b.own != 1000 || b.counted != 7 {
			t.Errorf("%+v", b)
		}
		if r := verdict(t, dir, keyOf(t, dir), l.Checkpoint()); r.Verdict != receipts.Holds {
			t.Errorf("%s: %s", r.Verdict, r.Why)
		}
	})
}
