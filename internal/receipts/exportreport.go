package receipts

import "fmt"

// ExportReport is what VerifyExport found. Of an export that does not hold, what
// is counted is what stood before the fault, and proves nothing.
type ExportReport struct {
	Verdict    Verdict `json:"verdict"`
	Why        string  `json:"why"`
	TrustedKey string  `json:"trusted_key"` // as given

	Tenant  string `json:"tenant,omitempty"` // of every record that is shown
	Origin  string `json:"tree,omitempty"`   // the tenant's tree
	Root    string `json:"root,omitempty"`
	Size    uint64 `json:"size"`     // records of the tenant that the checkpoint covers
	Shown   uint64 `json:"records"`  // of which so many are shown
	LeftOut uint64 `json:"left_out"` // and so many are not
	Anchor  uint64 `json:"anchor"`   // size of the anchor; 0 without one
	// AnchorTime is the time of the last record that the anchor covers, where it was met
	// and that record is shown.
	AnchorTime *Instant `json:"anchor_time,omitempty"`
	// AnchorMet says that the anchor was compared. In a selection its size may
	// fall within what was left out.
	AnchorMet bool `json:"anchor_met"`
	Lines     int  `json:"lines"` // that were read

	First   *Instant          `json:"first,omitempty"` // the earliest time of those that are shown
	Last    *Instant          `json:"last,omitempty"`  // and the latest
	Kinds   map[string]uint64 `json:"kinds"`
	Unknown uint64            `json:"unknown_outcomes"`
	// InFlight are intents without an outcome, and Alone outcomes without an intent. Of
	// a selection, which may have left the other out, both are 0.
	InFlight int    `json:"intents_without_outcome"`
	Alone    uint64 `json:"outcomes_without_intent"`
	Gaps     uint64 `json:"gaps"`
	// Summarised are refusals that were counted instead of recorded one by one.
	Summarised    Summarised `json:"summarised"`
	Attempts      uint64     `json:"gap_attempts"`
	UncountedGaps uint64     `json:"uncounted_gaps,omitempty"`
	Interval      uint64     `json:"interval_records"`

	Proven    []string `json:"proven"`
	NotProven []string `json:"not_proven"`
}

func (r *ExportReport) count(rec *Record) {
	r.Shown++
	r.Kinds[string(rec.Kind)]++
	t := &Instant{rec.Time}
	if r.First == nil || t.Before(r.First.Time) {
		r.First = t
	}
	if r.Last == nil || t.After(r.Last.Time) {
		r.Last = t
	}
	if rec.Kind == KindGap {
		r.Gaps++
		r.Attempts += rec.Count
	}
	if rec.Ending == OutcomeUnknown && rec.Kind == KindGap {
		r.UncountedGaps++
	}
	if rec.Ending == OutcomeUnknown && rec.Kind == KindOutcome {
		r.Unknown++
	}
	if rec.Interval {
		r.Interval++
	}
}

// conclude tells of an export that holds what that proves.
func (r *ExportReport) conclude() {
	r.Verdict = Unproven
	switch {
	case r.LeftOut > 0:
		r.Why = fmt.Sprintf("a selection: what it shows holds; %d of the tenant's %d records are left out", r.LeftOut, r.Size)
	case r.Anchor == 0:
		r.Why = "holds as far as it goes; without an anchor nothing shows that records were not cut off its end"
	case r.Gaps > 0 || r.Interval > 0:
		r.Why = "holds up to the anchor, but the records themselves declare that some may be lacking"
	default:
		r.Verdict, r.Why = Holds, "these are all records of the tenant up to the export's checkpoint, unaltered, and nothing up to the anchor is missing"+ofThoseAlone(r.Alone)
	}
	say := func(list *[]string, format string, args ...any) { *list = append(*list, fmt.Sprintf(format, args...)) }
	if r.Shown > 0 {
		say(&r.Proven, "of tenant %s %s signed by the given key and unaltered, in their order", r.Tenant, count(r.Shown, "record is", "records are"))
	}
	if r.LeftOut == 0 {
		say(&r.Proven, "none of the %d records that the checkpoint covers is missing", r.Size)
	} else {
		say(&r.Proven, "the checkpoint covers %d records of the tenant, and %d of them are not shown", r.Size, r.LeftOut)
		say(&r.NotProven, "what the %d records say that are left out, nor by what the others were chosen: more such may be among them", r.LeftOut)
	}
	if r.AnchorMet {
		say(&r.Proven, "the first %d records are those that the anchor was signed over%s", r.Anchor, lastOf(r.AnchorTime))
	}
	switch {
	case r.Anchor == 0:
		say(&r.NotProven, "that there were no later records by the time of the export: give an anchor, a checkpoint of this tree that was kept elsewhere")
	case !r.AnchorMet:
		say(&r.NotProven, "that the first %d records are those that the anchor was signed over: its end is among what is left out", r.Anchor)
	default:
		say(&r.NotProven, "that nothing after the anchor's %d records was cut off", r.Anchor)
	}
	say(&r.NotProven, "that everybody is shown the same tree: have somebody who may read the whole log verify it with this checkpoint as its anchor")
	if r.Interval > 0 {
		say(&r.NotProven, "that a crash has lost no receipt: %d records were acknowledged before they were on disk (interval mode)", r.Interval)
	}
	explainGaps(&r.NotProven, r.Gaps, r.Attempts, r.UncountedGaps)
	r.Summarised.explain(&r.NotProven)
	explainAlone(&r.NotProven, r.Alone, false)
	explainInFlight(&r.NotProven, r.InFlight)
	explainUnknown(&r.NotProven, r.Unknown)
}
