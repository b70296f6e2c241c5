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

	begun map[string]uint64 // of those that go on, for how many their beginning stands
}

// explain says what they leave open.
func (s *Summarised) explain(list *[]string) {
	if s.Uncounted > 0 {
		*list = append(*list, fmt.Sprintf("how many refusals came, within ten seconds each, after those with which %d summaries began that a crash cut short", s.Uncounted))
	}
}

// add takes a record of any kind. The end of a summary stands in the place of its
// beginning.
func (s *Summarised) add(r *Record) {
	if r.Kind != KindSummary {
		return
	}
	before := s.begun[r.ID]
	delete(s.begun, r.ID)
	if r.begins() {
		if s.begun == nil {
			s.begun = make(map[string]uint64)
		}
		s.begun[strings.Clone(r.ID)] = r.Count // a record's texts are parts of its line
	}
	s.Refusals += max(r.Count, before) - before
	if r.Ending == OutcomeUnknown {
		s.Uncounted++
	}
}
