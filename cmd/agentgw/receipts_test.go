package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

var update = flag.Bool("update", false, "write the expected outputs in testdata anew")

// goldenLog is a log whose bytes never change.
const goldenLog = "../../internal/receipts/testdata/v1"

// openLog opens the receipt log of the bench, as a gateway that runs has it.
func (b *bench) openLog() *receipts.Log {
	b.t.Helper()
	l, err := receipts.Open(b.data, receipts.Options{Clock: clockwork.NewRealClock(), Replica: "gw-1"})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = l.Close() })
	b.log = l
	b.signed(l)
	return l
}

// signed waits until the log has put its newest checkpoint where a command that reads
// the files beside it sees what that covers: it comes a moment after the records.
func (b *bench) signed(l *receipts.Log) {
	b.t.Helper()
	eventually(b.t, "the newest checkpoint stands behind its records", func() bool {
		files, err := filepath.Glob(filepath.Join(b.data, "receipts", "*.jsonl"))
		if err != nil || len(files) == 0 {
			return false
		}
		signature := l.Checkpoint()
		signature = bytes.TrimSpace(signature[bytes.LastIndexByte(signature, ' ')+1:])
		return bytes.Contains(b.read(files[len(files)-1]), signature)
	})
}

func (b *bench) add(l *receipts.Log, r receipts.Record) {
	b.t.Helper()
	if _, err := l.Append(&r); err != nil {
		b.t.Fatal(err)
	}
	if l == b.log {
		b.signed(l)
	}
}

