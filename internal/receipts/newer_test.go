package receipts_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/receipts"
)

// TestANewerFormatIsLeftAlone: a segment or a record of a version that this program
// does not know is neither repaired away nor written on, nor taken for good.
func TestANewerFormatIsLeftAlone(t *testing.T) {
	original, vkey, anchor := smallLog(t)
	for what, change := range map[string][2]string{
		"a segment": {`{"segment":{"v":1,`, `{"segment":{"v":2,`},
		"a record":  {`{"v":1,"kind":"intent"`, `{"v":2,"kind":"intent"`},
		"a kind":    {`{"v":1,"kind":"intent"`, `{"v":1,"kind":"wonder"`},
	} {
		dir := copyLog(t, original)
		names := segments(t, dir)
		for _, name := range names[:2] { // and not in what may be a torn tail
			if text := read(t, name); bytes.Contains(text, []byte(change[0])) {
				write(t, name, bytes.Replace(text, []byte(change[0]), []byte(change[1]), 1))
				break
			}
		}
		for _, name := range names {
			os.Remove(strings.TrimSuffix(name, ".jsonl") + ".leaves")
		}
		before := tree(t, dir)
		if l, err := reopen(dir); err == nil {
			l.Close()
			t.Errorf("%s: a start goes on", what)
		}
		if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
			t.Errorf("%s: a start changes\n%s", what, diff)
		}
		if r := verdict(t, dir, vkey, anchor); r.Verdict != receipts.Broken {
			t.Errorf("%s: %s", what, r.Verdict)
		}
	}
}
