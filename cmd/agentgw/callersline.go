package main

import (
	"fmt"
	"io"

	"agentgw/internal/config"
	"agentgw/internal/literal"
	"agentgw/internal/registry"
)

// callersLine is the limit of each caller of open services.
type callersLine struct {
	RPM         *float64 `json:"rpm"` // null: off
	RPMSource   string   `json:"rpm_source"`
	Burst       *int     `json:"burst"`
	BurstSource string   `json:"burst_source,omitempty"` // absent where it is that of the rate
}

// newCallersLine is nil where no service is open.
func newCallersLine(snapshot *registry.Snapshot, s *config.Settings) *callersLine {
	if !anyOpen(snapshot) {
		return nil
	}
	l := &callersLine{RPMSource: sourceOf(s, "AGENTGATE_RATE_CALLER_RPM")}
	if s.RateCallerRPM > 0 {
		l.RPM, l.Burst = &s.RateCallerRPM, &s.RateCallerBurst
		if from := s.Source("AGENTGATE_RATE_CALLER_BURST"); from != "default" {
			l.BurstSource = from
		}
	}
	return l
}

func anyOpen(snapshot *registry.Snapshot) bool {
	for _, service := range snapshot.Services {
		if service.Access == registry.AccessOpen {
			return true
		}
	}
	return false
}

// text is the limit in a few words, such as "60/min burst 60".
func (l *callersLine) text() string {
	if l.RPM == nil {
		return "off"
	}
	return literal.Number(*l.RPM) + "/min burst " + countText(l.Burst)
}

func (l *callersLine) print(w io.Writer) {
	if l == nil {
		return
	}
	from := l.RPMSource
	if l.BurstSource != "" {
		from += ", burst: " + l.BurstSource
	}
	fmt.Fprintf(w, "each caller of open services\t%s\t%s\n", l.text(), from)
}
