package receipts_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/receipts"
)

// floodBooks are what a log has of refusals.
type floodBooks struct {
	own, begun, ended int
	counted           uint64 // in ends of summaries, and in beginnings without one
	bytes             int64
	ends              []*receipts.Record
}

func floodBooksOf(t testing.TB, dir string) (b floodBooks) {
	t.Helper()
	open := map[string]uint64{}
	if err := receipts.Scan(filepath.Join(dir, "receipts"), func(s receipts.Stored) error {
		r := s.Record
		switch {
		case r.Kind == receipts.KindRefusal:
			b.own++
		case r.Kind == receipts.KindSummary && r.Ending == "":
			b.begun++
			open[r.ID] = r.Count
		case r.Kind == receipts.KindSummary:
			b.ended++
			b.counted += r.Count
			delete(open, r.ID)
			b.ends = append(b.ends, r)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, n := range open {
		b.counted += n
	}
	for _, name := range segments(t, dir) {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		b.bytes += info.Size()
	}
	return b
}

func (b floodBooks) total() int { return b.own + int(b.counted) }

// refused is a refusal of a key.
func refused(key string) *receipts.Record {
	return &receipts.Record{Kind: receipts.KindRefusal, Tenant: "key:" + key, Caller: "key:" + key, Key: key, Decision: receipts.Refused,
		Code: "rate_limited", Limit: "key", Status: 429, RequestID: "r", ClientAddr: "192.0.2.1"}
}

// stranger is one of nobody's.
func stranger() *receipts.Record {
	return &receipts.Record{Kind: receipts.KindRefusal, Decision: receipts.Refused, Code: "unauthenticated", Status: 401, RequestID: "r", ClientAddr: "192.0.2.1"}
}

// gush opens a log for floods, in a bubble. Nobody waits for its disk.
func gush(t testing.TB, dir string, change ...func(*receipts.Options)) (*receipts.Log, bubbleClock) {
	t.Helper()
	clock := newBubbleClock()
	l := openLog(t, dir, append([]func(*receipts.Options){func(o *receipts.Options) {
		o.Clock, o.Sync = clock, receipts.SyncInterval
		receipts.SetNoSync(o)
	}}, change...)...)
	return l, clock
}

func mustRefuse(t testing.TB, l *receipts.Log, r *receipts.Record, source string) receipts.Entry {
	t.Helper()
	e, err := l.Refuse(r, source)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestAThousandRefusalsHaveTheirOwnRecords of one key and of one address, and what
// comes then in the minute is counted: exactly, by what it has in common, where
// its tenant can see it; the agent is told the summary, which is on disk.
func TestAThousandRefusalsHaveTheirOwnRecords(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		l, clock := gush(t, dir)
		ids := map[string]int{}
		for range 1000 {
			for _, r := range []*receipts.Record{refused("a"), stranger()} {
				mustRefuse(t, l, r, "192.0.2.1")
				ids[r.ID]++
			}
		}
		if len(ids) != 2000 {
			t.Fatalf("%d receipts for 2000 refusals", len(ids))
		}
		var summary, other, theirs *receipts.Record
		for range 500 {
			summary = refused("a")
			e := mustRefuse(t, l, summary, "")
			if e.Tree == "" || e.Leaf == [32]byte{} {
				t.Fatalf("%+v: no place in the tenant's tree", e)
			}
			ids[summary.ID]++
		}
		clock.Advance(time.Second)
		for range 7 {
			other = refused("a")
			other.Code, other.Limit, other.Status = "scope_denied", "", 403
			mustRefuse(t, l, other, "")
			theirs = stranger()
			mustRefuse(t, l, theirs, "192.0.2.1")
			mustRefuse(t, l, refused("b"), "") // whom nobody else's flood concerns
			mustRefuse(t, l, stranger(), "198.51.100.7")
		}
		if len(ids) != 2001 || ids[summary.ID] != 500 || summary.ID == other.ID || theirs.ID == other.ID {
			t.Errorf("%d receipts, %d of them the summary's", len(ids), ids[summary.ID])
		}
		if n := floodBooksOf(t, dir).ended; n != 0 {
			t.Errorf("%d ended within ten seconds", n)
		}
		clock.Advance(10 * time.Second)
		clock.Advance(50 * time.Millisecond)
		if n := floodBooksOf(t, dir).ended; n != 3 {
			t.Errorf("%d ended after ten seconds, want 3", n)
		}
		found, err := l.Find(summary.ID, summary.Key)
		if err != nil || len(found) != 2 {
			t.Fatalf("%s %v", found, err)
		}
		// The next minute of the same: records of their own.
		clock.Advance(50 * time.Second)
		again := refused("a")
		mustRefuse(t, l, again, "")
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		b := floodBooksOf(t, dir)
		if b.own != 2000+14+1 || b.begun != 3 || b.counted != 514 {
			t.Errorf("%+v", b)
		}
		for _, r := range b.ends {
			want := *refused("a")
			want.ID, want.Count = summary.ID, 500
			switch r.ID {
			case other.ID:
				want.ID, want.Count, want.Code, want.Limit, want.Status = other.ID, 7, "scope_denied", "", 403
			case theirs.ID:
				want = *stranger()
				want.ID, want.Count = theirs.ID, 7
			}
			if r.Key != want.Key || r.Tenant != want.Tenant || r.Caller != want.Caller || r.Code != want.Code || r.Limit != want.Limit || r.Status != want.Status || r.ID != want.ID ||
				r.Count != want.Count || r.Reason != "flood" || r.Ending != receipts.Complete || r.Decision != receipts.Refused || (r.ClientAddr == "") != (r.Key != "") || r.RequestID != "" ||
				r.From.Before(noon.Truncate(time.Microsecond)) || r.To.Before(r.From) || r.To.Sub(r.From) > 10*time.Second {
				t.Errorf("%+v", r)
			}
		}
		page, err := receipts.List(t.Context(), filepath.Join(dir, "receipts"), receipts.Query{Key: "a", Why: "scope_denied"})
		if err != nil || len(page.Receipts) != 1 || page.Receipts[0].Record.Count != 7 {
			t.Errorf("listed: %+v %v", page, err) // its beginning is not listed beside its end
		}
		if r := verdict(t, dir, l.VerifierKey(), nil); r.Summarised.Refusals != 514 || r.Summarised.Uncounted != 0 || r.Counting != 0 || r.Unknown != 0 || r.InFlight != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// TestBooksOfAFlood: refusals that were answered are those in the log, to the last,
// while many refuse at once, summaries begin and end, and the log is closed and
// opened in the middle of it.
func TestBooksOfAFlood(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		var answered, refusedByLog int64
		rounds, each := 3, 700
		if drill() {
			rounds, each = 10, 5000
		}
		for range rounds {
			l, _ := gush(t, dir)
			var wg sync.WaitGroup
			var ok, no atomic.Int64
			for w := range 16 {
				wg.Go(func() {
					for i := range each {
						r, source := refused(fmt.Sprint("k", w%3)), ""
						if w%4 == 0 {
							r, source = stranger(), "192.0.2.1"
						}
						e, err := l.Refuse(r, source)
						switch {
						case err == nil && r.ID != "" && e.Leaf != [32]byte{}:
							ok.Add(1)
						case errors.Is(err, receipts.ErrLate): // taken, and by now on disk
							ok.Add(1)
						case errors.Is(err, receipts.ErrUnavailable):
							no.Add(1)
						default:
							t.Error(err)
						}
						time.Sleep(17 * time.Second / time.Duration(each)) // all at once, again and again
						if w == 0 && i == each*3/4 {
							go l.Close()
						}
					}
				})
			}
			wg.Wait()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			answered += ok.Load()
			refusedByLog += no.Load()
		}
		b := floodBooksOf(t, dir)
		if int64(b.total()) != answered || b.begun != b.ended || b.counted == 0 || refusedByLog == 0 {
			t.Errorf("%d answered, %d refused by a log that was closed; in the log: %+v", answered, refusedByLog, b)
		}
		if r := verdict(t, dir, keyOf(t, dir), nil); r.Verdict != receipts.Unproven || r.Summarised.Refusals != b.counted {
			t.Errorf("%s: %s; %+v", r.Verdict, r.Why, r.Summarised)
		}
	})
}

// TestAFloodTakesLittleOfTheDisk: a million refusals within minutes, of one key, of
// one address and of ever new addresses.
func TestAFloodTakesLittleOfTheDisk(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		million, steps := 30_000, 1000 // of 100 ms
		if drill() {
			million, steps = 1_000_000, 6000
		}
		for _, c := range []struct {
			name   string
			refuse func(i int) (*receipts.Record, string)
			own    func(minutes int) int // at most
			like   int                   // summaries at a time
		}{
			{"one key", func(int) (*receipts.Record, string) { return refused("a"), "" }, func(m int) int { return 1000 * (m + 1) }, 1},
			{"one address", func(int) (*receipts.Record, string) { return stranger(), "192.0.2.1" }, func(m int) int { return 1000 * (m + 1) }, 1},
			{"new addresses", func(i int) (*receipts.Record, string) {
				return stranger(), fmt.Sprintf("2001:db8:%x:%x::/64", i>>16, i&0xffff)
			}, func(m int) int { return 20_000 + 1000*(m+1) }, 65},
		} {
			dir := t.TempDir()
			l, clock := gush(t, dir)
			for i := range million {
				r, source := c.refuse(i)
				mustRefuse(t, l, r, source)
				if i%(million/steps) == 0 {
					clock.Advance(100 * time.Millisecond)
				}
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			b := floodBooksOf(t, dir)
			took := clock.Since(noon)
			own, ended := c.own(int(took.Minutes())), c.like*int(took/(10*time.Second)+1)
			// 600 bytes a record are more than any takes with its share of signatures.
			most := int64(own+2*ended+200) * 600
			if b.total() != million || b.own > own || b.ended > ended || b.bytes > most {
				t.Errorf("%s: %d of %d in the books: %d records, %d summaries, %d bytes; want at most %d, %d and %d", c.name, b.total(), million, b.own, b.ended, b.bytes, own, ended, most)
			}
			t.Logf("%s: %d records, %d summaries, %d bytes", c.name, b.own, b.ended, b.bytes)
		}
	})
}

// TestAKilledFloodSaysSo: what a kill takes is the number, and the next start says
// of which summaries.
func TestAKilledFloodSaysSo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		l, _ := gush(t, dir, func(o *receipts.Options) { o.Sync = receipts.SyncAlways })
		flood(t, l, 1000)
		var summary string
		for range 50 {
			r := stranger()
			mustRefuse(t, l, r, "192.0.2.1")
			summary = r.ID
		}
		eventually(t, "its files are whole", func() bool { return bytes.Equal(newest(t, dir), l.Checkpoint()) })
		killed := copyLog(t, dir) // as a kill -9 leaves it
		if r := verdict(t, killed, l.VerifierKey(), nil); r.Counting != 1 || r.Summarised.Refusals != 1 || r.InFlight != 0 {
			t.Errorf("before the start: %+v", r)
		}
		again, err := reopen(killed)
		if err != nil {
			t.Fatal(err)
		}
		again.Close()
		again, err = reopen(killed) // which has nothing to add
		if err != nil {
			t.Fatal(err)
		}
		again.Close()
		b := floodBooksOf(t, killed)
		if len(b.ends) != 1 || b.ends[0].ID != summary || b.ends[0].Ending != receipts.OutcomeUnknown || b.ends[0].Count != 1 || b.ends[0].Reason != "flood" {
			t.Errorf("%+v", b)
		}
		r := verdict(t, killed, l.VerifierKey(), again.Checkpoint())
		if r.Verdict != receipts.Holds || r.Counting != 0 || r.Summarised.Uncounted != 1 || r.Unknown != 0 || !strings.Contains(strings.Join(r.NotProven, "\n"), "1 summaries began that a crash cut short") {
			t.Errorf("%s (%s): %+v %q", r.Verdict, r.Why, r.Summarised, r.NotProven)
		}
	})
}

