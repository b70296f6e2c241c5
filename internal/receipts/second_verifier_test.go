package receipts_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

// second is the verifier in tools/, which was written from FORMAT.md: one
// process that is asked about many logs, since starting Python takes longer than
// verifying a small one.
type second struct {
	in  io.Writer
	out *bufio.Reader
}

const secondProgram = `
import json, sys
sys.path.insert(0, "../../tools")
import verify
for line in sys.stdin:
    print(json.dumps(verify.verify(*json.loads(line))), flush=True)
`

// python is what runs the second verifier. Without a word from whoever runs the
// tests it is not asked: make test needs nothing but Go.
func python(t *testing.T) string {
	name := os.Getenv("SECOND_VERIFIER_PYTHON")
	if name == "" {
		t.Skip("the second verifier, tools/verify.py, was not asked: make interop asks it")
	}
	return name
}

func startSecond(t *testing.T) *second {
	t.Helper()
	cmd := exec.Command(python(t), "-B", "-c", secondProgram)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the second verifier: %v", err)
		}
	})
	return &second{in, bufio.NewReader(out)}
}

// opinion is what a verifier says of a log, as far as both have to say the same.
type opinion struct {
	Code   int
	Damage *struct{ Index *uint64 }

	Size, Covered, Anchor, Batches, Gaps uint64
	Attempts                             uint64 `json:"gap_attempts"`
	UncountedGaps                        uint64 `json:"uncounted_gaps"`
	Root                                 string
	Torn                                 int64  `json:"torn_bytes"`
	Unknown                              uint64 `json:"unknown_outcomes"`
	InFlight                             int    `json:"intents_without_outcome"`
	Alone                                uint64 `json:"outcomes_without_intent"`
	Counting                             int    `json:"summaries_without_end"`
	Summarised                           struct{ Refusals, Uncounted uint64 }
	Interval                             uint64 `json:"interval_records"`
	Repaired                             uint64 `json:"repaired_tails"`
	Segments, Tenants                    int
	Sealed                               bool
	Pruned                               uint64
	AnchorTime                           *time.Time `json:"anchor_time"`
	Kinds                                map[string]uint64
	Why                                  string
	Records                              []string // that proofs show
	Export                               *struct {
		InFlight int    `json:"intents_without_outcome"`
		Alone    uint64 `json:"outcomes_without_intent"`
	}
}

func (o opinion) holds() bool { return o.Code == 0 || o.Code == 4 }

func (s *second) ask(t *testing.T, path, vkey, anchor string, hasAnchor bool) (o opinion) {
	t.Helper()
	question := []any{path, vkey, anchor}
	if !hasAnchor {
		question[2] = nil
	}
	line, err := json.Marshal(question)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(s.in, "%s\n", line); err != nil {
		t.Fatal(err)
	}
	answer, err := s.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("the second verifier gave up: %v", err)
	}
	if err := json.Unmarshal(answer, &[]any{&o.Code, &o}); err != nil {
		t.Fatalf("%s: %v", answer, err)
	}
	return o
}