func (b *bench) write(path string, text []byte) {
	b.t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) read(path string) []byte {
	b.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

func call(kind receipts.Kind, id string) receipts.Record {
	r := receipts.Record{Kind: kind, ID: id, Tenant: "tenant:acme", Caller: "key:ci-bot", Key: "ci-bot", Service: "github",
		Action: "list_issues", Method: "GET", Decision: receipts.Allowed}
	switch kind {
	case receipts.KindOutcome:
		r.Status, r.Ending, r.Out, r.TotalMicros = 200, receipts.Complete, 2048, 12_345
	case receipts.KindRefusal:
		r.Decision, r.Status, r.Code, r.Limit = receipts.Refused, 429, "rate_limited", "tenant"
	}
	return r
}

// audited is a data folder with a log of four receipts, not running, and what
// an auditor has kept of it: vkey and anchor.
func audited(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, "")
	l := b.openLog()
	b.add(l, call(receipts.KindIntent, "aa"))
	b.add(l, call(receipts.KindOutcome, "aa"))
	b.add(l, call(receipts.KindRefusal, "bb"))
	b.add(l, call(receipts.KindIntent, "cc"))
	b.add(l, call(receipts.KindOutcome, "cc"))
	b.add(l, call(receipts.KindIntent, "dd"))
	b.write("vkey", []byte(l.VerifierKey()+"\n"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	out, _ := b.want(exitDone, "receipts", "checkpoint")
	b.write("anchor", []byte(out))
	return b
}

const firstSegment = "data/receipts/00000000000000000000.jsonl"

// TestReceiptsVerifyExits: each exit code and what leads to it.
func TestReceiptsVerifyExits(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(b *bench)
		args   []string // after `receipts verify`; default: data, key and anchor
		code   int
		says   string // in stdout or stderr
	}{
		{name: "trusted key and anchor", code: 0, says: "HOLDS"},
		{name: "the receipts folder itself", args: []string{"data/receipts", "--vkey", "vkey", "--anchor", "anchor"}, code: 0},
		{name: "a copy that holds only receipts", code: 0,
			change: func(b *bench) { copyFolder(b.t, "copy/receipts", "data/receipts") },
			args:   []string{"copy", "--vkey", "vkey", "--anchor", "anchor"}},
		{name: "a repaired tail and an unknown outcome", code: 0, says: "unknown outcomes  1",
			change: func(b *bench) {
				b.write(firstSegment, append(b.read(firstSegment), `{"batch":{"fi`...))
				_ = b.openLog().Close()
			}},
		{name: "a torn tail that nobody repaired", code: 0, says: "next start repairs",
			change: func(b *bench) { b.write(firstSegment, append(b.read(firstSegment), `{"batch":{"fi`...)) }},
		{name: "space that a crash left unfilled", args: []string{"data", "--vkey", "vkey", "--anchor", "anchor", "--json"}, code: 0, says: `"torn_bytes":4000000,`,
			change: func(b *bench) { b.write(firstSegment, append(b.read(firstSegment), make([]byte, 4_000_000)...)) }},
		{name: "no anchor", args: []string{"data", "--vkey", "vkey"}, code: 4, says: "NOT ALL PROVEN"},
		{name: "a record altered", code: 1, says: "entry 2, id aa",
			change: func(b *bench) {
				b.write(firstSegment, bytes.Replace(b.read(firstSegment), []byte(`"out":2048`), []byte(`"out":2049`), 1))
			}},
		{name: "a record altered, and no anchor", args: []string{"data", "--vkey", "vkey"}, code: 1, says: "entry 3, id bb",
			change: func(b *bench) {
				b.write(firstSegment, bytes.Replace(b.read(firstSegment), []byte(`"status":429`), []byte(`"status":200`), 1))
			}},
		{name: "an emptied log", code: 1, says: "entries are missing",
			change: func(b *bench) {
				b.write(firstSegment, nil)
				_ = os.Remove("data/receipts/checkpoint")
			}},
		{name: "an emptied log, no anchor", args: []string{"data", "--vkey", "vkey"}, code: 4, says: "empty",
			change: func(b *bench) {
				b.write(firstSegment, nil)
				_ = os.Remove("data/receipts/checkpoint")
			}},
		{name: "a deleted log", code: 1, change: func(b *bench) { _ = os.RemoveAll("data/receipts") }},
		{name: "a deleted log, no anchor", args: []string{"data", "--vkey", "vkey"}, code: 3, says: "agentgw: no receipt log in data\n",
			change: func(b *bench) { _ = os.RemoveAll("data/receipts") }},
		{name: "an empty log folder, no anchor", args: []string{"data", "--vkey", "vkey"}, code: 4, says: "empty",
			change: func(b *bench) { _ = os.RemoveAll("data/receipts"); _ = os.Mkdir("data/receipts", 0o700) }},
		{name: "an empty log folder named itself, no anchor", args: []string{"data/receipts", "--vkey", "vkey"}, code: 4, says: "empty",
			change: func(b *bench) { _ = os.RemoveAll("data/receipts"); _ = os.Mkdir("data/receipts", 0o700) }},
		{name: "segments deleted and the checkpoint left, no anchor", args: []string{"copy", "--vkey", "vkey"}, code: 1, says: "entries are missing",
			change: func(b *bench) {
				_ = os.Mkdir("copy", 0o700)
				b.write("copy/checkpoint", b.read("data/receipts/checkpoint"))
			}},
		{name: "segments in a folder of another name, no anchor", args: []string{"copy", "--vkey", "vkey"}, code: 4, says: "without an anchor",
			change: func(b *bench) { copyFolder(b.t, "copy", "data/receipts"); _ = os.Remove("copy/checkpoint") }},
		{name: "the current folder, where no log is", args: []string{".", "--vkey", "vkey"}, code: 3, says: "no receipt log in .",
			change: func(b *bench) { _ = os.RemoveAll("data") }},
		{name: "the end cut off", code: 1, says: "entries are missing",
			change: func(b *bench) {
				text := b.read(firstSegment)
				b.write(firstSegment, text[:bytes.LastIndex(text, []byte(`{"batch":`))])
				_ = os.Remove("data/receipts/checkpoint")
			}},
		{name: "another log with a key of its own inside", code: 2, says: "(not trusted)",
			change: func(b *bench) {
				_ = os.RemoveAll("data")
				l := b.openLog()
				b.add(l, call(receipts.KindOutcome, "forged"))
				_ = l.Close()
			}},
		{name: "no key given", args: []string{"data"}, code: 2, says: "--vkey"},
		{name: "an empty file as key", change: func(b *bench) { b.write("vkey", nil) }, code: 2, says: "verifier key"},
		{name: "the signing key as key", code: 2, says: "verifier key",
			change: func(b *bench) { b.write("vkey", b.read("data/receipt-signing-key")) }},
		{name: "an empty file as anchor", change: func(b *bench) { b.write("anchor", nil) }, code: 2, says: "anchor"},
		{name: "no such folder", args: []string{"nowhere", "--vkey", "vkey"}, code: 3, says: "nowhere"},
		{name: "a file for a folder", args: []string{"vkey", "--vkey", "vkey"}, code: 3, says: "not a folder"},
		{name: "no such key file", args: []string{"data", "--vkey", "nowhere"}, code: 3, says: "nowhere"},
		{name: "no such anchor file", args: []string{"data", "--vkey", "vkey", "--anchor", "nowhere"}, code: 3, says: "nowhere"},
		{name: "a segment that cannot be read", code: 3, says: "not a segment",
			change: func(b *bench) { _ = os.Mkdir("data/receipts/00000000000000000009.jsonl", 0o700) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := audited(t)
			if c.change != nil {
				c.change(b)
			}
			args := c.args
			if args == nil {
				args = []string{"data", "--vkey", "vkey", "--anchor", "anchor"}
			}
			args = append([]string{"receipts", "verify"}, args...)
			code, out, errs := b.run("", args...)
			if code != c.code || !strings.Contains(out+errs, c.says) {
				t.Errorf("exit %d, want %d and %q:\n%s%s", code, c.code, c.says, out, errs)
			}
			if strings.Contains(out+errs, "PRIVATE") {
				t.Error("the signing key was shown")
			}
			// As JSON the same, and the code can be told from it.
			code, out, _ = b.run("", append(args, "--json")...)
			var report struct {
				Verdict receipts.Verdict
				Why     string
			}
			if code != c.code {
				t.Errorf("--json: exit %d, want %d", code, c.code)
			}
			switch err := json.Unmarshal([]byte(out), &report); {
			case out == "" && (code == exitUsage || code == exitCannotRun): // nothing was verified
			case err != nil || report.Verdict.ExitCode() != code || report.Why == "":
				t.Errorf("--json: %v: %s", err, out)
			}
		})
	}
}

func copyFolder(t *testing.T, to, from string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// TestReceiptsOutput: what the commands print of a log that never changes.
func TestReceiptsOutput(t *testing.T) {
	golden, err := filepath.Abs(goldenLog)
	if err != nil {
		t.Fatal(err)
	}
	expected, err := filepath.Abs("testdata/receipts")
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, "")
	key, _ := b.want(exitDone, "receipts", "key", "--data", golden)
	b.write("vkey", []byte(key))
	for name, args := range map[string][]string{
		"verify.txt":      {"verify", golden, "--vkey", "vkey", "--anchor", filepath.Join(golden, "receipts/checkpoint")},
		"list.txt":        {"list", "--data", golden},
		"list.json":       {"list", "--data", golden, "--json", "--code", "rate_limited"},
		"show.txt":        {"show", "e", "--data", golden},
		"show.json":       {"show", "a", "--data", golden, "--json"},
		"tail.txt":        {"tail", "--data", golden, "-n", "4"},
		"tail.jsonl":      {"tail", "--data", golden, "-n", "2", "--json"},
		"key.txt":         {"key", "--data", golden},
		"key.json":        {"key", "--data", golden, "--json"},
		"checkpoint.txt":  {"checkpoint", "--data", golden},
		"checkpoint.json": {"checkpoint", "--data", golden, "--json"},
	} {
		code, out, errs := b.run("", append([]string{"receipts"}, args...)...)
		want := exitDone
		if args[0] == "verify" {
			want = exitUnproven // part of it was written in interval mode
		}
		if code != want || errs != "" {
			t.Errorf("%s: exit %d, %s", name, code, errs)
		}
		file := filepath.Join(expected, name)
		if *update {
			if err := os.MkdirAll(expected, 0o755); err != nil {
				t.Fatal(err)
			}
			b.write(file, []byte(out))
		}
		if diff := cmp.Diff(string(b.read(file)), out); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// TestReceiptsList: the filters, the limit, and a call that is still running.
func TestReceiptsList(t *testing.T) {
	b := audited(t)
	l := b.openLog() // ends dd as unknown
	b.add(l, call(receipts.KindIntent, "ee"))
	other := call(receipts.KindRefusal, "ff")
	other.Tenant, other.Key, other.Service, other.Code, other.Limit = "key:k", "k", "search", "scope_denied", ""
	other.RequestID = "req-ff"
	b.add(l, other)
	ids := func(args ...string) string {
		t.Helper()
		out, _ := b.want(exitDone, append([]string{"receipts", "list", "--json"}, args...)...)
		var rows []struct{ ID string }
		if err := json.Unmarshal([]byte(out), &rows); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var all []string
		for _, r := range rows {
			all = append(all, r.ID)
		}
		return strings.Join(all, " ")
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "aa bb cc dd ee ff"},
		{[]string{"--limit", "2"}, "ee ff"},
		{[]string{"--limit", "0"}, "aa bb cc dd ee ff"},
		{[]string{"--tenant", "tenant:acme"}, "aa bb cc dd ee"},
		{[]string{"--key", "k"}, "ff"},
		{[]string{"--service", "search"}, "ff"},
		{[]string{"--tenant", "acme"}, "aa bb cc dd ee"},
		{[]string{"--tenant", "key:k"}, "ff"},
		{[]string{"--tenant", "k"}, ""},
		{[]string{"--request", "req-ff"}, "ff"},
		{[]string{"--request", "req"}, ""},
		{[]string{"--code", "rate_limited"}, "bb"},
		{[]string{"--code", "complete"}, "aa cc"},
		{[]string{"--code", "outcome_unknown"}, "dd"},
		{[]string{"--code", "running"}, "ee"},
		{[]string{"--code", "shutdown"}, ""},
		{[]string{"--decision", "refused"}, "bb ff"},
		{[]string{"--since", "1h"}, "aa bb cc dd ee ff"},
		{[]string{"--since", "2100-01-01T00:00:00Z"}, ""},
		{[]string{"--since", "2100-01-01"}, ""},
		{[]string{"--since", "2020-01-01"}, "aa bb cc dd ee ff"},
		{[]string{"--until", "2100-01-01"}, "aa bb cc dd ee ff"},
		{[]string{"--until", "2020-01-01T00:00:00Z"}, ""},
		{[]string{"--since", "1h", "--until", "30m"}, ""},
		{[]string{"--oldest", "--limit", "2"}, "aa bb"},
		{[]string{"--oldest", "--limit", "2", "--decision", "refused"}, "bb ff"},
	} {
		if got := ids(c.args...); got != c.want {
			t.Errorf("%v: %s, want %s", c.args, got, c.want)
		}
	}
	for _, c := range []struct {
		args  []string
		pages []string
	}{
		{nil, []string{"ee ff", "cc dd", "aa bb"}},
		{[]string{"--oldest"}, []string{"aa bb", "cc dd", "ee ff"}},
		{[]string{"--tenant", "acme"}, []string{"dd ee", "bb cc", "aa"}},
	} {
		var got []string
		for next := []string(nil); ; {
			args := slices.Concat([]string{"--limit", "2"}, c.args, next)
			got = append(got, ids(args...))
			_, errs := b.want(exitDone, append([]string{"receipts", "list"}, args...)...)
			cursor, more := strings.CutPrefix(strings.TrimSpace(errs), "there are more: --cursor ")
			if !more || len(got) > len(c.pages) {
				break
			}
			next = []string{"--cursor", cursor}
		}
		if !slices.Equal(got, c.pages) {
			t.Errorf("%v, page by page: %q, want %q", c.args, got, c.pages)
		}
	}
	out, _ := b.want(exitDone, "receipts", "list")
	for _, want := range []string{"running", "outcome_unknown", "rate_limited (tenant)", "complete", "scope_denied"} {
		if strings.Count(out, want) == 0 {
			t.Errorf("%q is missing:\n%s", want, out)
		}
	}
	for _, args := range [][]string{{"--limit", "-1"}, {"--decision", "maybe"}, {"--since", "yesterday"}, {"--since", "2026-13-01"}, {"--cursor", "x"}, {"--cursor", "1,2"}} {
		b.want(exitUsage, append([]string{"receipts", "list"}, args...)...)
	}
	_, errs := b.want(exitUsage, "receipts", "list", "--code", "outcome_unkown")
	for _, want := range []string{`--code "outcome_unkown": is none of the codes action_not_found,`, " unauthenticated,", " of the endings complete,", " outcome_unknown,", "did you mean outcome_unknown?"} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %q in %s", want, errs)
		}
	}
	if _, errs := b.want(exitUsage, "receipts", "list", "--since", "7d"); !strings.Contains(errs, "168h") || !strings.Contains(errs, "2026-01-02T15:04:05Z") {
		t.Error(errs)
	}
}

