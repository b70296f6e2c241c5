package receipts

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Verdict is what verification comes to.
type Verdict string

// The verdicts, with the exit code of `agentgw receipts verify`.
const (
	Holds     Verdict = "holds"          // 0: nothing altered, and all up to the anchor is there
	Broken    Verdict = "does not hold"  // 1
	Untrusted Verdict = "untrusted key"  // 2
	Unproven  Verdict = "not all proven" // 4: no anchor, or the log declares that it is not complete
)

// ExitCode is the verdict's exit code.
func (v Verdict) ExitCode() int {
	switch v {
	case Holds:
		return 0
	case Untrusted:
		return 2
	case Unproven:
		return 4
	}
	return 1
}

// Report is what Verify found. It is complete as far as verification came.
type Report struct {
	Verdict Verdict `json:"verdict"`
	Why     string  `json:"why"`              // the verdict in a sentence
	Damage  *Damage `json:"damage,omitempty"` // the first entry that does not hold, where it is one

	TrustedKey string `json:"trusted_key"`       // as given
	LogKey     string `json:"log_key,omitempty"` // as the first header says: shown, never trusted
	// Keys are the log's key walk: those that were in office one after the other.
	// The trusted key is one of them, and vouches for the others, unless the verdict
	// says otherwise.
	Keys []WalkedKey `json:"keys"`

	// StoppedAt, where set, is the entry at which reading stopped because of a
	// fault: nothing after it was looked at, and all that is said below is of the
	// entries before it.
	StoppedAt *uint64 `json:"stopped_at,omitempty"`

	Size    uint64 `json:"size"`    // entries that were read, and those before them that were removed
	Pruned  uint64 `json:"pruned"`  // the entries before this one were removed; 0: none were
	Root    string `json:"root"`    // of the tree over them
	Covered uint64 `json:"covered"` // entries under the newest signature of the trusted key
	Anchor  uint64 `json:"anchor"`  // size of the anchor; 0 without one
	// AnchorTime is the time of the last record that the anchor covers: until then it
	// is proven that nothing is missing. It is nil without an anchor that was met, or
	// where retention has removed that record.
	AnchorTime *Instant `json:"anchor_time,omitempty"`
	// TreeAnchor, where set, says that the anchor is of one tenant's tree.
	TreeAnchor *TreeAnchor `json:"tree_anchor,omitempty"`

	Torn int64 `json:"torn_bytes"` // of a torn tail: behind the last line that can be read

	Segments    int               `json:"segments"`
	Batches     uint64            `json:"batches"`
	Checkpoints uint64            `json:"checkpoints"` // whose signature was checked
	First       *Instant          `json:"first,omitempty"`
	Last        *Instant          `json:"last,omitempty"`
	Backwards   uint64            `json:"clock_went_back"` // entries with a time before that of the one before
	Kinds       map[string]uint64 `json:"kinds"`
	Tenants     int               `json:"tenants"`
	Repaired    uint64            `json:"repaired_tails"`
	Unknown     uint64            `json:"unknown_outcomes"`
	InFlight    int               `json:"intents_without_outcome"`
	// Alone are outcomes without an intent before them: their calls would have left no
	// trace if a crash had cut them short.
	Alone    uint64 `json:"outcomes_without_intent"`
	Gaps     uint64 `json:"gaps"`         // gap records, and the attempts
	Attempts uint64 `json:"gap_attempts"` // for which they stand
	// UncountedGaps are gap records of which nobody knows how many attempts they stand for.
	UncountedGaps uint64 `json:"uncounted_gaps,omitempty"`
	Interval      uint64 `json:"interval_records"`
	// Sealed: the last entry is a seal, under a signature and with nothing behind it.
	Sealed bool `json:"sealed"`
	// Summarised are refusals that were counted instead of recorded one by one, and
	// Counting how many summaries have not ended.
	Summarised Summarised `json:"summarised"`
	Counting   int        `json:"summaries_without_end"`

	Proven    []string `json:"proven"`
	NotProven []string `json:"not_proven"`
}

