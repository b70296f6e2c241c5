package receipts_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"agentgw/internal/receipts"
)

// kindsOf are the kinds of a log's records, in order.
func kindsOf(t testing.TB, dir string) (list []receipts.Kind) {
	t.Helper()
	err := receipts.Scan(filepath.Join(dir, "receipts"), func(s receipts.Stored) error {
		list = append(list, s.Record.Kind)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestHeartbeat: a log in which nothing was written for a minute says that it is
// alive, once a minute, and one that is written to says nothing of the kind.
func TestHeartbeat(t *testing.T) {
	stranger := func(i int) *receipts.Record {
		return &receipts.Record{Kind: receipts.KindRefusal, ID: fmt.Sprint("s", i), Decision: receipts.Refused, Code: "unauthenticated"}
	}
	for _, sync := range []string{receipts.SyncAlways, receipts.SyncInterval} {
		t.Run(sync, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				dir, clock := t.TempDir(), newBubbleClock()
				l := openLog(t, dir, func(o *receipts.Options) { o.Clock, o.Sync = clock, sync })
				until(t, l, clock, 1, 50*time.Millisecond)
				for i := range 20 { // three minutes in which something is written every nine seconds
					for range 9 {
						clock.Advance(time.Second)
					}
					mustAppend(t, l, stranger(i))
					until(t, l, clock, uint64(i+2), 10*time.Millisecond)
				}
				before := clock.Now()
				until(t, l, clock, 22, time.Second)
				if silent := clock.Since(before); silent < 59*time.Second {
					t.Errorf("a heartbeat after %v", silent)
				}
				until(t, l, clock, 23, time.Second)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				want := append([]receipts.Kind{receipts.KindKey}, slices.Repeat([]receipts.Kind{receipts.KindRefusal}, 20)...)
				if got := kindsOf(t, dir); !slices.Equal(got, append(want, receipts.KindHeartbeat, receipts.KindHeartbeat)) {
					t.Errorf("%v", got)
				}
				silences(t, dir, 63*time.Second)
				if r := verdict(t, dir, l.VerifierKey(), nil); r.Verdict != receipts.Unproven || r.Sealed {
					t.Errorf("%s: %s; sealed %v", r.Verdict, r.Why, r.Sealed)
				}
			})
		})
	}
}