// TestReceiptsShow: of a receipt all its records, as they are stored.
func TestReceiptsShow(t *testing.T) {
	b := audited(t)
	out, _ := b.want(exitDone, "receipts", "show", "aa", "--json")
	var shown struct {
		ID      string
		Records []struct{ Kind, Ending string }
	}
	if err := json.Unmarshal([]byte(out), &shown); err != nil || shown.ID != "aa" || len(shown.Records) != 2 ||
		shown.Records[0].Kind != "intent" || shown.Records[1].Ending != "complete" {
		t.Errorf("%v: %s", err, out)
	}
	if _, errs := b.want(exitNotHold, "receipts", "show", "a"); !strings.Contains(errs, `no receipt "a"`) {
		t.Error(errs)
	}
	for _, form := range []string{`id="aa"`, "id=aa"} { // the header's, and what a shell makes of it
		if as, _ := b.want(exitDone, "receipts", "show", form, "--json"); as != out {
			t.Errorf("%s: %s", form, as)
		}
	}
	if _, errs := b.want(exitUsage, "receipts", "show"); !strings.Contains(errs, "ID is missing: agentgw receipts show ID") {
		t.Error(errs)
	}
}

// TestParseSince: a day is its first moment in UTC.
func TestParseSince(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"":                          {},
		"15m":                       now.Add(-15 * time.Minute),
		"2026-11-30":                time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC),
		"2026-11-30T13:00:00+02:00": time.Date(2026, 11, 30, 11, 0, 0, 0, time.UTC),
	} {
		if got, err := parseMoment("--since", text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// TestAReportOfTamperingExplainsNothingAway: where reading stopped is said, and
// nothing that would only be known of a log that was read to its end.
func TestAReportOfTamperingExplainsNothingAway(t *testing.T) {
	for _, c := range []struct {
		name       string
		from, into string
		notProven  string
	}{
		// Entries 1 and 2 are aa, each under a checkpoint of its own; 3 is bb.
		{"a record that the checkpoint behind it denies", `"out":2048`, `"out":2049`, "anything of the entries from 2 on: reading stopped at entry 3"},
		{"a record that is none", `"kind":"refusal"`, `"kind":"refusla"`, "anything of the entries from 3 on: reading stopped at entry 3"},
	} {
		b := audited(t)
		b.write(firstSegment, bytes.Replace(b.read(firstSegment), []byte(c.from), []byte(c.into), 1))
		out, _ := b.want(exitNotHold, "receipts", "verify", "data", "--vkey", "vkey")
		if want := "reading stopped at entry 3; nothing after it was looked at\n"; !strings.Contains(out, want) {
			t.Errorf("%s: no %q in\n%s", c.name, want, out)
		}
		for _, word := range []string{"in flight", "unknown outcomes", "repaired", "gaps", "tenants", "kinds", "root", "time ", "running gateway", "next start", "signature yet", "\nentries  "} {
			if strings.Contains(out, word) {
				t.Errorf("%s: it tells of %q:\n%s", c.name, word, out)
			}
		}
		out, _ = b.want(exitNotHold, "receipts", "verify", "data", "--vkey", "vkey", "--json")
		var report receipts.Report
		if err := json.Unmarshal([]byte(out), &report); err != nil || report.StoppedAt == nil || *report.StoppedAt != 3 || report.Size != 3 ||
			report.Torn != 0 || len(report.NotProven) != 1 || report.NotProven[0] != c.notProven {
			t.Errorf("%s: %v: %s", c.name, err, out)
		}
	}
	// Nor of a log by another key.
	b := audited(t)
	_ = os.RemoveAll("data")
	l := b.openLog()
	b.add(l, call(receipts.KindIntent, "forged"))
	_ = l.Close()
	out, _ := b.want(exitUsage, "receipts", "verify", "data", "--vkey", "vkey")
	if !strings.Contains(out, "reading stopped at entry 0; nothing after it was looked at") || strings.Contains(out, "in flight") || strings.Contains(out, "running gateway") {
		t.Error(out)
	}
	// A log that was read to its end has not stopped, whatever becomes of it.
	b = audited(t)
	text := b.read(firstSegment)
	b.write(firstSegment, text[:bytes.LastIndex(text, []byte(`"id":"dd"`))])
	_ = os.Remove("data/receipts/checkpoint")
	out, _ = b.want(exitNotHold, "receipts", "verify", "data", "--vkey", "vkey", "--anchor", "anchor")
	if strings.Contains(out, "stopped") || strings.Contains(out, "next start") || strings.Contains(out, "signature yet") || !strings.Contains(out, "in flight") {
		t.Error(out)
	}
}

// TestReceiptsOfACopy: what needs only the log works on a copy of it; the key
// does not travel with the log.
func TestReceiptsOfACopy(t *testing.T) {
	b := audited(t)
	copyFolder(t, "copy/receipts", "data/receipts")
	for _, args := range [][]string{{"list"}, {"show", "aa"}, {"tail"}, {"checkpoint"}} {
		here, _ := b.want(exitDone, append([]string{"receipts"}, append(args, "--data", "data")...)...)
		there, _ := b.want(exitDone, append([]string{"receipts"}, append(args, "--data", "copy")...)...)
		if here != there || here == "" {
			t.Errorf("%v: %s, of the copy %s", args, here, there)
		}
	}
	if out, errs := b.want(exitCannotRun, "receipts", "key", "--data", "copy"); out != "" || !strings.Contains(errs, "copy") {
		t.Errorf("%s%s", out, errs)
	}
	for _, args := range [][]string{{"list"}, {"show", "aa"}, {"tail"}, {"checkpoint"}, {"key"}} {
		out, errs := b.want(exitCannotRun, append([]string{"receipts"}, append(args, "--data", "nowhere")...)...)
		if out != "" || !strings.Contains(errs, "nowhere") {
			t.Errorf("%v: %s%s", args, out, errs)
		}
	}
	if _, err := os.Stat("nowhere"); err == nil {
		t.Error("a command that reads has made a folder")
	}
}

// TestReceiptsOfARunningGateway: all of it while the log is held and written.
func TestReceiptsOfARunningGateway(t *testing.T) {
	b := newBench(t, "")
	l := b.openLog()
	key, errs := b.want(exitDone, "receipts", "key")
	if key != l.VerifierKey()+"\n" || errs != "" {
		t.Errorf("%s%s", key, errs)
	}
	b.write("vkey", []byte(key))
	for _, id := range []string{"aa", "bb", "cc"} {
		b.add(l, call(receipts.KindIntent, id))
		b.add(l, call(receipts.KindOutcome, id))
		newest := string(l.Checkpoint())
		var out string
		for end := time.Now().Add(time.Minute); out != newest && time.Now().Before(end); {
			if out, errs = b.want(exitDone, "receipts", "checkpoint"); errs != "" {
				t.Fatal(errs)
			}
		}
		if out != newest {
			t.Errorf("checkpoint:\n%s, want\n%s", out, newest)
		}
		b.write("anchor", []byte(out))
		b.want(exitDone, "receipts", "verify", "data", "--vkey", "vkey", "--anchor", "anchor")
		if out, _ := b.want(exitDone, "receipts", "show", id); !strings.Contains(out, "complete") {
			t.Errorf("%s: %s", id, out)
		}
	}
}

// TestReceiptsTailFollows: each new record once, in order, until it is ended.
func TestReceiptsTailFollows(t *testing.T) {
	b := audited(t)
	l := b.openLog()
	ctx, stop := context.WithCancel(t.Context())
	var out lockedBuffer
	c := &cli{stdout: &out, stderr: &out}
	ended := make(chan error)
	go func() { ended <- c.tail(ctx, "data/receipts", 1, true) }()
	lines := func(n int) []string {
		t.Helper()
		var all []string
		for end := time.Now().Add(time.Minute); len(all) < n; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d lines, want %d:\n%s", len(all), n, out.String())
			}
			all = strings.SplitAfter(out.String(), "\n")
			all = all[:len(all)-1]
		}
		return all
	}
	if first := lines(1); !strings.Contains(first[0], "outcome_unknown") {
		t.Errorf("begins with %s", first[0])
	}
	for _, id := range []string{"x1", "x2", "x3"} {
		b.add(l, call(receipts.KindOutcome, id))
	}
	for i, line := range lines(4)[1:] {
		r, err := receipts.ParseRecord([]byte(strings.TrimSuffix(line, "\n")))
		if err != nil || r.ID != []string{"x1", "x2", "x3"}[i] {
			t.Errorf("line %d: %v: %s", i, err, line)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := lines(4); len(got) != 4 {
		t.Errorf("%d lines", len(got))
	}
	b.want(exitUsage, "receipts", "tail", "-n", "-1")
}