// WalkedKey is a key that was in office.
type WalkedKey struct {
	VKey string `json:"vkey"`
	From uint64 `json:"from"` // the first entry after its border; 0 of the first key
}

// TreeAnchor is a checkpoint of a tenant's tree.
type TreeAnchor struct {
	Origin string `json:"origin"`
	Size   uint64 `json:"size"`             // records of the tenant that it covers
	Tenant string `json:"tenant,omitempty"` // "" where the log has no such tree
}

// conclude turns what was seen into a verdict.
func (v *verification) conclude() {
	r := v.report
	for _, t := range []*target{v.published, v.anchor} {
		if t == nil {
			continue
		}
		if !t.met && t.Size > r.Size {
			v.blame(fmt.Errorf("the log holds %d entries, but %s covers %d: entries are missing", r.Size, t.name, t.Size))
		}
	}
	if t := v.tenant; t != nil && !t.met && !t.removed {
		v.blame(fmt.Errorf("the log has not the %d records that the anchor covers of the tree %s: records are missing", t.Size, t.Origin))
	}
	if v.unsigned != nil {
		v.blame(v.unsigned)
	}
	if v.unproven != nil {
		v.blame(v.unproven)
	}
	stranger := v.judgeKeys()
	var damage *Damage
	switch {
	case errors.Is(v.fault, errAnotherLog):
		r.Verdict, r.Why = Untrusted, v.fault.Error()
	case errors.As(v.fault, &damage):
		r.Verdict, r.Damage, r.Why = Broken, damage, damage.Error()
	case v.fault != nil:
		r.Verdict, r.Why = Broken, v.fault.Error()
	case stranger:
		r.Verdict, r.Why = Untrusted, "the anchor is signed by a key that the log names and that was never in office"
	case r.Size == 0 && v.anchor != nil:
		r.Verdict, r.Why = Broken, "the log is empty, and there is an anchor"
	case r.Size == 0:
		r.Verdict, r.Why = Unproven, "the log is empty: nothing says whether it ever held anything"
	case r.Covered == 0:
		r.Verdict, r.Why = Unproven, "no entry is under a signature yet"
	case v.removed():
		r.Verdict, r.Why = Unproven, "holds as far as it goes; what the anchor covers was removed from the log, so that it cannot be compared"
	case v.tenant != nil:
		r.Verdict, r.Why = Unproven, fmt.Sprintf("holds as far as it goes, and has all that the anchor covers, %d records of tenant %s; that none was cut off its end is shown of them alone", v.tenant.Size, r.TreeAnchor.Tenant)
	case v.anchor == nil || v.anchor.Size == 0:
		r.Verdict, r.Why = Unproven, "holds as far as it goes; without an anchor nothing shows that entries were not cut off its end"
	case r.Gaps > 0 || r.Interval > 0:
		r.Verdict, r.Why = Unproven, "holds up to the anchor, but the log itself declares that it may lack records"
	case r.Pruned > 0:
		r.Verdict, r.Why = Unproven, fmt.Sprintf("holds up to the anchor from entry %d on; retention has removed those before it", r.Pruned)
	default:
		r.Verdict, r.Why = Holds, "nothing was altered, reordered or inserted, and nothing up to the anchor is missing"+ofThoseAlone(r.Alone)
	}
	if (r.Verdict == Holds || r.Verdict == Unproven) && r.Covered > 0 && r.Size > r.Covered {
		r.Why = fmt.Sprintf("of the entries up to %d: %s; of the %d after them nothing is proven, they are not signed yet", r.Covered-1, r.Why, r.Size-r.Covered)
	}
	r.Sealed = r.Sealed && r.Verdict != Broken
	v.explain()
}

