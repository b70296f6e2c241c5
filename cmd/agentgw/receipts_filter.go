package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"agentgw/internal/gateway"
	"agentgw/internal/literal"
	"agentgw/internal/receipts"
)

// receiptFilter says which receipts are wanted; an empty field wants all.
type receiptFilter struct {
	tenant, key, service, request, decision string
	why                                     string // a code, an ending, or stillRunning
	since, until                            time.Time
}

// stillRunning is why a receipt that has an intent alone is as it is.
const stillRunning = "running"

func (f receiptFilter) wants(r *receipts.Record) bool {
	is := func(want, have string) bool { return want == "" || want == have }
	// A full name has its kind and a colon before it, which no short one has.
	return (is(f.tenant, r.Tenant) || "tenant:"+f.tenant == r.Tenant) &&
		is(f.key, r.Key) && is(f.service, r.Service) && is(f.request, r.RequestID) && is(f.decision, r.Decision) &&
		(is(f.why, r.Code) || f.why == string(r.Ending) || f.why == stillRunning && r.Kind == receipts.KindIntent) &&
		!r.Time.Before(f.since) && (f.until.IsZero() || r.Time.Before(f.until))
}

// check refuses words that no receipt can have: a list that is empty because of
// a misspelt code looks as if nothing had happened.
func (f receiptFilter) check() error {
	if f.decision != "" && f.decision != receipts.Allowed && f.decision != receipts.Refused {
		return fmt.Errorf("--decision %q: want %s or %s", f.decision, receipts.Allowed, receipts.Refused)
	}
	var codes, endings []string
	for _, c := range gateway.Codes() {
		codes = append(codes, string(c))
	}
	for _, e := range receipts.Endings() {
		endings = append(endings, string(e))
	}
	if known := slices.Concat(codes, endings, []string{stillRunning}); f.why != "" && !slices.Contains(known, f.why) {
		hint := ""
		if near := literal.Nearest(f.why, known); near != "" {
			hint = "; did you mean " + near + "?"
		}
		return fmt.Errorf("--code %s: is none of the codes %s, nor of the endings %s, nor %s%s",
			literal.Quote(f.why), strings.Join(codes, ", "), strings.Join(endings, ", "), stillRunning, hint)
	}
	return nil
}

// parseSince reads a moment, the day that begins with one, or how long ago.
func parseSince(s string, now time.Time) (time.Time, error) { return parseMoment("--since", s, now) }

func parseMoment(flag, s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	d, err := literal.Duration(s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %w; or a time (2026-01-02T15:04:05Z) or a day (2026-01-02)", flag, err)
	}
	return now.Add(-d), nil
}

// bareID takes the id out of the Agentgate-Receipt header's value, which is
// id="..."; a shell takes the quotes away.
func bareID(s string) string {
	return strings.Trim(strings.TrimPrefix(s, "id="), `"`)
}
