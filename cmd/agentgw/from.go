package main

import (
	"strings"

	"agentgw/internal/registry"
)

// rateFrom is where rate and burst come from.
func rateFrom(l limit) string {
	if l.BurstDefaulted {
		return l.Source
	}
	return bothFrom(l.Source, l.BurstSource)
}

// bothFrom is where a rate and its burst come from; a burst beside its rate, and a
// default beside a default, are not worth a place of their own.
func bothFrom(rate, burst string) string {
	at, other := registry.ParsePosition(rate), registry.ParsePosition(burst)
	beside := at.Line > 0 && at.File == other.File && at.Line == other.Line
	defaults := strings.HasPrefix(rate, "default ") && strings.HasPrefix(burst, "default ")
	if burst == "" || burst == rate || beside || defaults {
		return rate
	}
	return rate + ", burst: " + burst
}
