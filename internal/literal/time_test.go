package literal_test

import (
	"strings"
	"testing"
	"time"

	"agentgw/internal/literal"
)

func TestTime(t *testing.T) {
	for text, want := range map[string]time.Time{
		"2026-12-01T00:00:00Z":      time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
		"2026-12-01T01:30:00+01:00": time.Date(2026, 12, 1, 0, 30, 0, 0, time.UTC),
		"2026-12-01T00:00:00.5Z":    time.Date(2026, 12, 1, 0, 0, 0, 5e8, time.UTC),
	} {
		if got, err := literal.Time(text); err != nil || !got.Equal(want) || got.Location() != time.UTC {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "2026-12-01", "2026-12-01 00:00:00Z", "2026-12-01T00:00:00", "2026-13-01T00:00:00Z", "1700000000", "1969-12-31T23:59:59Z", "2200-01-01T00:00:00Z"} {
		if got, err := literal.Time(text); err == nil || !strings.Contains(err.Error(), literal.Quote(text)) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
