package receipts_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

// books are an agent's side of many attempts at once, each made as a gateway makes it.
type books struct {
	answers  atomic.Int64 // in all
	mu       sync.Mutex
	durable  map[string]bool // receipts that an answer named
	mayBe    map[string]bool // that are in the log, though no answer named them
	unknown  atomic.Int64    // attempts of which nothing is in the log
	upstream atomic.Int64
}

// attempt is one call: refused, or with an intent and an outcome, or with an
// outcome alone; it ends as the log allows, and whoever is refuses is told so.
func (b *books) attempt(l *receipts.Log, id string, refuse bool, r *rand.Rand) {
	defer b.answers.Add(1)
	tenant := fmt.Sprint("tenant:", r.IntN(5))
	rec := &receipts.Record{ID: id, Tenant: tenant, Key: "k", Service: "s"}
	wrote, late, failed := false, false, false
	write := func() bool {
		rec.Time = time.Time{}
		_, err := l.Append(rec)
		switch {
		case errors.Is(err, receipts.ErrLate):
			late = true
		case err != nil:
			failed = true
		default:
			wrote = true
		}
		return err == nil
	}
	switch r.IntN(4) {
	case 0:
		rec.Kind, rec.Decision, rec.Code = receipts.KindRefusal, receipts.Refused, "rate_limited"
		write()
	case 1:
		ok := l.Promise(rec) == nil
		failed = !ok
		if ok || !refuse {
			b.upstream.Add(1)
			rec.Kind, rec.Decision, rec.Ending = receipts.KindOutcome, receipts.Allowed, receipts.Complete
			write()
		}
	default:
		rec.Kind, rec.Decision = receipts.KindIntent, receipts.Allowed
		ok := write()
		rec.Kind, rec.Ending = receipts.KindOutcome, receipts.Complete
		if ok || !refuse {
			b.upstream.Add(1)
			write()
		} else if late { // it was refused, but its intent will be there
			rec.Code = "receipt_unavailable"
			write()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case wrote:
		b.durable[id] = true
	case late:
		b.mayBe[id] = true
	case failed:
		b.unknown.Add(1)
		l.Miss(rec, refuse)
	}
}

// TestTheBooksMatch: while the disk becomes full, hangs, and is itself again, over
// and over, each answer has its receipt or is counted, in both modes, and no receipt
// is there that no answer had.
func TestTheBooksMatch(t *testing.T) {
	for _, refuse := range []bool{true, false} {
		for _, reserves := range []bool{true, false} {
			t.Run(fmt.Sprintf("refuse=%v reserves=%v", refuse, reserves), func(t *testing.T) {
				matchBooks(t, refuse, reserves)
			})
		}
	}
}

func matchBooks(t *testing.T, refuse, reserves bool) {
	dir, clock := t.TempDir(), clockwork.NewFakeClockAt(noon)
	d := receipts.NewSmallDisk(24 << 20)
	d.Reserves = reserves
	l := openLog(t, dir, func(o *receipts.Options) { o.Clock = clock; d.On(o); receipts.SetSegmentSize(o, 300<<10) })
	b := &books{durable: map[string]bool{}, mayBe: map[string]bool{}}
	each, stop := 150, make(chan struct{})
	if drill() {
		each = 3000
	}
	var callers, disk sync.WaitGroup
	disk.Go(func() { // the disk's ups and downs, and time
		r := rand.New(rand.NewPCG(1, 2))
		for {
			select {
			case <-stop:
				return
			default:
			}
			if r.IntN(3) == 0 {
				goOn := d.Hold()
				for range 30 {
					clock.Advance(100 * time.Millisecond)
					time.Sleep(100 * time.Microsecond)
				}
				goOn()
			} else {
				left := d.Left()
				d.Fill(int64(r.IntN(20)) << 10)
				for range 10 {
					clock.Advance(100 * time.Millisecond)
					time.Sleep(100 * time.Microsecond)
				}
				d.Free(max(0, left-d.Left()))
			}
			for range 30 {
				clock.Advance(100 * time.Millisecond)
				time.Sleep(100 * time.Microsecond)
			}
		}
	})
	for w := range 32 {
		callers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 9))
			for i := range each {
				b.attempt(l, fmt.Sprintf("%d-%d", w, i), refuse, r)
				if r.IntN(4) == 0 {
					time.Sleep(100 * time.Microsecond)
				}
			}
		})
	}
	callers.Wait()
	close(stop)
	disk.Wait()
	healthy(t, l, clock)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	there, counted, told := map[string]bool{}, uint64(0), 0
	err := receipts.Scan(filepath.Join(dir, "receipts"), func(s receipts.Stored) error {
		switch s.Record.Kind {
		case receipts.KindGap, receipts.KindSummary:
			counted += s.Record.Count
			told++
			if refuse != (s.Record.Kind == receipts.KindSummary) {
				t.Errorf("a %s", s.Record.Kind)
			}
		case receipts.KindIntent, receipts.KindOutcome, receipts.KindRefusal:
			there[s.Record.ID] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := uint64(len(there))+counted, uint64(b.answers.Load()); got != want || counted != uint64(b.unknown.Load()) {
		t.Errorf("%d receipts and %d attempts counted, of %d answers, %d of them without a receipt", len(there), counted, want, b.unknown.Load())
	}
	for id := range b.durable {
		if !there[id] {
			t.Errorf("%s was answered with a receipt that is not there", id)
		}
	}
	for id := range there {
		if !b.durable[id] && !b.mayBe[id] {
			t.Errorf("%s is there, and no answer had it", id)
		}
	}
	if counted == 0 || len(b.durable) == 0 || len(b.mayBe) == 0 || told > 1000 {
		t.Errorf("%d with a receipt, %d late, %d counted in %d records: the disk has not failed enough", len(b.durable), len(b.mayBe), counted, told)
	}
	r := verdict(t, dir, keyOf(t, dir), l.Checkpoint())
	want := receipts.Unproven
	if refuse {
		want = receipts.Holds
	}
	if r.Verdict != want || r.Damage != nil {
		t.Errorf("%s: %s", r.Verdict, r.Why)
	}
	t.Logf("%d answers: %d receipts named, %d late, %d counted in %d records", b.answers.Load(), len(b.durable), len(b.mayBe), counted, told)
}
