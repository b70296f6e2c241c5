package receipts_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jonboulle/clockwork"
	"golang.org/x/mod/sumdb/note"

	"agentgw/internal/receipts"
)

// rotated is a closed log that was under three keys, sealed in between, with
// tenants, heads and several segments under each, and what was signed on the way.
type rotated struct {
	dir     string
	vkeys   []string
	anchors [][]byte // under each key one
	trees   [][]byte // of one tenant's tree
	proofs  [][]byte
}

func rotate(t testing.TB, dir string) (vkey string) {
	t.Helper()
	vkey, err := receipts.PrepareKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	return vkey
}

// rotatedLog hands a log over twice. sealed is whether it is stopped in good order
// in between.
func rotatedLog(t testing.TB, sealed bool) (r rotated) {
	t.Helper()
	r.dir = t.TempDir()
	clock := clockwork.NewFakeClockAt(noon)
	for era := range 3 {
		if era > 0 {
			rotate(t, r.dir)
		}
		l := openLog(t, r.dir, func(o *receipts.Options) {
			receipts.SetNoSync(o)
			receipts.SetSegmentSize(o, 3000)
			o.Clock = clock
		})
		r.vkeys = append(r.vkeys, l.VerifierKey())
		for i := range 3 {
			id := fmt.Sprintf("a-%d-%d", era, i)
			mustAppend(t, l, intent(id), outcome(id), of("key:b", fmt.Sprintf("b-%d-%d", era, i)))
			clock.Advance(10 * time.Minute)
		}
		proofs, err := prove(l, fmt.Sprintf("a-%d-1", era))
		if err != nil {
			t.Fatal(err)
		}
		r.proofs = append(r.proofs, proofs[0].Text)
		r.trees = append(r.trees, []byte(takeApart(t, proofs[0].Text).checkpoint))
		end := l.Close
		if sealed {
			end = l.Seal
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		r.anchors = append(r.anchors, l.Checkpoint())
	}
	return r
}

// goldenRotated is such a log, as it was once written, and its first verifier key.
const goldenRotated = "testdata/v1-rotated"

// TestGoldenRotated: a log of three keys is read the same for ever, by its first
// key and by its last, can be written on, and be handed over once more.
func TestGoldenRotated(t *testing.T) {
	firstKey := filepath.Join(goldenRotated, "first.vkey")
	if *update {
		log := rotatedLog(t, true)
		for _, name := range []string{"receipts", "receipt-signing-key"} {
			os.RemoveAll(filepath.Join(goldenRotated, name))
		}
		if err := os.CopyFS(goldenRotated, os.DirFS(log.dir)); err != nil {
			t.Fatal(err)
		}
		write(t, firstKey, []byte(log.vkeys[0]+"\n"))
	}
	anchor := read(t, filepath.Join(goldenRotated, "receipts", "checkpoint"))
	dir := copyLog(t, goldenRotated)
	rotate(t, dir)
	l, err := reopen(dir)
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, outcome("z"))
	l.Close()
	for _, vkey := range []string{strings.TrimSpace(string(read(t, firstKey))), keyOf(t, goldenRotated)} {
		if r := verdict(t, goldenRotated, vkey, anchor); r.Verdict != receipts.Holds || len(r.Keys) != 3 || r.Keys[0].VKey+"\n" != string(read(t, firstKey)) || !r.Sealed {
			t.Errorf("%+v", r)
		}
		if r := verdict(t, dir, vkey, anchor); r.Verdict != receipts.Holds || len(r.Keys) != 4 {
			t.Errorf("%+v", r)
		}
	}
}

