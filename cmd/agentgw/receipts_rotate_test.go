package main

import (
	"os"
	"strings"
	"testing"

	"agentgw/internal/receipts"
)

// TestRotateKey: the key that the command makes takes over at the next start and
// not before, and whoever has the old verifier key is shown the new one.
func TestRotateKey(t *testing.T) {
	b := audited(t)
	next, _ := b.want(exitDone, "receipts", "rotate-key")
	next = strings.TrimSpace(next)
	if now, _ := b.want(exitDone, "receipts", "key"); strings.TrimSpace(now) == next {
		t.Error("in office before the next start")
	}
	if _, errs := b.want(exitCannotRun, "receipts", "rotate-key"); !strings.Contains(errs, next) {
		t.Errorf("a second one: %s", errs)
	}
	if info, err := os.Stat("data/receipt-signing-key.next"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	l := b.openLog()
	b.add(l, call(receipts.KindOutcome, "ff"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if now, _ := b.want(exitDone, "receipts", "key"); strings.TrimSpace(now) != next {
		t.Errorf("the key is %s, and not %s", now, next)
	}
	out, _ := b.want(exitDone, "receipts", "verify", "data", "--vkey", "vkey", "--anchor", "anchor")
	if !strings.Contains(out, "HOLDS") || !strings.Contains(out, next) || strings.Count(out, "key from entry") != 2 {
		t.Error(out)
	}
	b.write("next.vkey", []byte(next))
	if out, _ := b.want(exitDone, "receipts", "verify", "data", "--vkey", "next.vkey", "--anchor", "anchor"); !strings.Contains(out, "HOLDS") {
		t.Error(out)
	}
}
