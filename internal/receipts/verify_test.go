package receipts_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"agentgw/internal/receipts"
)

func itoa(n int) string { return strconv.Itoa(n) }

func keyOf(t testing.TB, dir string) string {
	t.Helper()
	vkey, err := receipts.VerifierKeyOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	return vkey
}

func anchorOf(t *testing.T, dir string) []byte {
	return read(t, filepath.Join(dir, "receipts", "checkpoint"))
}

// smallLog is a closed log of three segments with calls of two tenants.
func smallLog(t testing.TB) (dir, vkey string, anchor []byte) {
	t.Helper()
	dir = t.TempDir()
	l := openLog(t, dir, func(o *receipts.Options) { receipts.SetSegmentSize(o, 2500) })
	for _, id := range []string{"a", "b", "c"} {
		mustAppend(t, l, intent(id), outcome(id))
		r := &receipts.Record{Kind: receipts.KindRefusal, ID: id + "r", Tenant: "key:k", Decision: receipts.Refused, Code: "scope_denied", Status: 403}
		mustAppend(t, l, r)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if names := segments(t, dir); len(names) < 3 {
		t.Fatalf("segments %v: want three or more", names)
	}
	return dir, l.VerifierKey(), l.Checkpoint()
}

func segments(t testing.TB, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "receipts", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func verdict(t testing.TB, path, vkey string, anchor []byte) *receipts.Report {
	t.Helper()
	r, err := receipts.Verify(path, vkey, anchor, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVerdicts(t *testing.T) {
	dir, vkey, anchor := smallLog(t)
	skey := strings.TrimSpace(string(read(t, filepath.Join(dir, "receipt-signing-key"))))
	signer, err := note.NewSigner(skey)
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := note.GenerateKey(rand.Reader, signer.Name())
	if err != nil {
		t.Fatal(err)
	}
	foreign, foreignKey, foreignAnchor := smallLog(t)
	signed := func(size int, root string) []byte {
		n, err := note.Sign(&note.Note{Text: fmt.Sprintf("%s\n%d\n%s\n", signer.Name(), size, root)}, signer)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	nowhere := base64.StdEncoding.EncodeToString(make([]byte, 32))
	empty := sha256.Sum256(nil)
	gone := t.TempDir()
	os.Mkdir(filepath.Join(gone, "receipts"), 0o700)

	for _, c := range []struct {
		name   string
		path   string
		vkey   string
		anchor []byte
		code   int
	}{
		{"all there", dir, vkey, anchor, 0},
		{"the receipts folder itself", filepath.Join(dir, "receipts"), vkey, anchor, 0},
		{"an anchor that lost its line end", dir, vkey, bytes.TrimSpace(anchor), 0},
		{"no anchor", dir, vkey, nil, 4},
		{"an anchor of nothing", dir, vkey, signed(0, base64.StdEncoding.EncodeToString(empty[:])), 4},
		{"another key of the same name", dir, other, nil, 2},
		{"another log's key", dir, foreignKey, nil, 2},
		{"another log's key and anchor", dir, foreignKey, foreignAnchor, 2},
		{"an anchor by another key", dir, vkey, foreignAnchor, 2},
		{"an anchor larger than the log", dir, vkey, signed(11, nowhere), 1},
		{"an anchor of the same size with another root", dir, vkey, signed(10, nowhere), 1},
		{"an anchor of a smaller size with another root", dir, vkey, signed(4, nowhere), 1},
		{"an empty log", gone, vkey, nil, 4},
		{"an empty log with an anchor", gone, vkey, anchor, 1},
		{"another log under its own key", foreign, foreignKey, foreignAnchor, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := verdict(t, c.path, c.vkey, c.anchor)
			if r.Verdict.ExitCode() != c.code || r.Why == "" {
				t.Errorf("%d, want %d: %s (%s)", r.Verdict.ExitCode(), c.code, r.Verdict, r.Why)
			}
		})
	}
	if _, err := receipts.Verify(dir, vkey, []byte{}, nil); err == nil {
		t.Error("an empty anchor counts as none")
	}
	if _, err := receipts.Verify(dir, "not a key", nil, nil); err == nil {
		t.Error("any text is a key")
	}
}

func TestCutAtABatchBorder(t *testing.T) {
	dir, vkey, anchor := smallLog(t)
	os.Remove(filepath.Join(dir, "receipts", "checkpoint"))
	names := segments(t, dir)
	os.Remove(names[len(names)-1])
	if r := verdict(t, dir, vkey, anchor); r.Verdict != receipts.Broken {
		t.Errorf("with the newer anchor: %s", r.Verdict)
	}
	if r := verdict(t, dir, vkey, nil); r.Verdict != receipts.Unproven {
		t.Errorf("without an anchor: %s", r.Verdict)
	}
}

// Every single bit, of every byte that the log consists of.
func TestEveryBitCounts(t *testing.T) {
	t.Run("a small log", func(t *testing.T) { everyBit(t, smallLog) })
	t.Run("one with heads", func(t *testing.T) { everyBit(t, boundLog) })
}

func everyBit(t *testing.T, log func(testing.TB) (string, string, []byte)) {
	original, vkey, anchor := log(t)
	dir := copyLog(t, original)
	files := append(segments(t, dir), filepath.Join(dir, "receipts", "checkpoint"))
	step := 607 // odd, so that each of a byte's bits has its turn
	if drill() {
		step = 1
	}
	for _, file := range files {
		whole := read(t, file)
		lastBatch := bytes.LastIndex(whole, []byte(`{"batch":`))
		lastEntry := lastBatch + bytes.IndexByte(whole[max(0, lastBatch):], '\n')
		lastCheckpoint := bytes.LastIndex(whole, []byte(`{"checkpoint":`)) - 1 // the entry's line end
		for bit := 0; bit < len(whole)*8; bit += step {
			b := bytes.Clone(whole)
			b[bit/8] ^= 1 << (bit % 8)
			write(t, file, b)
			r := verdict(t, dir, vkey, anchor)
			// Of what is written last only entries are proven: its batch may
			// announce more than there is, and its checkpoint stands elsewhere too.
			if at := bit / 8; file == files[len(files)-2] && (at > lastBatch && at < lastEntry || at > lastCheckpoint) &&
				r.Torn > 0 && r.Size == r.Anchor && r.Covered == r.Size {
				continue
			}
			if r.Verdict == receipts.Holds || r.Verdict == receipts.Unproven {
				t.Fatalf("%s: bit %d of byte %d (%q): %s", filepath.Base(file), bit%8, bit/8, whole[bit/8], r.Verdict)
			}
		}
		write(t, file, whole)
	}
	if r := verdict(t, dir, vkey, anchor); r.Verdict != receipts.Holds {
		t.Fatalf("the log as it was: %+v", r)
	}
}

// Each change keeps every line well-formed and every count right, so that only
// the tree and the sequences can tell.
func TestRearranged(t *testing.T) {
	original, vkey, anchor := smallLog(t)
	name := filepath.Base(segments(t, original)[0])
	text := string(read(t, filepath.Join(original, "receipts", name)))
	lines := strings.SplitAfter(text, "\n")
	var records []int
	for i, line := range lines {
		if strings.HasPrefix(line, `{"v":`) {
			records = append(records, i)
		}
	}
	third, fourth := records[2], records[3]
	batch := func(first, count, bytes int) string {
		return fmt.Sprintf("{\"batch\":{\"first\":%d,\"count\":%d,\"bytes\":%d}}\n", first, count, bytes)
	}
	join := func(parts ...[]string) string {
		var b strings.Builder
		for _, p := range parts {
			b.WriteString(strings.Join(p, ""))
		}
		return b.String()
	}
	for what, changed := range map[string]string{
		"two records swapped": join(lines[:third-1],
			[]string{batch(2, 1, len(lines[fourth])), lines[fourth]}, lines[third+1:fourth-1],
			[]string{batch(3, 1, len(lines[third])), lines[third]}, lines[fourth+1:]),
		"a record taken out with its batch": join(lines[:third-1], lines[third+1:]),
		"a record twice in its batch": join(lines[:third-1],
			[]string{batch(2, 2, 2*len(lines[third])), lines[third], lines[third]}, lines[third+1:]),
		"a record put in": join(lines[:third-1],
			[]string{batch(2, 2, len(lines[third])+len(lines[records[1]])), lines[records[1]], lines[third]}, lines[third+1:]),
		"another amount of bytes out": strings.Replace(text, `"out":42`, `"out":43`, 1),
		"checkpoints taken out": func() string {
			var kept []string
			for _, l := range lines {
				if !strings.HasPrefix(l, `{"checkpoint":`) {
					kept = append(kept, l)
				}
			}
			return strings.Replace(join(kept), `"out":42`, `"out":43`, 1)
		}(),
		"an empty file": "",
	} {
		t.Run(what, func(t *testing.T) {
			dir := copyLog(t, original)
			write(t, filepath.Join(dir, "receipts", name), []byte(changed))
			for _, a := range [][]byte{anchor, nil} {
				r := verdict(t, dir, vkey, a)
				if r.Verdict != receipts.Broken {
					t.Errorf("anchor %t: %s (%s)", a != nil, r.Verdict, r.Why)
				}
			}
		})
	}
	t.Run("segments exchanged", func(t *testing.T) {
		dir := copyLog(t, original)
		names := segments(t, dir)
		a, b := read(t, names[0]), read(t, names[1])
		write(t, names[0], b)
		write(t, names[1], a)
		if r := verdict(t, dir, vkey, nil); r.Verdict != receipts.Broken {
			t.Errorf("%s", r.Verdict)
		}
	})
	t.Run("a segment removed", func(t *testing.T) {
		dir := copyLog(t, original)
		os.Remove(segments(t, dir)[1])
		if r := verdict(t, dir, vkey, nil); r.Verdict != receipts.Broken || r.Damage == nil {
			t.Errorf("%+v", r)
		}
	})
}

func TestFirstFaultIsNamed(t *testing.T) {
	dir, vkey, anchor := smallLog(t)
	file := segments(t, dir)[1]
	text := read(t, file)
	at := bytes.Index(text, []byte(`"status":`))
	text[at+len(`"status":`)] = '9'
	write(t, file, text)
	r := verdict(t, dir, vkey, anchor)
	if r.Verdict != receipts.Broken || r.Damage == nil || r.Damage.File != filepath.Base(file) || r.Damage.Line == 0 || r.Damage.Index == 0 {
		t.Errorf("%+v %+v", r, r.Damage)
	}
}

// TestSpokenTwice: the writer's own records must tell one story of a receipt.
func TestSpokenTwice(t *testing.T) {
	refusal := func(id string) *receipts.Record {
		return &receipts.Record{Kind: receipts.KindRefusal, ID: id, Tenant: "tenant:acme", Decision: receipts.Refused, Status: 403}
	}
	for what, records := range map[string][]*receipts.Record{
		"two outcomes":                {intent("a"), outcome("a"), outcome("a")},
		"two intents":                 {intent("a"), intent("a")},
		"an intent after its outcome": {outcome("a"), intent("a")},
		"two refusals":                {refusal("a"), refusal("a")},
		"a refusal after an intent":   {intent("a"), refusal("a")},
	} {
		dir := t.TempDir()
		l := openLog(t, dir)
		mustAppend(t, l, records...)
		l.Close()
		r := verdict(t, dir, l.VerifierKey(), l.Checkpoint())
		if r.Verdict != receipts.Broken || r.Damage == nil || int(r.Damage.Index) != len(records) || r.Damage.ID != "a" {
			t.Errorf("%s: %s (%s)", what, r.Verdict, r.Why)
		}
	}
}

// TestOneSpellingOfASignature: the two bits of the base64 that decoders drop.
func TestOneSpellingOfASignature(t *testing.T) {
	original, vkey, anchor := smallLog(t)
	dir := copyLog(t, original)
	for _, file := range append(segments(t, dir), filepath.Join(dir, "receipts", "checkpoint")) {
		whole := read(t, file)
		at := bytes.LastIndexByte(whole, '=') - 1
		const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
		i := strings.IndexByte(alphabet, whole[at])
		changed := bytes.Clone(whole)
		changed[at] = alphabet[i^1]
		write(t, file, changed)
		if r := verdict(t, dir, vkey, anchor); r.Verdict != receipts.Broken {
			t.Errorf("%s: %s", filepath.Base(file), r.Verdict)
		}
		write(t, file, whole)
	}
}

// TestOneSpellingOfATag: its last character carries two bits.
func TestOneSpellingOfATag(t *testing.T) {
	line := bytes.TrimSuffix(lastRecord(read(t, filepath.Join(golden, "receipts", "00000000000000000000.jsonl"))), []byte("\n"))
	if _, err := receipts.ParseRecord(line); err != nil {
		t.Fatal(err)
	}
	accepted := ""
	for c := range 128 {
		changed := bytes.Clone(line)
		changed[len(line)-3] = byte(c)
		if _, err := receipts.ParseRecord(changed); err == nil {
			accepted += string(rune(c))
		}
	}
	if accepted != "AQgw" {
		t.Errorf("a tag may end in %q", accepted)
	}
}

// Whoever has no key can append anything. It is never an entry under a signature.
func TestRecordAfterTheEnd(t *testing.T) {
	dir, vkey, anchor := smallLog(t)
	names := segments(t, dir)
	last := names[len(names)-1]
	text := read(t, last)
	batch := fmt.Sprintf("{\"batch\":{\"first\":10,\"count\":1,\"bytes\":%d}}\n", len(lastRecord(text)))
	for what, tail := range map[string]string{
		"a copied record":         string(lastRecord(text)),
		"a line of something":     "hello\n",
		"a copied record's batch": batch + string(lastRecord(text)),
		"a very long line":        strings.Repeat("a", 70_000),
		"an older checkpoint":     checkpointLine(t, names[0]),
	} {
		write(t, last, append(bytes.Clone(text), tail...))
		r := verdict(t, dir, vkey, anchor)
		wrong := int64(len(tail))
		if strings.HasPrefix(tail, batch) {
			wrong -= int64(len(batch)) // which is well-formed
		}
		if r.Verdict != receipts.Holds || !onlyTorn(r) || r.Torn != wrong {
			t.Errorf("%s: %s: %s; %d bytes torn, want %d", what, r.Verdict, r.Why, r.Torn, wrong)
		}
		copied := copyLog(t, dir)
		l, err := reopen(copied)
		if err != nil {
			t.Errorf("%s: a start: %v", what, err)
			continue
		}
		l.Close()
		if r := verdict(t, copied, vkey, l.Checkpoint()); r.Verdict != receipts.Holds || r.Torn != 0 || r.Repaired != 1 {
			t.Errorf("%s: after a start: %s: %s", what, r.Verdict, r.Why)
		}
	}
}

// checkpointLine is a checkpoint line of a segment.
func checkpointLine(t *testing.T, name string) string {
	text := string(read(t, name))
	_, rest, _ := strings.Cut(text, "\n{\"checkpoint\":")
	line, _, _ := strings.Cut(rest, "\n")
	return `{"checkpoint":` + line + "\n"
}

func lastRecord(text []byte) []byte {
	at := bytes.LastIndex(text, []byte("\n"+`{"v":1`)) + 1
	end := bytes.IndexByte(text[at:], '\n')
	return text[at : at+end+1]
}

// A gateway that was killed before the checkpoint of its last batch went out.
func TestTailWithoutASignatureIsToldApart(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	mustAppend(t, l, outcome("a"))
	anchor := bytes.Clone(l.Checkpoint())
	l.Close()
	old := anchorOf(t, dir)
	l = openLog(t, dir)
	mustAppend(t, l, outcome("b"))
	l.Close()
	text := read(t, segmentFile(dir))
	write(t, segmentFile(dir), text[:bytes.LastIndex(text, []byte(`{"checkpoint":`))])
	write(t, filepath.Join(dir, "receipts", "checkpoint"), old)
	r := verdict(t, dir, l.VerifierKey(), anchor)
	if r.Verdict != receipts.Holds || r.Size != 3 || r.Covered != 2 || len(r.NotProven) == 0 {
		t.Errorf("%+v", r)
	}
}

func TestVerifyWhileWriting(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, func(o *receipts.Options) { receipts.SetSegmentSize(o, 20_000) })
	mustAppend(t, l, outcome("first"))
	anchor := l.Checkpoint()
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := range 300 {
			if _, err := l.Append(outcome("id-" + itoa(i))); err != nil {
				t.Error(err)
			}
		}
	}()
	for done := false; !done; {
		select {
		case <-written:
			done = true // and once more
		default:
		}
		if r := verdict(t, dir, l.VerifierKey(), anchor); r.Verdict != receipts.Holds {
			t.Fatalf("%s: %s", r.Verdict, r.Why)
		}
	}
}

// TestReportSaysUntilWhen: with the time of the last entry that the anchor covers, and not
// of a later one; and which calls it leaves open.
func TestReportSaysUntilWhen(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, receipts.SetNoSync)
	at := func(r *receipts.Record, minutes int) *receipts.Record {
		r.Time = noon.Add(time.Duration(minutes) * time.Minute)
		return r
	}
	mustAppend(t, l, at(outcome("a"), 1))
	eventually(t, "a checkpoint covers it", func() bool {
		signed, err := receipts.NewestCheckpoint(filepath.Join(dir, "receipts"))
		return err == nil && bytes.Equal(signed, l.Checkpoint()) && bytes.Contains(signed, []byte("\n2\n"))
	})
	anchor := l.Checkpoint()
	mustAppend(t, l, at(intent("b"), 2), at(intent("c"), 3))
	dir = copyLog(t, dir) // as a kill leaves it
	r := verdict(t, dir, keyOf(t, dir), anchor)
	if r.AnchorTime == nil || !r.AnchorTime.Equal(noon.Add(time.Minute).Truncate(time.Microsecond)) {
		t.Errorf("until %v", r.AnchorTime)
	}
	if open := strings.Join(r.NotProven, "\n"); !strings.Contains(open, "how 2 calls in flight end: ") || !strings.Contains(open, "2 entries, the last of 2026-05-04T12:01:00Z was cut off") {
		t.Errorf("left open: %s", open)
	}
	if r := verdict(t, dir, keyOf(t, dir), nil); r.AnchorTime != nil {
		t.Errorf("without an anchor until %v", r.AnchorTime)
	}
}