// borders are the lines with which a log was handed over.
func borders(t testing.TB, dir string) (lines []string) {
	t.Helper()
	for _, name := range segments(t, dir) {
		for line := range strings.Lines(string(read(t, name))) {
			if strings.HasPrefix(line, `{"checkpoint":`) && strings.Count(line, "— ") == 2 {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// TestAnyKeyOfTheWalkVerifies: who trusts the first key of three, or any other of
// them, has the whole log proven, against an anchor by any of them, and is shown
// which keys they were. The log, its name and its tenants' trees go on as they are.
func TestAnyKeyOfTheWalkVerifies(t *testing.T) {
	log := rotatedLog(t, true)
	if len(borders(t, log.dir)) != 2 {
		t.Fatalf("borders %q", borders(t, log.dir))
	}
	anchors := append(slices.Concat(log.anchors, log.trees), nil)
	for i, vkey := range log.vkeys {
		for j, anchor := range anchors {
			r := verdict(t, log.dir, vkey, anchor)
			want := receipts.Unproven
			if j < len(log.anchors) {
				want = receipts.Holds
			}
			if r.Verdict != want || r.Covered != r.Size || !r.Sealed || len(r.Keys) != 3 {
				t.Errorf("key %d, anchor %d: %+v", i, j, r)
			}
			for k, walked := range r.Keys {
				if walked.VKey != log.vkeys[k] || (walked.From > 0) != (k > 0) {
					t.Errorf("key %d: walked %+v", i, r.Keys)
				}
			}
		}
	}
	if now, err := receipts.VerifierKeyOf(log.dir); err != nil || now != log.vkeys[2] {
		t.Errorf("%s, %v", now, err)
	}
	if name, _, _ := strings.Cut(log.vkeys[0], "+"); !strings.HasPrefix(log.vkeys[2], name+"+") || !strings.HasPrefix(string(log.anchors[2]), name+"\n") {
		t.Errorf("the log has another name: %s", log.vkeys[2])
	}
	if strings.Split(string(log.trees[0]), "\n")[0] != strings.Split(string(log.trees[2]), "\n")[0] {
		t.Error("the tenant's tree has another name")
	}
	for era, vkey := range log.vkeys {
		for made, proof := range log.proofs {
			r, err := receipts.VerifyProof(proof, vkey)
			if err != nil || (r.Verdict == receipts.Holds) != (era == made) || era != made && r.Verdict != receipts.Untrusted {
				t.Errorf("a proof of era %d by the key of era %d: %+v, %v", made, era, r, err)
			}
			if hinted := strings.Contains(r.Why, "handed over to a new key (rotation)"); hinted == (era == made) {
				t.Errorf("a proof of era %d by the key of era %d: %s", made, era, r.Why)
			}
		}
	}
	left, err := os.ReadDir(log.dir)
	if err != nil || len(left) != 2 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestHandedOverOnlyAsItIsTo: a log without the record of a key, with a border that
// one of the two has not signed, that does not stand behind the record, or behind
// which more stands, does not hold, by whichever key it is verified; nor is it
// started on.
func TestHandedOverOnlyAsItIsTo(t *testing.T) {
	log := rotatedLog(t, false)
	last := func(dir string, era int) string { // segment with the border of that era
		for _, name := range segments(t, dir) {
			if bytes.Contains(read(t, name), []byte(borders(t, log.dir)[era])) {
				return name
			}
		}
		t.Fatal("no such border")
		return ""
	}
	border := borders(t, log.dir)[0]
	at := strings.Index(border, "\\n\\n") + 4
	text, signatures := border[:at], strings.SplitAfter(strings.TrimSuffix(border[at:], "\"}\n"), "\\n")
	line := func(parts ...string) string { return text + strings.Join(parts, "") + "\"}\n" }
	replaced := func(with string) func(string) string {
		return func(s string) string { return strings.Replace(s, border, with, 1) }
	}
	for what, change := range map[string]func(string) string{
		"by the new key alone":  replaced(line(signatures[1])),
		"by the old key alone":  replaced(line(signatures[0])),
		"in the other order":    replaced(line(signatures[1], signatures[0])),
		"by the old key twice":  replaced(line(signatures[0], signatures[0])),
		"with a third":          replaced(line(signatures[0], signatures[1], signatures[1])),
		"gone":                  replaced(""),
		"twice":                 replaced(border + border),
		"with something behind": replaced(border + "x"),
		"without the record": func(s string) string {
			list := slices.Collect(strings.Lines(s))
			i := slices.IndexFunc(list, func(l string) bool { return strings.Contains(l, log.vkeys[1]) && strings.HasPrefix(l, `{"v":1`) })
			return strings.Join(slices.Delete(list, i-1, i+1), "")
		},
		"and the record names another key": func(s string) string { return strings.Replace(s, log.vkeys[1], log.vkeys[2], 1) },
	} {
		for _, vkey := range log.vkeys {
			dir := copyLog(t, log.dir)
			name := last(dir, 0)
			was := string(read(t, name))
			write(t, name, []byte(change(was)))
			if change(was) == was {
				t.Fatalf("%s: nothing is changed", what)
			}
			if r := verdict(t, dir, vkey, nil); r.Verdict != receipts.Broken {
				t.Errorf("%s: %s: %s", what, r.Verdict, r.Why)
			}
			if l, err := reopen(dir); err == nil {
				l.Close()
				t.Errorf("%s: opened", what)
			}
		}
	}
}

// TestHeaderOfAnotherKeyThanTheOneInOffice: headers are under no signature, and have
// to name the key that is in office all the same, though nobody signs under them.
func TestHeaderOfAnotherKeyThanTheOneInOffice(t *testing.T) {
	log := rotatedLog(t, false)
	for i, name := range segments(t, log.dir) {
		text := string(read(t, name))
		for _, vkey := range log.vkeys {
			changed := text
			for _, now := range log.vkeys {
				if strings.Contains(text[:strings.Index(text, "\n")], now) {
					changed = strings.Replace(text, now, vkey, 1)
				}
			}
			if changed == text {
				continue
			}
			dir := copyLog(t, log.dir)
			write(t, filepath.Join(dir, "receipts", filepath.Base(name)), []byte(changed))
			for j, trusted := range log.vkeys {
				if !drill() && j != i%3 {
					continue
				}
				if r := verdict(t, dir, trusted, log.anchors[2]); r.Verdict != receipts.Broken {
					t.Errorf("segment %d: %s: %s", i, r.Verdict, r.Why)
				}
			}
			if l, err := reopen(dir); err == nil {
				l.Close()
				t.Errorf("segment %d: opened", i)
			}
		}
	}
}

// TestCheckpointByAnotherKeyThanTheOneInOffice: the new key signs nothing before it
// is in office, and the old nothing after, though each is in the walk.
func TestCheckpointByAnotherKeyThanTheOneInOffice(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	mustAppend(t, l, intent("a"), outcome("a"))
	l.Close()
	early, old := copyLog(t, dir), strings.TrimSpace(string(read(t, filepath.Join(dir, "receipt-signing-key"))))
	rotate(t, dir)
	next := strings.TrimSpace(string(read(t, filepath.Join(dir, "receipt-signing-key.next"))))
	l = openLog(t, dir)
	mustAppend(t, l, intent("b"), outcome("b"))
	l.Close()
	resigned := func(path, skey string) {
		t.Helper()
		signer, err := note.NewSigner(skey)
		if err != nil {
			t.Fatal(err)
		}
		text := string(read(t, path))
		line := text[strings.LastIndex(text, `{"checkpoint":`):]
		body, _, _ := strings.Cut(strings.TrimPrefix(line, `{"checkpoint":"`), `\n\n`)
		signed, err := note.Sign(&note.Note{Text: strings.ReplaceAll(body, `\n`, "\n") + "\n"}, signer)
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, []byte(strings.Replace(text, line, string(checkpointLineOf(signed)), 1)))
	}
	vkey := keyOf(t, dir)
	file := filepath.Join(early, "receipts", "checkpoint")
	text, _, _ := strings.Cut(string(read(t, file)), "\n\n")
	signer, err := note.NewSigner(next)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := note.Sign(&note.Note{Text: text + "\n"}, signer)
	if err != nil {
		t.Fatal(err)
	}
	was := read(t, file)
	write(t, file, signed)
	if r := verdict(t, early, vkey, nil); r.Verdict != receipts.Broken {
		t.Errorf("the file checkpoint alone is by the key: %s: %s", r.Verdict, r.Why)
	}
	write(t, file, was)
	resigned(segmentFile(early), next)
	for _, trusted := range []string{vkey, keyOf(t, early)} {
		if r := verdict(t, early, trusted, nil); r.Verdict != receipts.Broken {
			t.Errorf("signed early: %s: %s", r.Verdict, r.Why)
		}
	}
	first := r0(t, dir)
	names := segments(t, dir)
	resigned(names[len(names)-1], old)
	os.Remove(filepath.Join(dir, "receipts", "checkpoint"))
	for _, trusted := range []string{vkey, first} {
		if r := verdict(t, dir, trusted, nil); r.Verdict != receipts.Broken {
			t.Errorf("signed late: %s: %s", r.Verdict, r.Why)
		}
	}
	if l, err := reopen(dir); err == nil {
		l.Close()
		t.Error("signed late: opened")
	}
}

// r0 is the first key of a log.
func r0(t *testing.T, dir string) string {
	t.Helper()
	return verdict(t, dir, keyOf(t, dir), nil).Keys[0].VKey
}

// TestKeyThatNobodyHandedOverTo: keys that only a header or a record names, and the
// files beside the segments by such a key.
func TestKeyThatNobodyHandedOverTo(t *testing.T) {
	log := rotatedLog(t, false)
	skey, stranger, err := note.GenerateKey(nil, strings.SplitN(log.vkeys[0], "+", 2)[0])
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(skey)
	if err != nil {
		t.Fatal(err)
	}
	if r := verdict(t, log.dir, stranger, nil); r.Verdict != receipts.Untrusted {
		t.Errorf("a key of the same name that has signed nothing: %s: %s", r.Verdict, r.Why)
	}
	text, _, _ := strings.Cut(string(log.anchors[2]), "\n\n")
	signed, err := note.Sign(&note.Note{Text: text + "\n"}, signer)
	if err != nil {
		t.Fatal(err)
	}
	if r := verdict(t, log.dir, log.vkeys[0], signed); r.Verdict != receipts.Untrusted {
		t.Errorf("an anchor by a stranger: %s: %s", r.Verdict, r.Why)
	}
	// Named by the header of a segment that is still to be written.
	dir := copyLog(t, log.dir)
	size := verdict(t, dir, log.vkeys[0], nil).Size
	write(t, filepath.Join(dir, "receipts", fmt.Sprintf("%020d.jsonl", size)),
		fmt.Appendf(nil, `{"segment":{"v":1,"log":"%s","first":%d,"vkey":"%s"}}`+"\n", signer.Name(), size, stranger))
	for _, vkey := range append(log.vkeys, stranger) {
		write(t, filepath.Join(dir, "receipts", "checkpoint"), log.anchors[2])
		if r := verdict(t, dir, vkey, signed); r.Verdict != receipts.Broken && r.Verdict != receipts.Untrusted {
			t.Errorf("%s: %s", r.Verdict, r.Why)
		}
		write(t, filepath.Join(dir, "receipts", "checkpoint"), signed)
		if r := verdict(t, dir, vkey, nil); r.Verdict != receipts.Broken && r.Verdict != receipts.Untrusted {
			t.Errorf("the file checkpoint by a stranger: %s: %s", r.Verdict, r.Why)
		}
	}
	// The file with two signatures, one of them a stranger's.
	border := borders(t, log.dir)[0]
	note2 := strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(border, `{"checkpoint":"`), "\"}\n"), `\n`, "\n")
	dir = copyLog(t, log.dir)
	file := filepath.Join(dir, "receipts", "checkpoint")
	write(t, file, []byte(note2))
	if r := verdict(t, dir, log.vkeys[0], nil); r.Verdict != receipts.Unproven {
		t.Errorf("a border in the file checkpoint: %s: %s", r.Verdict, r.Why)
	}
	write(t, file, []byte(note2[:len(note2)-9]+"AAAAAA=="[:8]+"\n"))
	if r := verdict(t, dir, log.vkeys[0], nil); r.Verdict != receipts.Broken {
		t.Errorf("another border in the file checkpoint: %s: %s", r.Verdict, r.Why)
	}
}

// TestRotatedLogGoesOn: it is started with an anchor of the old key, finds and
// proves receipts of before and after, exports them, and refuses a start with the
// old key, or with the next one before it was handed over to.
func TestRotatedLogGoesOn(t *testing.T) {
	dir, anchor := t.TempDir(), filepath.Join(t.TempDir(), "anchor")
	l := openLog(t, dir, func(o *receipts.Options) { o.Anchor = anchor })
	mustAppend(t, l, intent("a"), outcome("a"), intent("open"))
	old := l.VerifierKey()
	l.Close()
	oldKey, kept := read(t, filepath.Join(dir, "receipt-signing-key")), read(t, anchor)
	vkey := rotate(t, dir)
	if again, err := receipts.PrepareKey(dir); !errors.Is(err, fs.ErrExist) || again != vkey {
		t.Errorf("a second one: %s, %v", again, err)
	}
	too := copyLog(t, dir)
	if err := os.Rename(filepath.Join(too, "receipt-signing-key.next"), filepath.Join(too, "receipt-signing-key")); err != nil {
		t.Fatal(err)
	}
	if l, err := reopen(too); err == nil {
		l.Close()
		t.Error("the next key was put there by hand, and it was opened")
	}
	l = openLog(t, dir, func(o *receipts.Options) { o.Anchor = anchor })
	if l.VerifierKey() != vkey {
		t.Errorf("under %s", l.VerifierKey())
	}
	mustAppend(t, l, outcome("b"))
	for _, id := range []string{"a", "b", "open"} {
		proofs, err := prove(l, id)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := receipts.VerifyProof(proofs[0].Text, vkey); err != nil || r.Verdict != receipts.Holds {
			t.Errorf("%s: %+v, %v", id, r, err)
		}
	}
	l.Close()
	if r := verdict(t, dir, old, read(t, anchor)); r.Verdict != receipts.Holds || r.Unknown != 1 {
		t.Errorf("%+v", r)
	}
	if r := verdict(t, dir, vkey, kept); r.Verdict != receipts.Holds {
		t.Errorf("%+v", r)
	}
	proofs, err := receipts.ProveIn(dir, "a", nil)
	if err != nil || len(proofs) != 2 {
		t.Fatalf("%v, %v", proofs, err)
	}
	write(t, filepath.Join(dir, "receipt-signing-key"), oldKey)
	if l, err := reopen(dir); err == nil {
		l.Close()
		t.Error("opened with the old key")
	}
}

// TestKeyToTakeOverIsOfThisLog: another log's, half a key, and the same key.
func TestKeyToTakeOverIsOfThisLog(t *testing.T) {
	dir, _, _ := smallLog(t)
	other, _, _ := smallLog(t)
	if _, err := receipts.PrepareKey(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no log: %v", err)
	}
	own := read(t, filepath.Join(dir, "receipt-signing-key"))
	for _, key := range [][]byte{read(t, filepath.Join(other, "receipt-signing-key")), own[:40], own, {}} {
		write(t, filepath.Join(dir, "receipt-signing-key.next"), key)
		before := tree(t, filepath.Join(dir, "receipts"))
		if l, err := reopen(dir); err == nil {
			l.Close()
			t.Errorf("taken over by %.20q", key)
		}
		if diff := cmp.Diff(before, tree(t, filepath.Join(dir, "receipts"))); diff != "" {
			t.Errorf("the log was changed by %.20q: %s", key, diff)
		}
	}
}

// TestNoKeyComesBack: a key that was in office before takes over from nobody, and the
// log is as it was: its readers would not take the border.
func TestNoKeyComesBack(t *testing.T) {
	first := t.TempDir()
	l := openLog(t, first)
	l.Close()
	own := read(t, filepath.Join(first, "receipt-signing-key"))
	rotate(t, first)
	l = openLog(t, first)
	mustAppend(t, l, outcome("a"))
	l.Close()
	next := filepath.Join(first, "receipt-signing-key.next")
	write(t, next, own)
	before := tree(t, filepath.Join(first, "receipts"))
	if l, err := reopen(first); err == nil || !strings.Contains(err.Error(), "was in office before") {
		t.Errorf("taken over by the first key again: %v", err)
		if err == nil {
			l.Close()
		}
	}
	if diff := cmp.Diff(before, tree(t, filepath.Join(first, "receipts"))); diff != "" {
		t.Errorf("the log was changed: %s", diff)
	}
	if err := os.Remove(next); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, openLog(t, first), outcome("b"))
}

// TestRotationAfterAFailedSync: of a start that hands the log over each sync of a
// segment fails once. The next start finds in memory what never reached the disk; what
// it signs and acknowledges is there after the power was lost.
func TestRotationAfterAFailedSync(t *testing.T) {
	for n := range 12 {
		f, acks := newFaulty(receipts.NewSimDisk()), acknowledged{}
		l := openSim(t, f.disk)
		if err := acks.append(l, outcome("a")); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		skey, next, err := note.GenerateKey(nil, l.Origin())
		if err != nil {
			t.Fatal(err)
		}
		f.disk.Put(simData+"/receipt-signing-key.next", []byte(skey+"\n"))
		syncs := 0
		of := func(c receipts.SimCall) (receipts.SimFault, bool) {
			if c.Op == "sync" && strings.HasSuffix(c.Name, ".jsonl") {
				syncs++
				return receipts.SimFault{Err: syscall.EIO}, syncs == n+1
			}
			return receipts.SimFault{}, false
		}
		f.armed.Store(&of)
		o := receipts.Options{Clock: clockwork.NewFakeClockAt(noon), Replica: "gw-1"}
		receipts.SetSimDisk(&o, f.disk)
		if l, err := receipts.Open(simData, o); err == nil {
			l.Close()
		}
		if syncs <= n {
			if n < 3 {
				t.Errorf("%d syncs", syncs)
			}
			return
		}
		d := f.disk.Kill()
		l = openSim(t, d)
		if l.VerifierKey() != next {
			t.Errorf("sync %d: not handed over", n)
		}
		if err := acks.append(l, outcome("b")); err != nil {
			t.Fatal(err)
		}
		anchor := l.Checkpoint()
		for seed := range uint64(8) {
			d := d.Crash(seed)
			if err := openSim(t, d).Close(); err != nil {
				t.Fatal(err)
			}
			if missing := acks.in(t, d, next, anchor); len(missing) > 0 {
				t.Errorf("sync %d: acknowledged, and lost: %v", n, missing)
			}
		}
	}
}

// TestRetentionKeepsTheKeyWalk: segments go with the borders in them, and any key
// of the walk still verifies what is left.
func TestRetentionKeepsTheKeyWalk(t *testing.T) {
	log := rotatedLog(t, false)
	dir := prunedRotated(t, log)
	text := string(read(t, filepath.Join(dir, "receipts", "pruned")))
	if n := strings.Count(text, `"kind":"key"`); n != 2 || len(borders(t, dir)) != 0 {
		t.Fatalf("%d keys are kept of 2 that took over:\n%s", n, text)
	}
	for i, vkey := range log.vkeys {
		r := verdict(t, dir, vkey, nil)
		if r.Verdict != receipts.Unproven || r.Pruned == 0 || len(r.Keys) != 3 || r.Keys[0].VKey != log.vkeys[0] {
			t.Errorf("key %d: %+v", i, r)
		}
	}
	l, err := reopen(dir)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()

	// The walk is checked there too: not by the word of the last key alone.
	file := filepath.Join(dir, "receipts", "pruned")
	at := strings.Index(text, "— ") + len("— ") + len(log.vkeys[0][:strings.Index(log.vkeys[0], "+")]) + 30
	changed := []byte(text)
	if changed[at] == 'A' {
		changed[at] = 'B'
	} else {
		changed[at] = 'A'
	}
	write(t, file, changed)
	if r := verdict(t, dir, log.vkeys[2], nil); r.Verdict != receipts.Broken || strings.Contains(r.Why, "no entry under a signature") {
		t.Errorf("a border that the old key has not signed: %s: %s", r.Verdict, r.Why)
	}
	write(t, file, []byte(text))

	// A segment that retention has left is passed over, and who is named there alone
	// is no key of the log.
	skey, stranger, err := note.GenerateKey(nil, l.Origin())
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(skey)
	if err != nil {
		t.Fatal(err)
	}
	body, _, _ := strings.Cut(string(l.Checkpoint()), "\n\n")
	signed, err := note.Sign(&note.Note{Text: body + "\n"}, signer)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "receipts", "00000000000000000000.jsonl"),
		fmt.Appendf(nil, `{"segment":{"v":1,"log":"%s","first":0,"vkey":"%s"}}`+"\n", l.Origin(), stranger))
	for _, vkey := range log.vkeys {
		if r := verdict(t, dir, vkey, signed); r.Verdict != receipts.Untrusted {
			t.Errorf("an anchor by a key that only a passed over header names: %s: %s", r.Verdict, r.Why)
		}
	}
	write(t, filepath.Join(dir, "receipts", "checkpoint"), signed)
	if r := verdict(t, dir, log.vkeys[0], nil); r.Verdict != receipts.Broken {
		t.Errorf("the file checkpoint by such a key: %s: %s", r.Verdict, r.Why)
	}
}