// judgeKeys holds who has signed against the key walk. It reports whether the anchor
// is by one who is not in it.
func (v *verification) judgeKeys() (stranger bool) {
	r := v.report
	walk := office{keys: v.office}
	for _, k := range v.office {
		r.Keys = append(r.Keys, WalkedKey{k.vkey, k.from})
	}
	if len(v.office) > 0 && !walk.has(v.trusted.vkey) {
		v.blame(errors.New("the given key has signed here, and the log was never handed over to it"))
	}
	if p := v.published; p != nil && p.by.vkey != v.trusted.vkey && !walk.has(p.by.vkey) {
		v.blame(fmt.Errorf("%s is signed by a key that the log names and that was never in office", p.name))
	} else if p != nil && isBorder(p.signed) && !slices.ContainsFunc(v.office, func(k officeKey) bool { return bytes.Equal(k.border, p.signed) }) {
		v.blame(fmt.Errorf("%s has two signatures, and is none with which this log was handed over", p.name))
	}
	by := v.anchorBy()
	return by != nil && by.vkey != v.trusted.vkey && !walk.has(by.vkey)
}

func (v *verification) anchorBy() *officeKey {
	switch {
	case v.anchor != nil:
		return &v.anchor.by
	case v.tenant != nil:
		return &v.tenant.by
	}
	return nil
}

// removed reports whether there is an anchor and it cannot be met any more.
func (v *verification) removed() bool {
	return v.anchor != nil && v.anchor.Size > 0 && v.anchor.removed || v.tenant != nil && v.tenant.removed
}

// explain lists in words what is proven and what is not.
func (v *verification) explain() {
	r := v.report
	say := func(list *[]string, format string, args ...any) { *list = append(*list, fmt.Sprintf(format, args...)) }
	if r.Verdict == Holds || r.Verdict == Unproven {
		if r.Covered > 0 {
			say(&r.Proven, "entries %d to %d were signed by the given key and are unaltered, in their order", r.Pruned, r.Covered-1)
		}
		if r.Pruned > 0 {
			say(&r.Proven, "entry %d says that the %d entries before entry %d were removed, and what their hashes come to", v.prunedBy-1, r.Pruned, r.Pruned)
		}
		if v.anchor != nil && r.Size > 0 && r.Pruned > 0 && !v.anchor.removed {
			say(&r.Proven, "of the entries that the anchor covers none after the removed is missing%s, and those had the hashes that it covers", until(r.AnchorTime))
		} else if v.anchor != nil && r.Size > 0 && r.Pruned == 0 {
			say(&r.Proven, "none of the %d entries that the anchor covers is missing%s", r.Anchor, until(r.AnchorTime))
		}
		if v.tenant != nil && !v.tenant.removed {
			say(&r.Proven, "none of the first %d records of tenant %s is missing%s, and they are those that it was shown", v.tenant.Size, r.TreeAnchor.Tenant, until(r.AnchorTime))
		}
	}
	if r.StoppedAt != nil {
		// What else the entries before it leave open would sound as if it
		// explained the fault.
		say(&r.NotProven, "anything of the entries from %d on: reading stopped at entry %d", r.Covered, *r.StoppedAt)
		return
	}
	if r.Pruned > 0 {
		say(&r.NotProven, "what the %d removed entries said: retention has removed them (pruned < %d)", r.Pruned, r.Pruned)
	}
	if r.Size > r.Covered && r.Verdict != Unproven && r.Verdict != Holds {
		say(&r.NotProven, "entries %d to %d: they are not under a signature", r.Covered, r.Size-1)
	} else if r.Size > r.Covered {
		say(&r.NotProven, "entries %d to %d are not under a signature yet (a running gateway, or one that was killed)", r.Covered, r.Size-1)
	}
	if v.cutShort && r.Verdict == Broken {
		say(&r.NotProven, "what the log went on with: it ends in the middle of a write")
	} else if v.cutShort && r.Torn > 0 {
		say(&r.NotProven, "what a torn tail of %d bytes was to be, which a crash leaves; the gateway's next start repairs that", r.Torn)
	} else if v.cutShort {
		say(&r.NotProven, "the log ends in the middle of a write; the gateway's next start repairs that")
	}
	if v.anchor == nil && v.tenant != nil {
		say(&r.NotProven, "that the end of the log was not cut off, but for those records: give an anchor that is a checkpoint of the log")
	} else if v.anchor == nil {
		say(&r.NotProven, "that the end of the log was not cut off: give an anchor, a checkpoint kept elsewhere")
	} else {
		// Also where nothing stands behind it: that is what a log would look like
		// that was cut back to its anchor.
		say(&r.NotProven, "that nothing after the anchor's %d entries%s was cut off", r.Anchor, lastOf(r.AnchorTime))
	}
	if r.Interval > 0 {
		say(&r.NotProven, "that a crash has lost no receipt: %d records were acknowledged before they were on disk (interval mode)", r.Interval)
	}
	explainGaps(&r.NotProven, r.Gaps, r.Attempts, r.UncountedGaps)
	r.Summarised.explain(&r.NotProven)
	if r.Counting > 0 {
		say(&r.NotProven, "how many refusals more than those %s for: no end of it is in the log yet", count(r.Counting, "summary stands", "summaries stand"))
	}
	explainAlone(&r.NotProven, r.Alone, r.Pruned > 0)
	explainInFlight(&r.NotProven, r.InFlight)
	explainUnknown(&r.NotProven, r.Unknown)
}

