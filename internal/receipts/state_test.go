package receipts_test

import (
	"testing"
	"time"

	"agentgw/internal/receipts"
)

// TestWhatTheEndOfALogTells: a seal, and else how long the log has been silent.
func TestWhatTheEndOfALogTells(t *testing.T) {
	last := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(r receipts.Report) receipts.Report { r.Last = &receipts.Instant{Time: last}; return r }
	for _, c := range []struct {
		name   string
		report receipts.Report
		after  time.Duration
		want   receipts.State
	}{
		{"no record", receipts.Report{}, 0, receipts.Unknown},
		{"one that does not hold", at(receipts.Report{Verdict: receipts.Broken, Sealed: true}), 0, receipts.Unknown},
		{"sealed long ago", at(receipts.Report{Sealed: true}), time.Hour, receipts.Sealed},
		{"just now", at(receipts.Report{}), 0, receipts.Lively},
		{"by a clock that is ahead", at(receipts.Report{}), -time.Hour, receipts.Lively},
		{"two heartbeats ago", at(receipts.Report{}), 2 * time.Minute, receipts.Lively},
		{"longer than that", at(receipts.Report{}), 2*time.Minute + 1, receipts.Silent},
	} {
		if got := c.report.State(last.Add(c.after)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
