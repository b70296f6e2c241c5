package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"agentgw/internal/receipts"
)

// oneOfSeveral is a log in the report, as JSON has it.
type oneOfSeveral struct {
	Path   string                 `json:"path"`
	Origin string                 `json:"origin,omitempty"` // that it claims
	Exit   int                    `json:"exit"`             // as it would be of this log alone
	Log    *receipts.Report       `json:"log,omitempty"`
	Export *receipts.ExportReport `json:"export,omitempty"`
	Error  string                 `json:"error,omitempty"`
	Key    string                 `json:"key,omitempty"`   // what is wrong with its key
	State  receipts.State         `json:"state,omitempty"` // of a log: what its end tells
	End    string                 `json:"end,omitempty"`   // and in words
}

// altogether is what several logs come to.
type altogether struct {
	Verdict     receipts.Verdict  `json:"verdict"`
	Logs        int               `json:"logs"`
	Entries     uint64            `json:"entries"` // and records of exports
	Covered     uint64            `json:"covered"` // of which so many are under a signature
	First       *receipts.Instant `json:"first,omitempty"`
	Last        *receipts.Instant `json:"last,omitempty"`
	Unknown     uint64            `json:"unknown_outcomes"`
	InFlight    int               `json:"intents_without_outcome"`
	Gaps        uint64            `json:"gaps"`
	Attempts    uint64            `json:"gap_attempts"`
	Uncounted   uint64            `json:"uncounted_gaps,omitempty"`
	Sealed      int               `json:"sealed"`
	WithoutSeal []string          `json:"without_seal"` // paths of logs
	Missing     []lostLog         `json:"missing"`
}

// add counts one in.
func (t *altogether) add(o oneOfSeveral) {
	t.Logs++
	span := func(first, last *receipts.Instant) {
		if first != nil && (t.First == nil || first.Before(t.First.Time)) {
			t.First = first
		}
		if last != nil && (t.Last == nil || last.After(t.Last.Time)) {
			t.Last = last
		}
	}
	switch {
	case o.Log != nil:
		r := o.Log
		t.Entries, t.Covered = t.Entries+r.Size, t.Covered+r.Covered
		t.Unknown, t.InFlight = t.Unknown+r.Unknown, t.InFlight+r.InFlight
		t.Gaps, t.Attempts, t.Uncounted = t.Gaps+r.Gaps, t.Attempts+r.Attempts, t.Uncounted+r.UncountedGaps
		span(r.First, r.Last)
		if o.State == receipts.Sealed {
			t.Sealed++
		} else {
			t.WithoutSeal = append(t.WithoutSeal, o.Path)
		}
	case o.Export != nil:
		r := o.Export
		t.Entries, t.Covered = t.Entries+r.Size, t.Covered+r.Size
		t.Unknown, t.InFlight = t.Unknown+r.Unknown, t.InFlight+r.InFlight
		t.Gaps, t.Attempts, t.Uncounted = t.Gaps+r.Gaps, t.Attempts+r.Attempts, t.Uncounted+r.UncountedGaps
		span(r.First, r.Last)
	}
}

// endInWords tells what can be told of the end of a log that is not sealed: not whether
// its writer lives, which nobody can see from the log alone.
func endInWords(state receipts.State, r *receipts.Report, now time.Time) string {
	switch state {
	case receipts.Sealed:
		return "sealed: the gateway was stopped in good order"
	case receipts.Lively:
		return fmt.Sprintf("no seal; the last record is %s old: the gateway runs, or was killed just now", max(0, now.Sub(r.Last.Time)).Round(time.Second))
	case receipts.Silent:
		return fmt.Sprintf("no seal, and nothing since %s, where one that runs writes each minute: the gateway was killed, or the log's end was cut off, or this is a copy of then", r.Last.Format(time.RFC3339))
	}
	return "nothing to tell by"
}

// printSeveral tells of each log what verify tells of one, and then of all.
func printSeveral(out io.Writer, list []oneOfSeveral, all altogether) error {
	for _, o := range list {
		fmt.Fprintf(out, "%s (%s)\n", printable(o.Path), cmp.Or(printable(o.Origin), "no origin"))
		x := examined{log: o.Log, export: o.Export}
		var err error
		if o.Log == nil && o.Export == nil {
			_, err = fmt.Fprintf(out, "verdict  %s\n         %s\n", strings.ToUpper(string(verdictOf(o.Exit))), printable(o.Error))
		} else {
			err = x.print(out)
		}
		if err == nil {
			_, err = fmt.Fprintln(out)
		}
		if err != nil {
			return err
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "together\t%s\n", strings.ToUpper(string(all.Verdict)))
	for i, o := range list {
		verdict := string(verdictOf(o.Exit))
		if o.Key != "" {
			verdict += "; " + o.Key
		}
		fmt.Fprintf(w, "%s\t%s: %s\n", first(i, "logs"), printable(o.Path), verdict)
	}
	for i, l := range all.Missing {
		told := "there is a key of it, and no log was given"
		if l.Anchor != "" {
			told = "no log was given, and " + l.Anchor + " says that there was one"
		}
		fmt.Fprintf(w, "%s\t%s: %s\n", first(i, "missing"), printable(l.Origin), printable(told))
	}
	fmt.Fprintf(w, "entries\t%d, of which %d under a signature\n", all.Entries, all.Covered)
	if all.First != nil {
		fmt.Fprintf(w, "time\t%s to %s\n", all.First.Format(time.RFC3339), all.Last.Format(time.RFC3339))
	}
	fmt.Fprintf(w, "unknown outcomes\t%d\n", all.Unknown)
	printHalves(w, all.InFlight, 0)
	fmt.Fprintf(w, "gaps\t%s\n", gaps(all.Gaps, all.Attempts, all.Uncounted))
	n := 0
	for _, o := range list {
		if o.End != "" {
			fmt.Fprintf(w, "%s\t%s: %s\n", first(n, "ends"), printable(o.Path), o.End)
			n++
		}
	}
	return w.Flush()
}
