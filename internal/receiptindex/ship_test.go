package receiptindex_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/receiptindex"
	"agentgw/internal/receipts"
)

// replica is a log, and what ships it.
type replica struct {
	t   *testing.T
	dir string
	log *receipts.Log
}

func newReplica(t *testing.T) *replica {
	t.Helper()
	r := &replica{t: t, dir: t.TempDir()}
	r.open()
	t.Cleanup(func() { _ = r.log.Close() })
	return r
}

func (r *replica) open() {
	r.t.Helper()
	var err error
	if r.log, err = receipts.Open(r.dir, receipts.Options{Clock: clockwork.NewRealClock(), Replica: "r"}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *replica) shipper(to receiptindex.Target) *receiptindex.Shipper {
	r.t.Helper()
	s, err := receiptindex.NewShipper(r.log, r.dir, to, clockwork.NewRealClock(), slog.New(slog.DiscardHandler))
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// calls records so many calls, of which the last is under way.
func (r *replica) calls(n int) {
	r.t.Helper()
	for i := range n {
		id := receipts.NewID()
		rec := receipts.Record{Kind: receipts.KindIntent, ID: id, Tenant: fmt.Sprintf("tenant:t%d", i%3), Key: fmt.Sprintf("key%d", i%2), Service: "search", Action: "web",
			Decision: receipts.Allowed, RequestID: "req-" + id}
		r.append(rec)
		if i == n-1 {
			return
		}
		rec.Kind, rec.Status, rec.Ending = receipts.KindOutcome, 200, receipts.Complete
		if i%4 == 3 {
			rec.Kind, rec.Decision, rec.Ending, rec.Code, rec.Limit, rec.ID = receipts.KindRefusal, receipts.Refused, "", "rate_limited", "key", receipts.NewID()
			r.append(rec)
			rec.Kind, rec.Decision, rec.Ending, rec.Code, rec.Limit, rec.ID = receipts.KindOutcome, receipts.Allowed, receipts.ClientCancelled, "", "", id
		}
		r.append(rec)
	}
}

func (r *replica) append(rec receipts.Record) {
	r.t.Helper()
	if _, err := r.log.Append(&rec); err != nil {
		r.t.Fatal(err)
	}
}

// entries are those of the log that are about calls, as they stand in it.
func (r *replica) entries() (lines []string) {
	r.t.Helper()
	folder, err := receipts.Folder(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	err = receipts.Scan(folder, func(s receipts.Stored) error {
		switch s.Record.Kind {
		case receipts.KindIntent, receipts.KindOutcome, receipts.KindRefusal, receipts.KindSummary, receipts.KindGap:
			lines = append(lines, fmt.Sprint(s.Index, " ", string(s.Line)))
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return lines
}

// rows are those of the log in the database.
func (s *database) rows(origin string) (lines []string) {
	s.t.Helper()
	rows, err := s.db().Query(`SELECT entry, line FROM receipt_rows WHERE origin = $1 ORDER BY entry`, origin)
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var entry int
		var line string
		if err := rows.Scan(&entry, &line); err != nil {
			s.t.Fatal(err)
		}
		lines = append(lines, fmt.Sprint(entry, " ", line))
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	return lines
}

// sameRows holds the database against the log.
func sameRows(t *testing.T, s *database, r *replica) {
	t.Helper()
	want, have := r.entries(), s.rows(r.log.Origin())
	if !slices.Equal(have, want) {
		t.Errorf("%s: %d rows, and %d entries about calls; they differ", r.log.Origin(), len(have), len(want))
	}
}

// running runs a shipper until the test ends, or stop is called.
func running(t *testing.T, s *receiptindex.Shipper) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { s.Run(ctx) })
	stop = func() { cancel(); wait.Wait() }
	t.Cleanup(stop)
	return stop
}

func shippedAll(t *testing.T, s *receiptindex.Shipper) {
	t.Helper()
	eventually(t, "all is shipped", func() bool { behind, ok := s.Lag(); return behind == 0 && ok })
}

// TestTheLogsOfTwoReplicasAreShipped: what a log had before, what comes, and the end of it
// after the log was closed; each entry once, and none of another's.
func TestTheLogsOfTwoReplicasAreShipped(t *testing.T) {
	t.Parallel()
	s := newDatabase(t)
	x := s.open()
	var stops []func()
	var all []*replica
	var shippers []*receiptindex.Shipper
	for range 2 {
		r := newReplica(t)
		r.calls(50)
		ship := r.shipper(x)
		stops, all, shippers = append(stops, running(t, ship)), append(all, r), append(shippers, ship)
	}
	for i, r := range all {
		r.calls(20)
		shippedAll(t, shippers[i])
		sameRows(t, s, r)
	}
	for i, r := range all {
		stops[i]()
		r.calls(5)
		if err := r.log.Seal(); err != nil {
			t.Fatal(err)
		}
		if err := shippers[i].Finish(context.Background()); err != nil {
			t.Fatal(err)
		}
		sameRows(t, s, r)
	}
}

// flaky is a target whose answers get lost: before it has done anything, or after.
type flaky struct {
	receiptindex.Target
	mu sync.Mutex
	r  *rand.Rand
}

func (f *flaky) Add(ctx context.Context, origin string, from, to uint64, entries []receipts.Stored) error {
	f.mu.Lock()
	before, after := f.r.IntN(4) == 0, f.r.IntN(4) == 0
	f.mu.Unlock()
	if before {
		return errors.New("the connection was cut before")
	}
	if err := f.Target.Add(ctx, origin, from, to, entries); err != nil {
		return err
	}
	if after {
		return errors.New("the connection was cut after")
	}
	return nil
}

// TestEachEntryIsShippedOnce: while answers of the database get lost, its connections are
// killed and the replica is ended at any point and started again, nothing is there twice and
// nothing is left out.
func TestEachEntryIsShippedOnce(t *testing.T) {
	t.Parallel()
	s := newDatabase(t)
	x := s.open()
	r := newReplica(t)
	to := &flaky{Target: x, r: rand.New(rand.NewPCG(1, 2))}
	kill := s.db()
	rounds := 6
	if os.Getenv("DRILLS") == "full" {
		rounds = 100
	}
	for round := range rounds {
		stop := running(t, r.shipper(to))
		r.calls(10)
		if round%3 == 0 {
			if _, err := kill.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()`); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Duration(round) * 5 % 60 * time.Millisecond) // ended at any point: whatever it is, the rows are to be right
		stop()
		if round%4 == 3 {
			if err := r.log.Close(); err != nil {
				t.Fatal(err)
			}
			r.open()
		}
	}
	shipper := r.shipper(x)
	running(t, shipper)
	shippedAll(t, shipper)
	sameRows(t, s, r)
	if len(s.rows(r.log.Origin())) < 20*rounds {
		t.Error("hardly anything was shipped")
	}
}

// TestCallsGoOnWhileTheDatabaseIsAway: records are taken, the lag says how far behind the
// database is, and when it is back the rows come, with none lost or double.
func TestCallsGoOnWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	x := s.open()
	r := newReplica(t)
	shipper := r.shipper(x)
	running(t, shipper)
	r.calls(5)
	shippedAll(t, shipper)
	s.server.Stop()
	size := r.log.Stats().Size
	r.calls(100)
	eventually(t, "it is seen to be away", func() bool { _, ok := shipper.Lag(); return !ok })
	if behind, _ := shipper.Lag(); behind != r.log.Stats().Size-size {
		t.Errorf("%d entries behind, of %d that came", behind, r.log.Stats().Size-size)
	}
	s.server.Again(t)
	shippedAll(t, shipper)
	sameRows(t, s, r)
}

// TestTheDatabaseIsAnother: one that is empty gets all from the beginning, while the gateway
// runs; and of one that has more of a log than the log itself nothing is changed.
func TestTheDatabaseIsAnother(t *testing.T) {
	t.Parallel()
	s := newDatabase(t)
	x := s.open()
	r := newReplica(t)
	shipper := r.shipper(x)
	stop := running(t, shipper)
	r.calls(10)
	shippedAll(t, shipper)
	if _, err := s.db().Exec(`DROP TABLE receipt_rows, receipt_logs`); err != nil {
		t.Fatal(err)
	}
	r.calls(1)
	shippedAll(t, shipper)
	sameRows(t, s, r)
	if _, err := s.db().Exec(`DELETE FROM receipt_logs; DELETE FROM receipt_rows`); err != nil {
		t.Fatal(err)
	}
	r.calls(1)
	eventually(t, "it begins anew", func() bool { return len(s.rows(r.log.Origin())) == len(r.entries()) })
	sameRows(t, s, r)
	stop()

	if _, err := s.db().Exec(`UPDATE receipt_logs SET next = next + 1000`); err != nil {
		t.Fatal(err)
	}
	ahead := r.shipper(x)
	running(t, ahead)
	r.calls(2)
	if err := r.shipper(x).Finish(context.Background()); err == nil {
		t.Error("a log that is shorter than it was is shipped")
	}
	if _, ok := ahead.Lag(); ok {
		t.Error("and all is well")
	}
	if have, want := len(s.rows(r.log.Origin())), len(r.entries())-2-1; have != want {
		t.Errorf("%d rows, want the %d of before", have, want)
	}
}

// TestRowsOfRemovedEntriesGo: what retention has removed from the log goes from the database.
func TestRowsOfRemovedEntriesGo(t *testing.T) {
	t.Parallel()
	s := newDatabase(t)
	x := s.open()
	ctx := context.Background()
	r, other := newReplica(t), newReplica(t)
	for _, r := range []*replica{r, other} {
		r.calls(10)
		if err := r.shipper(x).Finish(ctx); err != nil {
			t.Fatal(err)
		}
	}
	all, err := x.Prune(ctx, r.log.Origin(), 7)
	if err != nil || !all {
		t.Error(all, err)
	}
	want := slices.DeleteFunc(r.entries(), func(line string) bool {
		var entry int
		_, err := fmt.Sscan(line, &entry)
		return err != nil || entry < 7
	})
	if have := s.rows(r.log.Origin()); !slices.Equal(have, want) || len(have) == 0 {
		t.Errorf("%d rows are left, want %d", len(have), len(want))
	}
	sameRows(t, s, other)
}
