package receipts_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

// goldenEvery is a log with every kind of record but one, and all that can be made of one.
const goldenEvery = "testdata/v1-every"

// openedVector is what is told of a receipt so that its parameters can be checked.
type openedVector struct {
	Salt   string `json:"salt"`
	Params string `json:"params"`
}

// writeGoldenEvery makes that log in dir, which holds the signing key already, with
// a batch for each record; and what can be made of it, by file name.
func writeGoldenEvery(t *testing.T, dir string) map[string][]byte {
	clock := clockwork.NewFakeClockAt(noon)
	made := 0
	var l *receipts.Log
	open := func(sync string) {
		t.Helper()
		o := receipts.Options{Clock: clock, Replica: "gw-1", Sync: sync}
		receipts.SetNoSync(&o)
		receipts.SetNewID(&o, func() string { made++; return fmt.Sprintf("%032x", made) })
		var err error
		if l, err = receipts.Open(dir, o); err != nil {
			t.Fatal(err)
		}
	}
	settled := func() {
		t.Helper()
		eventually(t, "the checkpoint stands in the log", func() bool {
			signed, err := receipts.NewestCheckpoint(filepath.Join(dir, "receipts"))
			return err == nil && bytes.Equal(signed, l.Checkpoint())
		})
	}
	add := func(r *receipts.Record) {
		t.Helper()
		settled()
		clock.Advance(1500 * time.Microsecond)
		mustAppend(t, l, r)
	}
	silence := func(d time.Duration) { // at the end of which the log says something itself
		t.Helper()
		settled()
		before := l.Stats().Size
		clock.Advance(d)
		eventually(t, "a record of the log's own", func() bool { receipts.Nudge(l); return l.Stats().Size == before+1 })
	}
	open(receipts.SyncAlways)
	called, answered := fullRecord(receipts.KindIntent, "p"), fullRecord(receipts.KindOutcome, "p")
	called.Params = receipts.HashParams(provenSalt, "0123456789abcdef", []byte(provenParams))
	answered.Params, answered.Status, answered.Out, answered.Ending = called.Params, 200, 17, receipts.Complete
	add(called)
	add(answered)
	add(&receipts.Record{Kind: receipts.KindRefusal, ID: "q", Decision: receipts.Refused, Code: "unauthenticated", Status: 401, ClientAddr: "203.0.113.7"})
	silence(6 * time.Second)  // heads
	silence(61 * time.Second) // a heartbeat
	add(&receipts.Record{Kind: receipts.KindSummary, ClientAddr: "203.0.113.7", Decision: receipts.Refused, Code: "unauthenticated", Status: 401, From: noon, To: clock.Now(), Count: 1001})
	add(&receipts.Record{Kind: receipts.KindGap, Tenant: "tenant:acme", From: noon, To: clock.Now(), Count: 3, Reason: "disk_full"})
	add(fullRecord(receipts.KindIntent, "r")) // and then the process dies
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	names := segments(t, dir)
	write(t, names[len(names)-1], append(read(t, names[len(names)-1]), `{"batch":{"fir`...))
	open(receipts.SyncInterval) // recovery, and an outcome that is unknown: one batch, as the clock stands until it is closed
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	open(receipts.SyncAlways)
	vectors := map[string][]byte{}
	proofs, err := prove(l, "p")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range proofs {
		vectors["p.tlog-proof"] = append(vectors["p.tlog-proof"], p.Text...)
	}
	if err := l.Seal(); err != nil {
		t.Fatal(err)
	}
	text, _ := export(t, dir, "tenant:acme", nil)
	vectors["acme.export"] = []byte(text)
	opened, err := json.MarshalIndent(openedVector{hex.EncodeToString(provenSalt[:]), provenParams}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	vectors["p.opened.json"] = append(opened, '\n')
	return vectors
}

// TestGoldenEvery: a log with each kind of record, proofs, an export and an opened
// receipt are written and read the same for ever.
func TestGoldenEvery(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "receipt-signing-key.new"), read(t, filepath.Join(goldenEvery, "receipt-signing-key")))
	vectors := writeGoldenEvery(t, dir)
	for _, name := range segments(t, dir) { // they are derived, and golden elsewhere
		os.Remove(strings.TrimSuffix(name, ".jsonl") + ".leaves")
	}
	if *update {
		if err := os.RemoveAll(filepath.Join(goldenEvery, "receipts")); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(filepath.Join(goldenEvery, "receipts"), os.DirFS(filepath.Join(dir, "receipts"))); err != nil {
			t.Fatal(err)
		}
		for name, text := range vectors {
			write(t, filepath.Join(goldenEvery, name), text)
		}
	}
	if diff := cmp.Diff(tree(t, filepath.Join(goldenEvery, "receipts")), tree(t, filepath.Join(dir, "receipts"))); diff != "" {
		t.Errorf("the writer's bytes have changed; that is a change of format (see %s/README.md):\n%s", golden, diff)
	}
	for name, text := range vectors {
		if diff := cmp.Diff(string(read(t, filepath.Join(goldenEvery, name))), string(text)); diff != "" {
			t.Errorf("%s has changed:\n%s", name, diff)
		}
	}
	vkey := keyOf(t, goldenEvery)
	r := verdict(t, goldenEvery, vkey, read(t, filepath.Join(goldenEvery, "receipts", "checkpoint")))
	if r.Verdict != receipts.Unproven || r.Damage != nil || r.Gaps != 1 || r.Unknown != 1 || r.Repaired != 1 || !r.Sealed || r.Covered != r.Size {
		t.Errorf("%+v", r)
	}
	_, chapter, _ := strings.Cut(string(read(t, "FORMAT.md")), "### 3.2 Kinds\n\n")
	chapter, _, _ = strings.Cut(chapter, ".")
	kinds := strings.Split(strings.Trim(chapter, "`"), "`, `")
	for _, kind := range kinds {
		if kind == "pruned" {
			continue // of which the beginning is gone: see goldenPruned
		}
		if !receipts.Kind(kind).Valid() || r.Kinds[kind] == 0 {
			t.Errorf("no %s stands in it", kind)
		}
	}
	if len(kinds) != 11 || len(r.Kinds) != len(kinds)-1 {
		t.Errorf("FORMAT.md has the kinds %q, and the log %v", kinds, r.Kinds)
	}
	if e := verifyExport(t, string(read(t, filepath.Join(goldenEvery, "acme.export"))), vkey, nil); e.Verdict != receipts.Unproven || e.Shown != 5 || e.Unknown != 1 {
		t.Errorf("%+v", e)
	}
	var told openedVector
	if err := json.Unmarshal(read(t, filepath.Join(goldenEvery, "p.opened.json")), &told); err != nil {
		t.Fatal(err)
	}
	var salt [receipts.SaltSize]byte
	if n, err := hex.Decode(salt[:], []byte(told.Salt)); n != len(salt) || err != nil {
		t.Fatal(n, err)
	}
	p, err := receipts.VerifyProof(read(t, filepath.Join(goldenEvery, "p.tlog-proof")), vkey)
	if err != nil || p.Verdict != receipts.Holds || len(p.Records) != 2 {
		t.Fatalf("%+v, %v", p, err)
	}
	if p.CheckParams(salt, []byte(told.Params)); p.Verdict != receipts.Holds {
		t.Error(p.Why)
	}
}

