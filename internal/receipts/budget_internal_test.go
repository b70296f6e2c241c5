package receipts

import (
	"fmt"
	"testing"
	"time"
)

var midnight = time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)

// TestOwnRecordsOfOneSource: a thousand in the minute that begins with the first,
// and the next minute begins with the next.
func TestOwnRecordsOfOneSource(t *testing.T) {
	w := new(window)
	for _, c := range []struct {
		at   time.Duration
		want int // of 1,500 refusals then
	}{
		{0, 1000}, {0, 0}, {30 * time.Second, 0}, {time.Minute - 1, 0}, {time.Minute, 1000},
		{2*time.Minute - 1, 0}, {10 * time.Minute, 1000}, {9 * time.Minute, 0}, {11 * time.Minute, 1000},
	} {
		got := 0
		for range 1500 {
			if w.take(midnight.Add(c.at)) {
				got++
			}
		}
		if got != c.want {
			t.Errorf("after %v: %d of their own, want %d", c.at, got, c.want)
		}
	}
	// Spread over the minute they are as many.
	w, got := new(window), 0
	for i := range 6000 {
		if w.take(midnight.Add(time.Duration(i) * 10 * time.Millisecond)) {
			got++
		}
	}
	if got != 1000 {
		t.Errorf("spread over a minute: %d", got)
	}
}

// TestAllowanceOfAll: so many at once, and then one each time it says, whatever the
// clock does.
func TestAllowanceOfAll(t *testing.T) {
	a := allowance{burst: 5, each: time.Second}
	for _, c := range []struct {
		at   time.Duration
		want int // of 9 tries then
	}{
		{0, 5}, {time.Second - 1, 0}, {time.Second, 1}, {4 * time.Second, 3}, {3 * time.Second, 0}, {time.Hour, 5}, {0, 0}, {time.Hour, 0}, {time.Hour + 2*time.Second, 2},
	} {
		got := 0
		for range 9 {
			if a.take(midnight.Add(c.at)) {
				got++
			}
		}
		if got != c.want {
			t.Errorf("after %v: %d, want %d", c.at, got, c.want)
		}
	}
}

// TestBudgetIsBounded: however many addresses there are, they get no more records
// than all of them may have, and no more memory than those that are remembered take.
func TestBudgetIsBounded(t *testing.T) {
	b := newBudget(strangersAllowance)
	got := 0
	for i := range 50_000 { // 700 a minute
		if b.take(fmt.Sprint(i), midnight.Add(time.Duration(i)*(24*time.Hour/1_000_000))) {
			got++
		}
		if b.sources.Len() > trackedSources {
			t.Fatalf("%d sources are remembered", b.sources.Len())
		}
	}
	if got != 50_000 {
		t.Errorf("%d of those who come one by one have a record", got)
	}
	at := midnight.Add(25 * time.Hour)
	for got = 0; b.take(fmt.Sprint("n", got), at); got++ {
	}
	if got != 20_000 {
		t.Errorf("%d at once", got)
	}
	got = 0
	for i := range 50_000 { // 10,000 a minute
		if b.take(fmt.Sprint("m", i), at.Add(time.Duration(i)*(time.Minute/10_000))) {
			got++
		}
	}
	if got < 4_990 || got > 5_000 {
		t.Errorf("%d in five minutes of a flood, want 1,000 a minute", got)
	}
}
