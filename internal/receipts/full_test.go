package receipts_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

// onSmallDisk opens a log on a disk of that many bytes, which can keep room ahead
// or not. It is for tests in a bubble.
func onSmallDisk(t *testing.T, dir string, total int64, reserves bool, change ...func(*receipts.Options)) (*receipts.Log, *receipts.SmallDisk, bubbleClock) {
	t.Helper()
	d, clock := receipts.NewSmallDisk(total), newBubbleClock()
	d.Reserves = reserves
	l := openLog(t, dir, append([]func(*receipts.Options){func(o *receipts.Options) { d.On(o); o.Clock = clock }}, change...)...)
	return l, d, clock
}

// beyond runs a test on a disk that can keep room for a file, and on one that
// cannot, as all are where there is no fallocate, each in a bubble.
func beyond(t *testing.T, test func(t *testing.T, reserves bool)) {
	for _, reserves := range []bool{true, false} {
		t.Run(fmt.Sprintf("reserves=%v", reserves), func(t *testing.T) {
			inBubble(t, func(t *testing.T) { test(t, reserves) })
		})
	}
}

// healthy waits, and lets time pass, until the log takes records again. It returns
// how much time it took.
func healthy(t *testing.T, l *receipts.Log, clock advancing) (took time.Duration) {
	t.Helper()
	began := clock.Now()
	eventually(t, "the log takes records again", func() bool {
		if l.Healthy() == nil {
			return true
		}
		clock.Advance(100 * time.Millisecond)
		return false
	})
	return clock.Since(began)
}

