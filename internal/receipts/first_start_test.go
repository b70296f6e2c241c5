package receipts_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

const keyFile, newKeyFile = "receipt-signing-key", "receipt-signing-key.new"

// traceOf opens the log of dir and returns what it asked of the disk until it was open.
func traceOf(t *testing.T, dir string) []string {
	t.Helper()
	var mu sync.Mutex
	var calls []string
	l := openLog(t, dir, func(o *receipts.Options) {
		receipts.SetTrace(o, func(call string) error {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, call)
			return nil
		})
	})
	mu.Lock()
	until := slices.Clone(calls)
	mu.Unlock()
	l.Close()
	return until
}

// inOrder reports whether all of want is among calls, in this order.
func inOrder(calls []string, want ...string) bool {
	for _, c := range calls {
		if len(want) > 0 && c == want[0] {
			want = want[1:]
		}
	}
	return len(want) == 0
}

// TestOrderOfAFirstStart: the key is on disk before a segment is, and has its own
// name only once the first batch is on disk.
func TestOrderOfAFirstStart(t *testing.T) {
	dir := t.TempDir()
	data, segment := filepath.Base(dir), "00000000000000000000.jsonl"
	calls := traceOf(t, dir)
	if !inOrder(calls,
		"write "+newKeyFile, "sync "+newKeyFile, "sync folder "+data,
		"sync folder receipts", "write "+segment, "sync "+segment,
		"rename "+newKeyFile+" to "+keyFile, "sync folder "+data) {
		t.Errorf("%q", calls)
	}
	if i := slices.Index(calls, "rename "+newKeyFile+" to "+keyFile); slices.Contains(calls[:i], "rename .checkpoint.new to checkpoint") {
		t.Error("a checkpoint went out before the key had its name")
	}
	info, err := os.Stat(filepath.Join(dir, keyFile))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if again := traceOf(t, dir); slices.ContainsFunc(again, func(c string) bool { return strings.Contains(c, keyFile) }) {
		t.Errorf("a second start touches the key: %q", again)
	}
}

var errKilled = errors.New("killed")

// TestFirstStartKilledAnywhere: a first start ends before any one of the calls
// that change the disk, or in the middle of a write. The next one begins the
// log, with one key from then on.
func TestFirstStartKilledAnywhere(t *testing.T) {
	calls := traceOf(t, t.TempDir())
	steps := slices.Index(calls, "rename "+newKeyFile+" to "+keyFile) + 2 // what comes then, an open log does too
	if steps < 8 {
		t.Fatalf("%q", calls)
	}
	for step := range steps {
		for _, torn := range []bool{false, true} {
			dir := t.TempDir()
			n := 0
			var at string
			o := receipts.Options{Clock: clockwork.NewFakeClockAt(noon)}
			receipts.SetTrace(&o, func(call string) error {
				if n++; n <= step {
					return nil
				}
				if n > step+1 { // of the death itself: nothing happens any more
					return errKilled
				}
				at = call
				if file, ok := strings.CutPrefix(call, "write "); ok && torn {
					path := filepath.Join(dir, file)
					if strings.HasSuffix(file, ".jsonl") {
						path = filepath.Join(dir, "receipts", file)
					}
					os.WriteFile(path, []byte(`{"segment":{"v":1,"lo`), 0o600)
					os.Chmod(path, 0o644) // as some other program may have left it
				}
				return errKilled
			})
			if l, err := receipts.Open(dir, o); err == nil {
				l.Close()
				t.Fatalf("before step %d (%s): opened all the same", step, at)
			}
			l, err := receipts.Open(dir, receipts.Options{Clock: clockwork.NewFakeClockAt(noon)})
			if err != nil {
				t.Fatalf("killed before step %d (%s, torn %t): %v", step, at, torn, err)
			}
			if info, err := os.Stat(filepath.Join(dir, keyFile)); err != nil || info.Mode() != 0o600 {
				t.Errorf("killed before step %d (%s): the key of an open log: %v, %v", step, at, info, err)
			}
			mustAppend(t, l, outcome("a"))
			l.Close()
			if r := verdict(t, dir, l.VerifierKey(), l.Checkpoint()); r.Verdict != receipts.Holds || keyOf(t, dir) != l.VerifierKey() || r.Kinds["key"] != 1 {
				t.Errorf("killed before step %d (%s): %s: %s", step, at, r.Verdict, r.Why)
			}
			if _, err := os.Stat(filepath.Join(dir, newKeyFile)); err == nil {
				t.Errorf("killed before step %d (%s): the key has two names", step, at)
			}
		}
	}
}

// TestRemovedLogIsNotBegunAnew: a log that was there leaves its key behind, and a
// second log of that key would contradict the first.
func TestRemovedLogIsNotBegunAnew(t *testing.T) {
	original := t.TempDir()
	l := openLog(t, original)
	mustAppend(t, l, outcome("a"))
	l.Close()
	for what, remove := range map[string]func(dir string) error{
		"the folder": func(dir string) error { return os.RemoveAll(filepath.Join(dir, "receipts")) },
		"the segment and the checkpoint": func(dir string) error {
			return errors.Join(os.Remove(segmentFile(dir)), os.Remove(filepath.Join(dir, "receipts", "checkpoint")))
		},
		"the segment's bytes and the checkpoint": func(dir string) error {
			return errors.Join(os.Truncate(segmentFile(dir), 0), os.Remove(filepath.Join(dir, "receipts", "checkpoint")))
		},
		"all but the header": func(dir string) error {
			return errors.Join(os.Truncate(segmentFile(dir), 190), os.Remove(filepath.Join(dir, "receipts", "checkpoint")))
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := copyLog(t, original)
			if err := remove(dir); err != nil {
				t.Fatal(err)
			}
			l, err := reopen(dir)
			if err == nil {
				l.Close()
				t.Fatal("a second log under the same key")
			}
			if !strings.Contains(err.Error(), filepath.Join(dir, keyFile)) || !strings.Contains(err.Error(), "from a copy") {
				t.Errorf("does not say what to do: %v", err)
			}
			if err := os.Rename(filepath.Join(dir, keyFile), filepath.Join(dir, "old-key")); err != nil {
				t.Fatal(err)
			}
			os.Rename(filepath.Join(dir, "receipts"), filepath.Join(dir, "old-receipts"))
			l, err = reopen(dir)
			if err != nil {
				t.Fatalf("after what the message says: %v", err)
			}
			defer l.Close()
			if l.VerifierKey() == keyOf(t, original) {
				t.Error("the same key")
			}
		})
	}
}

// TestLockIsNotInAFileThatCanBeRemoved: whatever is removed of a log that is
// being written, no second process writes to it or begins another.
func TestLockIsNotInAFileThatCanBeRemoved(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	mustAppend(t, l, outcome("a"))
	files, err := os.ReadDir(filepath.Join(dir, "receipts"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".jsonl") {
			os.Remove(filepath.Join(dir, "receipts", f.Name()))
		}
	}
	if second, err := reopen(dir); !errors.Is(err, receipts.ErrLocked) {
		t.Errorf("a second writer: %v", err)
		if err == nil {
			second.Close()
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "receipts")); err != nil {
		t.Fatal(err)
	}
	if second, err := reopen(dir); err == nil {
		second.Close()
		t.Error("a second log while the first is open")
	}
}
