package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestGapsAreListedAndReported: attempts that were answered without a record stand in
// lists, of their tenant too, with how many they were, and verification of the log says so
// in the same words as it says until when the anchor speaks.
func TestGapsAreListedAndReported(t *testing.T) {
	golden, err := filepath.Abs("../../internal/receipts/testdata/v1-gaps")
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, "")
	key, _ := b.want(exitDone, "receipts", "key", "--data", golden)
	b.write("vkey", []byte(key))
	all, _ := b.want(exitDone, "receipts", "list", "--data", golden)
	if !strings.Contains(all, "gap (disk_full), 7 times") || !strings.Contains(all, "gap (disk_slow), 1 times") {
		t.Errorf("%s", all)
	}
	own, _ := b.want(exitDone, "receipts", "list", "--data", golden, "--tenant", "acme")
	if strings.Contains(own, "disk_full") || !strings.Contains(own, "gap (disk_slow), 1 times") {
		t.Errorf("of one tenant: %s", own)
	}
	refused, _ := b.want(exitDone, "receipts", "list", "--data", golden, "--decision", "refused")
	if strings.Contains(refused, "gap") {
		t.Errorf("a gap was neither refused nor allowed: %s", refused)
	}
	report, _ := b.want(exitUnproven, "receipts", "verify", golden, "--vkey", "vkey", "--anchor", filepath.Join(golden, "receipts/checkpoint"))
	for _, want := range []string{"2, attempts answered without a record: 8", "entries, the last of 2026-05-04T12:00:00Z",
		"8 attempts answered without a record, of which 2 gaps tell", "summaries count them instead of recording each"} {
		if !strings.Contains(report, want) {
			t.Errorf("%q is not in\n%s", want, report)
		}
	}
}

// TestListsOfNothingAreAMistake: a range that ends before it begins, and a filter that
// is empty, as a variable is that was not set, list nothing and say so.
func TestListsOfNothingAreAMistake(t *testing.T) {
	b := audited(t)
	for _, args := range []string{"--since 2026-02-01 --until 2026-01-01", "--since 15m --until 20m", "--since 2026-01-01 --until 2026-01-01"} {
		out, errs := b.want(exitUsage, append([]string{"receipts", "list"}, strings.Fields(args)...)...)
		if out != "" || !strings.Contains(errs, "--since is not before --until") {
			t.Errorf("%s: %s%s", args, out, errs)
		}
	}
	for _, name := range []string{"tenant", "key", "service", "request", "code", "decision", "since", "until"} {
		out, errs := b.want(exitUsage, "receipts", "list", "--"+name, "")
		if out != "" || !strings.Contains(errs, "--"+name+" is empty") {
			t.Errorf("--%s: %s%s", name, out, errs)
		}
	}
	if out, errs := b.want(exitDone, "receipts", "list", "--until", "2m", "--since", "1h", "--tenant", "acme"); strings.Count(out, "\n") != 1 || errs != "no receipt matches\n" {
		t.Errorf("%s", out)
	}
}
