package receipts

import (
	"bytes"
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
