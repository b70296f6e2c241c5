package receipts_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"golang.org/x/mod/sumdb/tlog"

	"agentgw/internal/receipts"
)

// oldLog is a closed log of receipts of several tenants, so many groups of calls
// in ten hours, and its history.
func oldLog(t testing.TB, groups, size int) (dir, vkey string, clock *clockwork.FakeClock, h *history) {
	t.Helper()
	dir, clock = t.TempDir(), clockwork.NewFakeClockAt(noon)
	l := openLog(t, dir, func(o *receipts.Options) {
		receipts.SetNoSync(o)
		receipts.SetSegmentSize(o, int64(groups)*1000)
		o.Clock = clock
	})
	for i := range groups {
		for j := range size {
			id := fmt.Sprintf("a-%d-%d", i, j)
			mustAppend(t, l, intent(id), outcome(id))
		}
		mustAppend(t, l, of("key:b", fmt.Sprint("b-", i)), of(fmt.Sprint("key:", i), fmt.Sprint("c-", i)),
			&receipts.Record{Kind: receipts.KindRefusal, ID: fmt.Sprint("s-", i), Decision: receipts.Refused, Code: "unauthenticated"})
		clock.Advance(10 * time.Hour / time.Duration(groups))
	}
	vkey = l.VerifierKey()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, vkey, clock, historyOf(t, dir, vkey)
}

