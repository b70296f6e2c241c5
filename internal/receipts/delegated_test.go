package receipts_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentgw/internal/receipts"
)

// delegatedRecords are of calls that brought delegations: one that ran, one whose chain
// did not hold, and one of which nothing was signed.
func delegatedRecords() []*receipts.Record {
	chain := []string{
		"FYBPD7XP4H2DAU75VDXIIH5C3M -8KTab6-InPLVF-10cM00XvXY-aWdVS16zMOW-SpiqA agent:planner",
		"b0b X5uyDjFW59C-7Q2YDG-AGpmHAJ9uW11yqwZ_fN3TAG4 agent:a worker, \u202e\"of\" others",
	}
	record := func(kind receipts.Kind, id string, chain ...string) *receipts.Record {
		return &receipts.Record{Kind: kind, ID: id, Tenant: "tenant:acme", Caller: "key:planner", Key: "planner", Principal: "alice", Chain: chain}
	}
	ran, ended := record(receipts.KindIntent, "ran", chain...), record(receipts.KindOutcome, "ran", chain...)
	ran.Decision, ended.Decision, ended.Status, ended.Ending = receipts.Allowed, receipts.Allowed, 200, receipts.Revoked
	widened, nothing := record(receipts.KindRefusal, "widened", chain[0]), record(receipts.KindRefusal, "nothing")
	for r, reason := range map[*receipts.Record]string{widened: "widened", nothing: "malformed"} {
		r.Decision, r.Code, r.Status, r.Reason = receipts.Refused, "delegation_invalid", 403, reason
	}
	return []*receipts.Record{ran, ended, widened, nothing}
}

// TestAReasonIsOfARefusal, of a gap or of a summary: no other record has one.
func TestAReasonIsOfARefusal(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir)
	for _, r := range delegatedRecords() {
		r.Reason = strings.ReplaceAll(r.Reason, "widened", "not known to this version")
		mustAppend(t, l, r)
	}
	outcome := delegatedRecords()[1]
	outcome.ID, outcome.Reason = "outcome", "widened"
	mustAppend(t, l, outcome)
	l.Close()
	files, err := filepath.Glob(filepath.Join(dir, "receipts", "*.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for line := range bytes.Lines(text) {
		r, err := receipts.ParseRecord(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil || r.Tenant == "" {
			continue
		}
		reasons = append(reasons, r.ID+" "+r.Reason)
		with := bytes.Replace(line, []byte(`,"tag":`), []byte(`,"reason":"widened","tag":`), 1)
		_, err = receipts.ParseRecord(bytes.TrimSuffix(with, []byte("\n")))
		if takes := r.Kind == receipts.KindRefusal && r.Reason == ""; (err == nil) != takes {
			t.Errorf("%s with a reason: %v", r.Kind, err)
		}
	}
	want := []string{"ran ", "ran ", "widened not known to this version", "nothing malformed", "outcome "}
	if !slices.Equal(reasons, want) {
		t.Errorf("%q, want %q", reasons, want)
	}
}
