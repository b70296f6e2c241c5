package receipts_test

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentgw/internal/receipts"
)

// place is a line of a log and what it says.
type place struct {
	file  string
	line  string // with its end
	entry int    // of a record: which; of another line: the next entry
	kind  byte   // h, b, c or r
}

func placesOf(t *testing.T, dir string) (all []place) {
	t.Helper()
	entry := 0
	for _, file := range segments(t, dir) {
		for line := range strings.Lines(string(read(t, file))) {
			p := place{file: file, line: line, entry: entry, kind: 'h'}
			switch {
			case strings.HasPrefix(line, `{"batch":`):
				p.kind = 'b'
			case strings.HasPrefix(line, `{"checkpoint":`):
				p.kind = 'c'
			case strings.HasPrefix(line, `{"v":`):
				p.kind = 'r'
				entry++
			}
			all = append(all, p)
		}
	}
	return all
}

// TestEveryLineCounts takes out, repeats and exchanges each line of a log in
// turn. All is found, and the first entry that does not hold is named. Only a
// checkpoint line may be missing or stand twice: it is no entry, and what it
// covers is covered by the next.
func TestEveryLineCounts(t *testing.T) {
	original, vkey, anchor := smallLog(t)
	dir := copyLog(t, original)
	lines := placesOf(t, dir)
	try := func(what string, i int, changed ...string) {
		t.Helper()
		p := lines[i]
		whole := read(t, p.file)
		defer write(t, p.file, whole)
		var b strings.Builder
		before := 0
		for j, q := range lines {
			if q.file != p.file {
				continue
			}
			if j < i {
				before += len(q.line)
			}
		}
		b.Write(whole[:before])
		rest := string(whole[before:])
		b.WriteString(changed[0])
		b.WriteString(strings.TrimPrefix(rest, changed[1]))
		write(t, p.file, []byte(b.String()))
		for _, a := range [][]byte{anchor, nil} {
			r := verdict(t, dir, vkey, a)
			if p.kind == 'c' && (what == "out" || what == "twice") {
				if r.Size != 10 || r.Covered != 10 || r.Verdict == receipts.Broken {
					t.Errorf("%s, line %d: %s (%s)", what, i, r.Verdict, r.Why)
				}
				continue
			}
			if what == "twice" && i == len(lines)-2 && onlyTorn(r) {
				continue // the last record again: nothing that was signed comes after it
			}
			if r.Verdict != receipts.Broken || r.Damage == nil {
				t.Errorf("%s, line %d (%.40s): %s (%s)", what, i, p.line, r.Verdict, r.Why)
				continue
			}
			// What follows a record that stands twice is the second one.
			want := p.entry
			if p.kind == 'r' && what == "twice" {
				want++
			}
			if int(r.Damage.Index) != want && (what != "exchanged" || int(r.Damage.Index) != want+1) {
				t.Errorf("%s, line %d (%.40s): names entry %d, want %d: %v", what, i, p.line, r.Damage.Index, want, r.Damage)
			}
		}
	}
	for i, p := range lines {
		last := i+1 == len(lines) || lines[i+1].file != p.file
		// Of the last segment's last lines only what the checkpoint file
		// covers can be missed, which it is: see TestCutAtABatchBorder.
		if p.kind != 'c' || i+1 < len(lines) {
			if !(i == len(lines)-2 || i == len(lines)-3) { // the last batch
				try("out", i, "", p.line)
			}
			try("twice", i, p.line+p.line, p.line)
		}
		if !last {
			q := lines[i+1]
			try("exchanged", i, q.line+p.line, p.line+q.line)
		}
	}
}

// onlyTorn reports whether the ten entries of a small log hold, and what is wrong
// behind them is told as a torn tail. So it is with the last line, a checkpoint
// over what another is over too: bytes behind the last entry are no entry.
func onlyTorn(r *receipts.Report) bool {
	return (r.Verdict == receipts.Holds || r.Verdict == receipts.Unproven) && r.Torn > 0 && r.Size == 10 && r.Covered == 10
}

// classes are the kinds of byte that a line consists of: one of each is
// changed, taken out, and doubled in each line.
var classes = []struct {
	name string
	is   func(byte) bool
}{
	{"digit", func(c byte) bool { return c >= '0' && c <= '9' }},
	{"lower case", func(c byte) bool { return c >= 'a' && c <= 'z' }},
	{"upper case", func(c byte) bool { return c >= 'A' && c <= 'Z' }},
	{"quote", func(c byte) bool { return c == '"' }},
	{"comma or colon", func(c byte) bool { return c == ',' || c == ':' }},
	{"bracket", func(c byte) bool { return strings.IndexByte("{}[]", c) >= 0 }},
	{"backslash", func(c byte) bool { return c == '\\' }},
	{"base64 sign", func(c byte) bool { return strings.IndexByte("+/=-_", c) >= 0 }},
	{"beyond ASCII", func(c byte) bool { return c >= 0x80 }},
	{"line end", func(c byte) bool { return c == '\n' }},
}