// first is what ours says, with the exit code of the command.
func first(t *testing.T, path, vkeyFile string, anchor []byte) (o opinion) {
	t.Helper()
	vkey, err := os.ReadFile(vkeyFile)
	var r *receipts.Report
	if err == nil {
		r, err = receipts.Verify(path, strings.TrimSpace(string(vkey)), anchor, nil)
	}
	switch {
	case errors.Is(err, receipts.ErrUsage):
		return opinion{Code: 2, Why: err.Error()}
	case err != nil:
		return opinion{Code: 3, Why: err.Error()}
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	o.Code = r.Verdict.ExitCode()
	return o
}

// agree reports in which way two opinions differ, or "".
func agree(a, b opinion) string {
	switch {
	case a.Code != b.Code:
		return fmt.Sprintf("exit codes %d and %d", a.Code, b.Code)
	case a.Damage != nil && b.Damage != nil && a.Damage.Index != nil && b.Damage.Index != nil && *a.Damage.Index != *b.Damage.Index:
		return fmt.Sprintf("first bad entries %d and %d", *a.Damage.Index, *b.Damage.Index)
	case a.holds():
		a.Why, b.Why = "", ""
		if len(a.Kinds) == 0 {
			a.Kinds, b.Kinds = nil, nil
		}
		return cmp.Diff(a, b)
	}
	return ""
}

// logsToAlter are of the real writer: closed, and closed in several processes;
// with batches of one and of many; with heads records and without; in interval
// mode; with a tail that was repaired; and with one that nobody has signed.
func logsToAlter(t *testing.T) []*written {
	one, _, _ := smallLog(t)

	many := t.TempDir()
	clock := clockwork.NewFakeClockAt(noon)
	l := openLog(t, many, func(o *receipts.Options) {
		receipts.SetSegmentSize(o, 6000)
		o.Clock = clock
	})
	for round := range 4 {
		var wg sync.WaitGroup
		for _, tenant := range []string{"tenant:acme", "key:b", "human:u-1", ""} {
			wg.Go(func() {
				for i := range 2 {
					id := fmt.Sprintf("%s-%d-%d", tenant, round, i)
					begin, end := intent(id), outcome(id)
					end.Messages = int64(i % 3) // of a WebSocket
					begin.Tenant, end.Tenant = tenant, tenant
					mustAppend(t, l, begin, end)
				}
			})
		}
		wg.Wait()
		size := l.Stats().Size
		until(t, l, clock, size+1, 100*time.Millisecond) // the heads record
	}
	trees := treesOf(t, l, "tenant:acme-0-0", "key:b-1-0")
	l.Close()
	short := copyLog(t, many)
	l, err := reopen(many)
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, intent("later"))
	trees = append(trees, treesOf(t, l, "later", "human:u-1-0-0")...)
	l.Close()
	newer := l.Checkpoint()

	interval := t.TempDir()
	l = openLog(t, interval, func(o *receipts.Options) { o.Sync = receipts.SyncInterval })
	mustAppend(t, l, intent("a"), outcome("a"), outcome("b"), of("tenant:b", "c"))
	l.Close()

	sealed := t.TempDir()
	clock = clockwork.NewFakeClockAt(noon)
	for i := range 2 {
		l := openLog(t, sealed, func(o *receipts.Options) {
			receipts.SetSegmentSize(o, 2500)
			o.Clock = clock
		})
		mustAppend(t, l, intent(fmt.Sprint("a", i)), of("key:b", fmt.Sprint("b", i)))
		until(t, l, clock, l.Stats().Size+2, time.Second) // heads, and a heartbeat
		mustAppend(t, l, outcome(fmt.Sprint("a", i)))
		if err := l.Seal(); err != nil {
			t.Fatal(err)
		}
	}

	floods := t.TempDir()
	for round := range 2 {
		l := openLog(t, floods)
		for _, tenant := range []string{"tenant:acme", ""} {
			begin := &receipts.Record{
				Kind: receipts.KindSummary, ID: fmt.Sprint("s", round, tenant), Tenant: tenant, Decision: receipts.Refused, Code: "rate_limited", Status: 429,
				From: noon, To: noon, Count: 1, Reason: receipts.ReasonFlood,
			}
			end := *begin
			end.Ending, end.To, end.Count = receipts.Complete, noon.Add(time.Second), 4000
			mustAppend(t, l, begin, &end, of(tenant, fmt.Sprint("r", round, tenant)))
			begin.ID += "-cut short"
			mustAppend(t, l, begin)
		}
		l.Close()
	}
	delegated := t.TempDir()
	l = openLog(t, delegated)
	for i, r := range delegatedRecords() {
		mustAppend(t, l, r, of("tenant:b", fmt.Sprint("between", i)))
	}
	l.Close()
	pruned := prunedLog(t)

	keys := rotatedLog(t, true)
	without := rotatedLog(t, false)
	later, removed := keptBy(t, "three keys", keys.dir), keptBy(t, "three keys, removed entries", prunedRotated(t, without))
	first, between := *later, *removed
	first.name, first.vkey, first.trees = "three keys, by the first", []byte(keys.vkeys[0]+"\n"), keys.trees
	between.name, between.vkey = "three keys, removed entries, by the second", []byte(without.vkeys[1]+"\n")

	tail, _, _ := unsignedTail(t)

	list := []*written{
		keptBy(t, "batches of one", one), keptBy(t, "batches of many, and heads", short, newer), keptBy(t, "the same and on", many),
		keptBy(t, "interval", interval), keptBy(t, "silences, and sealed", sealed), keptBy(t, "floods", floods), keptBy(t, "delegations", delegated),
		keptBy(t, "removed entries", pruned), keptBy(t, "testdata/v1-pruned", goldenPruned),
		keptBy(t, "a tail that nobody signed", tail),
		later, removed, &first, &between, keptBy(t, "testdata/v1-rotated", goldenRotated),
		keptBy(t, "testdata/v1", golden), keptBy(t, "testdata/v1-gaps", goldenGaps), keptBy(t, "testdata/v1-trees", goldenTrees),
	}
	list[1].trees, list[2].trees = trees, trees
	last := list[len(list)-1]
	for _, name := range []string{"r2", "r6"} {
		last.trees = append(last.trees, []byte(takeApart(t, read(t, filepath.Join(goldenTrees, name+".tlog-proof"))).checkpoint))
	}
	return list
}

