package main

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"agentgw/internal/ratelimit"
	"agentgw/internal/ratelimit/redisstore"
)

// TestTheReportOfAStore: what passed without limits or rules, and what failed although the
// store counts as one that decides, is told with its number at most once in ten seconds;
// nothing of what was told before, and none of what is not so.
func TestTheReportOfAStore(t *testing.T) {
	type failures = map[redisstore.Reason]int64
	type unasked = map[string]int64
	down := errors.New("down")
	const (
		passed  = "calls passed without limits, as on_store_failure is open calls="
		without = "calls passed without a rule, as its on_store_failure is open rule="
		single  = "the store has failed at single decisions, renewals or releases failures="
	)
	script := " reason=script: " + redisstore.Script.Words()
	type step struct {
		at       int // seconds
		away     error
		failures failures
		alone    ratelimit.Alone
		want     []string
	}
	for name, steps := range map[string][]step{
		"nothing": {{0, nil, failures{}, ratelimit.Alone{}, nil}, {20, nil, failures{}, ratelimit.Alone{}, nil}},
		"open": {
			{0, down, failures{"network": 5, "away": 7}, ratelimit.Alone{Opens: 12}, []string{passed + "12 reason=down"}},
			{3, down, failures{"network": 5, "away": 17}, ratelimit.Alone{Opens: 22}, nil},
			{9, down, failures{"network": 5, "away": 27}, ratelimit.Alone{Opens: 32}, nil},
			{12, down, failures{"network": 5, "away": 37}, ratelimit.Alone{Opens: 42}, []string{passed + "30 reason=down"}},
			{24, down, failures{"network": 5, "away": 37}, ratelimit.Alone{Opens: 42}, nil},
		},
		"local and closed say nothing more": {{0, down, failures{"network": 5}, ratelimit.Alone{Shares: 3, Closes: 2}, nil}},
		"rules": {
			{0, down, failures{}, ratelimit.Alone{Shares: 3, Unasked: unasked{"b": 3, "a": 1}}, []string{without + "a calls=1 reason=down", without + "b calls=3 reason=down"}},
			{12, down, failures{}, ratelimit.Alone{Shares: 9, Unasked: unasked{"b": 4, "a": 1}}, []string{without + "b calls=1 reason=down"}},
		},
		"single failures": {
			{0, nil, failures{"script": 3, "timeout": 1}, ratelimit.Alone{Shares: 3}, []string{single + "4" + script}},
			{3, nil, failures{"script": 4, "timeout": 1}, ratelimit.Alone{Shares: 4}, nil},
			{12, nil, failures{"script": 4, "timeout": 1}, ratelimit.Alone{Shares: 4}, []string{single + "1" + script}},
			{24, nil, failures{"script": 5, "timeout": 1}, ratelimit.Alone{Shares: 4, Opens: 1}, []string{passed + "1" + script, single + "1" + script}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
					return slog.Attr{}
				}
				return a
			}}))
			var r storeReport
			start := time.Unix(1_790_000_000, 0)
			for i, s := range steps {
				out.Reset()
				r.tell(log, start.Add(time.Duration(s.at)*time.Second), s.away, s.failures, s.alone)
				got := strings.NewReplacer(`"`, "", "msg=", "").Replace(out.String())
				want := strings.ReplaceAll(strings.Join(append(s.want, ""), "\n"), `"`, "")
				if got != want {
					t.Errorf("step %d:\n%s\nwant\n%s", i, got, want)
				}
			}
		})
	}
}
