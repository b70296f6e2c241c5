package receipts_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

// drill reports whether tests are to take the time that it takes to try all there is.
func drill() bool { return os.Getenv("DRILLS") == "full" }

// segmentFile is the only segment of a small log.
func segmentFile(dir string) string {
	return filepath.Join(dir, "receipts", "00000000000000000000.jsonl")
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// copyLog copies key, segments and checkpoint into a new data folder.
func copyLog(t testing.TB, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// reopen leaves the disk out: what it would sync is read back by this process.
func reopen(dir string) (*receipts.Log, error) {
	o := receipts.Options{Clock: clockwork.NewFakeClockAt(noon), Replica: "gw-1"}
	receipts.SetNoSync(&o)
	receipts.SetSegmentSize(&o, 1<<20)
	return receipts.Open(dir, o)
}

func ids(t *testing.T, dir string) (list []string, kinds map[receipts.Kind]int) {
	t.Helper()
	kinds = map[receipts.Kind]int{}
	err := receipts.Scan(filepath.Join(dir, "receipts"), func(s receipts.Stored) error {
		kinds[s.Record.Kind]++
		if len(s.Record.ID) < 5 {
			list = append(list, s.Record.ID)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list, kinds
}

// A process that dies leaves any first part of its last write. Whatever that
// is, what was acknowledged before stays, the log opens and verifies.
func TestLastWriteCutAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	mustAppend(t, l, outcome("a"), outcome("b"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	before := read(t, segmentFile(dir))
	acknowledged := copyLog(t, dir)

	// The last batch holds several records: they are gathered in interval
	// mode and written by Close, under a checkpoint that we then take away.
	l = openLog(t, dir, func(o *receipts.Options) { o.Sync = receipts.SyncInterval })
	mustAppend(t, l, outcome("c"), outcome("d"), outcome("e"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	after := read(t, segmentFile(dir))
	if !bytes.HasPrefix(after, before) {
		t.Fatal("the log has not only grown")
	}
	batch := after[len(before):]
	batch = batch[:bytes.LastIndex(batch, []byte(`{"checkpoint":`))]
	whole := 0
	for cut := 0; cut <= len(batch); cut++ {
		if !drill() && cut%29 != 0 && !bytes.Contains(batch[max(0, cut-3):min(cut+3, len(batch))], []byte("\n")) {
			continue // the short form: line ends, and some in between
		}
		dir := copyLog(t, acknowledged)
		write(t, segmentFile(dir), append(bytes.Clone(before), batch[:cut]...))
		vkey, anchor := keyOf(t, dir), read(t, filepath.Join(dir, "receipts", "checkpoint"))
		holds := func(when string) {
			t.Helper()
			r, err := receipts.Verify(dir, vkey, anchor, nil)
			if err != nil || r.Verdict != receipts.Holds && (r.Verdict != receipts.Unproven || r.Interval == 0) {
				t.Fatalf("cut at %d: %s: %+v, %v", cut, when, r, err)
			}
		}
		holds("before the repair")
		l, err := reopen(dir)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		mustAppend(t, l, outcome("z"))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		list, kinds := ids(t, dir)
		got := strings.Join(list, "")
		complete := 0
		for line := range bytes.Lines(batch[:cut]) {
			if bytes.HasPrefix(line, []byte(`{"v":`)) && bytes.HasSuffix(line, []byte("\n")) {
				complete++
			}
		}
		want := "ab" + "cde"[:complete] + "z"
		if got != want {
			t.Fatalf("cut at %d: %s, want %s", cut, got, want)
		}
		if cut > 0 && batch[cut-1] != '\n' {
			if kinds[receipts.KindRecovery] != 1 {
				t.Fatalf("cut at %d: %d recovery records", cut, kinds[receipts.KindRecovery])
			}
			torn := cut // with the line of the batch, if none of its records is whole
			if complete > 0 {
				torn -= bytes.LastIndexByte(batch[:cut], '\n') + 1
			}
			if told := recoveryIn(t, dir); told.Kept != int64(complete) || told.Bytes != int64(torn) {
				t.Fatalf("cut at %d: %+v is told of %d bytes behind %d whole records", cut, told, torn, complete)
			}
		}
		if want == "abcdez" {
			whole++
		}
		holds("after it")
	}
	if whole == 0 {
		t.Error("the whole batch was never kept")
	}
}

// recoveryIn returns what the last recovery record of the log in dir tells.
func recoveryIn(t *testing.T, dir string) (told receipts.Recovery) {
	t.Helper()
	err := receipts.Scan(filepath.Join(dir, "receipts"), func(s receipts.Stored) error {
		if s.Record.Kind == receipts.KindRecovery {
			told = *s.Record.Recovery
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return told
}

func TestRecoveryRecordTellsWhatWasCut(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	mustAppend(t, l, outcome("a"))
	l.Close()
	whole := read(t, segmentFile(dir))
	write(t, segmentFile(dir), append(whole, `{"batch":{"fir`...))
	l = openLog(t, dir)
	l.Close()
	found := recoveryIn(t, dir)
	if found.Bytes != 14 || found.Offset != int64(len(whole)) || found.File != filepath.Base(segmentFile(dir)) {
		t.Fatalf("%+v", found)
	}
	kept, _ := filepath.Glob(filepath.Join(dir, "receipts", "quarantine", "*"))
	if len(kept) != 1 || string(read(t, kept[0])) != `{"batch":{"fir` || !strings.HasSuffix(kept[0], found.SHA256[:16]) {
		t.Errorf("quarantine holds %q", kept)
	}
}

// Space that the file system gave to the file before the crash is no data.
func TestZeroTailIsTheEnd(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	mustAppend(t, l, outcome("a"))
	l.Close()
	whole := read(t, segmentFile(dir))
	write(t, segmentFile(dir), append(whole, make([]byte, 5000)...))
	if r, err := receipts.Verify(dir, keyOf(t, dir), read(t, filepath.Join(dir, "receipts", "checkpoint")), nil); err != nil || r.Verdict != receipts.Holds {
		t.Fatalf("%+v, %v", r, err)
	}
	openLog(t, dir).Close()
	if _, kinds := ids(t, dir); kinds[receipts.KindRecovery] != 0 {
		t.Error("a recovery record for zeros")
	}
	if !bytes.Equal(read(t, segmentFile(dir)), whole) {
		t.Error("the log was changed beyond the cut")
	}
}

// Somebody without the key appends what looks right. It is never signed.
func TestForeignRecordsAreNeverSigned(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	mustAppend(t, l, outcome("a"))
	l.Close()
	whole := read(t, segmentFile(dir))
	line := bytes.Split(whole, []byte("\n"))[5] // the record of "a"
	forged := bytes.Replace(line, []byte(`"seq":1`), []byte(`"seq":2`), 1)
	forged = bytes.Replace(forged, []byte(`"id":"a"`), []byte(`"id":"x"`), 1)
	tail := []byte(`{"batch":{"first":2,"count":1,"bytes":` + itoa(len(forged)+1) + "}}\n" + string(forged) + "\n")
	write(t, segmentFile(dir), append(bytes.Clone(whole), tail...))
	openLog(t, dir).Close()
	list, kinds := ids(t, dir)
	if strings.Join(list, "") != "a" || kinds[receipts.KindRecovery] != 1 {
		t.Errorf("ids %v, kinds %v", list, kinds)
	}
}

// What was once synced and is wrong now is not repaired away.
func TestDamageRefusesToStart(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	mustAppend(t, l, outcome("a"), outcome("b"), outcome("c"))
	l.Close()
	whole := read(t, segmentFile(dir))
	at := bytes.Index(whole, []byte(`"id":"b"`))
	broken := bytes.Clone(whole)
	broken[at+6] = 'x'
	for name, keepCheckpoint := range map[string]bool{"with the checkpoint file": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			dir := copyLog(t, dir)
			write(t, segmentFile(dir), broken)
			if !keepCheckpoint {
				os.Remove(filepath.Join(dir, "receipts", "checkpoint"))
			}
			_, err := reopen(dir)
			var damage *receipts.Damage
			if !errors.As(err, &damage) {
				t.Fatalf("opened: %v", err)
			}
			start := bytes.LastIndexByte(whole[:at], '\n') + 1
			if damage.File != filepath.Base(segmentFile(dir)) || damage.Offset != int64(start) || damage.Index != 2 || damage.ID != "x" {
				t.Errorf("%+v", damage)
			}
			if !bytes.Equal(read(t, segmentFile(dir)), broken) {
				t.Error("something was changed")
			}
		})
	}
}

// A batch of ours stands behind what is wrong: that it was written shows that
// what is before it had been synced, though no checkpoint says so.
func TestDamageBeforeABatchRefusesToStart(t *testing.T) {
	for _, without := range []string{"any checkpoint", "those behind the damage"} {
		dir := t.TempDir()
		l := openLog(t, dir)
		mustAppend(t, l, outcome("a"), outcome("b"), outcome("c"))
		l.Close()
		os.Remove(filepath.Join(dir, "receipts", "checkpoint"))
		var kept []byte
		for line := range bytes.Lines(read(t, segmentFile(dir))) {
			behind := bytes.Contains(kept, []byte(`"id":"b"`))
			if !bytes.HasPrefix(line, []byte(`{"checkpoint":`)) || without != "any checkpoint" && !behind {
				kept = append(kept, line...)
			}
		}
		broken := bytes.Replace(kept, []byte(`"id":"b"`), []byte(`"id":"x"`), 1)
		write(t, segmentFile(dir), broken)
		var damage *receipts.Damage
		if _, err := reopen(dir); !errors.As(err, &damage) || damage.Index != 2 {
			t.Errorf("without %s: opened: %v", without, err)
		}
		if !bytes.Equal(read(t, segmentFile(dir)), broken) {
			t.Errorf("without %s: something was changed", without)
		}
	}
}

// TestForeignBatchFurtherOnIsCut: a batch that begins further on shows nothing of
// what is before it where its records are not of this log. Anybody can write one,
// and would else keep a log from starting that a crash has torn.
func TestForeignBatchFurtherOnIsCut(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	mustAppend(t, l, outcome("a"))
	l.Close()
	anchor, whole := l.Checkpoint(), read(t, segmentFile(dir))
	line := whole[bytes.LastIndex(whole, []byte(`{"v":`)):]
	line = line[:bytes.IndexByte(line, '\n')+1]
	torn := fmt.Appendf(nil, "{\"batch\":{\"fir\n{\"batch\":{\"first\":9,\"count\":1,\"bytes\":%d}}\n%s", len(line), line)
	write(t, segmentFile(dir), append(bytes.Clone(whole), torn...))
	openLog(t, dir).Close()
	if told := recoveryIn(t, dir); told.Bytes != int64(len(torn)) || told.Offset != int64(len(whole)) {
		t.Errorf("%+v, want all %d bytes cut", told, len(torn))
	}
	if r := verdict(t, dir, l.VerifierKey(), anchor); r.Verdict != receipts.Holds || r.Size != 3 {
		t.Errorf("%s of %d entries: %s", r.Verdict, r.Size, r.Why)
	}
}

// TestCutBeforeTheEnd: the last segment cut off at any byte before what the
// checkpoint file covers. Acknowledged receipts are gone, and a start that
// repaired that would hide it: it is refused, and nothing is touched.
func TestCutBeforeTheEnd(t *testing.T) {
	original, _, _ := smallLog(t)
	dir := copyLog(t, original)
	names := segments(t, dir)
	last := names[len(names)-1]
	whole := read(t, last)
	covered := bytes.LastIndex(whole, []byte(`{"checkpoint":`)) // all records are
	for cut := 0; cut < covered; cut++ {
		if !drill() && cut%11 != 0 && whole[cut] != '\n' {
			continue
		}
		write(t, last, whole[:cut])
		l, err := reopen(dir)
		if err == nil {
			l.Close()
			t.Fatalf("cut at %d: opened", cut)
		}
		if !strings.Contains(err.Error(), "acknowledged entries are missing") || !strings.Contains(err.Error(), "Bring the folder back") {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if !bytes.Equal(read(t, last), whole[:cut]) {
			t.Fatalf("cut at %d: something was changed", cut)
		}
	}
}

// TestDamageAnywhereRefusesToStart: one byte of each line, of all but the last.
func TestDamageAnywhereRefusesToStart(t *testing.T) {
	original, _, _ := smallLog(t)
	dir := copyLog(t, original)
	lines := placesOf(t, dir)
	at := map[string]int{}
	for i, p := range lines[:len(lines)-1] {
		begin := at[p.file]
		at[p.file] += len(p.line)
		whole := read(t, p.file)
		broken := bytes.Clone(whole)
		place := (17 * i) % len(p.line)
		broken[begin+place] ^= 1
		write(t, p.file, broken)
		for _, withCheckpoint := range []bool{true, false} {
			copied := copyLog(t, dir)
			if !withCheckpoint {
				os.Remove(filepath.Join(copied, "receipts", "checkpoint"))
				if i >= len(lines)-3 {
					continue // the last batch: without the file nothing says that it was ever synced
				}
			}
			l, err := reopen(copied)
			var damage *receipts.Damage
			switch {
			case err == nil:
				l.Close()
				t.Errorf("line %d of %s (%.30s): opened", i, filepath.Base(p.file), p.line)
			case !errors.As(err, &damage) || !strings.Contains(err.Error(), "Bring the folder back"):
				t.Errorf("line %d (%.30s): %v", i, p.line, err)
			case damage.File != filepath.Base(p.file):
				t.Errorf("line %d (%.30s): blames %v", i, p.line, damage)
			}
			if !bytes.Equal(read(t, filepath.Join(copied, "receipts", filepath.Base(p.file))), broken) {
				t.Errorf("line %d: something was changed", i)
			}
		}
		write(t, p.file, whole)
	}
}

func TestShorterThanItsCheckpointRefusesToStart(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	mustAppend(t, l, outcome("a"), outcome("b"))
	l.Close()
	whole := read(t, segmentFile(dir))
	write(t, segmentFile(dir), whole[:bytes.LastIndex(whole, []byte(`{"batch":`))])
	if _, err := reopen(dir); err == nil || !strings.Contains(err.Error(), "acknowledged entries are missing") {
		t.Errorf("opened: %v", err)
	}
}

func TestMissingKeyRefusesToStart(t *testing.T) {
	dir := t.TempDir()
	openLog(t, dir).Close()
	os.Remove(filepath.Join(dir, "receipt-signing-key"))
	if _, err := reopen(dir); err == nil || !strings.Contains(err.Error(), "signing key") {
		t.Errorf("opened: %v", err)
	}
}

var errDisk = errors.New("disk on fire")

func TestFailedSyncFailsTheLog(t *testing.T) {
	dir := t.TempDir()
	var broken atomic.Bool
	l := openLog(t, dir, func(o *receipts.Options) {
		receipts.SetDisk(o, nil, func() error {
			if broken.CompareAndSwap(true, false) { // once: later syncs would succeed
				return errDisk
			}
			return nil
		})
	})
	mustAppend(t, l, outcome("a"))
	before := l.Checkpoint()
	broken.Store(true)
	if _, err := l.Append(outcome("b")); !errors.Is(err, receipts.ErrUnavailable) || !errors.Is(err, errDisk) {
		t.Errorf("append: %v", err)
	}
	if _, err := l.Append(outcome("c")); !errors.Is(err, receipts.ErrUnavailable) {
		t.Errorf("append after the failure: %v", err)
	}
	if err := l.Healthy(); !errors.Is(err, errDisk) {
		t.Errorf("healthy: %v", err)
	}
	if !bytes.Equal(before, l.Checkpoint()) {
		t.Error("a checkpoint over an entry that may not be on disk")
	}
	if err := l.Close(); !errors.Is(err, errDisk) {
		t.Errorf("close: %v", err)
	}
	// The disk kept the bytes all the same: they are in the log after a
	// restart, which is allowed, and the log goes on.
	mustAppend(t, openLog(t, dir), outcome("d"))
}

func TestFailedWriteFailsTheLog(t *testing.T) {
	var broken atomic.Bool
	l := openLog(t, t.TempDir(), func(o *receipts.Options) {
		receipts.SetDisk(o, func([]byte, int64) error {
			if broken.Load() {
				return errDisk
			}
			return nil
		}, nil)
	})
	mustAppend(t, l, outcome("a"))
	broken.Store(true)
	if _, err := l.Append(outcome("b")); !errors.Is(err, receipts.ErrUnavailable) {
		t.Errorf("append: %v", err)
	}
}

func TestNothingIsAcknowledgedBeforeItsSync(t *testing.T) {
	var synced atomic.Int64
	hold := make(chan struct{})
	entered := make(chan struct{}, 10)
	var armed atomic.Bool
	l := openLog(t, t.TempDir(), func(o *receipts.Options) {
		receipts.SetDisk(o, nil, func() error {
			if armed.Load() {
				entered <- struct{}{}
				<-hold
			}
			synced.Add(1)
			return nil
		})
	})
	armed.Store(true)
	before, checkpoint := synced.Load(), l.Checkpoint()
	done := make(chan int64)
	go func() {
		l.Append(outcome("a"))
		done <- synced.Load()
	}()
	<-entered
	if !bytes.Equal(checkpoint, l.Checkpoint()) || l.Stats().Size != 1 {
		t.Error("shown before it is on disk")
	}
	if found, _ := l.Find("a", "ci-bot"); found != nil {
		t.Error("found before it is on disk")
	}
	armed.Store(false)
	close(hold)
	if after := <-done; after <= before {
		t.Error("acknowledged before its sync")
	}
}
