package receipts

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestTimeIsAsTheLayoutSays: what is written by hand is what time reads.
func TestTimeIsAsTheLayoutSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(-62_135_596_800-86_400*366, 253_402_300_799).Draw(t, "second"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanosecond"))
		if at.UTC().Year() < 0 {
			t.Skip()
		}
		if got, want := string(appendTime(nil, at)), at.UTC().Format(timeLayout); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	})
	for _, at := range []time.Time{time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if got := string(appendTime(nil, at)); got != "1970-01-01T00:00:00.000000Z" {
			t.Errorf("%v: %s", at, got)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	r := &Record{Kind: KindOutcome, ID: NewID(), Time: time.Unix(1_700_000_000, 123_456_789), Tenant: "human:user-42", Caller: "key:ci-bot", Key: "ci-bot",
		Service: "github", Action: "list_issues", Method: "GET", Decision: Allowed, Status: 200, Ending: Complete, Seq: 12345, Replica: "gw-1"}
	b.ReportAllocs()
	var line []byte
	for b.Loop() {
		line = appendRecord(line[:0], r)
	}
}
