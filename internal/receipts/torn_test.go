package receipts_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentgw/internal/receipts"
)

// unsignedTail is a small log whose last batch is under no signature yet: the
// gateway was killed before its checkpoint went out. begin is where the batch
// stands in the last segment.
func unsignedTail(t *testing.T) (dir, last string, begin int) {
	t.Helper()
	dir, _, _ = smallLog(t)
	old := read(t, filepath.Join(dir, "receipts", "checkpoint"))
	l, err := reopen(dir)
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, outcome("d"))
	l.Close()
	write(t, filepath.Join(dir, "receipts", "checkpoint"), old)
	names := segments(t, dir)
	last = names[len(names)-1]
	text := read(t, last)
	text = text[:bytes.LastIndex(text, []byte(`{"checkpoint":`))]
	write(t, last, text)
	return dir, last, bytes.LastIndex(text, []byte(`{"batch":`))
}

// TestTornTailIsNoDamage: of the last write any page may be missing, whatever
// order they reached the disk in. Verify says how much is torn, its exit code is
// that of the log without, and a start repairs it.
func TestTornTailIsNoDamage(t *testing.T) {
	dir, last, begin := unsignedTail(t)
	vkey, anchor, whole := keyOf(t, dir), anchorOf(t, dir), read(t, last)
	fill := func(from, to int, with byte) []byte {
		b := bytes.Clone(whole)
		for i := from; i < to; i++ {
			b[i] = with
		}
		return b
	}
	end := len(whole)
	for what, c := range map[string]struct {
		text []byte
		torn int
	}{
		"zeros in the record":              {fill(begin+100, begin+150, 0), end - begin - bytes.IndexByte(whole[begin:], '\n') - 1},
		"zeros in the batch line":          {fill(begin, begin+20, 0), end - begin},
		"zeros from the record to the end": {fill(begin+100, end, 0), end - begin - bytes.IndexByte(whole[begin:], '\n') - 1},
		"something else in the record":     {fill(begin+100, begin+150, '~'), end - begin - bytes.IndexByte(whole[begin:], '\n') - 1},
		"the record's end":                 {fill(end-1, end, 0), end - begin - bytes.IndexByte(whole[begin:], '\n') - 1},
		"lines of something behind it":     {append(bytes.Clone(whole), "hello\nxx\n"...), 9},
		"a batch line and no record of it": {append(bytes.Clone(whole), "{\"batch\":{\"first\":11,\"count\":2,\"bytes\":913}}\nxx\nyy\n"...), 6},
	} {
		t.Run(what, func(t *testing.T) {
			dir := copyLog(t, dir)
			write(t, filepath.Join(dir, "receipts", filepath.Base(last)), c.text)
			r := verdict(t, dir, vkey, anchor)
			if r.Verdict != receipts.Holds || r.Covered != 10 || r.Torn != int64(c.torn) || r.Damage != nil || r.StoppedAt != nil {
				t.Errorf("%s: %s; %d covered, %d bytes torn, want %d", r.Verdict, r.Why, r.Covered, r.Torn, c.torn)
			}
			if !slices.ContainsFunc(r.NotProven, func(s string) bool { return strings.Contains(s, fmt.Sprintf("a torn tail of %d bytes", c.torn)) }) {
				t.Errorf("does not tell of it: %q", r.NotProven)
			}
			l, err := reopen(dir)
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
			if r := verdict(t, dir, vkey, l.Checkpoint()); r.Verdict != receipts.Holds || r.Torn != 0 || r.Repaired != 1 {
				t.Errorf("after a start: %s: %s; %d bytes torn, %d repaired", r.Verdict, r.Why, r.Torn, r.Repaired)
			}
		})
	}
	t.Run("not where a signature is over more", func(t *testing.T) {
		signed := copyLog(t, dir)
		l, err := reopen(signed)
		if err != nil {
			t.Fatal(err)
		}
		l.Close() // puts the checkpoint behind the batch
		text := read(t, filepath.Join(signed, "receipts", filepath.Base(last)))
		copy(text[begin+100:], make([]byte, 50))
		write(t, filepath.Join(signed, "receipts", filepath.Base(last)), text)
		for what, file := range map[string][]byte{"the file is older": anchor, "the file is newer": l.Checkpoint(), "there is no file": nil} {
			write(t, filepath.Join(signed, "receipts", "checkpoint"), file)
			if r := verdict(t, signed, vkey, anchor); r.Verdict != receipts.Broken || r.Damage == nil || r.Damage.Index != 10 {
				t.Errorf("%s: %s: %s", what, r.Verdict, r.Why)
			}
		}
		write(t, filepath.Join(signed, "receipts", filepath.Base(last)), text[:bytes.LastIndex(text, []byte(`{"checkpoint":`))])
		write(t, filepath.Join(signed, "receipts", "checkpoint"), anchor)
		if r := verdict(t, signed, vkey, l.Checkpoint()); r.Verdict != receipts.Broken || r.Damage == nil || r.Damage.Index != 10 {
			t.Errorf("the anchor is newer: %s: %s", r.Verdict, r.Why)
		}
	})
}

