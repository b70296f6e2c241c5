package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentgw/internal/gateway"
	"agentgw/internal/literal"
	"agentgw/internal/receipts"
)

// wrongWhy says what is wrong with a code, ending or receipts.Running that is asked
// for: a list that is empty because of a misspelt one looks as if nothing had happened.
func wrongWhy(why string) string {
	var codes, endings []string
	for _, c := range gateway.Codes() {
		codes = append(codes, string(c))
	}
	for _, e := range receipts.Endings() {
		endings = append(endings, string(e))
	}
	known := slices.Concat(codes, endings, []string{receipts.Running})
	if why == "" || slices.Contains(known, why) {
		return ""
	}
	hint := ""
	if near := literal.Nearest(why, known); near != "" {
		hint = "; did you mean " + near + "?"
	}
	return fmt.Sprintf("is none of the codes %s, nor of the endings %s, nor %s%s",
		strings.Join(codes, ", "), strings.Join(endings, ", "), receipts.Running, hint)
}

func checkDecision(decision string) error {
	if decision != "" && decision != receipts.Allowed && decision != receipts.Refused {
		return fmt.Errorf("--decision %q: want %s or %s", decision, receipts.Allowed, receipts.Refused)
	}
	return nil
}

// checkRange says what is wrong with a time in which nothing can be.
func checkRange(q receipts.Query) error {
	if !q.To.IsZero() && !q.From.Before(q.To) {
		return errors.New("--since is not before --until: no record is in between")
	}
	return nil
}

// parseMoment reads a moment, the day that begins with one, or how long ago.
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