// TestSecondVerifierAgreesOnGoldenFiles: of every golden log, proof, export and
// opened receipt both say the same, and in the same number of entries.
func TestSecondVerifierAgreesOnGoldenFiles(t *testing.T) {
	s := startSecond(t)
	keyFile := filepath.Join(t.TempDir(), "log.vkey")
	asked := 0
	for _, dir := range []string{goldenRotated, golden, goldenGaps, goldenTrees, goldenEvery} {
		vkey := keyOf(t, dir)
		write(t, keyFile, []byte(vkey+"\n"))
		anchor := filepath.Join(dir, "receipts", "checkpoint")
		if theirs, ours := s.ask(t, dir, keyFile, anchor, true), first(t, dir, keyFile, read(t, anchor)); agree(ours, theirs) != "" || !ours.holds() {
			t.Errorf("%s: %s", dir, agree(ours, theirs))
		}
		files, err := filepath.Glob(dir + "/*.*")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			var ours int
			switch filepath.Ext(file) {
			case ".tlog-proof":
				r, err := receipts.VerifyProof(read(t, file), vkey)
				if err != nil {
					t.Fatal(err)
				}
				ours = r.Verdict.ExitCode()
			case ".export":
				ours = verifyExport(t, string(read(t, file)), vkey, nil).Verdict.ExitCode()
			default:
				continue
			}
			asked++
			if theirs := s.ask(t, file, keyFile, "", false); theirs.Code != ours || !theirs.holds() {
				t.Errorf("%s: exit codes %d and %d, %s", file, ours, theirs.Code, theirs.Why)
			}
		}
	}
	if asked < 7 {
		t.Errorf("%d files were asked about", asked)
	}
	var told openedVector
	if err := json.Unmarshal(read(t, filepath.Join(goldenEvery, "p.opened.json")), &told); err != nil {
		t.Fatal(err)
	}
	params := filepath.Join(t.TempDir(), "params")
	for text, want := range map[string]int{told.Params: 0, strings.Replace(told.Params, "993", "992", 1): 1} {
		write(t, params, []byte(text))
		cmd := exec.Command(python(t), "-B", "../../tools/verify.py", goldenEvery+"/p.tlog-proof", "--vkey", keyFile, "--salt", told.Salt, "--params", params)
		if out, err := cmd.Output(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
			t.Errorf("%s: %v, want %d\n%s", text, err, want, out)
		}
	}
}
