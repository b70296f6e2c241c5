package receipts_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/receipts"
)

// anchored opens a log that keeps an anchor, in a bubble.
func anchored(dir, anchor string, change ...func(*receipts.Options)) (*receipts.Log, bubbleClock, error) {
	clock := newBubbleClock()
	o := receipts.Options{Clock: clock, Replica: "gw-1", Anchor: anchor}
	receipts.SetNoSync(&o)
	for _, f := range change {
		f(&o)
	}
	l, err := receipts.Open(dir, o)
	return l, clock, err
}

func mustAnchored(t *testing.T, dir, anchor string, change ...func(*receipts.Options)) (*receipts.Log, bubbleClock) {
	t.Helper()
	l, clock, err := anchored(dir, anchor, change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, clock
}

// tick lets seconds pass until it holds.
func tick(t *testing.T, clock advancing, what string, holds func() bool) {
	t.Helper()
	eventually(t, what, func() bool {
		clock.Advance(time.Second)
		return holds()
	})
}

func same(t *testing.T, file string, want []byte) bool {
	t.Helper()
	got, err := os.ReadFile(file)
	return err == nil && bytes.Equal(got, want)
}

// untold is an outcome without a tenant, so that no heads record comes by itself.
func untold(id string) *receipts.Record {
	r := outcome(id)
	r.Tenant = ""
	return r
}

// TestAnchorFollowsTheLog: it is there at the start, a second after a record at the
// latest and when the log is closed, covers durable entries only, and is what
// verification takes.
func TestAnchorFollowsTheLog(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir, file := t.TempDir(), filepath.Join(t.TempDir(), "anchor")
		l, clock := mustAnchored(t, dir, file)
		if !same(t, file, l.Checkpoint()) {
			t.Fatal("the start left no anchor")
		}
		first := read(t, file)
		mustAppend(t, l, untold("a"), untold("b"))
		if !same(t, file, first) {
			t.Error("it was replaced within the second")
		}
		tick(t, clock, "the anchor is brought up to date", func() bool { return same(t, file, l.Checkpoint()) })
		mustAppend(t, l, untold("c"))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if !same(t, file, l.Checkpoint()) {
			t.Error("closing left an older one")
		}
		if r := verdict(t, dir, l.VerifierKey(), read(t, file)); r.Verdict != receipts.Holds || r.Anchor != 4 {
			t.Errorf("%s (%s), %d", r.Verdict, r.Why, r.Anchor)
		}
		if left, _ := os.ReadDir(filepath.Dir(file)); len(left) != 1 {
			t.Errorf("beside it: %v", left)
		}
		l, _ = mustAnchored(t, dir, file)
		if err := l.Healthy(); err != nil {
			t.Error(err)
		}
	})
}

// TestAnchorIsNeverNewerThanTheDisk: a batch that is not synced yet is in no anchor.
func TestAnchorIsNeverNewerThanTheDisk(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir, file := t.TempDir(), filepath.Join(t.TempDir(), "anchor")
		hold := make(chan struct{})
		var once sync.Once
		release := func() { once.Do(func() { close(hold) }) }
		var armed, held atomic.Bool
		var looks atomic.Int64
		l, clock := mustAnchored(t, dir, file, func(o *receipts.Options) {
			receipts.SetDisk(o, nil, func() error {
				if armed.Load() {
					held.Store(true)
					<-hold
				}
				return nil
			})
			o.OnAnchor = func(bool) { looks.Add(1) }
		})
		t.Cleanup(release)
		before := l.Checkpoint()
		armed.Store(true)
		done := make(chan error, 1)
		go func() { _, err := l.Append(untold("a")); done <- err }()
		eventually(t, "a sync waits", held.Load)
		seen := looks.Load()
		tick(t, clock, "it is looked at", func() bool { return looks.Load() > seen+2 })
		if !same(t, file, before) {
			t.Error("the anchor has what is not on disk")
		}
		release()
		if err := <-done; err != nil && !errors.Is(err, receipts.ErrLate) { // it took seconds
			t.Fatal(err)
		}
		tick(t, clock, "now it has it", func() bool { return same(t, file, l.Checkpoint()) })
	})
}

