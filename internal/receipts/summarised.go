package receipts

import (
	"fmt"
	"strings"
)

// Summarised is what the summaries of a log stand for: refusals that have no
// record of their own.
type Summarised struct {
	Refusals uint64 `json:"refusals"`
	// Uncounted are summaries that a crash has ended: each may stand for more than
	// the refusal with which it began, and nobody knows for how many.
	Uncounted uint64 `json:"uncounted"`
}

// summing adds up what summaries stand for: of those that go on, by their id, for
// how many refusals their beginning does.
type summing map[string]uint64

// explain says what they leave open.
func (s *Summarised) explain(list *[]string) {
	if s.Refusals > 0 {
		*list = append(*list, fmt.Sprintf("when each of %s came and what it was: summaries count them instead of recording each", count(s.Refusals, "refusal", "refusals")))
	}
	if s.Uncounted > 0 {
		*list = append(*list, fmt.Sprintf("how many refusals came, within ten seconds each, after those with which %d summaries began that a crash cut short", s.Uncounted))
	}
}

// add takes a record of any kind. The end of a summary stands in the place of its
// beginning.
func (s summing) add(r *Record, to *Summarised) {
	if r.Kind != KindSummary {
		return
	}
	before := s[r.ID]
	delete(s, r.ID)
	if r.Begins() {
		s[strings.Clone(r.ID)] = r.Count // a record's texts are parts of its line
	}
	to.Refusals += max(r.Count, before) - before
	if r.Ending == OutcomeUnknown {
		to.Uncounted++
	}
}
