package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

// replicaLogs makes the logs of three replicas: west was stopped in good order, east was
// killed with a call under way, and north runs. Their keys are in NAME.vkey and all in keys,
// their anchors in NAME.anchor.
func replicaLogs(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, "")
	for i, name := range []string{"west", "east", "north"} {
		l, err := receipts.Open(name, receipts.Options{Clock: clockwork.NewRealClock(), Replica: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		id := fmt.Sprintf("%c%c", 'a'+i, 'a'+i)
		b.add(l, call(receipts.KindIntent, id))
		b.add(l, call(receipts.KindOutcome, id))
		b.add(l, call(receipts.KindIntent, id+id))
		switch name {
		case "west":
			b.add(l, call(receipts.KindOutcome, id+id))
			err = l.Seal()
		case "east":
			err = l.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		b.write(name+".vkey", []byte(l.VerifierKey()+"\n"))
		out, _ := b.want(exitDone, "receipts", "checkpoint", "--data", name)
		b.write(name+".anchor", []byte(out))
	}
	b.write("keys", slices.Concat(b.read("west.vkey"), []byte("\n"), b.read("north.vkey"), b.read("east.vkey")))
	return b
}

// TestSeveralLogsAreVerifiedAtOnce: each of them by its own key and anchor, which it gets by
// its name and not by where it stands; what is wrong with one is the verdict of all.
func TestSeveralLogsAreVerifiedAtOnce(t *testing.T) {
	logs := []string{"west", "east", "north"}
	anchors := []string{"--anchor", "north.anchor", "--anchor", "west.anchor", "--anchor", "east.anchor"}
	all := slices.Concat(logs, []string{"--vkey", "keys"}, anchors)
	with := func(args ...string) []string { return args }
	for _, c := range []struct {
		name   string
		change func(b *bench)
		args   []string // all where nil
		code   int
		says   []string
	}{
		{name: "all is well", code: exitDone, says: []string{"together          HOLDS\n", "logs              west: holds\n", "ends              west: sealed: the gateway was stopped in good order\n",
			"east: no seal; the last record is ", "north: no seal; ", "in flight         2, ", "unknown outcomes  0\n", "gaps              0\n"}},
		{name: "keys one by one", code: exitUnproven, args: with("north", "east", "west", "--vkey", "west.vkey", "--vkey", "east.vkey", "--vkey", "north.vkey"),
			says: []string{"together          NOT ALL PROVEN\n", "logs              north: not all proven\n"}},
		{name: "one altered", code: exitNotHold, says: []string{"together          DOES NOT HOLD\n", "east: does not hold\n", "north: holds\n", "entry 1, id bB"}, change: func(b *bench) {
			file := "east/receipts/00000000000000000000.jsonl"
			b.write(file, bytes.Replace(b.read(file), []byte(`"kind":"intent","id":"bb"`), []byte(`"kind":"intent","id":"bB"`), 1))
		}},
		{name: "one not there", code: exitCannotRun, args: with("west", "south", "--vkey", "keys"), says: []string{"south: cannot be read\n", "CANNOT BE READ"}},
		{name: "a key without its log", code: exitUnproven, args: slices.Concat(with("west", "north", "--vkey", "keys"), anchors[:4]),
			says: []string{"missing           agentgate/", ": there is a key of it, and no log was given\n", "together          NOT ALL PROVEN"}},
		{name: "an anchor without its log", code: exitNotHold, args: slices.Concat(with("west", "north", "--vkey", "keys"), anchors),
			says: []string{"no log was given, and east.anchor says that there was one"}},
		{name: "a log without its key", code: exitUsage, args: with("west", "north", "east", "--vkey", "west.vkey", "--vkey", "north.vkey"),
			says: []string{"together          UNTRUSTED KEY\n", "east: untrusted key; none of the given keys is of this log\n", "west: not all proven\n"}},
		{name: "emptied, with an anchor", code: exitNotHold, says: []string{"says that there was one"}, change: func(b *bench) {
			for _, file := range []string{"00000000000000000000.jsonl", "checkpoint"} {
				if err := os.Remove(filepath.Join("east/receipts", file)); err != nil {
					b.t.Fatal(err)
				}
			}
		}},
		{name: "given twice", code: exitUsage, args: with("west", "west/receipts", "--vkey", "keys"), says: []string{"west and west/receipts are of the same log"}},
		{name: "an anchor of nobody's", code: exitUsage, args: with("west", "east", "--vkey", "west.vkey", "--vkey", "east.vkey", "--anchor", "north.anchor"), says: []string{"of which no key is given"}},
		{name: "two anchors", code: exitUsage, args: with("west", "east", "--vkey", "keys", "--anchor", "west.anchor", "--anchor", "west.anchor"), says: []string{"a second one for west"}},
		{name: "an anchor that is none", code: exitUsage, args: with("west", "east", "--vkey", "keys", "--anchor", "keys"), says: []string{"not a checkpoint"}},
		{name: "a key that is none", code: exitUsage, args: with("west", "east", "--vkey", "west.anchor"), says: []string{"verifier key"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := replicaLogs(t)
			if c.change != nil {
				c.change(b)
			}
			args := c.args
			if args == nil {
				args = all
			}
			out, errs := b.want(c.code, append([]string{"receipts", "verify"}, args...)...)
			for _, want := range c.says {
				if !strings.Contains(out+errs, want) {
					t.Errorf("no %q in\n%s%s", want, out, errs)
				}
			}
			if out == "" {
				return
			}
			out, _ = b.want(c.code, append([]string{"receipts", "verify", "--json"}, args...)...)
			isJSON(t, c.name, out)
		})
	}
}

// TestSeveralLogsTogether: the sums, and who ended without a seal.
func TestSeveralLogsTogether(t *testing.T) {
	old, err := filepath.Abs(goldenLog) // of long ago, without a seal
	if err != nil {
		t.Fatal(err)
	}
	b := replicaLogs(t)
	copyFolder(t, "golden", old)
	key, _ := b.want(exitDone, "receipts", "key", "--data", "golden")
	b.write("golden.vkey", []byte(key))
	out, _ := b.want(exitUnproven, "receipts", "verify", "west", "east", "north", "golden", "--vkey", "keys", "--vkey", "golden.vkey", "--json")
	var got struct {
		Together struct {
			Logs, Entries, Covered, Sealed, Unknown_outcomes, Intents_without_outcome int
			First, Last                                                               time.Time
			Without_seal                                                              []string
		}
		Logs []struct {
			Path, State string
			Log         receipts.Report
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	entries, covered, unknown := 0, 0, 0
	for _, l := range got.Logs {
		entries, covered, unknown = entries+int(l.Log.Size), covered+int(l.Log.Covered), unknown+int(l.Log.Unknown)
	}
	golden := got.Logs[3]
	if a := got.Together; a.Logs != 4 || a.Entries != entries || a.Covered != covered || a.Unknown_outcomes != unknown || a.Sealed != 1 || entries < 20 || unknown < 1 ||
		!a.First.Equal(golden.Log.First.Time) || !a.Last.Equal(got.Logs[2].Log.Last.Time) && !a.Last.After(got.Logs[1].Log.Last.Time) {
		t.Errorf("%d entries, %d covered, %d unknown: %s", entries, covered, unknown, out)
	}
	if fmt.Sprint(got.Together.Without_seal) != "[east north golden]" {
		t.Errorf("without a seal: %v", got.Together.Without_seal)
	}
	for i, want := range []receipts.State{receipts.Sealed, receipts.Lively, receipts.Lively, receipts.Silent} {
		if receipts.State(got.Logs[i].State) != want {
			t.Errorf("%s is %s, want %s", got.Logs[i].Path, got.Logs[i].State, want)
		}
	}
}

// TestATenantsReceiptsOfSeveralLogs: exported from all, verified at once, and listed as if
// they were of one log, page by page.
func TestATenantsReceiptsOfSeveralLogs(t *testing.T) {
	b := replicaLogs(t)
	if err := os.Rename("north/receipt-signing-key", "north/kept"); err != nil {
		t.Fatal(err)
	}
	b.want(exitCannotRun, "receipts", "export", "--tenant", "acme", "--out", "broken", "west", "north")
	if err := os.Rename("north/kept", "north/receipt-signing-key"); err != nil {
		t.Fatal(err)
	}
	other, err := receipts.Open("other", receipts.Options{Clock: clockwork.NewRealClock()})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Seal(); err != nil {
		t.Fatal(err)
	}
	out, _ := b.want(exitDone, "receipts", "export", "--tenant", "acme", "--out", "acme", "west", "east", "north", "other")
	if strings.Count(out, " records of tenant:acme\n") != 3 || !strings.Contains(out, "other: no receipt of tenant:acme\n") {
		t.Error(out)
	}
	b.want(exitNotHold, "receipts", "export", "--tenant", "acme", "--out", "none", "other")
	b.want(exitCannotRun, "receipts", "export", "--tenant", "acme", "--out", "acme", "west") // the file is there
	files, err := filepath.Glob("acme/*.export")
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	verify := func(code int, more ...string) string {
		t.Helper()
		out, _ := b.want(code, slices.Concat([]string{"receipts", "verify"}, files, []string{"--vkey", "keys"}, more)...)
		return out
	}
	if out := verify(exitUnproven); strings.Count(out, "tenant            tenant:acme\n") != 3 || !strings.Contains(out, "entries           10, of which 10 ") || strings.Contains(out, "missing  ") {
		t.Error(out)
	}
	var anchors []string
	for i, file := range files {
		var last struct{ Checkpoint string }
		lines := strings.Split(strings.TrimSpace(string(b.read(file))), "\n")
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
			t.Fatal(err)
		}
		anchor := fmt.Sprint("anchor", i)
		b.write(anchor, []byte(last.Checkpoint))
		anchors = append(anchors, "--anchor", anchor)
	}
	verify(exitDone, anchors...)
	b.write(files[1], bytes.Replace(b.read(files[1]), []byte(`"kind":"outcome"`), []byte(`"kind":"refusal"`), 1))
	if out := verify(exitNotHold, anchors...); !strings.Contains(out, files[1]+": does not hold") || !strings.Contains(out, files[0]+": holds") {
		t.Error(out)
	}
}

// TestListOfSeveralLogs: by time, each receipt once, in pages or not, from either end.
func TestListOfSeveralLogs(t *testing.T) {
	b := replicaLogs(t)
	list := func(args ...string) (ids []string, more string) {
		out, errs := b.want(exitDone, slices.Concat([]string{"receipts", "list", "west", "east", "north", "--json"}, args)...)
		var rows []struct{ ID string }
		if err := json.Unmarshal([]byte(out), &rows); err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			ids = append(ids, r.ID)
		}
		_, more, _ = strings.Cut(strings.TrimSpace(errs), "there are more: --cursor ")
		return ids, more
	}
	want := []string{"aa", "aaaa", "bb", "bbbb", "cc", "cccc"}
	if got, more := list(); !slices.Equal(got, want) || more != "" {
		t.Errorf("%q, more at %q; want %q", got, more, want)
	}
	for _, oldest := range []bool{false, true} {
		for limit := 1; limit <= 7; limit++ {
			var got []string
			args := []string{"--limit", fmt.Sprint(limit)}
			if oldest {
				args = append(args, "--oldest")
			}
			next := args
			for {
				page, more := list(next...)
				if oldest {
					got = append(got, page...)
				} else {
					got = append(page, got...)
				}
				if more == "" || len(got) > 2*len(want) {
					break
				}
				next = slices.Concat(args, []string{"--cursor", more})
			}
			if !slices.Equal(got, want) {
				t.Errorf("oldest first %v, %d a page: %q, want %q", oldest, limit, got, want)
			}
		}
	}
	if got, _ := list("--code", "running"); !slices.Equal(got, []string{"bbbb", "cccc"}) {
		t.Errorf("what runs: %q", got)
	}
	b.want(exitUsage, "receipts", "list", "west", "east", "--cursor", "5")
	b.want(exitCannotRun, "receipts", "list", "west", "nowhere")
}
