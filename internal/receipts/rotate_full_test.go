package receipts_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jonboulle/clockwork"
	"golang.org/x/mod/sumdb/note"

	"agentgw/internal/receipts"
)

// TestHandedOverWithoutRoomForAHeader: a log that was handed over and has nowhere to
// say so under the new key, since the disk is full or takes no more, is stopped. It
// holds for whoever has the first key, by what stands in the file checkpoint too,
// and the next start goes on with it.
func TestHandedOverWithoutRoomForAHeader(t *testing.T) {
	for name, fault := range map[string]func(receipts.SimCall) error{
		"there is no room": func(c receipts.SimCall) error {
			if c.Op == "write" {
				return syscall.ENOSPC
			}
			return nil
		},
		"it is not synced": func(c receipts.SimCall) error {
			if c.Op == "sync" {
				return syscall.EIO
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			disk, clock := receipts.NewSimDisk(), clockwork.NewFakeClockAt(noon)
			at := func(d *receipts.SimDisk) *receipts.Log {
				o := receipts.Options{Clock: clock, Replica: "gw-1"}
				receipts.SetSimDisk(&o, d)
				l, err := receipts.Open(simData, o)
				if err != nil {
					t.Fatal(err)
				}
				return l
			}
			l := at(disk)
			mustAppend(t, l, intent("a"), outcome("a"))
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			first, anchor := l.VerifierKey(), l.Checkpoint()
			skey, next, err := note.GenerateKey(nil, l.Origin())
			if err != nil {
				t.Fatal(err)
			}
			disk.Put(simData+"/receipt-signing-key.next", []byte(skey+"\n"))
			before := filepath.Base(segments(t, dump(t, disk))[0])
			var broken atomic.Bool
			var faults atomic.Int64
			disk.Before = func(c receipts.SimCall) (f receipts.SimFault) {
				if c.Name != before && filepath.Ext(c.Name) == ".jsonl" && (c.Op == "write" || broken.Load()) {
					if f.Err = fault(c); f.Err != nil {
						faults.Add(1)
					}
				}
				return f
			}
			l = at(disk)
			broken.Store(true)
			if l.VerifierKey() != next {
				t.Fatal("not handed over")
			}
			if name == "there is no room" {
				eventually(t, "the log has tried in vain, beside the start too", func() bool { return faults.Load() > 1 })
			}
			_ = l.Close() // it may say that the disk does not take the rest
			for what, d := range map[string]*receipts.SimDisk{"stopped": disk.Kill(), "the power lost": disk.Crash(1)} {
				for _, vkey := range []string{first, next} {
					if r := verdict(t, dump(t, d), vkey, anchor); r.Verdict != receipts.Holds {
						t.Errorf("%s, by the key %s: %s: %s", what, vkey, r.Verdict, r.Why)
					}
				}
				l = at(d)
				mustAppend(t, l, outcome("b"))
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if r := verdict(t, dump(t, d), first, l.Checkpoint()); r.Verdict != receipts.Holds || len(r.Keys) != 2 {
					t.Errorf("%s, gone on with: %s: %s, keys %v", what, r.Verdict, r.Why, r.Keys)
				}
			}
		})
	}
}

// TestAKeyThatTookOverSaysSoAtOnce: a log that was handed over and is stopped before
// anything is recorded has a segment with the new key's header, and a checkpoint by it.
func TestAKeyThatTookOverSaysSoAtOnce(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	mustAppend(t, l, intent("a"), outcome("a"))
	l.Close()
	first := l.VerifierKey()
	next := rotate(t, dir)
	l = openLog(t, dir)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	names := segments(t, dir)
	last := string(read(t, names[len(names)-1]))
	if len(names) != 2 || !strings.Contains(last, next) || strings.Count(last, "\n") != 2 || !strings.Contains(last, `{"checkpoint":`) {
		t.Errorf("%v: %s", names, last)
	}
	stored := read(t, filepath.Join(dir, "receipts", "checkpoint"))
	if !bytes.Equal(stored, l.Checkpoint()) || bytes.Count(stored, []byte("— ")) != 1 {
		t.Errorf("%s", stored)
	}
	for _, vkey := range []string{first, next} {
		if r := verdict(t, dir, vkey, stored); r.Verdict != receipts.Holds || len(r.Keys) != 2 {
			t.Errorf("%+v", r)
		}
	}
}

// dump is the data folder as a process reads it on d, in a real folder.
func dump(t testing.TB, d *receipts.SimDisk) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := d.Dump(dir); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, simData)
}
