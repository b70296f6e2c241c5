package receipts_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

// TestAnAnchorThatDoesNotAnswer: where the anchor's volume hangs, that is told of
// after two seconds, while the log goes on. A pipe stands for it: to open one waits
// until somebody writes to it.
func TestAnAnchorThatDoesNotAnswer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "anchor")
	var state atomic.Int64
	clock := clockwork.NewFakeClockAt(noon) // a bubble's stands still while somebody waits for a file
	l := openLog(t, t.TempDir(), func(o *receipts.Options) {
		o.Clock, o.Anchor = clock, file
		o.OnAnchor = func(ok bool) {
			state.Store(2)
			if ok {
				state.Store(1)
			}
		}
	})
	if state.Load() != 1 {
		t.Fatal("a start has not looked at it")
	}
	pipe := file + ".pipe"
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Rename(pipe, file)); err != nil { // no look finds nothing there
		t.Fatal(err)
	}
	tick(t, clock, "that it does not answer is told", func() bool { return state.Load() == 2 })
	mustAppend(t, l, outcome("a"))
	w := -1
	eventually(t, "somebody waits for it", func() (open bool) {
		var err error
		w, err = syscall.Open(file, syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err == nil
	})
	syscall.Close(w) // it answers
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}
