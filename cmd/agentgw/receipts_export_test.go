package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentgw/internal/receipts"
)

// TestExportAndVerifyAlone: what export writes is verified with the key and nothing
// else, where the log is no more.
func TestExportAndVerifyAlone(t *testing.T) {
	b := audited(t)
	l := b.openLog() // as a gateway that runs has it
	out, errs := b.want(exitDone, "receipts", "export", "--tenant", "acme", "--out", "acme.export")
	if out != "acme.export: 7 of the 7 records of tenant:acme\n" || errs != "" { // six, and the outcome of what was in flight
		t.Error(out, errs)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	b.want(exitDone, "receipts", "export", "--tenant", "tenant:acme", "--out", "full.export")
	if text := b.read("acme.export"); !bytes.Equal(text, b.read("full.export")) || bytes.Count(text, []byte("\n")) != 9 {
		t.Errorf("by its full name it is another:\n%s", text)
	}
	out, _ = b.want(exitDone, "receipts", "export", "--tenant", "acme", "--decision", "refused", "--out", "refused.export", "--json")
	var done struct {
		Out, Tenant, Tree       string
		Records, Left_out, Size int
	}
	if err := json.Unmarshal([]byte(out), &done); err != nil || done.Out != "refused.export" || done.Tenant != "tenant:acme" || !strings.Contains(done.Tree, "/t/") ||
		done.Records != 1 || done.Left_out != 6 || done.Size != 7 {
		t.Errorf("%v: %s", err, out)
	}
	if err := os.RemoveAll("data"); err != nil {
		t.Fatal(err)
	}
	out, _ = b.want(exitUnproven, "receipts", "verify", "acme.export", "--vkey", "vkey")
	for _, want := range []string{"NOT ALL PROVEN\n", "records           7, of which 7 are shown and 0 left out\n", "kinds             3 intent, 3 outcome, 1 refusal\n",
		"unknown outcomes  1\n", "in flight         0\n", "none of the 7 records that the checkpoint covers is missing"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	lines := strings.Split(string(b.read("acme.export")), "\n")
	var last struct{ Checkpoint string }
	if err := json.Unmarshal([]byte(lines[len(lines)-2]), &last); err != nil {
		t.Fatal(err)
	}
	b.write("theirs", []byte(last.Checkpoint))
	out, _ = b.want(exitDone, "receipts", "verify", "acme.export", "--vkey", "vkey", "--anchor", "theirs", "--json")
	var report receipts.ExportReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Verdict != receipts.Holds || report.Shown != 7 || !report.AnchorMet {
		t.Errorf("%v: %s", err, out)
	}
	out, _ = b.want(exitUnproven, "receipts", "verify", "refused.export", "--vkey", "vkey", "--anchor", "theirs")
	if !strings.Contains(out, "records           7, of which 1 are shown and 6 left out\n") || !strings.Contains(out, "a selection") || strings.Contains(out, "in flight") {
		t.Error(out)
	}
	b.write("edited", bytes.Replace(b.read("acme.export"), []byte(`"status":429`), []byte(`"status":200`), 1))
	if out, _ := b.want(exitNotHold, "receipts", "verify", "edited", "--vkey", "vkey"); !strings.Contains(out, "DOES NOT HOLD") || strings.Contains(out, "proven") {
		t.Error(out)
	}
	b.want(exitUsage, "receipts", "verify", "acme.export")
	b.want(exitUsage, "receipts", "verify", "acme.export", "--vkey", "theirs")
	b.want(exitUsage, "receipts", "verify", "acme.export", "--vkey", "vkey", "--anchor", "vkey")
	b.want(exitUsage, "receipts", "verify", "acme.export", "--vkey", "vkey", "--anchor", "anchor") // of the whole log
	b.want(exitCannotRun, "receipts", "verify", "no.export", "--vkey", "vkey")
	text := b.read("acme.export")
	other := audited(t)
	other.write("theirs.export", text)
	if out, _ := other.want(exitUsage, "receipts", "verify", "theirs.export", "--vkey", "vkey"); !strings.Contains(out, "UNTRUSTED KEY") {
		t.Error(out)
	}
}

// TestExportRefuses: what it cannot do leaves no file, and a file that is there alone.
func TestExportRefuses(t *testing.T) {
	b := audited(t)
	b.write("there", []byte("mine"))
	copyFolder(t, "copy/receipts", "data/receipts")
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"--out new", exitUsage, "--tenant"},
		{"--tenant acme", exitUsage, "--out"},
		{"--tenant acme --out new --decision perhaps", exitUsage, "want allowed or refused"},
		{"--tenant acme --out new --since yesterday", exitUsage, "--since: "},
		{"--tenant acme --out new --until tomorrow", exitUsage, "--until: "},
		{"--tenant acme --out new --since 2026-01-02 --until 2026-01-02", exitUsage, "no record is in between"},
		{"--tenant nobody --out new", exitNotHold, "tenant:nobody: no receipt"},
		{"--tenant key:acme --out new", exitNotHold, "key:acme: no receipt"},
		{"--tenant acme --out there", exitCannotRun, "not written over"},
		{"--tenant acme --out data", exitCannotRun, "not written over"},
		{"--tenant acme --out nowhere/new", exitCannotRun, "no such file or directory"},
		{"--tenant acme --out data/receipts/new", exitCannotRun, "the folder of the log"},
		{"--tenant acme --out new --data nowhere", exitCannotRun, "no data folder"},
		{"--tenant acme --out new --data copy", exitCannotRun, "receipt-signing-key"},
	} {
		if out, errs := b.want(c.code, append([]string{"receipts", "export"}, strings.Fields(c.args)...)...); out != "" || !strings.Contains(errs, c.says) {
			t.Errorf("%s: %s%s", c.args, out, errs)
		}
	}
	left, err := filepath.Glob("*export*")
	if _, there := os.Stat("new"); err != nil || len(left) > 0 || there == nil || string(b.read("there")) != "mine" {
		t.Error(left, err, there)
	}
}

// TestExportFilter: from since on, before until, of that decision; none is all.
func TestExportFilter(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	at := func(ago time.Duration, decision string) *receipts.Record {
		return &receipts.Record{Kind: receipts.KindOutcome, Tenant: "tenant:acme", Time: now.Add(-ago), Decision: decision}
	}
	if keep, err := exportFilter(receipts.Query{}, "", "", now); keep != nil || err != nil {
		t.Error("without a filter not all are wanted")
	}
	for _, c := range []struct {
		since, until, decision string
		want                   string // of 3, 2 and 1 hours ago, of which the middle one was refused
	}{
		{"2h", "", "", "-++"},
		{"2h1s", "", "", "-++"},
		{"", "2h", "", "+--"},
		{"", "1h59m", "", "++-"},
		{"2h", "1h", "", "-+-"},
		{"2026-05-04T10:00:00Z", "", "", "-++"},
		{"", "2026-05-05", "", "+++"},
		{"", "", "refused", "-+-"},
		{"", "", "allowed", "+-+"},
		{"2h", "", "allowed", "--+"},
	} {
		keep, err := exportFilter(receipts.Query{Decision: c.decision}, c.since, c.until, now)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, r := range []*receipts.Record{at(3*time.Hour, "allowed"), at(2*time.Hour, "refused"), at(time.Hour, "allowed")} {
			got += map[bool]string{true: "+", false: "-"}[keep(r)]
		}
		if got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
