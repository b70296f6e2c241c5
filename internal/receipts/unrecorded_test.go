package receipts_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"agentgw/internal/receipts"
)

// unrecordedFile is where a log notes what it has no record of.
func unrecordedFile(dir string) string { return filepath.Join(dir, "receipts", "unrecorded") }

// fullLog is a log with a record, on a disk without room, in a bubble.
func fullLog(t *testing.T, dir string) (*receipts.Log, *receipts.SmallDisk, bubbleClock) {
	t.Helper()
	l, d, clock := onSmallDisk(t, dir, 1<<20, true)
	mustAppend(t, l, outcome("a"))
	d.Fill(0)
	n := 0
	eventually(t, "it is full", func() bool { n++; l.Append(intent(fmt.Sprint("x", n))); return l.Healthy() != nil })
	return l, d, clock
}

// passed is an attempt that is let through without a record, as far as its answer.
func passed(l *receipts.Log, tenant string) {
	r := &receipts.Record{Tenant: tenant}
	l.Pass(r, false)
	l.Miss(r, false)
}

// gapsOf are the counts of the gaps by tenant, those that are exact and the others.
func gapsOf(t *testing.T, dir string) (exact, atLeast map[string]uint64) {
	t.Helper()
	exact, atLeast = map[string]uint64{}, map[string]uint64{}
	for _, g := range recordsOf(t, dir, receipts.KindGap) {
		if g.Ending == receipts.OutcomeUnknown {
			atLeast[g.Tenant] += g.Count
		} else {
			exact[g.Tenant] += g.Count
		}
		if g.From.IsZero() || g.To.Before(g.From) || g.Reason == "" {
			t.Errorf("%+v", g)
		}
	}
	return exact, atLeast
}

// TestStoppedWhileFull: a log that is closed on a full disk takes no number with it:
// the next start tells of all that were counted, exactly, and once.
func TestStoppedWhileFull(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		l, _, _ := fullLog(t, dir)
		size := int64(len(read(t, unrecordedFile(dir))))
		for range 5 {
			passed(l, "tenant:acme")
		}
		passed(l, "tenant:other")
		for range 3 {
			l.Miss(intent("r"), true)
		}
		anchor := l.Checkpoint()
		l.Seal()
		if n := int64(len(read(t, unrecordedFile(dir)))); n != size {
			t.Errorf("the file has %d bytes, had %d: on a full disk it would not", n, size)
		}
		for _, id := range []string{"y", "z"} {
			l := openLog(t, dir)
			mustAppend(t, l, outcome(id))
			l.Close()
			exact, atLeast := gapsOf(t, dir)
			if len(exact) != 2 || exact["tenant:acme"] != 5 || exact["tenant:other"] != 1 || len(atLeast) != 0 {
				t.Errorf("gaps %v, at least %v", exact, atLeast)
			}
			if s := recordsOf(t, dir, receipts.KindSummary); len(s) != 1 || s[0].Count != 3 || s[0].Ending != "" || s[0].Code != "receipt_unavailable" {
				t.Errorf("summaries %+v", s)
			}
			if r := verdict(t, dir, keyOf(t, dir), anchor); r.Verdict != receipts.Unproven || r.Attempts != 6 {
				t.Errorf("%+v", r)
			}
		}
	})
}

