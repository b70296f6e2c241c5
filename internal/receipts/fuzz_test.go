package receipts_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"agentgw/internal/receipts"
)

// Everything here reads what a stranger may have written. It never panics, and
// takes nothing for what it is not.

// FuzzParseRecord: what is accepted is one line of JSON that says to any other
// reader what the record says.
func FuzzParseRecord(f *testing.F) {
	for _, name := range slices.Concat(segments(f, golden), segments(f, goldenTrees), segments(f, goldenGaps)) {
		for line := range bytes.Lines(read(f, name)) {
			f.Add(bytes.TrimSuffix(line, []byte("\n")))
		}
	}
	f.Add([]byte(`{"v":1,"kind":"intent","t":"2026-05-04T12:00:00.123456Z","tag":"AAAAAAAAAAAAAAAAAAAAAA"}`))
	f.Add([]byte(`{"v":1,"kind":"intent","id":"\ud800","t":"2026-05-04T12:00:00.123456Z","tag":"AAAAAAAAAAAAAAAAAAAAAA"}`))
	f.Add([]byte(`{"v":2,"kind":"intent","tag":"AAAAAAAAAAAAAAAAAAAAAA"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := receipts.ParseRecord(line)
		if err != nil {
			return
		}
		if !utf8.Valid(line) || bytes.ContainsFunc(line, func(c rune) bool { return c < 0x20 || c == 0x7f }) {
			t.Fatalf("accepted with a raw control byte: %q", line)
		}
		var other struct {
			Kind, ID, Tenant, Service, Action, Principal string
			Seq                                          uint64
			Chain                                        []string
			From, To                                     time.Time
			Count                                        uint64
			Reason                                       string
		}
		if err := json.Unmarshal(line, &other); err != nil {
			t.Fatalf("accepted, and is no JSON: %q: %v", line, err)
		}
		if other.Kind != string(r.Kind) || other.ID != r.ID || other.Tenant != r.Tenant || other.Service != r.Service ||
			other.Action != r.Action || other.Principal != r.Principal || other.Seq != r.Seq || !slices.Equal(other.Chain, r.Chain) ||
			!other.From.Equal(r.From) || !other.To.Equal(r.To) || other.Count != r.Count || other.Reason != r.Reason {
			t.Fatalf("%q is read as %+v, by another reader as %+v", line, r, other)
		}
		if s, ok := receipts.Skim(line); ok && (s.Kind != r.Kind || s.ID != r.ID || s.Tenant != r.Tenant || s.Seq != r.Seq) {
			t.Fatalf("%q is read as %+v and skimmed as %+v", line, r, s)
		}
	})
}

// FuzzVerify changes a log at any place in any way. It never counts as whole,
// except where the change leaves its bytes as they are, or only takes away or
// repeats a checkpoint line.
func FuzzVerify(f *testing.F) {
	original, vkey, anchor := golden, keyOf(f, golden), read(f, filepath.Join(golden, "receipts", "checkpoint"))
	names := append(segments(f, original), filepath.Join(original, "receipts", "checkpoint"))
	for i := range names {
		f.Add(uint(i), uint(300), uint(1), []byte("x"))
		f.Add(uint(i), uint(0), uint(1<<20), []byte{})
		f.Add(uint(i), uint(1<<20), uint(0), []byte("{}\n"))
		f.Add(uint(i), uint(170), uint(0), read(f, names[0])[:170])
	}
	dir := copyLog(f, original)
	f.Fuzz(func(t *testing.T, file, at, out uint, in []byte) {
		name := filepath.Base(names[file%uint(len(names))])
		path := filepath.Join(dir, "receipts", name)
		whole := read(t, filepath.Join(original, "receipts", name))
		at = min(at, uint(len(whole)))
		rest := whole[at+min(out, uint(len(whole))-at):]
		changed := slices.Concat(whole[:at], in, rest)
		write(t, path, changed)
		defer write(t, path, whole)
		r, err := receipts.Verify(dir, vkey, anchor, nil)
		if err != nil || r.Verdict == receipts.Broken || r.Verdict == receipts.Untrusted {
			return
		}
		// What holds has every record, in its order, with its bytes.
		changed = changed[:int64(len(changed))-r.Torn]
		if !bytes.Equal(records(changed), records(whole)) {
			t.Fatalf("%s, byte %d: %d out, %q in: %s (%s)", name, at, out, in, r.Verdict, r.Why)
		}
	})
}

// records are a file's record lines; of the checkpoint file there are none.
func records(text []byte) (lines []byte) {
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte(`{"v":`)) && bytes.HasSuffix(line, []byte("\n")) {
			lines = append(lines, line...)
		}
	}
	return lines
}

// FuzzSegment: bytes that this key did not sign are never under its signature,
// whatever they are, and a start does not take them for its own.
func FuzzSegment(f *testing.F) {
	_, vkey, anchor := smallLog(f)
	for _, name := range segments(f, golden) {
		f.Add(read(f, name)) // of another key
	}
	f.Add([]byte{})
	f.Add(make([]byte, 100))
	f.Add([]byte(`{"segment":{"v":1,"log":"a","first":0,"vkey":""}}` + "\n" + `{"batch":{"first":0,"count":18446744073709551615,"bytes":1}}` + "\n"))
	dir := f.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "receipts"), 0o700); err != nil {
		f.Fatal(err)
	}
	key, mine := read(f, filepath.Join(golden, "receipt-signing-key")), keyOf(f, golden)
	f.Fuzz(func(t *testing.T, text []byte) {
		// Of a log that is still to be begun: any other has to hold an entry.
		os.Remove(filepath.Join(dir, "receipt-signing-key"))
		write(t, filepath.Join(dir, "receipt-signing-key.new"), key)
		write(t, segmentFile(dir), text)
		for _, a := range [][]byte{anchor, nil} {
			r, err := receipts.Verify(dir, vkey, a, nil)
			if err == nil && (r.Covered > 0 || r.Verdict == receipts.Holds) {
				t.Fatalf("%s: %d entries under a signature", r.Verdict, r.Covered)
			}
		}
		folder := filepath.Join(dir, "receipts")
		receipts.Scan(folder, func(receipts.Stored) error { return nil })
		receipts.FindIn(folder, "a")
		receipts.NewestCheckpoint(folder)
		l, err := reopen(dir)
		os.Remove(filepath.Join(folder, "checkpoint"))
		if err != nil {
			return
		}
		defer os.Remove(filepath.Join(folder, "checkpoint"))
		checkpoint := l.Checkpoint()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if r, err := receipts.Verify(dir, mine, checkpoint, nil); err != nil || r.Damage != nil || r.Covered != r.Size {
			t.Fatalf("after a start that took it: %+v, %v", r, err)
		}
	})
}

// FuzzAnchor: only what the log's key signed is an anchor.
func FuzzAnchor(f *testing.F) {
	dir, vkey, anchor := smallLog(f)
	f.Add(anchor)
	f.Add(bytes.TrimSpace(anchor))
	f.Add(bytes.Replace(anchor, []byte("\n10\n"), []byte("\n010\n"), 1))
	f.Add(append(bytes.Clone(anchor), anchor...))
	f.Add([]byte("\n\n"))
	whole := bytes.TrimSpace(anchor)
	f.Fuzz(func(t *testing.T, changed []byte) {
		r, err := receipts.Verify(dir, vkey, append([]byte{}, changed...), nil)
		if err != nil {
			if !errors.Is(err, receipts.ErrUsage) {
				t.Fatal(err)
			}
			return
		}
		if r.Verdict == receipts.Holds && !bytes.HasPrefix(bytes.TrimSpace(changed), whole[:bytes.LastIndexByte(whole, ' ')]) {
			t.Fatalf("an anchor that nobody signed: %q", changed)
		}
	})
}

// FuzzKey: any text may be given for a key.
func FuzzKey(f *testing.F) {
	dir, vkey, anchor := smallLog(f)
	f.Add(vkey)
	f.Add("a+b+c")
	f.Add("")
	f.Fuzz(func(t *testing.T, key string) {
		r, err := receipts.Verify(dir, key, anchor, nil)
		if err == nil && key != vkey && r.Verdict != receipts.Untrusted && r.Verdict != receipts.Broken {
			t.Fatalf("%q: %s", key, r.Verdict)
		}
	})
}

// FuzzProof: a proof that holds shows a record that the log has written, whatever
// the text, and has one spelling.
func FuzzProof(f *testing.F) {
	vkey := keyOf(f, goldenTrees)
	texts, err := filepath.Glob(filepath.Join(goldenTrees, "*.tlog-proof"))
	if err != nil || len(texts) != 3 {
		f.Fatal(texts, err)
	}
	var all []byte
	for _, name := range texts {
		f.Add(read(f, name))
		all = append(all, read(f, name)...)
	}
	f.Add(all)
	f.Add([]byte(receipts.ProofHeader))
	f.Add([]byte(receipts.ProofHeader + "extra \nindex 0\n\n"))
	f.Add(bytes.Repeat([]byte(receipts.ProofHeader), 100))
	written := map[string]bool{}
	err = receipts.Scan(filepath.Join(goldenTrees, "receipts"), func(s receipts.Stored) error {
		written[string(s.Line)] = true
		return nil
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := receipts.VerifyProof(text, vkey)
		if err != nil {
			t.Fatal(err)
		}
		if r.Verdict != receipts.Holds && len(r.Records) != 0 || r.Verdict == receipts.Holds && len(r.Records) == 0 {
			t.Fatalf("%+v", r)
		}
		for _, p := range r.Records {
			if !written[string(p.Record)] {
				t.Fatalf("it shows what nobody wrote: %s", p.Record)
			}
		}
	})
}