// TestRollbackIsRefused: a folder of an earlier time holds in itself, its own
// checkpoint file with it, and nothing but the anchor tells. Nothing is changed.
func TestRollbackIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir, file := t.TempDir(), filepath.Join(t.TempDir(), "anchor")
		l, _ := mustAnchored(t, dir, file)
		mustAppend(t, l, untold("a"))
		l.Close()
		backup := copyLog(t, dir)
		l, _ = mustAnchored(t, dir, file)
		mustAppend(t, l, untold("b"), untold("c"))
		l.Close()
		anchor := read(t, file)
		for _, torn := range []bool{false, true} {
			if torn { // what a start would repair, it leaves alone here
				write(t, segmentFile(backup), append(read(t, segmentFile(backup)), `{"batch":{"first":2,"cou`...))
			}
			before := read(t, segmentFile(backup))
			_, _, err := anchored(backup, file)
			if !errors.Is(err, receipts.ErrAnchor) || !strings.Contains(err.Error(), "holds 2 entries") || !strings.Contains(err.Error(), "covers 4: the folder is of an earlier time") {
				t.Errorf("torn %v: opened: %v", torn, err)
			}
			if !bytes.Equal(read(t, segmentFile(backup)), before) || !same(t, file, anchor) {
				t.Errorf("torn %v: something was changed", torn)
			}
		}
		if r := verdict(t, backup, l.VerifierKey(), anchor); r.Verdict != receipts.Broken {
			t.Errorf("verify: %s (%s)", r.Verdict, r.Why)
		}
		if l, err := reopen(backup); err != nil { // nothing else shows it
			t.Error(err)
		} else {
			l.Close()
		}
		mustAnchored(t, dir, file)
	})
}

// TestForkedFolderIsRefusedByItsAnchor: as many entries and more, but others.
func TestForkedFolderIsRefusedByItsAnchor(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir, file := t.TempDir(), filepath.Join(t.TempDir(), "anchor")
		l, _ := mustAnchored(t, dir, file)
		l.Close()
		other := copyLog(t, dir)
		l, _ = mustAnchored(t, dir, file)
		mustAppend(t, l, untold("a"))
		l.Close()
		twin, err := reopen(other) // without the anchor
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, twin, untold("b"), untold("c"))
		twin.Close()
		if _, _, err := anchored(other, file); !errors.Is(err, receipts.ErrAnchor) || !strings.Contains(err.Error(), "covers 2, which are others") {
			t.Errorf("opened: %v", err)
		}
	})
}

// TestACopyOfTheFolderIsStopped: a copy of a log's folder is started while the log
// goes on. Once both have written, one is in the anchor and the other takes
// nothing more, in whatever order they look at it.
func TestACopyOfTheFolderIsStopped(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, first := range []string{"the original", "the copy"} {
			dir, file := t.TempDir(), filepath.Join(t.TempDir(), "anchor")
			var told sync.Map
			original, clock := mustAnchored(t, dir, file, func(o *receipts.Options) {
				o.OnAnchor = func(ok bool) { told.Store(ok, true) }
			})
			mustAppend(t, original, untold("a"))
			tick(t, clock, "the anchor", func() bool { return same(t, file, original.Checkpoint()) })
			eventually(t, "the log has signed in its files", func() bool { return bytes.Equal(newest(t, dir), original.Checkpoint()) })
			clock.Advance(time.Second / 2)                    // so that they look in turn
			twin, _ := mustAnchored(t, copyLog(t, dir), file) // as long as the log is
			winner, loser := original, twin
			if first == "the copy" {
				winner, loser = twin, original
			}
			soon := func(what string, holds func() bool) {
				t.Helper()
				eventually(t, what, func() bool { clock.Advance(time.Second / 10); return holds() })
			}
			mustAppend(t, winner, untold("w"))
			soon("the first is in the anchor", func() bool { return same(t, file, winner.Checkpoint()) })
			mustAppend(t, loser, untold("x"), untold("y")) // within the second, in vain
			soon("the other stops", func() bool { return loser.Healthy() != nil })
			if err := loser.Healthy(); !errors.Is(err, receipts.ErrAnchor) || !errors.Is(err, receipts.ErrUnavailable) || !strings.Contains(err.Error(), "holds 4 entries") {
				t.Errorf("%s first: %v", first, err)
			}
			if _, err := loser.Append(untold("z")); !errors.Is(err, receipts.ErrUnavailable) {
				t.Errorf("%s first: the other takes records: %v", first, err)
			}
			if _, bad := told.Load(false); bad != (first == "the copy") {
				t.Errorf("%s first: told of a fault: %v", first, bad)
			}
			if err := loser.Close(); err != nil {
				t.Error(err)
			}
			if same(t, file, loser.Checkpoint()) {
				t.Errorf("%s first: the other has replaced the anchor", first)
			}
			mustAppend(t, winner, untold("v"))
			soon("the first goes on", func() bool { return same(t, file, winner.Checkpoint()) })
			if err := winner.Healthy(); err != nil {
				t.Errorf("%s first: %v", first, err)
			}
		}
	})
}

