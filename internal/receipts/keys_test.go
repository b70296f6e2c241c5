package receipts_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"agentgw/internal/receipts"
)

// TestAnotherKeyOrTamperedWith: a log whose headers name another key is another
// log only where the given key has signed nothing in it, wherever in it that is.
// Whose headers name the given key is no other log, whoever has signed the rest.
func TestAnotherKeyOrTamperedWith(t *testing.T) {
	dir, vkey, anchor := smallLog(t)
	otherDir, other, _ := smallLog(t)
	w, foreign := keptBy(t, "", dir), keptBy(t, "", otherDir)
	skey, _, err := note.GenerateKey(rand.Reader, originOf(vkey))
	if err != nil {
		t.Fatal(err)
	}
	header := func(s *subject, from, to string) {
		name := s.segments()[0]
		s.files[name] = bytes.Replace(s.files[name], []byte(from), []byte(to), 1)
	}
	for what, c := range map[string]struct {
		change func(s *subject)
		want   receipts.Verdict
	}{
		"its header names another key, and the first batch is damaged": {func(s *subject) {
			header(s, vkey, other)
			header(s, `"kind":"key"`, `"kind":"kez"`)
			delete(s.files, "checkpoint")
		}, receipts.Broken},
		"its header names another log": {func(s *subject) {
			header(s, `"log":"`+originOf(vkey), `"log":"`+originOf(other))
			delete(s.files, "checkpoint")
		}, receipts.Broken},
		"its header names another log, and nothing in it is signed": {func(s *subject) {
			header(s, `"log":"`+originOf(vkey), `"log":"`+originOf(other))
			delete(s.files, "checkpoint")
			for _, name := range s.segments() {
				var rest []byte
				for line := range bytes.Lines(s.files[name]) {
					if !bytes.HasPrefix(line, []byte(`{"checkpoint":`)) {
						rest = append(rest, line...)
					}
				}
				s.files[name] = rest
			}
		}, receipts.Untrusted},
		"another key of the same name has signed all": {func(s *subject) { s.resign(t, skey) }, receipts.Broken},
		"another log, and damaged": {func(s *subject) {
			s.files = foreign.clone().files
			header(s, `"kind":"key"`, `"kind":"kez"`)
		}, receipts.Untrusted},
	} {
		for name, a := range map[string][]byte{"with an anchor": anchor, "without": nil} {
			s := w.clone()
			c.change(&s)
			to := t.TempDir()
			s.store(t, to)
			if r := verdict(t, filepath.Join(to, "data"), vkey, a); r.Verdict != c.want {
				t.Errorf("%s, %s: %s (%s)", what, name, r.Verdict, r.Why)
			}
		}
	}
}

// TestOneSpellingOfKeyAndAnchor: what an auditor gives is no part of the log, so
// that a fault in it is none of the log's.
func TestOneSpellingOfKeyAndAnchor(t *testing.T) {
	dir, vkey, anchor := smallLog(t)
	origin, rest, _ := strings.Cut(vkey, "+")
	hash, key, _ := strings.Cut(rest, "+")
	for upper := strings.ToUpper(hash); upper != hash; hash = upper {
		if _, err := receipts.Verify(dir, origin+"+"+upper+"+"+key, anchor, nil); !errors.Is(err, receipts.ErrUsage) {
			t.Errorf("the key's hash in capitals: %v", err)
		}
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	otherBits := bytes.Clone(anchor)
	at := bytes.LastIndexByte(anchor, '=') - 1
	otherBits[at] = alphabet[strings.IndexByte(alphabet, anchor[at])^1]
	if r, err := receipts.Verify(dir, vkey, otherBits, nil); !errors.Is(err, receipts.ErrUsage) {
		t.Errorf("bits of the signature that say nothing: %v, %+v", err, r)
	}
	forged := bytes.Clone(anchor)
	forged[at-9] ^= 1 // 'A' to '@' at worst, which is no base64
	if r, err := receipts.Verify(dir, vkey, forged, nil); err == nil && r.Verdict != receipts.Untrusted {
		t.Errorf("a forged anchor: %s (%s)", r.Verdict, r.Why)
	}
}

// TestSignedBehindWhatIsDamaged: the newest checkpoint stands behind a record
// whose line end was lost, or behind bytes that are too long for a line. It was
// written after the record was on disk, so that this is no torn tail.
func TestSignedBehindWhatIsDamaged(t *testing.T) {
	original, vkey, _ := smallLog(t)
	names := segments(t, original)
	name := filepath.Base(names[len(names)-1])
	text := read(t, names[len(names)-1])
	newest := bytes.LastIndex(text, []byte(`{"checkpoint":`))
	batch := bytes.LastIndex(text[:newest], []byte(`{"batch":`))
	for what, changed := range map[string][]byte{
		"the line end zeroed": append(append(bytes.Clone(text[:newest-1]), 0), text[newest:]...),
		"the line end out":    append(bytes.Clone(text[:newest-1]), text[newest:]...),
		"much put in":         append(append(bytes.Clone(text[:batch]), make([]byte, 70_000)...), text[newest:]...),
		// So that the checkpoint begins in one full buffer and ends in the next.
		"as much as a line may have": append(append(bytes.Clone(text[:batch]), make([]byte, 65_536-100)...), text[newest:]...),
	} {
		dir := copyLog(t, original)
		write(t, filepath.Join(dir, "receipts", name), changed)
		write(t, filepath.Join(dir, "receipts", "checkpoint"), nil)
		if r := verdict(t, dir, vkey, nil); r.Verdict != receipts.Broken || r.Damage == nil || r.Damage.Index != 9 {
			t.Errorf("%s: %s (%s)", what, r.Verdict, r.Why)
		}
		if l, err := reopen(dir); err == nil {
			l.Close()
			t.Errorf("%s: opened", what)
		}
		if !bytes.Equal(read(t, filepath.Join(dir, "receipts", name)), changed) {
			t.Errorf("%s: something was changed", what)
		}
	}
}

// TestRecordNeedsAnID: whose record it is has to be told.
func TestRecordNeedsAnID(t *testing.T) {
	line := bytes.TrimSuffix(lastRecord(read(t, filepath.Join(golden, "receipts", "00000000000000000000.jsonl"))), []byte("\n"))
	at := bytes.Index(line, []byte(`,"t":`))
	without := append(bytes.Clone(line[:bytes.Index(line, []byte(`,"id":`))]), line[at:]...)
	if _, err := receipts.ParseRecord(line); err != nil {
		t.Fatal(err)
	}
	if r, err := receipts.ParseRecord(without); err == nil {
		t.Errorf("%+v", r)
	}
}
