package receipts_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

// TestASegmentThatWasResized: a running log whose segment is cut, emptied or written
// to by somebody else acknowledges nothing more into it and signs nothing over it.
func TestASegmentThatWasResized(t *testing.T) {
	for name, resize := range map[string]func(path string) error{
		"cut":     func(path string) error { return os.Truncate(path, 600) },
		"emptied": func(path string) error { return os.Truncate(path, 0) },
		"appended": func(path string) error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteString("x\n")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l, err := receipts.Open(dir, receipts.Options{Clock: clockwork.NewFakeClockAt(noon)})
			if err != nil {
				t.Fatal(err)
			}
			mustAppend(t, l, outcome("a"), outcome("b"))
			before := l.Checkpoint()
			// The last write is over: one between whose look and bytes the file is cut fills the
			// hole with zeros, as if bytes had been changed in their place.
			eventually(t, "the checkpoint is in the files", func() bool { return bytes.Equal(newest(t, dir), before) })
			if err := resize(segmentFile(dir)); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Append(outcome("c")); !errors.Is(err, receipts.ErrUnavailable) {
				t.Errorf("the first record after it: %v", err)
			}
			if string(l.Checkpoint()) != string(before) || !strings.Contains(fmt.Sprint(l.Healthy()), "not as long as") {
				t.Errorf("it goes on: %s, %v", l.Checkpoint(), l.Healthy())
			}
			l.Close()
		})
	}
}
