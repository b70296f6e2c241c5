package receipts_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentgw/internal/receipts"
)

// TestLookingAheadChangesNothing verifies logs that were altered in every way that
// an auditor has to fear, with the lines looked at one by one, and ahead in pieces of
// every small size: the reports are the same to the last word.
func TestLookingAheadChangesNothing(t *testing.T) {
	tried, broken, n := 0, 0, 0
	eachAltered(t, func(name, dir, _, _ string, _ *written, log subject) {
		if n++; !drill() && n%3 > 0 {
			return
		}
		tried++
		path, vkey := filepath.Join(dir, "data"), strings.TrimSpace(string(log.vkey))
		want, wantErr := receipts.VerifyAhead(path, vkey, log.anchor, 0)
		sizes := []int{1 + tried%8}
		if drill() {
			sizes = []int{1, 2, 3, 5, 8, 1024}
		}
		for _, atOnce := range sizes {
			got, err := receipts.VerifyAhead(path, vkey, log.anchor, atOnce)
			if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
				t.Fatalf("%s, %d lines at once: %v; one by one: %v", name, atOnce, err, wantErr)
			}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(receipts.Damage{})); diff != "" {
				t.Fatalf("%s, %d lines at once:\n%s", name, atOnce, diff)
			}
		}
		if want != nil && want.Verdict == receipts.Broken {
			broken++
		}
	})
	if broken < tried/3 {
		t.Errorf("of %d logs only %d do not hold", tried, broken)
	}
}
