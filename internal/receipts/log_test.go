package receipts_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"go.uber.org/goleak"

	"agentgw/internal/receipts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 5, 4, 12, 0, 0, 123456789, time.UTC)

func openLog(t testing.TB, dir string, change ...func(*receipts.Options)) *receipts.Log {
	t.Helper()
	o := receipts.Options{Clock: clockwork.NewFakeClockAt(noon), Replica: "gw-1"}
	for _, f := range change {
		f(&o)
	}
	l, err := receipts.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func intent(id string) *receipts.Record {
	return &receipts.Record{Kind: receipts.KindIntent, ID: id, Tenant: "tenant:acme", Key: "ci-bot",
		Service: "github", Action: "list_issues", Method: "GET", Decision: receipts.Allowed}
}

func outcome(id string) *receipts.Record {
	r := intent(id)
	r.Kind, r.Status, r.Ending, r.Out = receipts.KindOutcome, 200, receipts.Complete, 42
	return r
}

func mustAppend(t testing.TB, l *receipts.Log, records ...*receipts.Record) (last receipts.Entry) {
	t.Helper()
	for _, r := range records {
		e, err := l.Append(r)
		if err != nil {
			t.Fatal(err)
		}
		last = e
	}
	return last
}

func TestAppendFindReopen(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	e := mustAppend(t, l, intent("a"), outcome("a"), intent("b"))
	if e.Index != 3 { // entry 0 is the log's key
		t.Errorf("index %d, want 3", e.Index)
	}
	found, err := l.Find("a", "ci-bot")
	if err != nil || len(found) != 2 {
		t.Fatalf("found %s, %v; want intent and outcome", found, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(intent("c")); !errors.Is(err, receipts.ErrUnavailable) {
		t.Errorf("append to a closed log: %v", err)
	}
	before := l.Checkpoint()

	l = openLog(t, dir)
	if again, _ := l.Find("a", "ci-bot"); len(again) != 2 || !bytes.Equal(again[0], found[0]) || !bytes.Equal(again[1], found[1]) {
		t.Errorf("after reopening: %s, want %s", again, found)
	}
	b, err := l.Find("b", "ci-bot")
	if err != nil || len(b) != 2 {
		t.Fatalf("found %s, %v; want the intent and an unknown outcome", b, err)
	}
	var r struct{ Kind, Ending, Key string }
	if err := json.Unmarshal(b[1], &r); err != nil || r.Kind != "outcome" || r.Ending != "outcome_unknown" || r.Key != "ci-bot" {
		t.Errorf("%s: %v", b[1], err)
	}
	if bytes.Equal(before, l.Checkpoint()) {
		t.Error("the checkpoint does not cover what the start has added")
	}
	if none, err := l.Find("nobody", "ci-bot"); none != nil || err != nil {
		t.Errorf("found %s, %v", none, err)
	}
}

// TestWhatWasToldIsThere: whoever has been told of a receipt finds it at once, under
// a checkpoint and in the tree, though the log sees to that only once it has told.
func TestWhatWasToldIsThere(t *testing.T) {
	for what, missing := range map[string]func(l *receipts.Log, id string, e receipts.Entry) error{
		"under a checkpoint": func(l *receipts.Log, _ string, e receipts.Entry) error {
			size, err := strconv.ParseUint(strings.Split(string(l.Checkpoint()), "\n")[1], 10, 64)
			if err == nil && size <= e.Index {
				err = fmt.Errorf("the checkpoint is of %d entries", size)
			}
			return err
		},
		"by its id": func(l *receipts.Log, id string, _ receipts.Entry) error {
			found, err := l.Find(id, "ci-bot")
			if err == nil && len(found) != 1 {
				err = fmt.Errorf("%d records", len(found))
			}
			return err
		},
		"in the tree": func(l *receipts.Log, _ string, e receipts.Entry) error {
			_, err := l.Tile("", fmt.Sprintf("0/000.p/%d", e.Index+1))
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			l := openLog(t, t.TempDir(), receipts.SetNoSync)
			var wg sync.WaitGroup
			for w := range 8 {
				wg.Go(func() {
					for n := range 30 {
						id := fmt.Sprintf("%d-%d", w, n)
						e, err := l.Append(outcome(id))
						if err == nil {
							err = missing(l, id, e)
						}
						if err != nil {
							t.Errorf("entry %d is told of: %v", e.Index, err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

func TestSecondOpenerIsRefused(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	_, err := receipts.Open(dir, receipts.Options{Clock: clockwork.NewFakeClock()})
	if !errors.Is(err, receipts.ErrLocked) {
		t.Fatalf("second Open: %v", err)
	}
	mustAppend(t, l, intent("a"))
}

func TestManyWriters(t *testing.T) {
	const writers, each = 64, 50
	dir := t.TempDir()
	l := openLog(t, dir)
	var wg sync.WaitGroup
	entries := make([]receipts.Entry, writers*each)
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				n := w*each + i
				r := outcome(fmt.Sprintf("id-%d", n))
				r.Tenant = fmt.Sprintf("tenant:t%d", n%3)
				e, err := l.Append(r)
				if err != nil {
					t.Error(err)
					return
				}
				entries[n] = e
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	err := receipts.Scan(filepath.Join(dir, "receipts"), func(e receipts.Stored) error {
		count[e.Record.ID]++
		var n int
		if _, err := fmt.Sscanf(e.Record.ID, "id-%d", &n); err == nil && entries[n].Index != e.Index {
			t.Errorf("id-%d stands at %d, Append said %d", n, e.Index, entries[n].Index)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(count) != writers*each+1 {
		t.Errorf("%d ids, want %d", len(count), writers*each+1)
	}
	for id, n := range count {
		if n != 1 {
			t.Errorf("%s stands %d times", id, n)
		}
	}
	if s := l.Stats(); s.Batches >= s.Appended {
		t.Errorf("%d batches for %d records: nothing was committed together", s.Batches, s.Appended)
	}
}

func TestRemovedSegmentFailsTheLog(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	names, _ := filepath.Glob(filepath.Join(dir, "receipts", "*.jsonl"))
	if len(names) != 1 {
		t.Fatal(names)
	}
	if err := os.Remove(names[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(intent("a")); !errors.Is(err, receipts.ErrUnavailable) {
		t.Errorf("append into a removed file: %v", err)
	}
	if err := l.Healthy(); err == nil {
		t.Error("still healthy")
	}
}
