package main

import (
	"strings"
	"testing"
	"time"
)

// TestProgressOfLongWork: nothing in the first second, then a line that is written
// over once a second and is gone at the end.
func TestProgressOfLongWork(t *testing.T) {
	var out strings.Builder
	now := time.Unix(0, 0)
	say := progressLine(&out, func() time.Time { return now })
	for _, step := range []struct {
		after time.Duration
		done  int64
		want  string
	}{
		{0, 1 << 20, ""},
		{900 * time.Millisecond, 90 << 20, ""},
		{1100 * time.Millisecond, 200 << 20, "\r\x1b[Kread 200 of 1000 MiB (20 %), 8s left"},
		{500 * time.Millisecond, 300 << 20, ""},
		{1500 * time.Millisecond, 500 << 20, "\r\x1b[Kread 500 of 1000 MiB (50 %), 4s left"},
		{2 * time.Second, 1000 << 20, "\r\x1b[K"},
		{2 * time.Second, 1000 << 20, ""},
	} {
		now = now.Add(step.after)
		out.Reset()
		if say(step.done, 1000<<20); out.String() != step.want {
			t.Errorf("%d MiB: %q, want %q", step.done>>20, out.String(), step.want)
		}
	}
}