// TestAnIdleLogSeesItsTwin: it need not write to notice.
func TestAnIdleLogSeesItsTwin(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir, file := t.TempDir(), filepath.Join(t.TempDir(), "anchor")
		idle, clock := mustAnchored(t, dir, file)
		eventually(t, "its files are whole", func() bool { return bytes.Equal(newest(t, dir), idle.Checkpoint()) })
		twin, twinClock := mustAnchored(t, copyLog(t, dir), file)
		mustAppend(t, twin, untold("b"))
		tick(t, twinClock, "the twin is in the anchor", func() bool { return same(t, file, twin.Checkpoint()) })
		tick(t, clock, "the idle one stops", func() bool { return errors.Is(idle.Healthy(), receipts.ErrAnchor) })
	})
}

// TestAnchorOutOfReach: a volume that is taken away stops nothing and is not
// written past; when it is back, so is the anchor. A start without it is refused.
func TestAnchorOutOfReach(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir, volume := t.TempDir(), filepath.Join(t.TempDir(), "volume")
		file := filepath.Join(volume, "anchor")
		var health sync.Map
		o := func(o *receipts.Options) { o.OnAnchor = func(ok bool) { health.Store("ok", ok) } }
		if _, _, err := anchored(dir, file, o); err == nil || !strings.Contains(err.Error(), "anchor") {
			t.Fatalf("a start without the volume: %v", err)
		}
		if err := os.Mkdir(volume, 0o755); err != nil {
			t.Fatal(err)
		}
		l, clock := mustAnchored(t, dir, file, o)
		mustAppend(t, l, untold("a"))
		tick(t, clock, "the anchor", func() bool { return same(t, file, l.Checkpoint()) })
		for _, c := range []struct {
			what   string
			change func(aside string) error
		}{
			{"the mount point is empty", func(string) error { return os.Mkdir(volume, 0o755) }},
			{"the mount point is gone", func(string) error { return nil }},
			{"it is empty", func(string) error {
				return errors.Join(os.Mkdir(volume, 0o755), os.WriteFile(file, nil, 0o644))
			}},
		} {
			aside := volume + ".away"
			if err := errors.Join(os.Rename(volume, aside), c.change(aside)); err != nil {
				t.Fatal(err)
			}
			tick(t, clock, c.what+": told", func() bool { ok, _ := health.Load("ok"); return ok == false })
			mustAppend(t, l, untold("b"+c.what))
			if left, err := os.ReadFile(file); len(left) > 0 {
				t.Errorf("%s: an anchor was made: %q %v", c.what, left, err)
			}
			if err := l.Healthy(); err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
			if err := errors.Join(os.RemoveAll(volume), os.Rename(aside, volume)); err != nil {
				t.Fatal(err)
			}
			tick(t, clock, c.what+": it is back", func() bool { ok, _ := health.Load("ok"); return ok == true && same(t, file, l.Checkpoint()) })
		}
		// An older one of the same log, as somebody may have kept it.
		older := l.Checkpoint()
		mustAppend(t, l, untold("c"))
		tick(t, clock, "up to date", func() bool { return same(t, file, l.Checkpoint()) })
		write(t, file, bytes.TrimSpace(older))
		tick(t, clock, "an older one is replaced", func() bool { return same(t, file, l.Checkpoint()) })
		l.Close()
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		_, _, err := anchored(dir, file)
		if err == nil || errors.Is(err, receipts.ErrAnchor) || !strings.Contains(err.Error(), "missing") || !strings.Contains(err.Error(), "receipts checkpoint") {
			t.Errorf("a start without its anchor: %v", err)
		}
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Error("it has made one")
		}
		write(t, file, newest(t, dir)) // as the message says
		mustAnchored(t, dir, file)
	})
}

// TestAnAnchorOfAnotherLog is the same file given to two gateways, or a data
// folder that was replaced: nobody writes over it.
func TestAnAnchorOfAnotherLog(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "anchor")
		l, clock := mustAnchored(t, t.TempDir(), file)
		mine := read(t, file)
		if _, _, err := anchored(t.TempDir(), file); !errors.Is(err, receipts.ErrAnchor) || !strings.Contains(err.Error(), "anchor of its own") {
			t.Errorf("opened: %v", err)
		}
		if !same(t, file, mine) {
			t.Error("it was replaced")
		}
		write(t, file, []byte("not a checkpoint"))
		tick(t, clock, "a running log stops", func() bool { return errors.Is(l.Healthy(), receipts.ErrAnchor) })
		l.Close()
		if !same(t, file, []byte("not a checkpoint")) {
			t.Error("it was replaced")
		}
	})
}
