package receipts_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentgw/internal/receipts"
)

// forgeBatches appends n well-formed batches of one record each, as somebody
// would who has read the format and has no key.
func forgeBatches(t *testing.T, dir string, entries, n int) {
	t.Helper()
	names := segments(t, dir)
	last := names[len(names)-1]
	text := read(t, last)
	line := string(lastRecord(text))
	var r struct {
		Seq int
		ID  string
	}
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		forged := strings.Replace(line, fmt.Sprintf(`"seq":%d`, r.Seq), fmt.Sprintf(`"seq":%d`, r.Seq+1+i), 1)
		forged = strings.Replace(forged, r.ID, fmt.Sprintf("forged-%d", i), 1)
		text = fmt.Appendf(text, "{\"batch\":{\"first\":%d,\"count\":1,\"bytes\":%d}}\n%s", entries+i, len(forged), forged)
	}
	write(t, last, text)
}

// TestBatchesThatNobodySigned: a writer signs all that it wrote before it writes
// on, so one batch may be without a signature, and says so; two are not its own.
func TestBatchesThatNobodySigned(t *testing.T) {
	original, vkey, anchor := smallLog(t)

	t.Run("one", func(t *testing.T) {
		dir := copyLog(t, original)
		forgeBatches(t, dir, 10, 1)
		r := verdict(t, dir, vkey, anchor)
		if r.Verdict != receipts.Holds || r.Size != 11 || r.Covered != 10 {
			t.Fatalf("%s, %d of %d covered: %s", r.Verdict, r.Covered, r.Size, r.Why)
		}
		if !strings.HasPrefix(r.Why, "of the entries up to 9: ") || !strings.Contains(r.Why, "of the 1 after them nothing is proven") {
			t.Errorf("the headline claims more than was proven: %s", r.Why)
		}
		if r := verdict(t, dir, vkey, nil); r.Verdict != receipts.Unproven || !strings.HasPrefix(r.Why, "of the entries up to 9: ") {
			t.Errorf("without an anchor: %s: %s", r.Verdict, r.Why)
		}
	})
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			dir := copyLog(t, original)
			forgeBatches(t, dir, 10, n)
			for _, a := range [][]byte{anchor, nil} {
				r := verdict(t, dir, vkey, a)
				if r.Verdict != receipts.Broken || r.Damage == nil || r.Damage.Index != 10 || r.Damage.ID != "forged-0" || r.Damage.Line == 0 {
					t.Errorf("anchor %t: %s: %s", a != nil, r.Verdict, r.Why)
				}
				if r.Covered != 10 {
					t.Errorf("%d covered", r.Covered)
				}
			}
		})
	}
	t.Run("two, and the checkpoint file is over the first", func(t *testing.T) {
		// What a gateway leaves that was killed after it had replaced the file:
		// the last line is missing where a crash took it, the file is not.
		dir := t.TempDir()
		l := openLog(t, dir)
		mustAppend(t, l, outcome("a"))
		l.Close()
		text := read(t, segmentFile(dir))
		write(t, segmentFile(dir), text[:bytes.LastIndex(text, []byte(`{"checkpoint":`))])
		forgeBatches(t, dir, 2, 1)
		if r := verdict(t, dir, l.VerifierKey(), nil); r.Verdict != receipts.Unproven || r.Covered != 2 {
			t.Errorf("%s, %d covered: %s", r.Verdict, r.Covered, r.Why)
		}
	})
	t.Run("the writer's own, with the signatures taken out", func(t *testing.T) {
		dir := copyLog(t, original)
		for _, name := range segments(t, dir) {
			var kept []byte
			for line := range bytes.Lines(read(t, name)) {
				if !bytes.HasPrefix(line, []byte(`{"checkpoint":`)) {
					kept = append(kept, line...)
				}
			}
			write(t, name, kept)
		}
		covered := copyLog(t, dir) // by the checkpoint file
		if l, err := reopen(covered); err != nil {
			t.Errorf("with the file: %v", err)
		} else if l.Close(); verdict(t, covered, vkey, l.Checkpoint()).Verdict != receipts.Holds {
			t.Error("with the file: does not hold")
		}
		os.Remove(filepath.Join(dir, "receipts", "checkpoint"))
		if r := verdict(t, dir, vkey, nil); r.Verdict != receipts.Broken || r.Damage == nil || r.Damage.Index != 0 {
			t.Errorf("%s: %s", r.Verdict, r.Why)
		}
		l, err := reopen(dir)
		var damage *receipts.Damage
		if !errors.As(err, &damage) || damage.Index != 0 {
			t.Errorf("opened: %v", err)
		}
		if err == nil {
			l.Close()
		}
	})
}

// TestStraySegmentIsNamed: an empty file is a segment only where the next entry
// would go.
func TestStraySegmentIsNamed(t *testing.T) {
	original, vkey, anchor := smallLog(t)
	names := segments(t, original)
	middle := filepath.Base(names[1])
	for what, c := range map[string]struct{ put, named string }{
		"behind the end, with another number": {"00000000000000000011.jsonl", "00000000000000000011.jsonl"},
		"far behind the end":                  {"00000000000000300001.jsonl", "00000000000000300001.jsonl"},
		"between two":                         {"00000000000000000001.jsonl", "00000000000000000001.jsonl"},
		"in the place of one":                 {middle, middle},
		"in the place of the first":           {filepath.Base(names[0]), filepath.Base(names[0])},
	} {
		t.Run(what, func(t *testing.T) {
			dir := copyLog(t, original)
			write(t, filepath.Join(dir, "receipts", c.put), nil)
			r := verdict(t, dir, vkey, anchor)
			if r.Verdict != receipts.Broken || r.Damage == nil || r.Damage.File != c.named {
				t.Errorf("%s: %s", r.Verdict, r.Why)
			}
			l, err := reopen(dir)
			if err == nil {
				l.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), c.named) {
				t.Errorf("does not name %s: %v", c.named, err)
			}
		})
	}
	dir := copyLog(t, original)
	write(t, filepath.Join(dir, "receipts", "00000000000000000010.jsonl"), nil)
	if r := verdict(t, dir, vkey, anchor); r.Verdict != receipts.Holds {
		t.Errorf("where the next entry goes: %s: %s", r.Verdict, r.Why)
	}
	l, err := reopen(dir)
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, outcome("z"))
	l.Close()
	if r := verdict(t, dir, vkey, l.Checkpoint()); r.Verdict != receipts.Holds || r.Size != 11 {
		t.Errorf("and after a start: %s: %s", r.Verdict, r.Why)
	}
}
