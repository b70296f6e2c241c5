package main

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestTheLogOfAStore: the first answer and each way of it once, a store that comes and goes
// no more than once in ten seconds each way, and whatever it has come to in the end.
func TestTheLogOfAStore(t *testing.T) {
	const (
		is    = "the limits are shared\n"
		again = "the limits are shared again\n"
		away  = "the limits are not shared: the store does not decide: "
		times = "the limits were not shared for moments: the store went away and came back: "
	)
	down, denied := errors.New("down"), errors.New("denied")
	type step struct {
		at     int // seconds
		reason error
		late   bool // not a change, but the time
		want   string
	}
	for name, steps := range map[string][]step{
		"well from the start": {{0, nil, false, is}, {10, nil, true, ""}, {20, down, false, away + "down\n"}, {21, nil, false, again}, {40, nil, true, ""}},
		"ill from the start":  {{0, denied, false, away + "denied\n"}, {30, nil, true, ""}, {31, nil, false, again}},
		"ill at once after":   {{0, nil, false, is}, {1, down, false, away + "down\n"}},
		"for another reason":  {{0, down, false, away + "down\n"}, {5, denied, false, ""}, {9, nil, true, ""}, {10, nil, true, away + "denied\n"}, {13, nil, true, ""}},
		"it comes and goes": {
			{0, nil, false, is}, {20, down, false, away + "down\n"}, {21, nil, false, again}, {22, down, false, ""}, {23, nil, false, ""},
			{24, down, false, ""}, {25, nil, false, ""}, {29, nil, true, ""}, {30, nil, true, times + "2\n"}, {33, nil, true, ""}, {60, down, false, away + "down\n"},
		},
		"it went in the end": {
			{0, nil, false, is}, {20, down, false, away + "down\n"}, {21, nil, false, again}, {22, down, false, ""}, {31, nil, true, away + "down\n"}, {32, nil, false, again},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			l := &storeLog{policy: "local", log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == "meanwhile" || a.Key == "replicas" {
					return slog.Attr{}
				}
				return a
			}}))}
			start := time.Unix(1_790_000_000, 0)
			for i, s := range steps {
				out.Reset()
				if now := start.Add(time.Duration(s.at) * time.Second); s.late {
					l.late(now, 2)
				} else {
					l.changed(now, s.reason, 2)
				}
				got := strings.NewReplacer(`"`, "", "msg=", "", " reason=", ": ", " times=", ": ").Replace(out.String())
				if got != s.want {
					t.Errorf("step %d: %q, want %q", i, got, s.want)
				}
			}
		})
	}
}
