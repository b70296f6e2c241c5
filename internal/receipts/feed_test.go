package receipts_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

// fed reads all that a feed has, in pieces.
func fed(t *testing.T, f *receipts.Feed, most int) (lines []string) {
	t.Helper()
	for {
		entries, next, err := f.Next(most)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			return lines
		}
		for _, e := range entries {
			lines = append(lines, fmt.Sprint(e.Index, " ", string(e.Line)))
		}
		if last := entries[len(entries)-1].Index; next != last+1 {
			t.Fatalf("behind entry %d comes %d", last, next)
		}
	}
}

// TestFeedFromAnyEntry: through all segments, in pieces of any size, and on with what comes.
func TestFeedFromAnyEntry(t *testing.T) {
	dir := t.TempDir()
	o := receipts.Options{Clock: clockwork.NewRealClock()}
	receipts.SetSegmentSize(&o, 2000)
	l, err := receipts.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	add := func(n int) {
		for range n {
			if _, err := l.Append(&receipts.Record{Kind: receipts.KindRefusal, ID: receipts.NewID(), Tenant: "tenant:acme", Decision: receipts.Refused, Code: "scope_denied"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(30)
	follower := l.Feed(0)
	defer follower.Close()
	followed := fed(t, follower, 1<<20)
	add(7)
	if err := l.Close(); err != nil { // so that nothing comes between what is read and what is compared
		t.Fatal(err)
	}
	followed = append(followed, fed(t, follower, 1<<20)...)
	folder, err := receipts.Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	if err := receipts.Scan(folder, func(s receipts.Stored) error {
		want = append(want, fmt.Sprint(s.Index, " ", string(s.Line)))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	size := int(l.Stats().Size)
	if !slices.Equal(followed, want) || size < 38 {
		t.Errorf("%d entries came, of %d", len(followed), size)
	}
	for from := range size + 3 {
		f := l.Feed(uint64(from))
		if got := fed(t, f, 1+from*97); !slices.Equal(got, want[min(from, size):]) {
			t.Errorf("from %d: %d entries, want %d", from, len(got), size-min(from, size))
		}
		f.Close()
	}
}

// TestFeedHasNothingThatACrashCouldTake: an entry comes once it is on disk, and not when it is
// in the file.
func TestFeedHasNothingThatACrashCouldTake(t *testing.T) {
	o := receipts.Options{Clock: clockwork.NewRealClock()}
	var hold atomic.Bool
	held, release := make(chan struct{}), make(chan struct{})
	receipts.SetDisk(&o, nil, func() error {
		if hold.CompareAndSwap(true, false) {
			close(held)
			<-release
		}
		return nil
	})
	l, err := receipts.Open(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	f := l.Feed(0)
	defer f.Close()
	before := len(fed(t, f, 1<<20))
	hold.Store(true)
	done := make(chan error)
	go func() {
		_, err := l.Append(&receipts.Record{Kind: receipts.KindRefusal, ID: "a", Decision: receipts.Refused, Code: "scope_denied"})
		done <- err
	}()
	<-held // it is written, and the disk has not said so
	if got := fed(t, f, 1<<20); len(got) > 0 {
		t.Errorf("before the disk has it: %q", got)
	}
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := fed(t, f, 1<<20); len(got) != 1 || before == 0 {
		t.Errorf("when it is on disk: %q", got)
	}
}
