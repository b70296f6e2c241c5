package receipts

import (
	"strings"
	"testing"
)

// TestExportReportSaysWhatIsLeftOpen: each thing that an export leaves open has its line.
func TestExportReportSaysWhatIsLeftOpen(t *testing.T) {
	r := &ExportReport{Size: 9, Shown: 9, Anchor: 9, AnchorMet: true, Interval: 2, Unknown: 3, Gaps: 1, Attempts: 5, UncountedGaps: 1,
		Summarised: Summarised{Refusals: 7, Uncounted: 1}}
	r.conclude()
	told := strings.Join(r.NotProven, "\n")
	for _, want := range []string{"2 records were acknowledged before they were on disk", "how 3 calls ended (outcome_unknown", "5 attempts answered without a record",
		"how many attempts exactly", "when each of 7 refusals came", "1 summaries began that a crash cut short", "nothing after the anchor's 9 records"} {
		if !strings.Contains(told, want) {
			t.Errorf("%q is not in\n%s", want, told)
		}
	}
	if r.Verdict != Unproven {
		t.Errorf("%s: %s", r.Verdict, r.Why)
	}
}