// treesOf returns the checkpoints of the tenants' trees that receipts are in.
func treesOf(t *testing.T, l *receipts.Log, ids ...string) (signed [][]byte) {
	t.Helper()
	for _, id := range ids {
		proofs, err := prove(l, id)
		if err != nil {
			t.Fatal(err)
		}
		signed = append(signed, []byte(takeApart(t, proofs[0].Text).checkpoint))
	}
	return signed
}

// TestSecondVerifierAgrees alters logs in every way that an auditor has to fear,
// and asks both verifiers. They have to agree, in the exit code and in the first
// entry that does not hold, and neither may take an altered log for a good one:
// what is said to hold has, up to the last signature, the entries that the writer
// wrote, in the frame in which it wrote them.
func TestSecondVerifierAgrees(t *testing.T) {
	s := startSecond(t)
	codes, torn := map[int]int{}, 0
	count := eachAltered(t, func(name, dir, vkey, anchor string, w *written, log subject) {
		ours := first(t, filepath.Join(dir, "data"), vkey, log.anchor)
		theirs := s.ask(t, filepath.Join(dir, "data"), vkey, anchor, log.anchor != nil)
		if differ := agree(ours, theirs); differ != "" {
			t.Errorf("%s: %s\nGo: %s\nPython: %s\n%s", name, differ, ours.Why, theirs.Why, differences(w.subject, log))
		}
		for _, o := range []opinion{ours, theirs} {
			if o.holds() && accepted(w.subject, log, o) {
				t.Errorf("%s: accepted: %s\n%s", name, o.Why, differences(w.subject, log))
			}
		}
		codes[ours.Code]++
		if ours.Torn > 0 {
			torn++
		}
	})
	t.Logf("%d altered logs: exit codes %v, %d with a torn tail", count, codes, torn)
}

// eachAltered calls try with logs that were altered in all the ways that there are,
// stored below dir, and returns how many those were.
func eachAltered(t *testing.T, try func(name, dir, vkey, anchor string, w *written, log subject)) (count int) {
	logs, alterations := logsToAlter(t), allAlterations()
	count = len(alterations)
	if drill() {
		count = 1000
	}
	for n, done := 0, 0; done < count; n++ {
		r := mathrand.New(mathrand.NewPCG(uint64(n), 4))
		a := alterations[n%len(alterations)]
		var w *written
		var log subject
		made := false
		for _, i := range r.Perm(len(logs)) { // not each log has what is to be altered
			w, log = logs[i], logs[i].clone()
			if r.IntN(4) == 0 {
				log.anchor = nil
			}
			if made = a.make(t, r, &log, w, logs[(i+1)%len(logs)]); made {
				break
			}
		}
		if !made {
			continue
		}
		done++
		if r.IntN(5) == 0 {
			delete(log.files, "checkpoint")
		}
		dir := t.TempDir()
		vkey, anchor := log.store(t, dir)
		try(fmt.Sprintf("%d, %s: %s", n, w.name, a.name), dir, vkey, anchor, w, log)
		os.RemoveAll(dir)
	}
	return count
}

