package receipts

import (
	"bytes"
	"io/fs"
	"syscall"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
)

// TestGapsAreToldOfFirst: in the moment in which a log takes records again, what
// tells of those that are missing has its place before anybody else can have one.
func TestGapsAreToldOfFirst(t *testing.T) {
	l, err := Open(t.TempDir(), Options{Clock: clockwork.NewFakeClockAt(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missing[missedOf{reason: reasonSlow}] = &missed{of: missedOf{reason: reasonSlow}, count: 3}
	l.resumeLocked()
	if len(l.missing) != 0 || len(l.filling.slots) != 1 || !bytes.Contains(l.filling.slots[0].line, []byte(`"kind":"gap"`)) {
		t.Errorf("%d counts are left, %d records wait", len(l.missing), len(l.filling.slots))
	}
}

// TestAShareThatIsUsedUpIsFull: to a log a quota is a disk.
func TestAShareThatIsUsedUpIsFull(t *testing.T) {
	for err, want := range map[error]bool{syscall.ENOSPC: true, syscall.EDQUOT: true, syscall.EIO: false} {
		if isFull(&fs.PathError{Op: "write", Err: err}) != want {
			t.Errorf("%v: full is %v", err, !want)
		}
	}
}

// TestAGapEndsNoEarlierThanItBegins: whatever the clock does meanwhile.
func TestAGapEndsNoEarlierThanItBegins(t *testing.T) {
	clock := clockwork.NewFakeClockAt(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	l, err := Open(t.TempDir(), Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.mu.Lock()
	l.full, l.retryAt = true, clock.Now().Add(time.Hour)
	l.mu.Unlock()
	l.Miss(&Record{}, false)
	clock.Advance(-time.Minute)
	l.Miss(&Record{}, false)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.missing {
		if m.count != 2 || m.to.Before(m.from) {
			t.Errorf("%d attempts from %v to %v", m.count, m.from, m.to)
		}
	}
}
