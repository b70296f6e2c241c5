package receipts_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

// eventually waits, bounded, for an effect of another goroutine.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func newest(t *testing.T, dir string) []byte {
	t.Helper()
	signed, err := receipts.NewestCheckpoint(filepath.Join(dir, "receipts"))
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func clockTold(t *testing.T, clock *clockwork.FakeClock) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := clock.BlockUntilContext(ctx, 1); err != nil {
		t.Fatal("nobody waits for the clock")
	}
}

// TestCheckpointFileIsReplacedOnceASecond: what stands in the segments is new
// after each batch, the file is not, and is brought up to date within a second.
func TestCheckpointFileIsReplacedOnceASecond(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir, clock := t.TempDir(), newBubbleClock()
		l := openLog(t, dir, func(o *receipts.Options) { o.Clock = clock })
		file := func() []byte {
			b, _ := os.ReadFile(filepath.Join(dir, "receipts", "checkpoint"))
			return b
		}
		eventually(t, "the first checkpoint goes out at once", func() bool { return bytes.Equal(file(), l.Checkpoint()) })
		first := file()
		for i := range 5 {
			mustAppend(t, l, outcome(fmt.Sprint(i)))
			now := l.Checkpoint()
			eventually(t, "the newest checkpoint stands in the segments", func() bool { return bytes.Equal(newest(t, dir), now) })
			if !bytes.Equal(file(), first) {
				t.Fatal("the file was replaced within the second")
			}
			if r := verdict(t, dir, l.VerifierKey(), now); r.Verdict != receipts.Holds || r.Covered != uint64(i+2) {
				t.Fatalf("%s: %s; %d covered", r.Verdict, r.Why, r.Covered)
			}
		}
		clock.Advance(time.Second)
		eventually(t, "the file is brought up to date", func() bool { return bytes.Equal(file(), l.Checkpoint()) })
	})
}

// TestNewestCheckpoint finds it wherever it stands.
func TestNewestCheckpoint(t *testing.T) {
	dir, _, want := smallLog(t)
	file := filepath.Join(dir, "receipts", "checkpoint")
	if got := newest(t, dir); !bytes.Equal(got, want) {
		t.Errorf("%s", got)
	}
	os.Remove(file)
	if got := newest(t, dir); !bytes.Equal(got, want) {
		t.Errorf("without the file: %s", got)
	}
	write(t, file, nil) // as a crash of the machine may leave it
	if got := newest(t, dir); !bytes.Equal(got, want) {
		t.Errorf("with an empty file: %s", got)
	}
	// A segment that has none yet, and one whose last line is torn.
	names := segments(t, dir)
	last := names[len(names)-1]
	text := read(t, last)
	at := bytes.LastIndex(text, []byte(`{"checkpoint":`))
	write(t, last, text[:at+40])
	torn := newest(t, dir)
	os.Remove(last)
	before := newest(t, dir)
	if bytes.Equal(torn, want) || bytes.Equal(before, want) || len(torn) == 0 || len(before) == 0 {
		t.Errorf("torn: %s; without the segment: %s", torn, before)
	}
	write(t, file, want)
	if got := newest(t, dir); !bytes.Equal(got, want) {
		t.Errorf("the file covers more and is not taken: %s", got)
	}
	for _, name := range segments(t, dir) {
		os.Remove(name)
	}
	os.Remove(file)
	if _, err := receipts.NewestCheckpoint(filepath.Join(dir, "receipts")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a checkpoint out of nothing")
	}
}