// TestKilledWhileFull: whenever a process is killed after it has let an attempt
// through, the next start says that something is missing: as many as there were a
// second before, and that it does not know how many.
func TestKilledWhileFull(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		l, d, clock := fullLog(t, dir)
		killed := func(want uint64, when string) {
			t.Helper()
			died := copyLog(t, dir)
			again, err := reopen(died)
			if err != nil {
				t.Fatal(err)
			}
			again.Close()
			exact, atLeast := gapsOf(t, died)
			if len(exact) != 0 || atLeast["tenant:acme"] != want {
				t.Errorf("%s: gaps %v, at least %v, want %d", when, exact, atLeast, want)
			}
			if r := verdict(t, died, keyOf(t, dir), nil); r.Attempts != want || r.Unknown != r.Kinds["intent"] || (r.UncountedGaps > 0) != (want > 0) {
				t.Errorf("%s: %+v", when, r)
			}
		}
		killed(0, "before any")
		runs := &receipts.Record{Tenant: "tenant:acme"}
		l.Pass(runs, false)
		killed(1, "before the first is answered")
		for range 9 {
			passed(l, "tenant:acme")
		}
		eventually(t, "the number is noted", func() bool {
			clock.Advance(100 * time.Millisecond)
			return bytes.Contains(read(t, unrecordedFile(dir)), []byte(`"count":9`))
		})
		killed(10, "a second later")
		d.Free(500 << 10)
		healthy(t, l, clock)
		mustAppend(t, l, outcome("y"))
		eventually(t, "what is in the log is noted no longer", func() bool { return noted(t, dir, `"count":1`) && !noted(t, dir, `"count":9`) })
		runs.Kind, runs.Ending, runs.Decision = receipts.KindOutcome, receipts.Complete, receipts.Allowed
		mustAppend(t, l, runs)
		eventually(t, "nothing is noted", func() bool { return noted(t, dir, "[]") })
		died := copyLog(t, dir)
		l.Close()
		openLog(t, died).Close()
		if exact, atLeast := gapsOf(t, died); exact["tenant:acme"] != 9 || len(atLeast) != 0 {
			t.Errorf("with room again: gaps %v, at least %v", exact, atLeast)
		}
	})
}

// noted reports whether the newest state of the file holds a text.
func noted(t *testing.T, dir, text string) bool {
	t.Helper()
	var newest []byte
	turn := -1
	for slot := range bytes.SplitSeq(read(t, unrecordedFile(dir)), []byte{0}) {
		var n int
		if line, _, _ := bytes.Cut(slot, []byte("\n")); len(line) > 0 {
			if fmt.Sscan(string(line), &n); n > turn {
				turn, newest = n, line
			}
		}
	}
	return bytes.Contains(newest, []byte(text))
}

// TestKilledBetweenGapAndNote: a gap that is in the log is not told of again by a
// note that has not been taken back. Nor is a note taken that somebody else has made.
func TestKilledBetweenGapAndNote(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		l, d, clock := fullLog(t, dir)
		passed(l, "tenant:acme")
		eventually(t, "it is noted", func() bool {
			clock.Advance(100 * time.Millisecond)
			return noted(t, dir, `"reason":"disk_full"`) && noted(t, dir, `"from"`)
		})
		before := read(t, unrecordedFile(dir))
		d.Free(500 << 10)
		healthy(t, l, clock)
		l.Close()
		write(t, unrecordedFile(dir), before)
		openLog(t, dir).Close()
		if exact, _ := gapsOf(t, dir); exact["tenant:acme"] != 1 {
			t.Errorf("gaps %v", exact)
		}
		forged := bytes.Replace(before, []byte("tenant:acme"), []byte("tenant:evil"), -1)
		write(t, unrecordedFile(dir), forged)
		openLog(t, dir).Close()
		if exact, atLeast := gapsOf(t, dir); len(exact) != 1 || len(atLeast) != 0 {
			t.Errorf("after a forged note: gaps %v, at least %v", exact, atLeast)
		}
	})
}

// TestTornNote: of two states a crash can tear the newer, and the older is taken.
func TestTornNote(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		l, _, clock := fullLog(t, dir)
		passed(l, "tenant:acme")
		eventually(t, "it is noted", func() bool { clock.Advance(100 * time.Millisecond); return noted(t, dir, `"count":1`) })
		died := copyLog(t, dir)
		file := read(t, unrecordedFile(died))
		at := bytes.LastIndex(file, []byte(" [")) // of the second slot
		if at < len(file)/2 {
			passed(l, "tenant:acme")
			eventually(t, "it is noted in the other", func() bool { clock.Advance(100 * time.Millisecond); return noted(t, dir, `"count":2`) })
			file = read(t, unrecordedFile(dir))
			at = bytes.LastIndex(file, []byte(" ["))
		}
		file[at+1] = 0
		write(t, unrecordedFile(died), file)
		openLog(t, died).Close()
		if n := len(recordsOf(t, died, receipts.KindKey)); n != 1 {
			t.Error("no log")
		}
	})
}

