package receipts

import (
	"strings"
	"syscall"
	"testing"
)

// TestNotesSurviveALossOfPower: what was noted is read after a loss of power, and where
// that comes while the next state is being written, that one or the one before it.
func TestNotesSurviveALossOfPower(t *testing.T) {
	d := NewSimDisk()
	if err := makeFolder(d, "/n"); err != nil {
		t.Fatal(err)
	}
	key, err := createSigning(d, "/n", "key", originPrefix+strings.Repeat("0", 32))
	if err != nil {
		t.Fatal(err)
	}
	open := func(d *SimDisk) (*notebook, uint64) {
		t.Helper()
		b, list, err := readNotebook(d, "/n", key, nil)
		if err == nil {
			err = b.open(d, "/n")
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			return b, 0
		}
		return b, list[0].Count
	}
	note := func(n uint64) []noted {
		return []noted{{ID: strings.Repeat("i", 2000), Kind: notedGap, Count: n}} // of several sectors
	}
	b, _ := open(d)
	for n := uint64(1); n < 6; n++ {
		if err := b.write(note(n)); err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(20) {
			if _, got := open(d.Clone().Crash(seed)); got != n {
				t.Errorf("noted %d, and %d is read", n, got)
			}
			cut := d.Clone()
			next, _ := open(cut)
			cut.Before = func(c SimCall) (f SimFault) {
				if c.Op == "sync" {
					f.Err = syscall.EIO
				}
				return f
			}
			if err := next.write(note(n + 1)); err == nil {
				t.Fatal("a sync that failed is none to it")
			}
			if _, got := open(cut.Crash(seed)); got != n && got != n+1 {
				t.Errorf("noted %d, %d was on its way, and %d is read", n, n+1, got)
			}
		}
	}
}