func TestEveryClassOfByteCounts(t *testing.T) {
	original, vkey, anchor := smallLog(t)
	dir := copyLog(t, original)
	end := map[string]int{}
	lines := placesOf(t, dir)
	lastLine := len(lines) - 1
	for i, p := range lines {
		begin := end[p.file]
		end[p.file] += len(p.line)
		whole := read(t, p.file)
		for k, class := range classes {
			if !drill() && (i+k)%11 != 0 {
				continue
			}
			var at []int
			for j := range p.line {
				if class.is(p.line[j]) {
					at = append(at, j)
				}
			}
			if len(at) == 0 {
				continue
			}
			j := begin + at[(7*i+k)%len(at)] // another one in each line
			for what, put := range map[string][]byte{
				"changed": {whole[j] ^ 1}, "another case": {whole[j] ^ 0x20}, "out": nil,
				"doubled": {whole[j], whole[j]}, "zeroed": {0}, "a space before": {' ', whole[j]},
			} {
				changed := slices.Concat(whole[:j], put, whole[j+1:])
				if len(changed) == len(whole)-1 && bytes.HasPrefix(whole, changed) {
					continue // the end of the last line: a torn tail
				}
				write(t, p.file, changed)
				r := verdict(t, dir, vkey, anchor)
				if i == lastLine && onlyTorn(r) {
					continue
				}
				if r.Verdict == receipts.Holds || r.Verdict == receipts.Unproven {
					t.Errorf("%s: %s, byte %d (%q): %s", class.name, what, j, whole[j], r.Verdict)
				}
				// A record is alone in its batch here, so it can be named exactly.
				want := p.entry
				if class.name == "line end" && what == "doubled" {
					want++ // an empty line after it
				}
				if p.kind == 'r' && (r.Damage == nil || int(r.Damage.Index) != want) {
					t.Errorf("%s: %s, byte %d (%q) of entry %d: %v", class.name, what, j, whole[j], p.entry, r.Damage)
				}
			}
		}
		write(t, p.file, whole)
	}
}

// TestRangeIsNamed: of several entries under one signature nobody can tell which
// was changed; the first and the range are named.
func TestRangeIsNamed(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, func(o *receipts.Options) { o.Sync = receipts.SyncInterval })
	mustAppend(t, l, outcome("a"), outcome("b"), outcome("c"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	text := read(t, segmentFile(dir))
	write(t, segmentFile(dir), bytes.Replace(text, []byte(`"id":"c"`), []byte(`"id":"x"`), 1))
	r := verdict(t, dir, l.VerifierKey(), nil)
	if r.Verdict != receipts.Broken || r.Damage == nil || r.Damage.Index != 0 || !strings.Contains(r.Why, "one of the entries 0 to 3") {
		t.Errorf("%s: %s", r.Verdict, r.Why)
	}
}

// TestForkIsRefused: two histories were signed by one key (a copy of the folder
// was written on). The checkpoint of the one is evidence against the other, and
// a start does not cut away what it contradicts.
func TestForkIsRefused(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	mustAppend(t, l, outcome("a"))
	l.Close()
	other := copyLog(t, dir)
	for name, d := range map[string]string{"b": dir, "c": other} {
		l := openLog(t, d)
		mustAppend(t, l, outcome(name))
		l.Close()
	}
	checkpoint := read(t, filepath.Join(other, "receipts", "checkpoint"))
	if r := verdict(t, dir, l.VerifierKey(), checkpoint); r.Verdict != receipts.Broken || r.Damage == nil || r.Damage.ID != "b" {
		t.Errorf("against the other's checkpoint: %s (%s)", r.Verdict, r.Why)
	}
	mine, before := read(t, filepath.Join(dir, "receipts", "checkpoint")), read(t, segmentFile(dir))
	theirs := read(t, segmentFile(other))
	theirs = theirs[bytes.LastIndex(theirs, []byte(`{"checkpoint":`)):]
	for what, c := range map[string]struct{ file, segment []byte }{
		"in the checkpoint file":         {checkpoint, before},
		"as a line behind the log's own": {mine, slices.Concat(before, theirs)},
	} {
		write(t, filepath.Join(dir, "receipts", "checkpoint"), c.file)
		write(t, segmentFile(dir), c.segment)
		if r := verdict(t, dir, l.VerifierKey(), nil); r.Verdict != receipts.Broken {
			t.Errorf("%s: %s (%s)", what, r.Verdict, r.Why)
		}
		if l, err := reopen(dir); err == nil {
			l.Close()
			t.Errorf("%s: opened", what)
		}
		if !bytes.Equal(read(t, segmentFile(dir)), c.segment) {
			t.Errorf("%s: something was changed", what)
		}
	}
}