// TestLateAndKilled: an attempt that was let through while its record waits for a
// disk that hangs is noted, until the record is on disk.
func TestLateAndKilled(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		l, d, clock := onSmallDisk(t, dir, 64<<20, true)
		mustAppend(t, l, outcome("a"))
		goOn := d.Hold()
		go l.Append(outcome("b"))
		eventually(t, "a sync waits", func() bool { return d.Held() == 1 })
		late := intent("c")
		told := make(chan error, 1)
		go func() { _, err := l.Append(late); told <- err }()
		eventually(t, "it is sent away", func() bool { clock.Advance(100 * time.Millisecond); return len(told) == 1 })
		l.Pass(late, true)
		died := copyLog(t, dir) // what was not written is gone
		goOn()
		healthy(t, l, clock)
		eventually(t, "nothing is noted", func() bool { return noted(t, dir, "[]") })
		l.Close()
		openLog(t, died).Close()
		if _, atLeast := gapsOf(t, died); atLeast[late.Tenant] != 1 {
			t.Errorf("killed: at least %v", atLeast)
		}
		if exact, atLeast := gapsOf(t, dir); len(exact)+len(atLeast) != 0 {
			t.Errorf("not killed: gaps %v, at least %v", exact, atLeast)
		}
	})
}

// TestFailedLogIsTold: after an error nothing is written until a restart, which says
// how many attempts were let through until then.
func TestFailedLogIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		l, d, _ := onSmallDisk(t, dir, 1<<20, true)
		mustAppend(t, l, outcome("a"))
		d.FailNextSync(errDisk)
		l.Append(outcome("b"))
		for range 4 {
			passed(l, "tenant:acme")
		}
		l.Close()
		openLog(t, dir).Close()
		gaps := recordsOf(t, dir, receipts.KindGap)
		if len(gaps) != 1 || gaps[0].Count != 4 || gaps[0].Reason != "log_failed" || gaps[0].Ending != "" {
			t.Errorf("%+v", gaps)
		}
	})
}

// TestNobodyWaitsForAClosedLog: an attempt that is let through once the log is closed
// does not wait for a note that nobody makes any more.
func TestNobodyWaitsForAClosedLog(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l, _, clock := fullLog(t, t.TempDir())
		l.Close()
		began := clock.Now()
		passed(l, "tenant:acme")
		if took := clock.Since(began); took > 0 {
			t.Errorf("it waited %v", took)
		}
	})
}

// TestFloodStoppedWhileFull: what a summary has counted is told of by the next start
// where its end could not be written: exactly after a stop, and as far as it is known
// after a kill.
func TestFloodStoppedWhileFull(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		l, d, clock := onSmallDisk(t, dir, 1<<20, true)
		refuse := func() {
			l.Refuse(&receipts.Record{Kind: receipts.KindRefusal, Key: "k", Tenant: "key:k", Decision: receipts.Refused, Code: "rate_limited", Status: 429}, "")
		}
		for range 1000 {
			refuse()
		}
		refuse()
		d.Fill(0)
		n := 0
		eventually(t, "it is full", func() bool { n++; l.Append(intent(fmt.Sprint("x", n))); return l.Healthy() != nil })
		for range 41 {
			refuse()
		}
		eventually(t, "the number is noted", func() bool { clock.Advance(100 * time.Millisecond); return noted(t, dir, `"count":42`) })
		died := copyLog(t, dir)
		refuse()
		l.Close()
		for _, c := range []struct {
			dir    string
			count  uint64
			ending receipts.Ending
		}{{died, 42, receipts.OutcomeUnknown}, {dir, 43, receipts.Complete}} {
			openLog(t, c.dir).Close()
			s := recordsOf(t, c.dir, receipts.KindSummary)
			if len(s) != 2 || s[1].ID != s[0].ID || s[1].Count != c.count || s[1].Ending != c.ending {
				t.Errorf("want %d, %s: %+v", c.count, c.ending, s)
			}
			os.RemoveAll(c.dir)
		}
	})
}

// TestNoteOutlivesItsKey: a start that hands the log over to another key still takes
// the note that was made under the first.
func TestNoteOutlivesItsKey(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		l, _, _ := fullLog(t, dir)
		passed(l, "tenant:acme")
		l.Close()
		rotate(t, dir)
		openLog(t, dir).Close()
		if exact, _ := gapsOf(t, dir); exact["tenant:acme"] != 1 {
			t.Errorf("gaps %v", exact)
		}
	})
}