// prunedRotated is a copy of a rotated log from which all segments but the last
// ones were removed, step by step.
func prunedRotated(t testing.TB, log rotated) (dir string) {
	t.Helper()
	dir = copyLog(t, log.dir)
	clock := clockwork.NewFakeClockAt(noon.Add(4 * time.Hour))
	for range 2 { // what is left of what was left
		l := openLog(t, dir, retaining(clock, time.Hour))
		names := segments(t, dir)
		last := names[len(names)-1]
		pass := again(clock)
		eventually(t, "all segments but the last are removed", func() bool { pass(); return segments(t, dir)[0] >= last })
		mustAppend(t, l, of("key:b", fmt.Sprint("late", clock.Now().Unix())))
		clock.Advance(20 * time.Minute)
		l.Close()
	}
	return dir
}

// TestRotationSurvivesACrash: wherever it is cut short, at any call and in any part
// of what was not synced, the log holds by the first key, nothing is lost, and the
// next start goes on with it.
func TestRotationSurvivesACrash(t *testing.T) {
	begin := receipts.NewSimDisk()
	clock := clockwork.NewFakeClockAt(noon)
	at := func(d *receipts.SimDisk) (*receipts.Log, error) {
		o := receipts.Options{Clock: clock, Replica: "gw-1"}
		receipts.SetSimDisk(&o, d)
		receipts.SetSegmentSize(&o, 2500)
		return receipts.Open(simData, o)
	}
	l, err := at(begin)
	if err != nil {
		t.Fatal(err)
	}
	f := &life{vkey: l.VerifierKey(), leaves: map[uint64][32]byte{}, ids: map[uint64]string{}}
	for i := range 4 {
		id := fmt.Sprint("a", i)
		for _, r := range []*receipts.Record{intent(id), outcome(id)} {
			e := mustAppend(t, l, r)
			f.leaves[e.Index], f.ids[e.Index] = e.Leaf, r.ID+" "+string(r.Kind)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	size, anchor := l.Stats().Size, l.Checkpoint()
	skey, next, err := note.GenerateKey(nil, l.Origin())
	if err != nil {
		t.Fatal(err)
	}
	begin.Put(simData+"/receipt-signing-key.next", []byte(skey+"\n"))
	whole := begin.Clone()
	calls := keepMoments(whole)
	if l, err = at(whole); err != nil {
		t.Fatal(err)
	}
	if l.VerifierKey() != next {
		t.Fatal("not handed over")
	}
	mustAppend(t, l, outcome("first of the new key"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	all := ends(calls.all)
	var tried []end
	for _, e := range all { // each call, and within each write
		if e.part == 0 || drill() || e.part%293 == 0 || e.part == len(calls.all[e.moment].call.Bytes)-1 {
			tried = append(tried, e)
		}
	}
	everywhere(t, len(tried), func(i int, dir string) {
		m, part := calls.all[tried[i].moment], tried[i].part
		m.size, m.anchor = size, anchor
		for what, d := range map[string]*receipts.SimDisk{"killed": m.disk(part), "the power lost": m.disk(part).Crash(uint64(i))} {
			if !drill() && i%4 > 0 && (what == "killed") == (i%2 == 0) {
				continue // one of the two
			}
			what = fmt.Sprintf("%s after %d of %d bytes", what, part, len(m.call.Bytes))
			os.RemoveAll(dir)
			if err := d.Dump(dir); err != nil {
				t.Fatal(err)
			}
			if r := verdict(t, filepath.Join(dir, simData), f.vkey, anchor); r.Verdict != receipts.Holds {
				t.Errorf("%s: %s: before the next start: %s: %s", m, what, r.Verdict, r.Why)
			}
			f.restarted(t, dir, what, m, d)
			if r := verdict(t, filepath.Join(dir, simData), f.vkey, anchor); len(r.Keys) != 2 || r.Keys[1].VKey != next {
				t.Errorf("%s: %s: not handed over: %+v", m, what, r.Keys)
			}
			if r := verdict(t, filepath.Join(dir, simData), next, anchor); r.Verdict != receipts.Holds {
				t.Errorf("%s: %s: by the next key: %s: %s", m, what, r.Verdict, r.Why)
			}
			if d.Read(simData+"/receipt-signing-key.next") != nil {
				t.Errorf("%s: %s: the next key still waits", m, what)
			}
		}
	})
	t.Logf("cut short at %d of %d places in %d calls", len(tried), len(all), len(calls.all))
}

// TestPrunedRecordIsSigned: a record that tells of removed entries counts only under
// a signature: whoever has no key can append one.
func TestPrunedRecordIsSigned(t *testing.T) {
	dir := prunedLog(t)
	vkey := keyOf(t, dir)
	names := segments(t, dir)
	file := names[len(names)-1]
	text := string(read(t, file))
	i := strings.LastIndex(text, `"kind":"pruned"`)
	if i < 0 {
		t.Fatal("the last segment has no such record")
	}
	// All that was signed behind the record is gone, as if the log ended with it.
	end := i + strings.Index(text[i:], "\n") + 1
	batch := text[strings.LastIndex(text[:i], `{"batch":`):end]
	if !strings.Contains(batch, fmt.Sprintf(`"count":%d,`, strings.Count(batch, "\n")-1)) {
		t.Fatalf("more than the record stands behind it in its batch: %s", batch)
	}
	write(t, file, []byte(text[:end]))
	os.Remove(filepath.Join(dir, "receipts", "checkpoint"))
	if r := verdict(t, dir, vkey, nil); r.Verdict != receipts.Broken || r.Covered >= r.Size {
		t.Errorf("%s: %s: %d of %d", r.Verdict, r.Why, r.Covered, r.Size)
	}
}