// explainGaps says what gap records leave open.
func explainGaps(list *[]string, gaps, attempts, uncounted uint64) {
	if gaps > 0 {
		*list = append(*list, fmt.Sprintf("what was asked and done in %s answered without a record, of which %s",
			count(attempts, "attempt", "attempts"), count(gaps, "gap tells", "gaps tell")))
	}
	if uncounted > 0 {
		*list = append(*list, fmt.Sprintf("how many attempts exactly were answered without a record: %s declared after a crash, by what was known before it",
			count(uncounted, "of the gaps was", "of the gaps were")))
	}
}

// explainAlone says what calls leave open that have no intent; pruned is whether some
// of these may have been removed.
func explainAlone(list *[]string, calls uint64, pruned bool) {
	if calls == 0 {
		return
	}
	why := "AGENTGATE_RECEIPT_INTENT=writes or never, or no room for it"
	if pruned {
		why += ", or retention has removed it"
	}
	*list = append(*list, fmt.Sprintf("that there were no calls of which nothing is written: %s no intent (%s), and a crash leaves no trace of such a call",
		count(calls, "outcome has", "outcomes have"), why))
}

// ofThoseAlone says the same in short, behind a verdict that would sound as if every
// call had to be there.
func ofThoseAlone(calls uint64) string {
	if calls == 0 {
		return ""
	}
	return fmt.Sprintf("; but %s no intent, and of calls like that nothing may have been written", count(calls, "outcome has", "outcomes have"))
}

// explainInFlight says what calls leave open that have not ended.
func explainInFlight(list *[]string, calls int) {
	if calls > 0 {
		*list = append(*list, fmt.Sprintf("how %s: an intent is in the log, and no outcome yet (the call runs, or the gateway was killed)",
			count(calls, "call in flight ends", "calls in flight end")))
	}
}

// explainUnknown says what the end of calls that a crash cut short leaves open.
func explainUnknown(list *[]string, calls uint64) {
	if calls > 0 {
		*list = append(*list, fmt.Sprintf("how %s (outcome_unknown: cut short by a crash; the service may have acted)", count(calls, "call ended", "calls ended")))
	}
}

// until and lastOf say for what time an anchor speaks, or nothing where that is not known.
func until(last *Instant) string { return timed(", up to ", last) }

func lastOf(last *Instant) string { return timed(", the last of ", last) }

func timed(what string, t *Instant) string {
	if t == nil {
		return ""
	}
	return what + t.Format(time.RFC3339)
}