// silences fails where two records stand further apart than most.
func silences(t *testing.T, dir string, most time.Duration) {
	t.Helper()
	var last time.Time
	err := receipts.Scan(filepath.Join(dir, "receipts"), func(s receipts.Stored) error {
		if apart := s.Record.Time.Sub(last); !last.IsZero() && apart > most {
			t.Errorf("entry %d comes %v after the one before", s.Index, apart)
		}
		last = s.Record.Time
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSealIsTheLastEntry: a log that is stopped in good order ends with a seal,
// behind heads of all its trees, and the report says so. One that was closed
// otherwise, was killed, or was written on since is not sealed.
func TestSealIsTheLastEntry(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, receipts.SetNoSync, func(o *receipts.Options) { o.Sync = receipts.SyncInterval })
	var tenants []string
	for i := range 1030 { // more than one heads record tells of
		tenants = append(tenants, fmt.Sprint("key:", i))
		mustAppend(t, l, of(tenants[i], fmt.Sprint("r", i)))
	}
	vkey := l.VerifierKey()
	if err := l.Seal(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("closed after it was sealed: %v", err)
	}
	if _, err := l.Append(outcome("late")); !errors.Is(err, receipts.ErrUnavailable) {
		t.Errorf("appended to a sealed log: %v", err)
	}
	headsIn(t, dir, vkey, tenants[:1024], tenants[1024:])
	kinds := kindsOf(t, dir)
	if got := kinds[len(kinds)-3:]; !slices.Equal(got, []receipts.Kind{receipts.KindHeads, receipts.KindHeads, receipts.KindSeal}) {
		t.Errorf("it ends with %v", got)
	}
	sealed := func(what, dir string, want bool) *receipts.Report {
		t.Helper()
		r := verdict(t, dir, vkey, nil)
		if r.Sealed != want {
			t.Errorf("%s: sealed %v; %s: %s", what, r.Sealed, r.Verdict, r.Why)
		}
		return r
	}
	if r := sealed("stopped", dir, true); r.Covered != r.Size || r.Size != uint64(len(kinds)) {
		t.Errorf("%d of %d covered", r.Covered, r.Size)
	}
	if r := sealed("cut", cutBehind(t, dir, len(kinds)-1), false); r.Verdict != receipts.Broken {
		t.Errorf("without its last entry: %s", r.Verdict)
	}
	torn := copyLog(t, dir)
	write(t, segmentFile(torn), append(read(t, segmentFile(torn)), '{'))
	sealed("torn behind", torn, false)

	// A start writes on at once, so that a gateway that is killed before its
	// first call leaves no sealed log.
	l, err := reopen(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := kindsOf(t, dir); got[len(got)-1] != receipts.KindHeartbeat || len(got) != len(kinds)+1 {
		t.Errorf("a start behind a seal writes %v", got[len(kinds):])
	}
	sealed("started", dir, false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	sealed("closed", dir, false)
	if l, err = reopen(dir); err != nil {
		t.Fatal(err)
	}
	if got := kindsOf(t, dir); len(got) != len(kinds)+1 {
		t.Errorf("a start that is behind no seal writes %v", got[len(kinds)+1:])
	}
	if err := l.Seal(); err != nil {
		t.Fatal(err)
	}
	sealed("sealed again", dir, true)
	if got := kindsOf(t, dir); len(got) != len(kinds)+2 || got[len(got)-1] != receipts.KindSeal {
		t.Errorf("where no tree has grown a seal comes alone: %v", got[len(kinds):])
	}
}

// cutBehind is a copy of a log of one segment that has its first n entries only.
func cutBehind(t *testing.T, dir string, n int) string {
	t.Helper()
	dir = copyLog(t, dir)
	size := 0
	for _, p := range placesOf(t, dir) {
		if p.entry >= n && p.kind != 'c' {
			break
		}
		size += len(p.line)
	}
	if err := os.Truncate(segmentFile(dir), int64(size)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestSealThatNobodySigned: a seal is one only under a signature.
func TestSealThatNobodySigned(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	mustAppend(t, l, outcome("a"))
	vkey := l.VerifierKey()
	if err := l.Seal(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "receipts", "checkpoint")); err != nil {
		t.Fatal(err)
	}
	lines := placesOf(t, dir)
	last := lines[len(lines)-1]
	if last.kind != 'c' {
		t.Fatalf("the last line is %s", last.line)
	}
	text := read(t, segmentFile(dir))
	write(t, segmentFile(dir), text[:len(text)-len(last.line)])
	if r := verdict(t, dir, vkey, nil); r.Sealed || r.Covered+1 != r.Size || r.Verdict != receipts.Unproven {
		t.Errorf("sealed %v, %d of %d covered: %s", r.Sealed, r.Covered, r.Size, r.Why)
	}
}

// TestSealOnABrokenDisk: where the seal cannot be written the log is left as one
// that was killed, and Seal says so.
func TestSealOnABrokenDisk(t *testing.T) {
	dir := t.TempDir()
	broken := false
	l := openLog(t, dir, func(o *receipts.Options) {
		receipts.SetDisk(o, nil, func() error {
			if broken {
				return errors.New("input/output error")
			}
			return nil
		})
	})
	mustAppend(t, l, outcome("a"))
	vkey := l.VerifierKey()
	broken = true
	if err := l.Seal(); err == nil {
		t.Error("it is said to be sealed")
	}
	if r := verdict(t, dir, vkey, nil); r.Sealed || r.Verdict != receipts.Unproven {
		t.Errorf("sealed %v: %s: %s", r.Sealed, r.Verdict, r.Why)
	}
	if l, err := reopen(dir); err != nil {
		t.Error(err)
	} else {
		l.Close()
	}
}

// TestOwnKinds: what the log says of itself nobody can have it say.
func TestOwnKinds(t *testing.T) {
	l := openLog(t, t.TempDir())
	for _, kind := range []receipts.Kind{receipts.KindHeads, receipts.KindHeartbeat, receipts.KindSeal} {
		if _, err := l.Append(&receipts.Record{Kind: kind}); err == nil {
			t.Errorf("%s was appended", kind)
		}
	}
}
