package receipts_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

// TestFindOld: a receipt that is no longer remembered is found in its segments,
// before and after a restart; one that never was is looked for nowhere.
func TestFindOld(t *testing.T) {
	const many, remembered = 1280, 256
	dir := t.TempDir()
	o := func(o *receipts.Options) {
		receipts.SetNoSync(o)
		receipts.SetSegmentSize(o, 64<<10)
		receipts.SetKeepRecent(o, remembered)
	}
	l := openLog(t, dir, o)
	mustAppend(t, l, intent("oldest"))
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			for i := range many / 64 {
				id := fmt.Sprintf("id-%d-%d", w, i)
				if _, err := l.Append(outcome(id)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	mustAppend(t, l, outcome("oldest")) // in another segment than its intent
	for i := range 2 * remembered {
		mustAppend(t, l, outcome(fmt.Sprintf("later-%d", i)))
	}
	find := func(id string, want int) {
		t.Helper()
		found, err := l.Find(id, "ci-bot")
		if err != nil || len(found) != want {
			t.Errorf("%s: %d records, %v; want %d", id, len(found), err, want)
		}
		for _, line := range found {
			if r, err := receipts.ParseRecord(line); err != nil || r.ID != id {
				t.Errorf("%s: %v: %s", id, err, line)
			}
		}
	}
	for range 2 {
		find("oldest", 2)
		for w := range 64 {
			find(fmt.Sprintf("id-%d-0", w), 1) // the oldest, forgotten
			find(fmt.Sprintf("later-%d", 2*remembered-1-w), 1)
		}
		// For an id that nobody has nothing is read, but once in a few hundred.
		folder := filepath.Join(dir, "receipts")
		if err := os.Rename(folder, folder+".away"); err != nil {
			t.Fatal(err)
		}
		read := 0
		for i := range 200 {
			if found, err := l.Find(fmt.Sprintf("nobody-%d", i), "ci-bot"); found != nil {
				t.Errorf("%s", found)
			} else if err != nil {
				read++
			}
		}
		if read > 20 {
			t.Errorf("%d of 200 searches for nothing read a file", read)
		}
		if _, err := l.Find("id-1-0", "ci-bot"); err == nil {
			t.Error("an old receipt was found without reading")
		}
		if err := os.Rename(folder+".away", folder); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = openLog(t, dir, o)
	}
}

// find finds a receipt of the key that calls have here, or of none.
func find(l *receipts.Log, id string) ([]json.RawMessage, error) {
	if found, err := l.Find(id, "ci-bot"); found != nil || err != nil {
		return found, err
	}
	return l.Find(id, "")
}

// TestSomebodyElsesReceiptIsNotLookedFor: whoever asks for a receipt of another key
// gets what an id gets that nobody has, by the same way: no file is opened, whether
// it is of the newest or was forgotten.
func TestSomebodyElsesReceiptIsNotLookedFor(t *testing.T) {
	disk, clock := receipts.NewSimDisk(), clockwork.NewFakeClockAt(noon)
	var away atomic.Bool
	disk.Before = func(c receipts.SimCall) (f receipts.SimFault) {
		if away.Load() && c.Op == "open" && filepath.Ext(c.Name) == ".jsonl" {
			f.Err = fs.ErrPermission
		}
		return f
	}
	const all = 600 // of which 16 are remembered
	for _, what := range []string{"begun", "read again"} {
		o := receipts.Options{Clock: clock, Replica: "gw-1"}
		receipts.SetSimDisk(&o, disk)
		receipts.SetSegmentSize(&o, 50_000)
		receipts.SetKeepRecent(&o, 16)
		l, err := receipts.Open(simData, o)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; what == "begun" && i < all; i++ {
			mustAppend(t, l, outcome(fmt.Sprint("a-", i)))
		}
		// read tells for how many of the receipts a file is opened.
		read := func(key string) (n int) {
			for i := range all {
				found, err := l.Find(fmt.Sprint("a-", i), key)
				if err != nil {
					n++
				}
				if found != nil {
					t.Errorf("%s, %d of %q: %s", what, i, key, found)
				}
			}
			return n
		}
		away.Store(true)
		if n := read("ci-bot"); n != all {
			t.Errorf("%s: %d of %d of one's own were read", what, n, all)
		}
		for _, key := range []string{"", "ci-bo", "ci-bot2", "ops"} {
			if n := read(key); n > all/60 { // a filter errs
				t.Errorf("%s: %d of %d were read for %q", what, n, all, key)
			}
		}
		away.Store(false)
		if found, err := l.Find("a-3", "ci-bot"); err != nil || len(found) != 1 {
			t.Errorf("%s: one's own: %s, %v", what, found, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFindAfterARepair: a start that had to read twice remembers once.
func TestFindAfterARepair(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	mustAppend(t, l, intent("a"), outcome("a"))
	l.Close()
	write(t, segmentFile(dir), append(read(t, segmentFile(dir)), `{"batch":{"fi`...))
	l = openLog(t, dir)
	if found, err := l.Find("a", "ci-bot"); err != nil || len(found) != 2 {
		t.Errorf("%s, %v", found, err)
	}
}

// TestFollow goes on from segment to segment, by the clock, each record once.
func TestFollow(t *testing.T) {
	dir, clock := t.TempDir(), clockwork.NewFakeClock()
	l := openLog(t, dir, func(o *receipts.Options) { receipts.SetSegmentSize(o, 1500) })
	ctx, stop := context.WithCancel(t.Context())
	seen, ended := make(chan uint64, 100), make(chan error)
	go func() {
		ended <- receipts.Follow(ctx, clock, filepath.Join(dir, "receipts"),
			func(s receipts.Stored) error { seen <- s.Index; return nil }, func() error { return nil })
	}()
	next := func(want uint64) {
		t.Helper()
		for range 100 {
			clockTold(t, clock) // it has looked, and waits
			select {
			case got := <-seen:
				if got != want {
					t.Fatalf("entry %d, want %d", got, want)
				}
				return
			default:
				clock.Advance(200 * time.Millisecond)
			}
		}
		t.Fatalf("entry %d never came", want)
	}
	next(0)
	for i := range 20 {
		mustAppend(t, l, outcome(fmt.Sprint(i)))
		next(uint64(i + 1))
	}
	if len(segments(t, dir)) < 5 {
		t.Error("one segment only")
	}
	// What was written when it is ended comes still, without the clock.
	clockTold(t, clock)
	mustAppend(t, l, outcome("last"))
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(seen) != 1 || <-seen != 21 {
		t.Error("the last entry did not come, or another twice")
	}
}

// TestClockGoesBack: the index is the order, whatever the clock says; times are
// UTC with six digits wherever the process runs; and it is told.
func TestClockGoesBack(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	half := time.FixedZone("half an hour", 5*3600+1800)
	for i, at := range []time.Time{noon, noon.Add(-10 * time.Second).In(half), noon.Add(-9*time.Second - 123456789), noon.Add(time.Minute)} {
		r := outcome(fmt.Sprint(i))
		r.Time = at
		if e := mustAppend(t, l, r); e.Index != uint64(i+1) || r.Seq != uint64(i+1) {
			t.Errorf("entry %d, sequence %d, want %d", e.Index, r.Seq, i+1)
		}
	}
	found, err := l.Find("1", "ci-bot")
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	if want := `"t":"2026-05-04T11:59:50.123456Z"`; !bytes.Contains(found[0], []byte(want)) {
		t.Errorf("%s, want %s", found[0], want)
	}
	found, _ = l.Find("2", "ci-bot")
	if want := `"t":"2026-05-04T11:59:51.000000Z"`; len(found) != 1 || !bytes.Contains(found[0], []byte(want)) {
		t.Errorf("%s, want %s", found, want)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if r := verdict(t, dir, l.VerifierKey(), l.Checkpoint()); r.Verdict != receipts.Holds || r.Backwards != 1 {
		t.Errorf("%s, the clock went back %d times", r.Why, r.Backwards)
	}
}
