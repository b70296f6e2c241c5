package main

import (
	"log/slog"
	"strconv"
	"strings"

	"agentgw/internal/literal"
)

// limitsInForce are the limits that hold, for a line in the log: those of
// whoever the registry does not name, and each that it gives. None is said too, in words
// that nobody takes for a service that is off: a limit that is not there is what an
// operator has to see.
func limitsInForce(r report) []any {
	group := func(name string, list []limit) slog.Attr {
		attrs := make([]any, len(list))
		for i, l := range list {
			attrs[i] = slog.String(strings.Trim(l.Name, "()"), limitText(l))
		}
		return slog.Group(name, attrs...)
	}
	queue := r.Process.queueText()
	if r.Process.TenantQueue > 0 {
		queue += " for " + r.Process.QueueWait + " at most"
	}
	inflight := noLimit
	if r.Process.MaxInflight != nil {
		inflight = countText(r.Process.MaxInflight)
	}
	process := []any{slog.String("inflight", inflight), slog.String("queue of each tenant", queue)}
	if r.Callers != nil {
		process = append(process, slog.String("each caller of open services", r.Callers.text()))
	}
	return []any{group("keys", r.Keys), group("tenants", r.Tenants), group("services", r.Services), slog.Group("process", process...), rulesInForce(r.Rules)}
}

const noLimit = "no limit"

// limitText is a limit in a few words, such as "5/s burst 10 inflight 8".
func limitText(l limit) string {
	text := noLimit
	switch {
	case l.RPS == nil && l.MaxInflight != nil:
		text = "no rate"
	case l.RPS != nil:
		text = literal.Number(*l.RPS) + "/s burst " + countText(l.Burst)
	}
	if l.MaxInflight != nil {
		text += " inflight " + countText(l.MaxInflight)
	}
	if l.Weight > 1 {
		text += " weight " + strconv.Itoa(l.Weight)
	}
	return text
}
