package receipts_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"agentgw/internal/receipts"
)

// TestClosedLists: a word that is not on a closed list is refused by the writer
// and by a reader. Codes and limits are not closed: new ones are read as they are.
func TestClosedLists(t *testing.T) {
	l := openLog(t, t.TempDir())
	line := strings.TrimSuffix(string(lastRecord(read(t, filepath.Join(golden, "receipts", "00000000000000000000.jsonl")))), "\n")
	for what, c := range map[string]struct {
		change func(*receipts.Record)
		ok     bool
	}{
		"a kind":     {func(r *receipts.Record) { r.Kind = "rumour" }, false},
		"an ending":  {func(r *receipts.Record) { r.Ending = "faded" }, false},
		"a decision": {func(r *receipts.Record) { r.Decision = "maybe" }, false},
		"none":       {func(r *receipts.Record) { r.Decision = "" }, true},
		"a code":     {func(r *receipts.Record) { r.Code, r.Limit = "of_a_later_version", "moon" }, true},
	} {
		r := outcome("x-" + strings.ReplaceAll(what, " ", ""))
		c.change(r)
		if _, err := l.Append(r); (err == nil) != c.ok {
			t.Errorf("%s: append: %v", what, err)
		}
	}
	for _, c := range []struct {
		from, to string
		ok       bool
	}{
		{`"decision":"refused"`, `"decision":"refused"`, true},
		{`"decision":"refused"`, `"decision":"allowed"`, true},
		{`"decision":"refused"`, `"decision":"maybe"`, false},
		{`"decision":"refused"`, `"decision":"Refused"`, false},
		{`"code":"unauthenticated"`, `"code":"of_a_later_version"`, true},
		{`"kind":"refusal"`, `"kind":"rumour"`, false},
	} {
		changed := strings.Replace(line, c.from, c.to, 1)
		if !strings.Contains(changed, c.to) {
			t.Fatalf("no %s in %s", c.from, line)
		}
		if _, err := receipts.ParseRecord([]byte(changed)); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.to, err)
		}
	}
}

// TestDateThatThereIsNot: t is a moment, not six numbers.
func TestDateThatThereIsNot(t *testing.T) {
	line := bytes.TrimSuffix(lastRecord(read(t, filepath.Join(golden, "receipts", "00000000000000000000.jsonl"))), []byte("\n"))
	at := bytes.Index(line, []byte(`"t":"`)) + len(`"t":"`)
	for date, ok := range map[string]bool{"2028-02-29": true, "2026-02-29": false, "2026-13-01": false, "2026-04-31": false, "0000-01-01": true} {
		changed := bytes.Clone(line)
		copy(changed[at:], date)
		if _, err := receipts.ParseRecord(changed); (err == nil) != ok {
			t.Errorf("%s: %v", date, err)
		}
	}
}

// TestLongestLine: a reader takes 65,535 bytes and no more, wherever in its
// buffer the line's end stands.
func TestLongestLine(t *testing.T) {
	dir, vkey, anchor := smallLog(t)
	names := segments(t, dir)
	last := names[len(names)-1]
	text := read(t, last)
	for n, tooLong := range map[int]bool{65535: false, 65536: true} {
		// A line that is no record is told apart from one that is too long.
		write(t, last, append(bytes.Clone(text), strings.Repeat("a", n)+"\n"...))
		err := receipts.Scan(filepath.Join(dir, "receipts"), func(receipts.Stored) error { return nil })
		if long := strings.Contains(fmt.Sprint(err), "longer than any record"); err == nil || long != tooLong {
			t.Errorf("%d bytes: %v", n, err)
		}
		if r := verdict(t, dir, vkey, anchor); !onlyTorn(r) {
			t.Errorf("%d bytes: %s: %s", n, r.Verdict, r.Why)
		}
	}
}