// recordsOf are the ids of the records of a kind, in their order.
func recordsOf(t *testing.T, dir string, kind receipts.Kind) (list []*receipts.Record) {
	t.Helper()
	err := receipts.Scan(filepath.Join(dir, "receipts"), func(s receipts.Stored) error {
		if s.Record.Kind == kind {
			list = append(list, s.Record)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestFullDiskRefusesNewAttempts: once there is no room no intent and no refusal is
// taken, while each intent that was taken gets its outcome. With room again it goes
// on by itself, within five seconds.
func TestFullDiskRefusesNewAttempts(t *testing.T) {
	beyond(t, func(t *testing.T, reserves bool) {
		dir := t.TempDir()
		l, d, clock := onSmallDisk(t, dir, 1<<20, reserves)
		d.Fill(100 << 10)
		var open []*receipts.Record
		for i := 0; ; i++ {
			r := intent(fmt.Sprint("i", i))
			if _, err := l.Append(r); err != nil {
				if !errors.Is(err, receipts.ErrUnavailable) || errors.Is(err, receipts.ErrLate) || !strings.Contains(err.Error(), "no room") {
					t.Fatalf("attempt %d: %v", i, err)
				}
				break
			}
			if open = append(open, r); i > 1000 {
				t.Fatal("the disk never became full")
			}
		}
		if len(open) < 20 {
			t.Errorf("refused after %d attempts", len(open))
		}
		if err := l.Healthy(); err == nil || !strings.Contains(err.Error(), "no room") {
			t.Errorf("healthy: %v", err)
		}
		for _, kind := range []receipts.Kind{receipts.KindIntent, receipts.KindRefusal, receipts.KindOutcome} {
			if _, err := l.Append(&receipts.Record{Kind: kind}); !errors.Is(err, receipts.ErrUnavailable) {
				t.Errorf("a further %s: %v", kind, err)
			}
		}
		if err := l.Promise(&receipts.Record{}); !errors.Is(err, receipts.ErrUnavailable) {
			t.Errorf("a promise: %v", err)
		}
		clock.Advance(time.Minute) // which makes no room: what is left is promised
		if _, err := l.Append(intent("x")); !errors.Is(err, receipts.ErrUnavailable) {
			t.Errorf("still full: %v", err)
		}
		for _, r := range open { // whatever the others do
			r.Kind, r.Ending, r.Status, r.Code, r.Out = receipts.KindOutcome, receipts.UpstreamAborted, 502, "upstream_unreachable", 1<<40
			if _, err := l.Append(r); err != nil {
				t.Fatalf("the outcome of %s: %v", r.ID, err)
			}
		}
		d.Free(500 << 10)
		if took := healthy(t, l, clock); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		mustAppend(t, l, intent("later"))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		r := verdict(t, dir, keyOf(t, dir), l.Checkpoint())
		if r.Verdict != receipts.Holds || r.InFlight != 1 || r.Kinds["outcome"] != uint64(len(open)) || r.Torn != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// TestRoomForOutcomesIsKept: whatever is in flight, in how many tenants' names of
// whatever length, no write meets a full disk where the disk can keep room.
func TestRoomForOutcomesIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l, d, _ := onSmallDisk(t, t.TempDir(), 4<<20, true, func(o *receipts.Options) { receipts.SetSegmentSize(o, 100<<10) })
		d.Fill(700 << 10)
		var wg sync.WaitGroup
		var refused, late atomic.Int64
		for w := range 32 {
			wg.Go(func() {
				for i := range 60 {
					r := intent(fmt.Sprintf("%d-%d", w, i))
					r.Tenant = "tenant:" + strings.Repeat("long\x01", w*9)
					if i%3 == 2 {
						if err := l.Promise(r); err != nil {
							refused.Add(1)
							continue
						}
					} else if _, err := l.Append(r); err != nil {
						refused.Add(1)
						continue
					}
					if w%8 == 0 && i%7 == 0 {
						d.Fill(0) // others take what is left
					}
					r.Kind, r.Ending, r.Code, r.Limit = receipts.KindOutcome, receipts.ClientCancelled, "credential_refresh_failed", strings.Repeat("l", 64)
					r.Status, r.In, r.Out, r.QueueMicros, r.UpstreamMicros, r.TotalMicros = 1<<30, 1<<53-1, 1<<53-1, 1<<53-1, 1<<53-1, 1<<53-1
					if _, err := l.Append(r); err != nil {
						late.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if refused.Load() == 0 || late.Load() > 0 {
			t.Errorf("%d attempts refused, %d outcomes without room", refused.Load(), late.Load())
		}
	})
}

// TestFullInTheMiddleOfAWrite: where room cannot be kept, a write may find that
// somebody else has taken it. Those who wait are told, nothing is acknowledged, and
// with room again the same records are written, once. The process may die at any
// time between: then the log holds, with what was acknowledged.
func TestFullInTheMiddleOfAWrite(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		l, d, clock := onSmallDisk(t, dir, 1<<20, false)
		goOn := d.Hold()
		var wg sync.WaitGroup
		wg.Go(func() { mustAppend(t, l, intent("a")) })
		eventually(t, "a sync waits", func() bool { return d.Held() == 1 })
		var late atomic.Int64
		for i := range 30 { // more than the last page has room for
			wg.Go(func() {
				r := intent(fmt.Sprint("i", i))
				if _, err := l.Append(r); errors.Is(err, receipts.ErrLate) {
					late.Add(1)
					r.Kind, r.Ending = receipts.KindOutcome, receipts.Complete
					if _, err := l.Append(r); !errors.Is(err, receipts.ErrLate) {
						t.Errorf("an outcome behind it: %v", err)
					}
				} else if err != nil && !errors.Is(err, receipts.ErrUnavailable) {
					t.Error(err)
				}
			})
		}
		eventually(t, "all the others wait", func() bool { return l.Queued() == 30 })
		d.Fill(0)
		goOn()
		wg.Wait()
		if late.Load() != 30 || l.Healthy() == nil {
			t.Fatalf("%d records were late; %v", late.Load(), l.Healthy())
		}
		died := copyLog(t, dir)
		acknowledged := l.Checkpoint()
		if r := verdict(t, died, keyOf(t, dir), acknowledged); r.Damage != nil || !plausible(r) {
			t.Errorf("while it is full: %+v", r)
		}
		again, err := reopen(died)
		if err != nil {
			t.Fatal(err)
		}
		again.Close()
		if r := verdict(t, died, keyOf(t, dir), acknowledged); r.Verdict != receipts.Holds {
			t.Errorf("after it died then: %+v", r)
		}
		d.Free(600 << 10)
		if took := healthy(t, l, clock); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		mustAppend(t, l, intent("z"))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if r := verdict(t, dir, keyOf(t, dir), l.Checkpoint()); r.Verdict != receipts.Holds || r.Torn != 0 {
			t.Errorf("%+v", r)
		}
		if n := len(recordsOf(t, dir, receipts.KindOutcome)); n != 30 {
			t.Errorf("%d outcomes, want 30", n)
		}
	})
}

func plausible(r *receipts.Report) bool {
	return r.Verdict == receipts.Holds || r.Verdict == receipts.Unproven
}

// TestCloseWhileItIsFull: a gateway that is stopped then stops, with a log that holds.
func TestCloseWhileItIsFull(t *testing.T) {
	beyond(t, func(t *testing.T, reserves bool) {
		dir := t.TempDir()
		l, d, _ := onSmallDisk(t, dir, 1<<20, reserves)
		mustAppend(t, l, intent("a"))
		d.Fill(0)
		for i := range 400 {
			l.Append(intent(fmt.Sprint("i", i)))
		}
		l.Miss(intent("m"), false)
		anchor := l.Checkpoint()
		closed := make(chan error)
		go func() { closed <- l.Close() }()
		select {
		case <-closed:
		case <-time.After(10 * time.Second):
			t.Fatal("it does not end")
		}
		if r := verdict(t, dir, keyOf(t, dir), anchor); r.Damage != nil || !plausible(r) {
			t.Errorf("%+v", r)
		}
		d.Free(500 << 10)
		mustAppend(t, openLog(t, dir), intent("later"))
	})
}

// TestGapIsDeclared: attempts that were let through are counted exactly, by tenant,
// and told of in signed records before any later attempt. Verification says so, and
// does not call the log complete.
func TestGapIsDeclared(t *testing.T) {
	beyond(t, func(t *testing.T, reserves bool) {
		dir := t.TempDir()
		l, d, clock := onSmallDisk(t, dir, 1<<20, reserves)
		mustAppend(t, l, outcome("a"))
		d.Fill(0)
		n := 0
		eventually(t, "it is full", func() bool { n++; l.Append(intent(fmt.Sprint("x", n))); return l.Healthy() != nil })
		began := clock.Now().Truncate(time.Microsecond)
		for i := range 7 {
			r := intent("m")
			if i%3 == 0 {
				r.Tenant = "tenant:other"
			}
			l.Miss(r, false)
			clock.Advance(time.Millisecond)
		}
		l.Miss(&receipts.Record{}, false)
		l.Miss(intent("r"), true)
		l.Miss(intent("r"), true)
		if n := l.Stats().Missed; n != 8 {
			t.Errorf("%d counted, want 8", n)
		}
		d.Free(500 << 10)
		healthy(t, l, clock)
		mustAppend(t, l, intent("later"))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		gaps, summaries := recordsOf(t, dir, receipts.KindGap), recordsOf(t, dir, receipts.KindSummary)
		got := map[string]uint64{}
		for _, g := range gaps {
			got[g.Tenant] = g.Count
			if g.Reason != "disk_full" || g.From.Before(began) || g.To.Before(g.From) || g.To.After(began.Add(time.Second)) {
				t.Errorf("%+v", g)
			}
		}
		if len(gaps) != 3 || got["tenant:other"] != 3 || got[intent("").Tenant] != 4 || got[""] != 1 {
			t.Errorf("gaps %v", got)
		}
		if len(summaries) != 1 || summaries[0].Count != 2 || summaries[0].Code != "receipt_unavailable" || summaries[0].Decision != receipts.Refused {
			t.Errorf("summaries %+v", summaries)
		}
		r := verdict(t, dir, keyOf(t, dir), l.Checkpoint())
		if r.Verdict != receipts.Unproven || r.Verdict.ExitCode() != 4 || r.Attempts != 8 {
			t.Errorf("%+v", r)
		}
		later := indexOf(t, dir, "later")
		for _, r := range append(gaps, summaries...) {
			if at := indexOf(t, dir, r.ID); at > later {
				t.Errorf("entry %d tells of a gap, and stands behind the next attempt, %d", at, later)
			}
		}
	})
}

// indexOf is the entry of the first record of a receipt.
func indexOf(t *testing.T, dir, id string) (at uint64) {
	t.Helper()
	receipts.Scan(filepath.Join(dir, "receipts"), func(s receipts.Stored) error {
		if s.Record.ID == id && at == 0 {
			at = s.Index
		}
		return nil
	})
	return at
}

// TestRefusedAttemptsLeaveTheLogComplete: those that were refused for want of a
// receipt are counted in a summary, and nothing is missing.
func TestRefusedAttemptsLeaveTheLogComplete(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	l.Miss(intent("r"), true)
	eventually(t, "it is told", func() bool { return l.Stats().Size == 2 })
	l.Close()
	if r := verdict(t, dir, keyOf(t, dir), l.Checkpoint()); r.Verdict != receipts.Holds || r.Kinds["summary"] != 1 {
		t.Errorf("%+v", r)
	}
}

// TestAnEighthOfWhatIsFree: a log takes no more ahead, and grows on a small volume
// until it is full.
func TestAnEighthOfWhatIsFree(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		l, d, _ := onSmallDisk(t, dir, 32<<20, true)
		if free := l.Stats().Free; free < 0 {
			t.Fatal("it has not looked")
		}
		if took := 32<<20 - d.Left(); took > 4<<20+8<<10 || took < 1<<20 {
			t.Errorf("%d bytes are taken of a disk of 32 MiB", took)
		}
		d.Fill(3 << 20)
		n := 0
		for ; ; n++ {
			r := outcome(fmt.Sprint(n))
			r.Action = strings.Repeat("a", 4000)
			if _, err := l.Append(r); err != nil {
				break
			}
		}
		if n < 1200 { // of 4,400 bytes, in the 7 MiB that there were
			t.Errorf("full after %d records, with %d bytes left", n, d.Left())
		}
	})
}

// TestNoRoomForAnotherSegment: then the one that there is has room for what was
// promised, and grows beyond its size.
func TestNoRoomForAnotherSegment(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		l, d, clock := onSmallDisk(t, dir, 1<<20, true, func(o *receipts.Options) { receipts.SetSegmentSize(o, 20<<10) })
		var open []*receipts.Record
		for i := range 25 {
			r := intent(fmt.Sprint("i", i))
			mustAppend(t, l, r)
			open = append(open, r)
		}
		d.Fill(0)
		before := len(segments(t, dir))
		for _, r := range open {
			r.Kind, r.Ending = receipts.KindOutcome, receipts.Complete
			mustAppend(t, l, r)
		}
		if n := len(segments(t, dir)); n != before {
			t.Errorf("%d segments, were %d", n, before)
		}
		d.Free(500 << 10)
		healthy(t, l, clock)
		for i := range 20 {
			mustAppend(t, l, outcome(fmt.Sprint("o", i)))
		}
		if n := len(segments(t, dir)); n == before {
			t.Error("no further segment with room again")
		}
		l.Close()
		if r := verdict(t, dir, keyOf(t, dir), l.Checkpoint()); r.Verdict != receipts.Holds {
			t.Errorf("%+v", r)
		}
	})
}

// TestALittleRoomIsToldOf: once, before there is none.
func TestALittleRoomIsToldOf(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var said bytes.Buffer
		l, d, clock := onSmallDisk(t, t.TempDir(), 1<<20, true, func(o *receipts.Options) { o.Logger = slog.New(slog.NewTextHandler(lockedWriter{&mu, &said}, nil)) })
		told := func() int {
			mu.Lock()
			defer mu.Unlock()
			return strings.Count(said.String(), "little room")
		}
		look := func() {
			clock.Advance(2 * time.Second)
			l.Look()
		}
		mustAppend(t, l, outcome("a"))
		if told() != 0 {
			t.Error("told of while there is room")
		}
		d.Fill(90 << 10)
		look()
		eventually(t, "it is told", func() bool { return told() == 1 })
		look()
		mustAppend(t, l, outcome("b"))
		if l.Healthy() != nil || told() != 1 {
			t.Errorf("told %d times; %v", told(), l.Healthy())
		}
		d.Free(200 << 10)
		look()
		eventually(t, "it has seen that there is more", func() bool { return l.Stats().Free > 200<<10 })
		d.Fill(90 << 10)
		look()
		eventually(t, "it is told again", func() bool { return told() == 2 })
	})
}

// TestAStartOnAFullDisk: there is no room for what a start has to say. It does not
// hang, says why, and changes nothing that counts.
func TestAStartOnAFullDisk(t *testing.T) {
	beyond(t, func(t *testing.T, reserves bool) {
		dir := t.TempDir()
		d := receipts.NewSmallDisk(1 << 20)
		d.Reserves = reserves
		d.Fill(0)
		o := receipts.Options{Clock: clockwork.NewFakeClockAt(noon)}
		d.On(&o)
		if _, err := receipts.Open(dir, o); !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, receipts.ErrUnavailable) {
			t.Errorf("opened: %v", err)
		}
		d.Free(500 << 10)
		l, err := receipts.Open(dir, o)
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, l, intent("a"))
		crashed := copyLog(t, dir) // with a call in flight
		l.Close()
		o2 := receipts.Options{Clock: clockwork.NewFakeClockAt(noon)}
		full := receipts.NewSmallDisk(1 << 20)
		full.Reserves = reserves
		full.Fill(0)
		full.On(&o2)
		before := read(t, segmentFile(crashed))
		if l, err := receipts.Open(crashed, o2); err == nil {
			// Its last page had room: then all is as it is to be.
			l.Close()
		} else if after := read(t, segmentFile(crashed)); !bytes.HasPrefix(after, before) {
			t.Error("something was changed")
		}
		mustAppend(t, openLog(t, crashed), intent("b"))
		os.RemoveAll(crashed)
	})
}