// TestSecondVerifierAgreesOnProofs does the same with files of proofs.
func TestSecondVerifierAgreesOnProofs(t *testing.T) {
	s := startSecond(t)
	dir, vkey, l, mine := provenLog(t)
	_, theirKey, _, theirs := provenLog(t)
	ofLog := proofsOfTheLog(t, dir)
	_ = l
	var texts [][]byte
	for _, p := range append(mine, theirs...) {
		texts = append(texts, p.Text)
	}
	texts = append(texts, ofLog...)
	count := 300
	if drill() {
		count = 2000
	}
	codes := map[int]int{}
	keyFile, proofFile := filepath.Join(t.TempDir(), "log.vkey"), filepath.Join(t.TempDir(), "proof")
	for n := range count {
		r := mathrand.New(mathrand.NewPCG(uint64(n), 5))
		text, key := pick(r, texts[:len(mine)]), vkey
		if r.IntN(3) == 0 {
			text = pick(r, texts)
		}
		was := shown(t, text)
		lines := slices.Collect(bytes.Lines(text))
		i, j := r.IntN(len(lines)), r.IntN(len(lines))
		switch r.IntN(9) {
		case 0:
			text = bytes.Clone(text)
			text[r.IntN(len(text))] ^= 1 << r.IntN(8)
		case 1:
			text = bytes.Join(slices.Delete(lines, i, i+1), nil)
		case 2:
			text = bytes.Join(slices.Insert(lines, i, lines[j]), nil)
		case 3:
			lines[i], lines[j] = lines[j], lines[i]
			text = bytes.Join(lines, nil)
		case 4:
			other := pick(r, texts)
			was, text = append(was, shown(t, other)...), slices.Concat(text, other)
		case 5:
			text = text[:r.IntN(len(text))]
		case 6:
			lines[2] = fmt.Appendf(nil, "index %s\n", pick(r, []string{"0", "1", "01", "9", "-1", "9007199254740992"}))
			text = bytes.Join(lines, nil)
		case 7:
			other := slices.Collect(bytes.Lines(pick(r, texts)))
			copy(lines[1:], other[1:2+r.IntN(len(other)-2)])
			was, text = append(was, shown(t, bytes.Join(other, nil))...), bytes.Join(lines, nil)
		case 8:
			key = pick(r, []string{vkey, theirKey})
		}
		write(t, keyFile, []byte(key+"\n"))
		write(t, proofFile, text)
		theirs := s.ask(t, proofFile, keyFile, "", false)
		if !bytes.HasPrefix(text, []byte(receipts.ProofHeader)) {
			if theirs.Code != 3 { // it is taken for the path of a log
				t.Errorf("%d: %q is a proof: %s", n, text, theirs.Why)
			}
			continue
		}
		ours, err := receipts.VerifyProof(text, key)
		if err != nil {
			t.Fatal(err)
		}
		if ours.Verdict.ExitCode() != theirs.Code {
			t.Errorf("%d: exit codes %d and %d\nGo: %s\nPython: %s\n%s", n, ours.Verdict.ExitCode(), theirs.Code, ours.Why, theirs.Why, text)
		}
		for _, p := range ours.Records {
			if !slices.Contains(was, string(p.Record)) {
				t.Errorf("%d: accepted: %s", n, text)
			}
		}
		for _, record := range theirs.Records {
			if !slices.Contains(was, record) {
				t.Errorf("%d: accepted by the second: %s", n, text)
			}
		}
		codes[theirs.Code]++
	}
	t.Logf("%d altered proofs: exit codes %v", count, codes)
}