// TestCheckpointIntoAnEmptySegment: a crash came once the segment was there, and
// before its header was; the next start has a checkpoint to put there first.
func TestCheckpointIntoAnEmptySegment(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, func(o *receipts.Options) { receipts.SetSegmentSize(o, 1) }) // one batch in each
	mustAppend(t, l, outcome("a"), outcome("b"))
	l.Close()
	vkey, names := l.VerifierKey(), segments(t, dir)
	write(t, names[len(names)-1], nil)
	before := names[len(names)-2]
	text := read(t, before)
	if at := bytes.LastIndex(text, []byte("\n{\"checkpoint\":")) + 1; bytes.Count(text[at:], []byte("\n")) == 1 {
		write(t, before, text[:at])
	}
	os.Remove(filepath.Join(dir, "receipts", "checkpoint"))
	l, err := reopen(dir) // no call is open: nothing to append
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the checkpoint stands in the segment", func() bool { return bytes.Equal(newest(t, dir), l.Checkpoint()) })
	l.Close()
	if r := verdict(t, dir, vkey, l.Checkpoint()); r.Verdict != receipts.Holds || r.Covered != r.Size || r.Torn != 0 {
		t.Errorf("%s: %s", r.Verdict, r.Why)
	}
}

// TestForgedSignatureRefusesToStart: of each checkpoint line, and the verifier
// key of each header. Their texts stay, so that only the key can tell.
func TestForgedSignatureRefusesToStart(t *testing.T) {
	original, vkey, _ := smallLog(t)
	dir := copyLog(t, original)
	at := map[string]int{}
	tried := map[byte]int{}
	for i, p := range placesOf(t, dir) {
		begin := at[p.file]
		at[p.file] += len(p.line)
		var change int
		switch p.kind {
		case 'c':
			change = strings.LastIndex(p.line, `=\n"}`) - 20
		case 'h':
			change = strings.LastIndex(p.line, `"}}`) - 20
		default:
			continue
		}
		tried[p.kind]++
		whole := read(t, p.file)
		changed := bytes.Clone(whole)
		if c := &changed[begin+change]; *c == 'A' {
			*c = 'B'
		} else {
			*c = 'A'
		}
		write(t, p.file, changed)
		if r := verdict(t, dir, vkey, nil); r.Verdict.ExitCode() != 1 {
			t.Errorf("line %d (%.30s): verify: %s: %s", i, p.line, r.Verdict, r.Why)
		}
		l, err := reopen(dir)
		var damage *receipts.Damage
		if !errors.As(err, &damage) || damage.File != filepath.Base(p.file) || damage.Offset != int64(begin) {
			t.Errorf("line %d (%.30s): %v", i, p.line, err)
		}
		if err == nil {
			l.Close()
		}
		if !bytes.Equal(read(t, p.file), changed) {
			t.Fatal("something was changed")
		}
		write(t, p.file, whole)
	}
	if tried['c'] < 9 || tried['h'] < 3 {
		t.Errorf("tried %v", tried)
	}
}

// TestStartAndVerifyAgree: what verify calls broken no start writes on, and what
// it does not, a start opens, and leaves a log that holds.
func TestStartAndVerifyAgree(t *testing.T) {
	base, _, _ := unsignedTail(t)
	vkey := keyOf(t, base)
	rounds := 100
	if drill() {
		rounds = 10_000
	}
	random := rand.New(rand.NewPCG(1, 2))
	opened, refused := 0, 0
	for round := range rounds {
		dir := copyLog(t, base)
		if round%3 == 0 {
			os.Remove(filepath.Join(dir, "receipts", "checkpoint"))
		}
		names := segments(t, dir)
		name := names[len(names)-1]
		if round%2 == 0 {
			name = names[random.IntN(len(names))]
		}
		text := read(t, name)
		at := random.IntN(len(text))
		to := min(at+1+random.IntN(200), len(text))
		var what string
		switch round % 5 {
		case 0, 1:
			what = "a bit"
			text[at] ^= 1 << random.IntN(8)
		case 2:
			what = "zeros"
			clear(text[at:to])
		case 3:
			what = "bytes out"
			text = slices.Delete(text, at, to)
		case 4:
			what = "cut"
			text = text[:at]
		}
		write(t, name, text)
		r := verdict(t, dir, vkey, nil)
		l, err := reopen(dir)
		// The tags, which verify cannot check, tell a start that a batch further
		// on is its own, and that what stands before it was on disk.
		tagged := err != nil && r.Torn > 0 && bytes.Contains(text[int64(len(text))-r.Torn:], []byte("\n{\"batch\":"))
		if bad := r.Verdict == receipts.Broken || r.Verdict == receipts.Untrusted; (err == nil) == bad && !tagged {
			t.Errorf("round %d: %s at %d to %d of %s: verify: %s (%s); start: %v", round, what, at, to, filepath.Base(name), r.Verdict, r.Why, err)
		}
		if err != nil {
			refused++
			continue
		}
		opened++
		mustAppend(t, l, outcome("z"))
		l.Close()
		after := verdict(t, dir, vkey, l.Checkpoint())
		if after.Verdict != receipts.Holds || after.Covered < r.Covered {
			t.Errorf("round %d: %s at %d of %s: after a start: %s: %s", round, what, at, filepath.Base(name), after.Verdict, after.Why)
		}
	}
	if opened < rounds/20 || refused < rounds/20 {
		t.Errorf("%d opened, %d refused", opened, refused)
	}
}