// TestNewestCheckpointFarFromTheEnd: the line that is looked for from the end
// stands before more than one read holds, and across the border of two.
func TestNewestCheckpointFarFromTheEnd(t *testing.T) {
	const oneRead = 256 << 10
	dir, _, want := smallLog(t)
	os.Remove(filepath.Join(dir, "receipts", "checkpoint"))
	names := segments(t, dir)
	last := names[len(names)-1]
	text := read(t, last)
	begins := bytes.LastIndex(text, []byte("\n{\"checkpoint\":"))
	for _, reads := range []int{1, 2} {
		for before := -2; before < 20; before++ { // of the line's bytes, so many before the border
			more := begins + reads*oneRead + before - len(text)
			write(t, last, append(bytes.Clone(text), bytes.Repeat([]byte("x"), more)...))
			if got := newest(t, dir); !bytes.Equal(got, want) {
				t.Fatalf("%d bytes before the border: %s", before, got)
			}
		}
	}
}

// TestIntervalMode: Append returns at once, the record is on disk 50 ms after
// the first of its batch was queued (the rest of the promised 100 ms is the
// disk's), and it says of itself that it was acknowledged before.
func TestIntervalMode(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir, clock := t.TempDir(), newBubbleClock()
		var syncs atomic.Int64
		l := openLog(t, dir, func(o *receipts.Options) {
			o.Clock, o.Sync = clock, receipts.SyncInterval
			receipts.SetDisk(o, nil, func() error { syncs.Add(1); return nil })
		})
		clock.Advance(50 * time.Millisecond)
		if n := l.Stats().Size; n != 1 {
			t.Fatalf("%d entries, and the log's key is one", n)
		}

		before := syncs.Load()
		mustAppend(t, l, intent("a")) // returns, though no time passes
		if l.Stats().Size != 1 || syncs.Load() != before {
			t.Error("on disk at once")
		}
		clock.Advance(30 * time.Millisecond)
		mustAppend(t, l, outcome("a")) // does not push the end out
		clock.Advance(19 * time.Millisecond)
		if found, _ := l.Find("a", "ci-bot"); found != nil || l.Stats().Size != 1 {
			t.Error("on disk before its time")
		}
		clock.Advance(time.Millisecond)
		if n := l.Stats().Size; n != 3 {
			t.Errorf("%d entries after 50 ms, want 3", n)
		}
		if got := syncs.Load() - before; got != 1 {
			t.Errorf("%d syncs for one interval", got)
		}
		found, err := l.Find("a", "ci-bot")
		if err != nil || len(found) != 2 {
			t.Errorf("%s, %v", found, err)
		}
		for _, line := range found {
			if !bytes.Contains(line, []byte(`,"interval":true,`)) {
				t.Errorf("not marked: %s", line)
			}
		}
		mustAppend(t, l, outcome("b")) // Close does not wait for the time
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		r := verdict(t, dir, l.VerifierKey(), l.Checkpoint())
		if r.Size != 4 || r.Interval != 4 || r.Verdict != receipts.Unproven {
			t.Errorf("%d entries, %d marked, %s", r.Size, r.Interval, r.Verdict)
		}
	})
}

// TestIntervalBehindASlowDisk: a record that came while the disk was busy has
// waited already, and goes with the next write, without another wait.
func TestIntervalBehindASlowDisk(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		clock := newBubbleClock()
		hold, entered := make(chan struct{}), make(chan struct{}, 10)
		var slow atomic.Bool
		l := openLog(t, t.TempDir(), func(o *receipts.Options) {
			o.Clock, o.Sync = clock, receipts.SyncInterval
			receipts.SetDisk(o, nil, func() error {
				if slow.Load() {
					entered <- struct{}{}
					<-hold
				}
				return nil
			})
		})
		release := sync.OnceFunc(func() { close(hold) })
		t.Cleanup(release) // a log that hangs could not be closed
		slow.Store(true)
		clock.Advance(50 * time.Millisecond)
		<-entered
		mustAppend(t, l, outcome("a"))
		clock.Advance(50 * time.Millisecond) // and all of it in the disk
		slow.Store(false)
		release()
		synctest.Wait()
		if n := l.Stats().Size; n != 2 {
			t.Errorf("%d entries on disk while the clock stands, want 2", n)
		}
	})
}
