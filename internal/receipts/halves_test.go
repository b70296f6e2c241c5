package receipts_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

// halves is a log in which of some calls there is an intent alone, and of some an
// outcome alone.
func halves(t *testing.T) (dir string, l *receipts.Log) {
	t.Helper()
	dir = t.TempDir()
	l = openLog(t, dir, func(o *receipts.Options) { o.Clock = clockwork.NewFakeClockAt(noon.Truncate(time.Second)) })
	mustAppend(t, l, intent("a"), outcome("a"), outcome("alone"), intent("runs"), of("tenant:b", "alone too"), outcome("alone as well"), intent("b"), outcome("b"))
	if err := l.Close(); err != nil { // an export goes as far as a checkpoint in the file, which is a moment late
		t.Fatal(err)
	}
	return dir, l
}

// TestOutcomesWithoutAnIntentAreTold: whoever verifies a log, or all of a tenant's
// records, is told of how many calls there is an outcome alone, and that a call of
// that kind may have left nothing; in the verdict too, which would otherwise sound as
// if every call were there. So it is with calls that have an intent alone. Of a
// selection nothing of that is said.
func TestOutcomesWithoutAnIntentAreTold(t *testing.T) {
	dir, l := halves(t)
	r := verdict(t, dir, l.VerifierKey(), l.Checkpoint())
	told := strings.Join(r.NotProven, "\n")
	if r.Verdict != receipts.Holds || r.Alone != 3 || r.InFlight != 1 || !strings.Contains(r.Why, "but 3 outcomes have no intent") ||
		!strings.Contains(told, "3 outcomes have no intent (AGENTGATE_RECEIPT_INTENT=writes or never") || strings.Contains(told, "retention") || !strings.Contains(told, "how 1 call in flight ends") {
		t.Errorf("%+v", r)
	}
	text, _ := export(t, dir, "tenant:acme", nil)
	e := verifyExport(t, text, l.VerifierKey(), checkpointOf(t, text))
	told = strings.Join(e.NotProven, "\n")
	if e.Verdict != receipts.Holds || e.Alone != 2 || e.InFlight != 1 || !strings.Contains(e.Why, "but 2 outcomes have no intent") ||
		!strings.Contains(told, "2 outcomes have no intent") || !strings.Contains(told, "how 1 call in flight ends") {
		t.Errorf("%+v", e)
	}
	text, _ = export(t, dir, "tenant:acme", func(r *receipts.Record) bool { return r.Kind == receipts.KindOutcome })
	if e := verifyExport(t, text, l.VerifierKey(), nil); e.Alone != 0 || e.InFlight != 0 || strings.Contains(strings.Join(e.NotProven, "\n"), "no intent") {
		t.Errorf("a selection: %+v", e)
	}
	whole := t.TempDir()
	l = openLog(t, whole)
	mustAppend(t, l, intent("a"), outcome("a"))
	if r := verdict(t, whole, l.VerifierKey(), l.Checkpoint()); r.Alone != 0 || strings.Contains(r.Why+strings.Join(r.NotProven, "\n"), "no intent") {
		t.Errorf("where each has an intent: %+v", r)
	}
}

// TestIntentsThatWereRemovedAreNotMissed: where retention has removed an intent, the
// outcome behind the cut stands alone, and the report does not blame a setting alone.
func TestIntentsThatWereRemovedAreNotMissed(t *testing.T) {
	dir := prunedLog(t)
	r := verdict(t, dir, keyOf(t, dir), nil)
	told := strings.Join(r.NotProven, "\n")
	if r.Alone == 0 || !strings.Contains(told, "no intent (AGENTGATE_RECEIPT_INTENT=writes or never, or no room for it, or retention has removed it)") {
		t.Errorf("%d: %s", r.Alone, told)
	}
}

// TestTimesInReportsAreSpelledAsInRecords: with six digits of a second, zeros too.
func TestTimesInReportsAreSpelledAsInRecords(t *testing.T) {
	dir, l := halves(t)
	text, _ := export(t, dir, "tenant:acme", nil)
	for _, r := range []any{verdict(t, dir, l.VerifierKey(), l.Checkpoint()), verifyExport(t, text, l.VerifierKey(), checkpointOf(t, text))} {
		var told struct {
			First, Last string
			AnchorTime  string `json:"anchor_time"`
		}
		b, err := json.Marshal(r)
		if err == nil {
			err = json.Unmarshal(b, &told)
		}
		if want := "2026-05-04T12:00:00.000000Z"; err != nil || told.First != want || told.Last != want || told.AnchorTime != want {
			t.Errorf("%v: %s", err, b)
		}
	}
}