// prunedLog is one from which entries were removed, with those that stand on the
// cut: who waits for heads and who does not.
func prunedLog(t testing.TB) (dir string) {
	t.Helper()
	dir, _, clock, h := oldLog(t, 10, 2)
	l := openLog(t, dir, retaining(clock, 5*time.Hour))
	removed(t, dir, l, h, clock, 5*time.Hour)
	mustAppend(t, l, intent("new"), outcome("new"))
	if err := l.Seal(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// goldenPruned is such a log, as it was once written.
const goldenPruned = "testdata/v1-pruned"

// TestGoldenPruned: a log without its first entries is read the same for ever, and
// can be written on.
func TestGoldenPruned(t *testing.T) {
	if *update {
		dir := prunedLog(t)
		for _, name := range []string{"receipts", "receipt-signing-key"} {
			os.RemoveAll(filepath.Join(goldenPruned, name))
		}
		if err := os.CopyFS(goldenPruned, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
	}
	vkey, anchor := keyOf(t, goldenPruned), read(t, filepath.Join(goldenPruned, "receipts", "checkpoint"))
	r := verdict(t, goldenPruned, vkey, anchor)
	if r.Verdict != receipts.Unproven || r.Damage != nil || r.Pruned != firstLeft(t, goldenPruned) || r.Kinds["pruned"] == 0 || !r.Sealed || r.Covered != r.Size {
		t.Errorf("%+v", r)
	}
	dir := copyLog(t, goldenPruned)
	l, err := reopen(dir)
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, outcome("z"))
	if _, err := prove(l, "z"); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if again := verdict(t, dir, vkey, anchor); again.Verdict != receipts.Unproven || again.Pruned != r.Pruned || again.Size != r.Size+2 {
		t.Errorf("%+v", again)
	}
}

// extend takes what has been written since.
func (h *history) extend(dir string) {
	h.t.Helper()
	err := receipts.Scan(filepath.Join(dir, "receipts"), func(s receipts.Stored) error {
		if s.Index < uint64(len(h.all)) {
			return nil
		}
		s.Line = bytes.Clone(s.Line)
		h.take(s)
		h.all = append(h.all, leafHash(s.Line))
		h.records[s.Record.ID] = append(h.records[s.Record.ID], s)
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

func retaining(clock clockwork.Clock, retention time.Duration) func(*receipts.Options) {
	return func(o *receipts.Options) {
		receipts.SetNoSync(o)
		receipts.SetSegmentSize(o, 60_000)
		o.Clock, o.Retention = clock, retention
	}
}

// firstLeft is the entry with which the oldest segment begins.
func firstLeft(t testing.TB, dir string) (first uint64) {
	t.Helper()
	if _, err := fmt.Sscanf(filepath.Base(segments(t, dir)[0]), "%d.jsonl", &first); err != nil {
		t.Fatal(err)
	}
	return first
}

// again is for a wait in which retention is to have done something: it lets a minute
// pass now and then. Whether a checkpoint is over what is old already when it looks
// first, at the start, is a matter of who comes first, and it looks each minute.
func again(clock advancing) (pass func()) {
	polls := 0
	return func() {
		if polls++; polls%50 == 0 {
			clock.Advance(time.Minute)
		}
	}
}

// removed waits for retention to have removed all segments that are old enough.
func removed(t testing.TB, dir string, l *receipts.Log, h *history, clock advancing, retention time.Duration) (first uint64) {
	t.Helper()
	pass := again(clock)
	eventually(t, "old segments are removed", func() bool {
		pass()
		before := clock.Now().Add(-retention)
		names := segments(t, dir)
		var next uint64
		if _, err := fmt.Sscanf(filepath.Base(names[min(1, len(names)-1)]), "%d.jsonl", &next); err != nil {
			return false
		}
		for _, list := range h.records {
			for _, s := range list {
				if s.Index+1 == next && !s.Record.Time.After(before) { // the last of the first segment
					return false
				}
			}
		}
		first = firstLeft(t, dir)
		return first > 0
	})
	return first
}

// TestRetentionKeepsTheProof: whole segments whose records are all too old are
// removed, of a log that is written to, and what is left is proven as before:
// each receipt, in the log and from its files; every tile; the whole log, with
// anchors of after and of the cut; and each tenant's export, which says how many of
// its records are gone. So it is after a restart too.
func TestRetentionKeepsTheProof(t *testing.T) {
	dir, vkey, clock, h := oldLog(t, 60, 4)
	anchors := checkpointsIn(segmentFiles(t, dir))
	l := openLog(t, dir, retaining(clock, 5*time.Hour))
	first := removed(t, dir, l, h, clock, 5*time.Hour)
	for _, list := range h.records {
		for _, s := range list {
			if s.Index < first && !s.Record.Time.Before(clock.Now().Add(-5*time.Hour)) {
				t.Fatalf("entry %d was removed: it is of %v", s.Index, s.Record.Time)
			}
		}
	}
	mustAppend(t, l, intent("new"), outcome("new"), of("tenant:new", "n"), of("key:3", "c-again"))
	for round := range 3 {
		h.extend(dir)
		kept := 0
		for id, list := range h.records {
			whole := list[0].Index >= first
			found, err := find(l, id)
			if err != nil || whole && len(found) != len(list) || list[len(list)-1].Index < first && len(found) != 0 {
				t.Fatalf("%s: %d records found of %d: %v", id, len(found), len(list), err)
			}
			if !whole || list[0].Record.Tenant == "" {
				continue
			}
			if kept++; kept%9 > 0 && !drill() {
				continue
			}
			proofs, err := prove(l, id)
			if err != nil {
				t.Fatalf("%s: %v", id, err)
			}
			h.check(id, proofs)
		}
		if kept < 100 {
			t.Fatalf("%d receipts are left", kept)
		}
		for _, id := range []string{"new", "n", "c-again", "a-59-3", "s-59"} {
			proofs, err := receipts.ProveIn(dir, id, nil)
			if err != nil {
				t.Fatalf("%s: %v", id, err)
			}
			h.check(id, proofs)
		}
		for tree, leaves := range map[string][][32]byte{"": h.all, h.origin("tenant:acme")[len(h.log)+len("/t/"):]: h.leaves["tenant:acme"]} {
			for _, size := range []int{1, 300, len(leaves)} {
				size = min(size, len(leaves))
				reader := tlog.TileHashReader(tlog.Tree{N: int64(size), Hash: treeHash(leaves[:size])}, tileReader{l, tree})
				if got, err := tlog.TreeHash(int64(size), reader); err != nil || got != treeHash(leaves[:size]) {
					t.Errorf("tree %q at %d: %v", tree, size, err)
				}
			}
		}
		verifyPruned(t, dir, vkey, first, h, anchors)
		exportsOfPruned(t, dir, vkey, first, h)
		switch round {
		case 0:
			l.Close()
			l = openLog(t, dir, retaining(clock, 5*time.Hour))
		case 1: // without retention it goes on as it is
			l.Close()
			l = openLog(t, dir, retaining(clock, 0))
		}
		mustAppend(t, l, intent(fmt.Sprint("later", round)))
	}
}

func segmentFiles(t testing.TB, dir string) map[string][]byte {
	files := map[string][]byte{}
	for _, name := range segments(t, dir) {
		files[filepath.Base(name)] = read(t, name)
	}
	return files
}

// verifyPruned holds a report of a log without its first entries, against every
// checkpoint that it ever had as anchor, to what is known of it.
func verifyPruned(t *testing.T, dir, vkey string, first uint64, h *history, anchors [][]byte) {
	t.Helper()
	r := verdict(t, dir, vkey, nil)
	if r.Verdict != receipts.Unproven || r.Pruned != first || r.Size < uint64(len(h.all)) {
		t.Fatalf("%s: %s: pruned < %d of %d, want %d of %d", r.Verdict, r.Why, r.Pruned, r.Size, first, len(h.all))
	}
	if !strings.Contains(strings.Join(r.NotProven, "\n"), fmt.Sprintf("pruned < %d", first)) {
		t.Errorf("it does not say what was removed: %q", r.NotProven)
	}
	compared := 0
	for i, anchor := range anchors {
		size := 0
		if _, err := fmt.Sscan(strings.Split(string(anchor), "\n")[1], &size); err != nil {
			t.Fatal(err)
		}
		if i%70 > 0 && size != int(first) {
			continue
		}
		r := verdict(t, dir, vkey, anchor)
		met := strings.Contains(strings.Join(r.Proven, "\n"), "the anchor covers")
		if r.Verdict != receipts.Unproven || met != (size >= int(first)) {
			t.Errorf("an anchor of %d: %s: %s; compared %v", size, r.Verdict, r.Why, met)
		}
		if met {
			compared++
		}
	}
	if compared < 5 {
		t.Errorf("%d anchors were compared", compared)
	}
}

// exportsOfPruned holds exports of a log without its first entries to what was there.
func exportsOfPruned(t *testing.T, dir, vkey string, first uint64, h *history) {
	t.Helper()
	for _, tenant := range []string{"tenant:acme", "key:b", "key:3", "key:59", "tenant:new"} {
		gone := uint64(0)
		for _, list := range h.records {
			for _, s := range list {
				if s.Record.Tenant == tenant && s.Index < first {
					gone++
				}
			}
		}
		text, done := export(t, dir, tenant, nil)
		r := verifyExport(t, text, vkey, nil)
		if r.Verdict != receipts.Unproven || done.Pruned != gone || r.LeftOut != gone || r.Size != uint64(len(h.leaves[tenant])) || r.Origin != h.origin(tenant) {
			t.Errorf("%s: %s: %s: %d of %d removed, want %d of %d", tenant, r.Verdict, r.Why, done.Pruned, r.Size, gone, len(h.leaves[tenant]))
		}
	}
}

// TestRetentionLeavesTheLastSegment: however old it is, and one with a call that
// is still running, and all behind it.
func TestRetentionLeavesTheLastSegment(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir, clock := t.TempDir(), newBubbleClock()
		l := openLog(t, dir, retaining(clock, time.Hour), func(o *receipts.Options) { receipts.SetSegmentSize(o, 3000) })
		vkey := l.VerifierKey()
		for i := range 5 {
			mustAppend(t, l, outcome(fmt.Sprint("before", i)))
		}
		mustAppend(t, l, intent("running"))
		running := uint64(len(kindsOf(t, dir)) - 1)
		for i := range 20 {
			mustAppend(t, l, outcome(fmt.Sprint("after", i)))
		}
		clock.Advance(2 * time.Hour)
		if first := firstLeft(t, dir); first == 0 || first > running {
			t.Errorf("entry %d has no outcome, and what is left begins with %d", running, first)
		}
		mustAppend(t, l, outcome("running"))
		clock.Advance(2 * time.Hour)
		if first := firstLeft(t, dir); first <= running {
			t.Errorf("the call has ended, and what is left begins with %d", first)
		}
		if r := verdict(t, dir, vkey, l.Checkpoint()); r.Verdict != receipts.Unproven || r.Segments < 1 {
			t.Errorf("%s: %s: %d segments", r.Verdict, r.Why, r.Segments)
		}
	})
}

// TestRetentionRemovesNothingThatDoesNotHold: what somebody has altered is
// evidence, and stays.
func TestRetentionRemovesNothingThatDoesNotHold(t *testing.T) {
	dir, _, clock, _ := oldLog(t, 10, 2)
	var said bytes.Buffer
	var mu sync.Mutex
	l := openLog(t, dir, retaining(clock, 50*time.Hour), func(o *receipts.Options) { o.Logger = slog.New(slog.NewTextHandler(lockedWriter{&mu, &said}, nil)) })
	name := segments(t, dir)[0]
	write(t, name, bytes.Replace(read(t, name), []byte(`"status":200`), []byte(`"status":500`), 1))
	eventually(t, "it says that it cannot", func() bool {
		clock.Advance(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(said.String(), "what was to be removed does not hold, and stays")
	})
	if _, err := os.Stat(name); err != nil {
		t.Error(err)
	}
	l.Close()
}

// TestPrunedWithoutTheKey: who has no signing key can remove nothing from the
// front, and nothing of what is left of removed entries can be told otherwise.
func TestPrunedWithoutTheKey(t *testing.T) {
	dir, vkey, clock, h := oldLog(t, 10, 2)
	l := openLog(t, dir, retaining(clock, 5*time.Hour))
	removed(t, dir, l, h, clock, 5*time.Hour)
	l.Close()
	file := filepath.Join(dir, "receipts", "pruned")
	text := read(t, file)
	refused := func(what, dir string) {
		t.Helper()
		if r := verdict(t, dir, vkey, nil); r.Verdict != receipts.Broken {
			t.Errorf("%s: %s: %s", what, r.Verdict, r.Why)
		}
		if l, err := reopen(dir); err == nil {
			l.Close()
			t.Errorf("%s: opened", what)
		}
	}
	list := slices.Collect(bytes.Lines(text))
	for i := range list {
		if !drill() && i%5 > 0 && i > 8 {
			continue
		}
		for what, changed := range map[string][]byte{
			"out": bytes.Join(slices.Delete(slices.Clone(list), i, i+1), nil), "twice": bytes.Join(slices.Insert(slices.Clone(list), i, list[i]), nil),
			"cut before": bytes.Join(list[:i], nil),
		} {
			write(t, file, changed)
			refused(fmt.Sprintf("line %d %s", i, what), dir)
		}
	}
	for i := 0; i < len(text); i += 1 + len(text)/150 {
		changed := bytes.Clone(text)
		changed[i] ^= 1
		write(t, file, changed)
		refused(fmt.Sprintf("byte %d of %d", i, len(text)), dir)
	}
	os.Remove(file)
	refused("without the file", dir)
	write(t, file, text)
	os.Remove(segments(t, dir)[0])
	refused("one segment more is gone", dir)
}

// TestRetentionSurvivesACrash: wherever it is cut short, what is left is a log
// that holds, has every record that is not too old, and goes on.
func TestRetentionSurvivesACrash(t *testing.T) {
	begin := receipts.NewSimDisk()
	clock := clockwork.NewFakeClockAt(noon)
	at := func(d *receipts.SimDisk, retention time.Duration) (*receipts.Log, error) {
		o := receipts.Options{Clock: clock, Replica: "gw-1", Retention: retention}
		receipts.SetSimDisk(&o, d)
		receipts.SetSegmentSize(&o, 2500)
		return receipts.Open("/data", o)
	}
	l, err := at(begin, 0)
	if err != nil {
		t.Fatal(err)
	}
	vkey := l.VerifierKey()
	for i := range 12 {
		if i == 6 {
			clock.Advance(1000 * time.Hour)
		}
		mustAppend(t, l, intent(fmt.Sprint("a", i)), outcome(fmt.Sprint("a", i)), of(fmt.Sprint("key:", i%3), fmt.Sprint("b", i)))
		clock.Advance(10 * time.Minute)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	young := 0 // that have to stay
	count := func(d *receipts.SimDisk) (r *receipts.Report, n int) {
		dir := t.TempDir()
		if err := d.Dump(dir); err != nil {
			t.Fatal(err)
		}
		r = verdict(t, filepath.Join(dir, "data"), vkey, nil)
		if r.Verdict == receipts.Unproven {
			err := receipts.Scan(filepath.Join(dir, "data", "receipts"), func(s receipts.Stored) error {
				if clock.Since(s.Record.Time) < longAgo && s.Record.Tenant != "" {
					n++
				}
				return nil
			})
			var torn *receipts.Damage
			if err != nil && !errors.As(err, &torn) {
				t.Fatal(err)
			}
		}
		os.RemoveAll(dir)
		return r, n
	}
	_, young = count(begin)
	removes := func(d *receipts.SimDisk, dead *atomic.Bool) (ended bool) {
		l, err := at(d, longAgo)
		if err != nil {
			return false
		}
		defer l.Close()
		pass := again(clock)
		eventually(t, "it is done or dead", func() bool {
			pass()
			ended = d.Read("/data/receipts/pruned") != nil && l.Healthy() == nil && oldestIsYoung(d, clock)
			return ended || dead.Load()
		})
		return ended
	}
	calls := 0
	for n := 0; ; n++ {
		if !drill() && n > 6 && n%11 > 0 {
			continue
		}
		d := begin.Clone()
		var changes atomic.Int64
		var dead atomic.Bool
		d.Before = func(c receipts.SimCall) (f receipts.SimFault) {
			if dead.Load() {
				return receipts.SimFault{Err: receipts.ErrSimDead}
			}
			if c.Changes() {
				if int(changes.Add(1)) > n {
					dead.Store(true)
					return receipts.SimFault{Err: receipts.ErrSimDead, Did: n%2 == 0}
				}
			}
			return f
		}
		ended := removes(d, &dead)
		d.Before = nil
		seeds := uint64(1)
		if drill() {
			seeds = 4
		}
		for seed := range seeds {
			after := d.Crash(seed + uint64(n)*seeds)
			r, kept := count(after)
			if r.Verdict != receipts.Unproven || kept != young {
				t.Fatalf("cut short at call %d: %s: %s; %d of %d young receipts", n, r.Verdict, r.Why, kept, young)
			}
			if !removes(after, new(atomic.Bool)) {
				t.Fatalf("cut short at call %d: it does not go on", n)
			}
			if r, kept := count(after); r.Verdict != receipts.Unproven || r.Pruned == 0 || kept != young {
				t.Fatalf("cut short at call %d, and gone on: %s: %s; pruned < %d, %d of %d young receipts", n, r.Verdict, r.Why, r.Pruned, kept, young)
			}
		}
		if calls = n; ended && !dead.Load() {
			break
		}
	}
	if calls < 60 {
		t.Errorf("it was cut short at %d calls only", calls)
	}
}

// longAgo lies in a gap of the log, far from what is older and what is younger.
const longAgo = 500 * time.Hour

// oldestIsYoung reports whether what is left on the disk begins with a segment
// that has a record of less than longAgo.
func oldestIsYoung(d *receipts.SimDisk, clock clockwork.Clock) bool {
	for _, name := range d.Names("/data/receipts") {
		if !strings.HasSuffix(name, ".jsonl") {
			continue
		}
		for line := range bytes.Lines(d.Read("/data/receipts/" + name)) {
			if r, err := receipts.ParseRecord(bytes.TrimSuffix(line, []byte("\n"))); err == nil && clock.Since(r.Time) < longAgo {
				return true
			}
		}
		return false
	}
	return false
}

// TestRetentionMakesRoom: a full disk keeps nobody from removing what is old, and
// then the log takes records again.
func TestRetentionMakesRoom(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, clock := receipts.NewSimDisk(), newBubbleClock()
		d.SetFree(2 << 20)
		o := receipts.Options{Clock: clock, Replica: "gw-1", Retention: time.Hour}
		receipts.SetSimDisk(&o, d)
		receipts.SetSegmentSize(&o, 100_000)
		l, err := receipts.Open("/data", o)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for i := range 300 {
			mustAppend(t, l, outcome(fmt.Sprint("a", i)))
		}
		d.SetFree(20_000)
		for i := 0; err == nil; i++ {
			_, err = l.Append(outcome(fmt.Sprint("b", i)))
		}
		if !errors.Is(err, receipts.ErrUnavailable) || l.Healthy() == nil {
			t.Fatalf("the disk is not full: %v", err)
		}
		clock.Advance(2 * time.Hour)
		eventually(t, "there is room again", func() bool {
			clock.Advance(200 * time.Millisecond)
			_, err := l.Append(outcome("c"))
			return err == nil
		})
		if d.Read("/data/receipts/pruned") == nil {
			t.Error("nothing was removed")
		}
	})
}
