package receipts_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

var update = flag.Bool("update", false, "write testdata/v1 anew: that is a change of the format")

const golden = "testdata/v1"

// fullRecord has every member that a caller can set.
func fullRecord(kind receipts.Kind, id string) *receipts.Record {
	return &receipts.Record{
		Kind: kind, ID: id, Caller: "key:ci-bot", Key: "ci-bot", Tenant: "tenant:acme", Principal: "user-42",
		Chain: []string{"user-42", "planner", "worker"}, Service: "github", Action: "create_issue", Method: "POST",
		Params:   &receipts.ParamsHash{Alg: "hmac-sha256", Hash: "3q2-7wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},
		Decision: receipts.Allowed, RequestID: "req-0123456789abcdef", ClientAddr: "2001:db8::7",
	}
}

// writeGolden makes the log in dir, which holds the signing key already.
func writeGolden(t *testing.T, dir string) {
	clock := clockwork.NewFakeClockAt(noon)
	made := 0
	open := func(sync string) *receipts.Log {
		o := receipts.Options{Clock: clock, Replica: "gw-1", Sync: sync}
		receipts.SetSegmentSize(&o, 4500)
		receipts.SetNoSync(&o)
		receipts.SetNewID(&o, func() string { made++; return fmt.Sprintf("%032x", made) })
		l, err := receipts.Open(dir, o)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	// One batch for each record. Where a segment ends depends on whether the
	// checkpoint was written before the next batch came, hence the wait.
	l := open(receipts.SyncAlways)
	add := func(r *receipts.Record) {
		t.Helper()
		eventually(t, "the checkpoint stands in the log", func() bool {
			signed, err := receipts.NewestCheckpoint(filepath.Join(dir, "receipts"))
			return err == nil && bytes.Equal(signed, l.Checkpoint())
		})
		clock.Advance(1500 * time.Microsecond)
		mustAppend(t, l, r)
	}
	add(fullRecord(receipts.KindIntent, "a"))
	done := fullRecord(receipts.KindOutcome, "a")
	done.Status, done.In, done.Out, done.Ending, done.Code = 502, 120, 1<<53-1, receipts.UpstreamAborted, "upstream_error"
	done.QueueMicros, done.UpstreamMicros, done.TotalMicros = 12, 20_431, 21_077
	add(done)
	nothing := fullRecord(receipts.KindOutcome, "b") // an answer of no bytes: zeros stand
	nothing.Tenant, nothing.Params, nothing.Chain, nothing.Status, nothing.Ending = "key:other", nil, nil, 204, receipts.Complete
	add(nothing)
	add(&receipts.Record{Kind: receipts.KindRefusal, ID: "c", Tenant: "tenant:acme", Key: "ci-bot", Decision: receipts.Refused,
		Code: "rate_limited", Limit: "tenant", Status: 429, ClientAddr: "203.0.113.7"})
	add(&receipts.Record{Kind: receipts.KindRefusal, ID: "d", Decision: receipts.Refused, Code: "unauthenticated", Status: 401})
	add(&receipts.Record{Kind: receipts.KindRefusal, ID: "e", Tenant: "tenant:acme", Decision: receipts.Refused, Code: "scope_denied", Status: 403,
		Service: "a\"b\\c/d\n{}\x00\x7f", Action: "grüße 日本 😀 \u200b\u202e\ufeff\u0085\xff<&>", Principal: `","decision":"allowed`})
	long := fullRecord(receipts.KindRefusal, "f")
	long.Decision, long.Code, long.Service = receipts.Refused, "service_not_found", strings.Repeat("longer than a record may be ", 500)
	add(long)
	add(fullRecord(receipts.KindIntent, "g")) // and then the process dies
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	names := segments(t, dir)
	last := names[len(names)-1]
	write(t, last, append(read(t, last), `{"batch":{"fir`...))

	// What the next start says, and what comes in interval mode, is one batch:
	// the clock stands until the log is closed.
	clock.Advance(time.Hour)
	l = open(receipts.SyncInterval)
	done = fullRecord(receipts.KindOutcome, "h")
	done.Status, done.Ending = 200, receipts.Complete
	mustAppend(t, l, fullRecord(receipts.KindIntent, "h"), done)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestGoldenWriter: the bytes of a log are the same for ever.
func TestGoldenWriter(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "receipt-signing-key.new"), read(t, filepath.Join(golden, "receipt-signing-key")))
	writeGolden(t, dir)
	for _, name := range segments(t, dir) { // they are derived, and golden elsewhere
		os.Remove(strings.TrimSuffix(name, ".jsonl") + ".leaves")
	}
	if *update {
		if err := os.RemoveAll(filepath.Join(golden, "receipts")); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(filepath.Join(golden, "receipts"), os.DirFS(filepath.Join(dir, "receipts"))); err != nil {
			t.Fatal(err)
		}
	}
	got, want := tree(t, filepath.Join(dir, "receipts")), tree(t, filepath.Join(golden, "receipts"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the writer's bytes have changed; that is a change of format (see %s/README.md):\n%s", golden, diff)
	}
}

// goldenTrees is a log with heads records, and proofs of its receipts. It is of
// version 1 as well: what it has beside the other had its place there from the beginning.
const goldenTrees = "testdata/v1-trees"

// writeGoldenTrees makes that log in dir, which holds the signing key already, and
// returns the proofs of two receipts.
func writeGoldenTrees(t *testing.T, dir string) map[string][]byte {
	clock := clockwork.NewFakeClockAt(noon)
	made := 0
	o := receipts.Options{Clock: clock, Replica: "gw-1"}
	receipts.SetSegmentSize(&o, 4500)
	receipts.SetNoSync(&o)
	receipts.SetNewID(&o, func() string { made++; return fmt.Sprintf("%032x", made) })
	l, err := receipts.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	settled := func() {
		t.Helper()
		eventually(t, "the checkpoint stands in the log", func() bool {
			signed, err := receipts.NewestCheckpoint(filepath.Join(dir, "receipts"))
			return err == nil && bytes.Equal(signed, l.Checkpoint())
		})
	}
	// One batch for each record, as above; the heads come by themselves.
	for i, tenant := range []string{"tenant:acme", "key:other", "tenant:acme", "human:u-1", "tenant:acme", "", "key:other", "tenant:acme"} {
		settled()
		clock.Advance(1500 * time.Microsecond)
		r := of(tenant, fmt.Sprint("r", i))
		if tenant == "" {
			r = &receipts.Record{Kind: receipts.KindRefusal, ID: "stranger", Decision: receipts.Refused, Code: "unauthenticated", Status: 401}
		}
		mustAppend(t, l, r)
		if i == 3 || i == 6 {
			settled()
			before := l.Stats().Size
			clock.Advance(6 * time.Second)
			eventually(t, "heads", func() bool { receipts.Nudge(l); return l.Stats().Size == before+1 })
		}
	}
	settled()
	proofs := map[string][]byte{}
	for _, id := range []string{"r2", "r6"} {
		p, err := prove(l, id)
		if err != nil {
			t.Fatal(err)
		}
		proofs[id] = p[0].Text
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := receipts.ProveIn(dir, "stranger", nil) // in the log's own tree
	if err != nil {
		t.Fatal(err)
	}
	proofs["stranger"] = p[0].Text
	return proofs
}

// TestGoldenTrees: heads records, proofs and the files of leaves are the same for
// ever too, and today's reader takes them.
func TestGoldenTrees(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "receipt-signing-key.new"), read(t, filepath.Join(goldenTrees, "receipt-signing-key")))
	proofs := writeGoldenTrees(t, dir)
	if *update {
		if err := os.RemoveAll(filepath.Join(goldenTrees, "receipts")); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(filepath.Join(goldenTrees, "receipts"), os.DirFS(filepath.Join(dir, "receipts"))); err != nil {
			t.Fatal(err)
		}
		for id, text := range proofs {
			write(t, filepath.Join(goldenTrees, id+".tlog-proof"), text)
		}
	}
	if diff := cmp.Diff(tree(t, filepath.Join(goldenTrees, "receipts")), tree(t, filepath.Join(dir, "receipts"))); diff != "" {
		t.Errorf("the writer's bytes have changed; that is a change of format (see %s/README.md):\n%s", golden, diff)
	}
	vkey := keyOf(t, goldenTrees)
	for id, text := range proofs {
		there := read(t, filepath.Join(goldenTrees, id+".tlog-proof"))
		if diff := cmp.Diff(string(there), string(text)); diff != "" {
			t.Errorf("%s: the proof has changed:\n%s", id, diff)
		}
		if r, err := receipts.VerifyProof(there, vkey); err != nil || r.Verdict != receipts.Holds || r.ID != id {
			t.Errorf("%s: %+v, %v", id, r, err)
		}
	}
	r := verdict(t, goldenTrees, vkey, read(t, filepath.Join(goldenTrees, "receipts", "checkpoint")))
	if r.Verdict != receipts.Holds || r.Size != 11 || r.Kinds["heads"] != 2 {
		t.Errorf("%+v", r)
	}
	headsIn(t, goldenTrees, vkey, []string{"tenant:acme", "key:other", "human:u-1"}, []string{"tenant:acme", "key:other"})
}

// goldenGaps is a log that declares what it lacks.
const goldenGaps = "testdata/v1-gaps"

// writeGoldenGaps makes that log in dir, which holds the signing key already.
func writeGoldenGaps(t *testing.T, dir string) {
	clock := clockwork.NewFakeClockAt(noon)
	made := 0
	o := receipts.Options{Clock: clock, Replica: "gw-1"}
	receipts.SetNoSync(&o)
	receipts.SetNewID(&o, func() string { made++; return fmt.Sprintf("%032x", made) })
	l, err := receipts.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	at := func(s int) time.Time { return noon.Add(time.Duration(s)*time.Second + 1234567*time.Nanosecond) }
	for _, r := range []*receipts.Record{
		of("tenant:acme", "a"),
		{Kind: receipts.KindGap, From: at(1), To: at(61), Count: 7, Reason: "disk_full"},
		{Kind: receipts.KindGap, Tenant: "tenant:acme", From: at(2), To: at(2), Count: 1, Reason: "disk_slow"},
		{Kind: receipts.KindSummary, Tenant: "tenant:acme", Key: "ci-bot", Decision: receipts.Refused, Code: "rate_limited", Limit: "key", Status: 429,
			From: at(10), To: at(70), Count: 1<<53 - 1, Reason: "flood"},
		{Kind: receipts.KindSummary, ClientAddr: "203.0.113.7", Decision: receipts.Refused, Code: "unauthenticated", Status: 401, From: at(10), To: at(70), Count: 2},
		of("tenant:acme", "b"),
	} {
		eventually(t, "the checkpoint stands in the log", func() bool {
			signed, err := receipts.NewestCheckpoint(filepath.Join(dir, "receipts"))
			return err == nil && bytes.Equal(signed, l.Checkpoint())
		})
		clock.Advance(1500 * time.Microsecond)
		mustAppend(t, l, r)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestGoldenGaps: a log with gap and summary records is written and read the same
// for ever, and with an anchor that is met it is still not called complete.
func TestGoldenGaps(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "receipt-signing-key.new"), read(t, filepath.Join(golden, "receipt-signing-key")))
	writeGoldenGaps(t, dir)
	os.Remove(filepath.Join(dir, "receipts", "00000000000000000000.leaves"))
	if *update {
		if err := os.RemoveAll(goldenGaps + "/receipts"); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(filepath.Join(goldenGaps, "receipts"), os.DirFS(filepath.Join(dir, "receipts"))); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(tree(t, filepath.Join(goldenGaps, "receipts")), tree(t, filepath.Join(dir, "receipts"))); diff != "" {
		t.Errorf("the writer's bytes have changed; that is a change of format (see %s/README.md):\n%s", golden, diff)
	}
	r := verdict(t, goldenGaps, keyOf(t, golden), read(t, filepath.Join(goldenGaps, "receipts", "checkpoint")))
	if r.Verdict != receipts.Unproven || r.Gaps != 2 || r.Attempts != 8 || r.Covered != 7 || r.Kinds["summary"] != 2 {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(strings.Join(r.NotProven, "\n"), "8 attempts answered without a record, of which 2 gaps tell") {
		t.Errorf("%q", r.NotProven)
	}
	// A whole number of attempts, or no such record.
	if _, err := openLog(t, dir).Append(&receipts.Record{Kind: receipts.KindSummary, From: noon, To: noon}); err == nil {
		t.Error("a summary of nothing was taken")
	}
}

// TestGoldenReader: a log that was written once is read the same for ever.
func TestGoldenReader(t *testing.T) {
	vkey := keyOf(t, golden)
	report := verdict(t, golden, vkey, read(t, filepath.Join(golden, "receipts", "checkpoint")))
	got, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	file := filepath.Join(golden, "report.json")
	if *update {
		write(t, file, got)
	}
	if diff := cmp.Diff(string(read(t, file)), string(got)); diff != "" {
		t.Errorf("the report has changed:\n%s", diff)
	}
	// And it can be written on.
	dir := copyLog(t, golden)
	l, err := reopen(dir)
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, outcome("z"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if r := verdict(t, dir, vkey, l.Checkpoint()); r.Damage != nil || r.Covered != report.Size+1 {
		t.Errorf("%+v", r)
	}
}

// tree reads a folder's files into lines, for a difference that can be read.
func tree(t *testing.T, folder string) map[string][]string {
	files := map[string][]string{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "unrecorded" { // the writer's own, and of zeros
			return err
		}
		name, err := filepath.Rel(folder, path)
		files[name] = strings.SplitAfter(string(read(t, path)), "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
