package receipts_test

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

// trace records what a log asks of the disk, and lets each call fail.
type trace struct {
	mu    sync.Mutex
	calls []string
	fails map[string]bool
}

func (r *trace) set(o *receipts.Options) {
	receipts.SetTrace(o, func(call string) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls = append(r.calls, call)
		if r.fails[call] {
			return errDisk
		}
		return nil
	})
}

// fail says which calls fail from now on.
func (r *trace) fail(calls ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fails = map[string]bool{}
	for _, c := range calls {
		r.fails[c] = true
	}
}

// taken returns the calls since it was last asked.
func (r *trace) taken() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

// ofTheLog leaves out the checkpoint file, which has its own time, and the folders
// that a start makes sure of.
func ofTheLog(calls []string) []string {
	return slices.DeleteFunc(calls, func(c string) bool {
		folder, ok := strings.CutPrefix(c, "sync folder ")
		return strings.Contains(c, "checkpoint") || strings.HasSuffix(c, ".leaves") || ok && folder != "receipts" && folder != "quarantine"
	})
}

const firstSegment = "00000000000000000000.jsonl"

// TestOrderOfAStart: what is read, and its name, is on disk before anything is
// signed or written behind it; and of what the last process has perhaps not seen
// onto the disk nothing is believed, it is written again.
func TestOrderOfAStart(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	mustAppend(t, l, intent("a")) // which the start closes
	l.Close()
	var r trace
	openLog(t, dir, r.set).Close()
	want := []string{"sync folder receipts", "write " + firstSegment, "sync " + firstSegment, "sync " + firstSegment, "write " + firstSegment, "sync " + firstSegment}
	if calls := ofTheLog(r.taken()); len(calls) < len(want) || !slices.Equal(calls[:len(want)], want) {
		t.Errorf("%q", calls)
	}
}

// TestOrderOfARepair: the bytes that are cut are kept, by a name that lasts,
// before the segment is touched; the cut lasts before the log goes on.
func TestOrderOfARepair(t *testing.T) {
	original := t.TempDir()
	l := openLog(t, original)
	mustAppend(t, l, outcome("a"))
	l.Close()
	whole := read(t, segmentFile(original))
	torn := `{"batch":{"fir`

	kept := func(dir string) int {
		n := 0
		filepath.WalkDir(filepath.Join(dir, "receipts", "quarantine"), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && !strings.HasPrefix(d.Name(), ".") {
				n++
			}
			return nil
		})
		return n
	}
	dir := copyLog(t, original)
	write(t, segmentFile(dir), append(bytes.Clone(whole), torn...))
	var r trace
	openLog(t, dir, r.set).Close()
	calls := ofTheLog(r.taken())
	if len(calls) < 8 || kept(dir) != 1 {
		t.Fatalf("%q", calls)
	}
	to := strings.TrimPrefix(calls[3], "rename .new to ")
	want := []string{
		"sync folder receipts", // in which quarantine is new
		"write .new", "sync .new", "rename .new to " + to, "sync folder quarantine",
		"write " + firstSegment, "sync " + firstSegment, // the cut and what tells of it
		"sync folder receipts", "write " + firstSegment, "sync " + firstSegment, // a start's own
	}
	if !strings.HasPrefix(to, firstSegment+"-") || !slices.Equal(calls[:len(want)], want) {
		t.Errorf("%q", calls)
	}

	// Where the bytes cannot be kept they stay where they are.
	for _, call := range []string{"sync folder receipts", "rename .new to " + to, "sync folder quarantine"} {
		dir := copyLog(t, original)
		write(t, segmentFile(dir), append(bytes.Clone(whole), torn...))
		o := receipts.Options{Clock: clockwork.NewFakeClockAt(noon)}
		receipts.SetTrace(&o, func(c string) error {
			if c == call {
				return errDisk
			}
			return nil
		})
		if l, err := receipts.Open(dir, o); !errors.Is(err, errDisk) {
			t.Errorf("%s fails: %v", call, err)
			if err == nil {
				l.Close()
			}
		}
		if !bytes.HasSuffix(read(t, segmentFile(dir)), []byte(torn)) {
			t.Errorf("%s fails: cut all the same", call)
		}
	}
}

// TestOrderOfASegment: a segment is whole on disk before another is begun, and
// the new one's name lasts before anything is in it.
func TestOrderOfASegment(t *testing.T) {
	var r trace
	l := openLog(t, t.TempDir(), r.set, func(o *receipts.Options) { receipts.SetSegmentSize(o, 1) })
	mustAppend(t, l, outcome("a"))
	l.Close()
	calls := r.taken()
	next := "write 00000000000000000001.jsonl"
	i := slices.Index(calls, next)
	if i < 2 || calls[i-2] != "sync "+firstSegment || calls[i-1] != "sync folder receipts" || calls[i+1] != "sync 00000000000000000001.jsonl" {
		t.Errorf("%q", calls)
	}
}

// TestOrderOfAClose: the last checkpoint is on disk in the segment and in the file.
func TestOrderOfAClose(t *testing.T) {
	var r trace
	l := openLog(t, t.TempDir(), r.set)
	mustAppend(t, l, outcome("a"))
	l.Close()
	want := []string{"sync " + firstSegment, "write .checkpoint.new", "sync .checkpoint.new",
		"rename .checkpoint.new to checkpoint", "sync folder receipts"}
	if calls := r.taken(); len(calls) < len(want) || !slices.Equal(calls[len(calls)-len(want):], want) {
		t.Errorf("%q", calls)
	}
}

// TestCheckpointFileIsAConvenience: that it cannot be replaced is said once, and
// tried again; the log goes on.
func TestCheckpointFileIsAConvenience(t *testing.T) {
	for _, call := range []string{"write .checkpoint.new", "rename .checkpoint.new to checkpoint"} {
		t.Run(call, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				dir, clock := t.TempDir(), newBubbleClock()
				var r trace
				var mu sync.Mutex
				var said bytes.Buffer
				warnings := func() int {
					mu.Lock()
					defer mu.Unlock()
					return strings.Count(said.String(), "checkpoint file cannot be written")
				}
				r.fail(call)
				l := openLog(t, dir, r.set, func(o *receipts.Options) {
					o.Clock = clock
					o.Logger = slog.New(slog.NewTextHandler(lockedWriter{&mu, &said}, nil))
				})
				tried := 0
				attempts := func() int {
					for _, c := range r.taken() {
						if c == call {
							tried++
						}
					}
					return tried
				}
				for i := range 3 {
					eventually(t, "it is tried", func() bool { return attempts() == i+1 })
					mustAppend(t, l, outcome("a"+itoa(i)))
					synctest.Wait()
					if attempts() != i+1 {
						t.Error("tried again within the second")
					}
					clock.Advance(time.Second)
				}
				if err := l.Healthy(); err != nil || warnings() != 1 {
					t.Errorf("%v; %d warnings", err, warnings())
				}
				eventually(t, "the last attempt", func() bool { return attempts() == 4 })
				r.fail()
				clock.Advance(time.Second)
				eventually(t, "the file is there", func() bool {
					b, _ := os.ReadFile(filepath.Join(dir, "receipts", "checkpoint"))
					return bytes.Equal(b, l.Checkpoint())
				})
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (w lockedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(b)
}