// TestSecondVerifierAgreesOnExports does the same with exports, each line and
// each class of byte of them, and with anchors.
func TestSecondVerifierAgreesOnExports(t *testing.T) {
	s := startSecond(t)
	dir, vkey := crowd(t, 9)
	at := t.TempDir()
	keyFile, exportFile, anchorFile := filepath.Join(at, "log.vkey"), filepath.Join(at, "export"), filepath.Join(at, "anchor")
	write(t, keyFile, []byte(vkey+"\n"))
	codes, count := map[int]int{}, 0
	ask := func(text string, anchor []byte) opinion {
		t.Helper()
		count++
		write(t, exportFile, []byte(text))
		write(t, anchorFile, anchor)
		theirs := s.ask(t, exportFile, keyFile, anchorFile, anchor != nil)
		ours := verifyExport(t, text, vkey, anchor)
		want := ours.Verdict.ExitCode()
		if !receipts.IsExport([]byte(text)) {
			want = 3 // to the command it is any file
		}
		if theirs.Code != want {
			t.Fatalf("exit %d (%s), and the second says %d (%s):\n%s\nanchor: %s", want, ours.Why, theirs.Code, theirs.Why, text, anchor)
		}
		if e := theirs.Export; e != nil && (e.InFlight != ours.InFlight || e.Alone != ours.Alone) {
			t.Fatalf("%d in flight and %d without an intent, and the second says %d and %d:\n%s", ours.InFlight, ours.Alone, e.InFlight, e.Alone, text)
		}
		codes[theirs.Code]++
		return theirs
	}
	halved, _ := halves(t)
	halvedKey := keyOf(t, halved)
	parted, _ := export(t, halved, "tenant:acme", nil)
	write(t, keyFile, []byte(halvedKey+"\n"))
	vkey, halvedKey = halvedKey, vkey
	if o := ask(parted, checkpointOf(t, parted)); o.Code != 0 || o.Export.InFlight != 1 || o.Export.Alone != 2 || !strings.Contains(o.Why, "but 2 outcomes have no intent") {
		t.Errorf("of halves: %+v, %+v", o, o.Export)
	}
	vkey = halvedKey
	write(t, keyFile, []byte(vkey+"\n"))
	whole, _ := export(t, dir, "key:8", nil)
	selection, _ := export(t, dir, "key:8", seqs(1, 6))
	none, _ := export(t, dir, "key:8", seqs())
	other, _ := export(t, dir, "key:9", seqs(1, 6))
	declared, _ := export(t, golden, "tenant:acme", nil)
	texts := []string{whole, selection, none, other}
	var anchors [][]byte
	for _, text := range append(texts, declared) {
		anchors = append(anchors, checkpointOf(t, text))
	}
	h := historyOf(t, dir, vkey)
	for _, ids := range [][]int{{0, 1, 2}, {0, 2, 1}, {0}} { // older checkpoints, one of which tells otherwise
		var lines [][]byte
		for _, i := range ids {
			lines = append(lines, h.records[fmt.Sprint("r8-", i)][0].Line)
		}
		proof, err := receipts.ForgeProof(dir, h.origin("key:8"), lines, 0)
		if err != nil {
			t.Fatal(err)
		}
		anchors = append(anchors, []byte(takeApart(t, proof).checkpoint))
	}
	newest, err := receipts.NewestCheckpoint(filepath.Join(dir, "receipts"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range append(texts, declared) {
		for _, anchor := range append(anchors, nil, newest) {
			ask(text, anchor)
		}
	}
	if ask(whole, anchors[0]).Code != 0 || ask(selection, nil).Code != 4 || ask(whole, anchors[6]).Code != 1 || ask(declared, nil).Code != 2 {
		t.Errorf("they agree on what is not so")
	}
	for _, text := range texts {
		list := slices.Collect(strings.Lines(text))
		for i := range list {
			altered := []string{strings.Join(slices.Delete(slices.Clone(list), i, i+1), ""), strings.Join(list[:i], "")}
			for _, line := range append(slices.Collect(strings.Lines(other)), list...) {
				altered = append(altered, strings.Join(slices.Concat(list[:i], []string{line}, list[i:]), ""),
					strings.Join(slices.Concat(list[:i], []string{line}, list[i+1:]), ""))
			}
			for _, alt := range altered {
				if o := ask(alt, nil); o.holds() && !slices.Contains(texts, alt) {
					t.Fatalf("it is taken for good:\n%s", alt)
				}
			}
		}
		for i := len(receipts.ExportHeader); i < len(text); i += 3 {
			b := []byte(text)
			b[i] ^= 1 << (i / 3 % 8)
			if o := ask(string(b), nil); o.holds() {
				t.Fatalf("it is taken for good:\n%s", b)
			}
		}
	}
	t.Logf("%d altered exports: exit codes %v", count, codes)
}

// shown is the record that a proof shows, as far as it says.
func shown(t *testing.T, proof []byte) []string {
	return []string{string(takeApart(t, proof).line)}
}

// proofsOfTheLog are proofs of records in the log's own tree.
func proofsOfTheLog(t *testing.T, dir string) (texts [][]byte) {
	t.Helper()
	signed := checkpointsIn(map[string][]byte{"": read(t, segmentFile(dir))})
	newest := signed[len(signed)-1]
	size, err := strconv.Atoi(strings.Split(string(newest), "\n")[1])
	if err != nil {
		t.Fatal(err)
	}
	var leaves [][32]byte
	var records [][]byte
	for line := range bytes.Lines(read(t, segmentFile(dir))) {
		if bytes.HasPrefix(line, []byte(`{"v":`)) && len(leaves) < size {
			records = append(records, bytes.TrimSuffix(line, []byte("\n")))
			leaves = append(leaves, leafHash(records[len(records)-1]))
		}
	}
	for i, record := range records {
		text := fmt.Appendf(nil, "c2sp.org/tlog-proof@v1\nextra %s\nindex %d\n", base64.StdEncoding.EncodeToString(record), i)
		for _, hash := range auditPath(i, leaves) {
			text = fmt.Appendf(text, "%s\n", base64.StdEncoding.EncodeToString(hash))
		}
		texts = append(texts, fmt.Appendf(text, "\n%s", newest))
	}
	return texts
}

// TestSecondVerifierWhileWriting: it takes what is there, and not for damage what
// comes meanwhile.
func TestSecondVerifierWhileWriting(t *testing.T) {
	s := startSecond(t)
	dir := t.TempDir()
	l := openLog(t, dir, func(o *receipts.Options) { receipts.SetSegmentSize(o, 50_000) })
	mustAppend(t, l, outcome("first"))
	vkey, anchor := filepath.Join(dir, "log.vkey"), filepath.Join(dir, "anchor")
	write(t, vkey, []byte(l.VerifierKey()))
	write(t, anchor, l.Checkpoint())
	const records = 1000
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := range records {
			if _, err := l.Append(outcome(fmt.Sprintf("id-%d", i))); err != nil {
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
		if o := s.ask(t, dir, vkey, anchor, true); o.Code != 0 || done && o.Size != records+2 {
			t.Fatalf("exit code %d: %s; %d entries", o.Code, o.Why, o.Size)
		}
	}
}

// TestSecondVerifierAsACommand: one exit code for each verdict, and words for a person.
func TestSecondVerifierAsACommand(t *testing.T) {
	name := python(t)
	dir, vkey, anchor := smallLog(t)
	proven, provenKey, _, proofs := provenLog(t)
	_, foreign, _ := smallLog(t)
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		write(t, path, []byte(text))
		return path
	}
	key, kept := file("log.vkey", vkey+"\n"), file("anchor", string(anchor))
	salt := hex.EncodeToString(provenSalt[:])
	damaged := copyLog(t, dir)
	last := segments(t, damaged)[2]
	write(t, last, bytes.Replace(read(t, last), []byte(`"status":403`), []byte(`"status":200`), 1))
	for what, c := range map[string]struct {
		code   int
		args   []string
		output string
	}{
		"all holds":             {0, []string{dir, "--vkey", key, "--anchor", kept}, "HOLDS"},
		"as JSON":               {0, []string{dir, "--vkey", key, "--anchor", kept, "--json"}, `"verdict": "holds"`},
		"a record changed":      {1, []string{damaged, "--vkey", key, "--anchor", kept}, "entry 9"},
		"another key":           {2, []string{dir, "--vkey", file("log.vkey", foreign)}, "UNTRUSTED KEY"},
		"no log":                {3, []string{t.TempDir(), "--vkey", key}, "CANNOT BE READ"},
		"no anchor":             {4, []string{dir, "--vkey", key}, "NOT ALL PROVEN"},
		"a proof":               {0, []string{file("proof", string(proofs[1].Text)), "--vkey", file("log.vkey", provenKey)}, `"kind":"outcome"`},
		"a proof's tree":        {4, []string{proven, "--vkey", file("log.vkey", provenKey), "--anchor", file("anchor", takeApart(t, proofs[1].Text).checkpoint)}, "tenant"},
		"a proof, opened":       {0, []string{file("proof", string(proofs[1].Text)), "--vkey", file("log.vkey", provenKey), "--salt", salt, "--params", file("params", provenParams)}, "the call had these parameters"},
		"opened otherwise":      {1, []string{file("proof", string(proofs[1].Text)), "--vkey", file("log.vkey", provenKey), "--salt", salt, "--params", file("params", `{"amount":9007199254740992}`)}, "not those of the receipt"},
		"by another salt":       {1, []string{file("proof", string(proofs[1].Text)), "--vkey", file("log.vkey", provenKey), "--salt", "00" + salt[2:], "--params", file("params", provenParams)}, "not those of the receipt"},
		"a log, opened":         {2, []string{dir, "--vkey", key, "--salt", salt, "--params", file("params", provenParams)}, "go with the proof"},
		"a salt alone":          {2, []string{file("proof", string(proofs[1].Text)), "--vkey", key, "--salt", salt}, ""},
		"half a salt":           {2, []string{file("proof", string(proofs[1].Text)), "--vkey", key, "--salt", salt[:32], "--params", key}, ""},
		"a proof and an anchor": {2, []string{file("proof", string(proofs[1].Text)), "--vkey", file("log.vkey", provenKey), "--anchor", kept}, "no anchor"},
	} {
		out, err := exec.Command(name, append([]string{"-B", "../../tools/verify.py"}, c.args...)...).Output()
		var exit *exec.ExitError
		code := 0
		if errors.As(err, &exit) {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if code != c.code || !strings.Contains(string(out), c.output) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s", what, code, c.code, c.output, out)
		}
	}
}

// TestSecondVerifierShowsNoTraps: what it prints for a person has nothing that does
// not show or turns the reading direction, and it ends quietly where nobody reads on.
func TestSecondVerifierShowsNoTraps(t *testing.T) {
	name := python(t)
	dir := t.TempDir()
	l := openLog(t, dir)
	r := of("tenant:\u061cacme\U000e0041\u202e", "a")
	r.Service = "s\u061c\U000e0042"
	mustAppend(t, l, r)
	key := filepath.Join(t.TempDir(), "log.vkey")
	write(t, key, []byte(l.VerifierKey()))
	eventually(t, "the log has signed in its files", func() bool { return bytes.Equal(newest(t, dir), l.Checkpoint()) })
	text, _ := export(t, dir, r.Tenant, nil)
	proofs, err := prove(l, "a")
	if err != nil {
		t.Fatal(err)
	}
	for what, file := range map[string]string{"export": text, "proof": string(proofs[0].Text)} {
		path := filepath.Join(t.TempDir(), what)
		write(t, path, []byte(file))
		out, _ := exec.Command(name, "-B", "../../tools/verify.py", path, "--vkey", key).Output()
		if !strings.Contains(string(out), "acme") {
			t.Errorf("%s: %s", what, out)
		}
		for _, c := range string(out) {
			if !unicode.IsPrint(c) && c != '\n' {
				t.Errorf("%s: it prints %U:\n%s", what, c, out)
			}
		}
	}
	cmd := exec.Command("sh", "-c", `{ `+name+` -B ../../tools/verify.py "$0" --vkey "$1"; echo $? >&3; } 3>&2 | true`, dir, key)
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "4\n" {
		t.Errorf("it exits before a reader that is gone: %v: %s", err, out)
	}
}

// TestSecondVerifierByThePage runs what docs/auditing.md says, word for word.
func TestSecondVerifierByThePage(t *testing.T) {
	name := python(t)
	dir, vkey, l, proofs := provenLog(t)
	at := t.TempDir()
	tools, err := filepath.Abs("../../tools")
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{tools: "tools", dir: "data"} {
		if err := os.Symlink(from, filepath.Join(at, to)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(at, "log.vkey"), []byte(vkey+"\n"))
	write(t, filepath.Join(at, "anchor"), l.Checkpoint())
	write(t, filepath.Join(at, "receipt.tlog-proof"), proofs[1].Text)
	write(t, filepath.Join(at, "params.json"), []byte(provenParams))
	r, err := receipts.ParseRecord(proofs[1].Record)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := export(t, dir, r.Tenant, nil)
	write(t, filepath.Join(at, "acme.export"), []byte(text))
	write(t, filepath.Join(at, "given.export"), []byte(text))
	write(t, filepath.Join(at, "acme.anchor"), checkpointOf(t, text))
	said := 0
	for line := range strings.Lines(string(read(t, "../../docs/auditing.md"))) {
		command, ok := strings.CutPrefix(line, "python3 tools/verify.py ")
		if !ok {
			continue
		}
		said++
		want := "HOLDS"
		if strings.Contains(command, "# exit 4") {
			want = "NOT ALL PROVEN"
		}
		cmd := exec.Command("sh", "-c", name+" -B tools/verify.py "+command)
		cmd.Dir, cmd.Env = at, append(os.Environ(), "SALT="+hex.EncodeToString(provenSalt[:]))
		if out, err := cmd.CombinedOutput(); (err != nil) != (want != "HOLDS") || !strings.HasPrefix(string(out), "verdict                  "+want+"\n") {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
	if said < 3 {
		t.Errorf("the page has %d commands", said)
	}
}

// accepted reports whether a log that is said to hold is not, as far as it is
// under a signature, what was written.
func accepted(was, is subject, o opinion) bool {
	if is.signed {
		return is.wrong
	}
	wasRecords, wasFrame := was.entries(o.Covered - o.Pruned)
	isRecords, isFrame := is.entries(o.Covered - o.Pruned)
	if !bytes.Equal(was.files["pruned"], is.files["pruned"]) {
		return true
	}
	if o.Torn > 0 { // so is the last batch, whatever its line says
		wasFrame, isFrame = withoutLastBatchLine(wasFrame), withoutLastBatchLine(isFrame)
	}
	return !slices.Equal(wasRecords, isRecords) || !is.framing && !slices.Equal(wasFrame, isFrame)
}

func withoutLastBatchLine(frame []string) []string {
	for i, line := range slices.Backward(frame) {
		if strings.HasPrefix(line, `{"batch":`) {
			return slices.Delete(slices.Clone(frame), i, i+1)
		}
	}
	return frame
}

// differences tells what was altered, to find the reason by.
func differences(was, is subject) string {
	var b strings.Builder
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range was.files {
			if !yield(name) {
				return
			}
		}
		for name := range is.files {
			if _, there := was.files[name]; !there && !yield(name) {
				return
			}
		}
	}) {
		old, ok1 := was.files[name]
		new, ok2 := is.files[name]
		if ok1 != ok2 {
			fmt.Fprintf(&b, "%s: there %v, now %v\n", name, ok1, ok2)
		} else if !bytes.Equal(old, new) {
			at := 0
			for at < min(len(old), len(new)) && old[at] == new[at] {
				at++
			}
			fmt.Fprintf(&b, "%s: of %d bytes, now %d: from %d on %.200q, now %.200q\n", name, len(old), len(new), at, old[max(0, at-40):], new[max(0, at-40):])
		}
	}
	fmt.Fprintf(&b, "anchor %q\n", is.anchor)
	return b.String()
}
