package receipts_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

// TestOldProgramOnANewerLog: what a newer version has written behind the last
// checkpoint is no torn tail, though this program cannot read it. The start is
// refused, says so, and touches nothing.
func TestOldProgramOnANewerLog(t *testing.T) {
	record := func(t *testing.T) string {
		dir, last, begin := unsignedTail(t)
		text := read(t, last)
		batch, line, _ := bytes.Cut(text[begin:], []byte("\n"))
		body, _, _ := bytes.Cut(line, []byte(`,"tag":`))
		body = bytes.Replace(body, []byte(`{"v":1,"kind":"outcome"`), []byte(`{"v":2,"kind":"rumours"`), 1)
		newer, err := receipts.Tagged(dir, 10, body)
		if err != nil || len(newer) != len(line)-1 {
			t.Fatal(err, string(newer))
		}
		write(t, last, append(append(append(bytes.Clone(text[:begin]), batch...), '\n'), append(newer, '\n')...))
		return dir
	}
	header := func(t *testing.T) string {
		dir, _, _ := smallLog(t)
		head, _, _ := bytes.Cut(read(t, segmentFile(dir)), []byte("\n"))
		head = bytes.Replace(head, []byte(`{"v":1,`), []byte(`{"v":2,`), 1)
		head = bytes.Replace(head, []byte(`"first":0,`), []byte(`"first":10,`), 1)
		write(t, filepath.Join(dir, "receipts", fmt.Sprintf("%020d.jsonl", 10)), append(head, '\n'))
		return dir
	}
	for what, make := range map[string]func(*testing.T) string{"a record": record, "a segment": header} {
		t.Run(what, func(t *testing.T) {
			dir := make(t)
			before := tree(t, dir)
			l, err := reopen(dir)
			if err == nil {
				l.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), "newer version") || strings.Contains(err.Error(), "from a copy") {
				t.Errorf("does not say what to do: %v", err)
			}
			if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestNoStartWhereNothingCanBeWritten: on a disk that is mounted for reading, or is
// somebody else's, a start fails with the reason, and makes nothing.
func TestNoStartWhereNothingCanBeWritten(t *testing.T) {
	begun := receipts.NewSimDisk()
	mustAppend(t, openSim(t, begun), outcome("a"))
	for what, disk := range map[string]*receipts.SimDisk{"an empty disk": receipts.NewSimDisk(), "a log": begun.Crash(1)} {
		for _, reason := range []error{syscall.EROFS, syscall.EACCES} {
			d := disk.Clone()
			d.Before = func(c receipts.SimCall) receipts.SimFault {
				if c.Changes() && c.Op != "syncdir" {
					return receipts.SimFault{Err: reason}
				}
				return receipts.SimFault{}
			}
			l, err := receipts.Open(simData, simOptions(d, clockwork.NewFakeClockAt(noon)))
			if err == nil {
				l.Close()
			}
			if !errors.Is(err, reason) || strings.Count(err.Error(), "\n") > 0 {
				t.Errorf("%s, %v: %v", what, reason, err)
			}
			was, is := filepath.Join(t.TempDir(), "was"), filepath.Join(t.TempDir(), "is")
			if err := errors.Join(disk.Dump(was), d.Dump(is)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tree(t, was), tree(t, is)); diff != "" {
				t.Errorf("%s, %v: %s", what, reason, diff)
			}
		}
	}
	if os.Getuid() == 0 {
		return // may do everything
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if _, err := receipts.Open(dir, receipts.Options{Clock: clockwork.NewFakeClock()}); !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
}

// TestSegmentTakenAwayFailsTheLog: a log that writes on into a file that nobody
// finds any more looks healthy and keeps nothing. The next commit sees it.
func TestSegmentTakenAwayFailsTheLog(t *testing.T) {
	for what, take := range map[string]func(segment string) error{
		"removed":              os.Remove,
		"renamed":              func(s string) error { return os.Rename(s, s+".1") },
		"replaced by a copy":   func(s string) error { b := read(t, s); return errors.Join(os.Remove(s), os.WriteFile(s, b, 0o600)) },
		"its folder renamed":   func(s string) error { return os.Rename(filepath.Dir(s), filepath.Dir(s)+".old") },
		"its folder's removed": func(s string) error { return os.RemoveAll(filepath.Dir(s)) },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			l := openLog(t, dir)
			mustAppend(t, l, outcome("a"))
			if err := take(segmentFile(dir)); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Append(outcome("b")); !errors.Is(err, receipts.ErrUnavailable) {
				t.Errorf("acknowledged: %v", err)
			}
			if l.Healthy() == nil {
				t.Error("still healthy")
			}
		})
	}
}

// TestRecordOverTheLimit: 8,192 bytes are written as they are, one more as a short
// record that says so.
func TestRecordOverTheLimit(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	written := func(id string, action int) []byte {
		t.Helper()
		r := outcome(id)
		r.Action = strings.Repeat("a", action)
		mustAppend(t, l, r)
		found, err := l.Find(id, "ci-bot")
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		return found[0]
	}
	fits := 8192 - len(written("a", 0)) - len(`,"action":""`)
	if line := written("b", fits); len(line) != 8192 || bytes.Contains(line, []byte(`"cut":true`)) {
		t.Errorf("%d bytes: %.100s", len(line), line)
	}
	if line := written("c", fits+1); len(line) > 1024 || !bytes.Contains(line, []byte(`"cut":true`)) || !bytes.Contains(line, []byte(`"id":"c"`)) {
		t.Errorf("%d bytes: %.100s", len(line), line)
	}
	l.Close()
	if r := verdict(t, dir, l.VerifierKey(), l.Checkpoint()); r.Verdict != receipts.Holds {
		t.Error(r.Why)
	}
}

// TestEveryBitOfALogCounts: flipped in any entry, any other line, or the checkpoint.
func TestEveryBitOfALogCounts(t *testing.T) {
	dir, vkey, anchor := smallLog(t)
	dir = copyLog(t, dir)
	tried := 0
	for i, file := range append(segments(t, dir), filepath.Join(dir, "receipts", "checkpoint")) {
		whole := read(t, file)
		for bit := range 8 * len(whole) {
			if !drill() && (bit+i)%211 != 0 {
				continue
			}
			tried++
			changed := bytes.Clone(whole)
			changed[bit/8] ^= 1 << (bit % 8)
			write(t, file, changed)
			// With the anchor, and without: the log itself has to tell.
			for _, a := range [][]byte{anchor, nil} {
				if r := verdict(t, dir, vkey, a); r.Verdict.ExitCode() != 1 && !onlyTorn(r) {
					t.Errorf("bit %d of byte %d of %s: %s", bit%8, bit/8, filepath.Base(file), r.Verdict)
				}
			}
		}
		write(t, file, whole)
	}
	if tried < 200 {
		t.Errorf("%d bits", tried)
	}
}

// TestNoMoreFiles: a process that may open no more files gets errors, and goes on
// or stops; whatever it has acknowledged is there.
func TestNoMoreFiles(t *testing.T) {
	for after := range 12 {
		d, acks := receipts.NewSimDisk(), acknowledged{}
		o := simOptions(d, clockwork.NewFakeClockAt(noon))
		receipts.SetSegmentSize(&o, 2<<10)
		left := make(chan struct{}, 1000)
		for range 8 + after {
			left <- struct{}{}
		}
		d.Before = func(c receipts.SimCall) receipts.SimFault {
			if c.Op == "open" || c.Op == "create" || c.Op == "readdir" || c.Op == "syncdir" {
				select {
				case <-left:
				default:
					return receipts.SimFault{Err: syscall.EMFILE}
				}
			}
			return receipts.SimFault{}
		}
		l, err := receipts.Open(simData, o)
		if err != nil {
			if !errors.Is(err, syscall.EMFILE) {
				t.Errorf("%d files: %v", after, err)
			}
			continue
		}
		for i := range 20 {
			if err := acks.append(l, outcome(fmt.Sprint(i))); err != nil && !errors.Is(err, receipts.ErrUnavailable) {
				t.Errorf("%d files: %v", after, err)
			}
		}
		vkey, anchor := l.VerifierKey(), l.Checkpoint()
		_ = l.Close()
		d = d.Crash(uint64(after))
		if err := openSim(t, d).Close(); err != nil {
			t.Fatal(err)
		}
		if missing := acks.in(t, d, vkey, anchor); len(missing) > 0 {
			t.Errorf("%d files: acknowledged, and lost: %v", after, missing)
		}
	}
}
