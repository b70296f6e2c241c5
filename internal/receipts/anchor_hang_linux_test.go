package receipts_test

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"agentgw/internal/receipts"
)

// TestAnAnchorThatDoesNotAnswer: where the anchor's volume hangs, that is told of
// after two seconds, while the log goes on. A pipe stands for it: to open one waits
// until somebody writes to it.
func TestAnAnchorThatDoesNotAnswer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "anchor")
	var state atomic.Int64
	l, clock := mustAnchored(t, t.TempDir(), file, func(o *receipts.Options) {
		o.OnAnchor = func(ok bool) {
			state.Store(2)
			if ok {
				state.Store(1)
			}
		}
	})
	tick(t, clock, "it is looked at", func() bool { return state.Load() == 1 })
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Second)
	tick(t, clock, "that it does not answer is told", func() bool { return state.Load() == 2 })
	mustAppend(t, l, outcome("a"))
	w, err := os.OpenFile(file, os.O_WRONLY, 0) // it answers
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}