// flood refuses so many of one address at once.
func flood(t testing.TB, l *receipts.Log, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for range n / 10 {
				mustRefuse(t, l, stranger(), "192.0.2.1")
			}
		})
	}
	wg.Wait()
}

// TestCountedOnlyOnceTheSummaryIsOnDisk: those who are counted wait for its
// beginning, and where that fails none of them is told of it.
func TestCountedOnlyOnceTheSummaryIsOnDisk(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		var broken atomic.Bool
		hold, syncing := make(chan struct{}), make(chan struct{}, 64)
		l, _ := gush(t, dir, func(o *receipts.Options) {
			o.Sync = receipts.SyncAlways
			receipts.SetDisk(o, nil, func() error {
				if broken.Load() {
					syncing <- struct{}{}
					<-hold
					return errDisk
				}
				return nil
			})
		})
		flood(t, l, 1000)
		broken.Store(true)
		var wg sync.WaitGroup
		var answered atomic.Int64
		for range 20 {
			wg.Go(func() {
				if _, err := l.Refuse(stranger(), "192.0.2.1"); !errors.Is(err, receipts.ErrUnavailable) {
					t.Errorf("counted: %v", err)
				}
				answered.Add(1)
			})
		}
		<-syncing
		if n := answered.Load(); n != 0 {
			t.Errorf("%d were answered before the summary was on disk", n)
		}
		close(hold)
		wg.Wait()
		if err := l.Close(); !errors.Is(err, errDisk) {
			t.Errorf("close: %v", err)
		}
	})
}

// TestNamesOfStrangersAreNoSources: of whoever has no key the name is his own choice, and
// another with each refusal neither has records of its own nor a summary.
func TestNamesOfStrangersAreNoSources(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		l, _ := gush(t, dir)
		for i := range 1200 {
			r := stranger()
			r.Caller, r.Code, r.Limit, r.Status = fmt.Sprintf("open:%032x", i), "rate_limited", "caller", 429
			mustRefuse(t, l, r, "192.0.2.1")
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if b := floodBooksOf(t, dir); b.own != 1000 || b.ended != 1 || b.counted != 200 || b.ends[0].Caller != "" || b.ends[0].ClientAddr != "192.0.2.1" {
			t.Errorf("%d of their own, %d summaries of %d: %+v", b.own, b.ended, b.counted, b.ends)
		}
	})
}
