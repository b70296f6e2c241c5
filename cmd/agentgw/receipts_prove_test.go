package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"agentgw/internal/receipts"
)

// TestProveAndVerifyAlone: what prove prints is verified with the key and nothing
// else, where the log is no more, and says nothing that it does not show.
func TestProveAndVerifyAlone(t *testing.T) {
	b := audited(t)
	proof, errs := b.want(exitDone, "receipts", "prove", "aa")
	if !strings.HasPrefix(proof, "c2sp.org/tlog-proof@v1\n") || errs != "" {
		t.Fatal(proof, errs)
	}
	b.write("proof", []byte(proof))
	if as, _ := b.want(exitDone, "receipts", "prove", `id="aa"`); as != proof {
		t.Error("the header's form is another receipt")
	}
	all, _ := b.want(exitDone, "receipts", "prove", "aa", "--all")
	if !strings.HasSuffix(all, proof) || strings.Count(all, "c2sp.org/tlog-proof@v1\n") != 2 {
		t.Errorf("all:\n%s", all)
	}
	b.write("all", []byte(all))
	out, _ := b.want(exitDone, "receipts", "prove", "aa", "--json")
	var shown struct {
		ID      string
		Records []json.RawMessage
		Proof   string
		Proofs  []string
	}
	if err := json.Unmarshal([]byte(out), &shown); err != nil || shown.ID != "aa" || len(shown.Records) != 2 || shown.Proof != proof || strings.Join(shown.Proofs, "") != all {
		t.Errorf("%v: %s", err, out)
	}
	if _, errs := b.want(exitNotHold, "receipts", "prove", "nobody"); !strings.Contains(errs, `no receipt "nobody"`) {
		t.Error(errs)
	}
	b.write("another", []byte(proof))
	if err := os.RemoveAll("data"); err != nil {
		t.Fatal(err)
	}
	out, _ = b.want(exitDone, "receipts", "verify", "proof", "--vkey", "vkey")
	for _, want := range []string{"verdict     HOLDS\n", `"id":"aa"`, `"ending":"complete"`, "leaf 1 of ", "not proven  that the receipt has no other records"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	out, _ = b.want(exitDone, "receipts", "verify", "all", "--vkey", "vkey", "--json")
	var report receipts.ProofReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Verdict != receipts.Holds || len(report.Records) != 2 || string(report.Records[0].Record) != string(shown.Records[0]) {
		t.Errorf("%v: %s", err, out)
	}
	b.write("forged", bytes.Replace([]byte(proof), []byte("\nindex 1\n"), []byte("\nindex 2\n"), 1))
	if out, _ := b.want(exitNotHold, "receipts", "verify", "forged", "--vkey", "vkey"); !strings.Contains(out, "DOES NOT HOLD") {
		t.Error(out)
	}
	b.want(exitUsage, "receipts", "verify", "proof", "--vkey", "vkey", "--anchor", "anchor")
	b.want(exitUsage, "receipts", "verify", "proof")
	b.want(exitUsage, "receipts", "verify", "proof", "--vkey", "proof")
	other := audited(t)
	other.write("theirs", []byte(proof))
	if out, _ := other.want(exitUsage, "receipts", "verify", "theirs", "--vkey", "vkey"); !strings.Contains(out, "UNTRUSTED KEY") {
		t.Error(out)
	}
}

// TestATenantsCheckpointIsAnAnchor: cut off a proof, it is held to the whole log.
func TestATenantsCheckpointIsAnAnchor(t *testing.T) {
	b := audited(t)
	proof, _ := b.want(exitDone, "receipts", "prove", "bb")
	_, checkpoint, _ := strings.Cut(proof, "\n\n")
	b.write("theirs", []byte(checkpoint))
	out, _ := b.want(exitUnproven, "receipts", "verify", "data", "--vkey", "vkey", "--anchor", "theirs")
	for _, want := range []string{"records of tenant tenant:acme", "none of the first 6 records of tenant tenant:acme is missing, up to ", ", and they are those that it was shown"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// TestProveWantsTheKey: the signing key does not travel with a copy of the log.
func TestProveWantsTheKey(t *testing.T) {
	b := audited(t)
	copyFolder(t, "copy/receipts", "data/receipts")
	if out, errs := b.want(exitCannotRun, "receipts", "prove", "aa", "--data", "copy"); out != "" || !strings.Contains(errs, "receipt-signing-key") {
		t.Error(out, errs)
	}
	b.want(exitCannotRun, "receipts", "prove", "aa", "--data", "nowhere")
	b.want(exitUsage, "receipts", "prove")
}
