package receipts_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"agentgw/internal/receipts"
)

// pickLog writes a log of many kinds of attempts in small segments, some calls
// still running, the clock once going back, and returns what a list of it has to be:
// of each attempt the last record, in the order of the log.
func pickLog(t testing.TB, attempts int) (dir string, all []receipts.Found) {
	dir = t.TempDir()
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	l := openLog(t, dir, func(o *receipts.Options) {
		receipts.SetSegmentSize(o, 40<<10)
		receipts.SetNoSync(o)
	})
	random := rand.New(rand.NewPCG(7, 7))
	var running []*receipts.Record
	end := func(r *receipts.Record) {
		o := *r
		o.Kind, o.Time, o.Status, o.Ending = receipts.KindOutcome, now, 200, receipts.Complete
		if random.IntN(10) == 0 {
			o.Status, o.Code, o.Ending = 504, "upstream_timeout", receipts.Timeout
		}
		mustAppend(t, l, &o)
	}
	for n := range attempts {
		now = now.Add(time.Duration(random.IntN(2_000_000)) * time.Microsecond)
		if n == attempts/2 {
			now = now.Add(-10 * time.Minute)
		}
		tenant := random.IntN(20)
		if n%50 == 7 {
			mustAppend(t, l, &receipts.Record{Kind: receipts.KindGap, Time: now, ID: fmt.Sprintf("g-%d", n), Tenant: fmt.Sprintf("tenant:t-%d", tenant),
				From: now, To: now, Count: 3, Reason: "disk_full"})
		}
		r := &receipts.Record{Kind: receipts.KindIntent, Time: now, ID: fmt.Sprintf("r\"%d", n), Tenant: fmt.Sprintf("tenant:t-%d", tenant), Key: fmt.Sprintf("k-%d", random.IntN(40)),
			Service: fmt.Sprintf("s-%d", random.IntN(3)), Action: "do", Decision: receipts.Allowed, RequestID: fmt.Sprintf("q-%d", n%50)}
		switch random.IntN(8) {
		case 0:
			r.Kind, r.Decision, r.Code, r.Status = receipts.KindRefusal, receipts.Refused, "rate_limited", 429
			mustAppend(t, l, r)
		case 1:
			r.Kind, r.Decision, r.Code, r.Status, r.Tenant = receipts.KindRefusal, receipts.Refused, "unauthenticated", 401, ""
			mustAppend(t, l, r)
		default:
			mustAppend(t, l, r)
			running = append(running, r)
		}
		for len(running) > 12 || len(running) > 3 && random.IntN(3) > 0 { // the first three run on
			i := 3 + random.IntN(len(running)-3)
			end(running[i])
			running = slices.Delete(running, i, i+1)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, attemptsIn(t, dir)
}

// attemptsIn reads the last record of each attempt the slow way.
func attemptsIn(t testing.TB, dir string) (all []receipts.Found) {
	t.Helper()
	open := map[string]receipts.Found{}
	err := receipts.Scan(filepath.Join(dir, "receipts"), func(s receipts.Stored) error {
		found := receipts.Found{Index: s.Index, Line: bytes.Clone(s.Line), Record: s.Record}
		switch s.Record.Kind {
		case receipts.KindIntent:
			open[s.Record.ID] = found
		case receipts.KindOutcome:
			delete(open, s.Record.ID)
			all = append(all, found)
		case receipts.KindRefusal, receipts.KindGap:
			all = append(all, found)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range open {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b receipts.Found) int { return int(a.Index) - int(b.Index) })
	return all
}

// queries are some of each sort, alone and together.
func queries(random *rand.Rand) receipts.Query {
	var q receipts.Query
	some := func(n int) bool { return random.IntN(n) == 0 }
	if some(2) {
		q.Tenant = fmt.Sprintf("t-%d", random.IntN(21)) // the last is nobody's
	}
	if some(5) {
		q.Key = fmt.Sprintf("k-%d", random.IntN(40))
	}
	if some(4) {
		q.Service = fmt.Sprintf("s-%d", random.IntN(3))
	}
	if some(4) {
		q.Decision = []string{receipts.Allowed, receipts.Refused}[random.IntN(2)]
	}
	if some(3) {
		q.Why = []string{"rate_limited", "unauthenticated", "complete", "timeout", "upstream_timeout", receipts.Running}[random.IntN(6)]
	}
	if some(8) {
		q.Request = fmt.Sprintf("q-%d", random.IntN(50))
	}
	if some(3) {
		q.From = time.Date(2026, 5, 4, 12, random.IntN(30), 0, random.IntN(1e9), time.UTC)
	}
	if some(3) {
		q.To = time.Date(2026, 5, 4, 12, random.IntN(30), 0, random.IntN(1e9), time.UTC)
	}
	q.Oldest, q.Limit = some(2), []int{0, 30, 200}[random.IntN(3)]
	return q
}

// wanted is what a query has to give of all.
func wanted(q receipts.Query, all []receipts.Found) (list []receipts.Found) {
	for _, f := range all {
		if q.Wants(f.Record) {
			list = append(list, f)
		}
	}
	if !q.Oldest {
		slices.Reverse(list)
	}
	return list
}

// pages reads all pages of a query.
func pages(t testing.TB, folder string, q receipts.Query) (list []receipts.Found) {
	t.Helper()
	for {
		p, err := receipts.List(t.Context(), folder, q)
		if err != nil {
			t.Fatal(err)
		}
		if q.Limit > 0 && (len(p.Receipts) > q.Limit || p.Next > 0 && len(p.Receipts) < q.Limit) {
			t.Fatalf("%+v: a page of %d, next %d", q, len(p.Receipts), p.Next)
		}
		list = append(list, p.Receipts...)
		if q.Cursor = p.Next; p.Next == 0 {
			return list
		}
	}
}

func sameList(a, b []receipts.Found) bool {
	return slices.EqualFunc(a, b, func(a, b receipts.Found) bool { return a.Index == b.Index && bytes.Equal(a.Line, b.Line) })
}

func compareLists(t *testing.T, dir string, all []receipts.Found, rounds int, what string) {
	t.Helper()
	random := rand.New(rand.NewPCG(3, uint64(rounds)))
	hits := 0
	for range rounds {
		q := queries(random)
		got, want := pages(t, filepath.Join(dir, "receipts"), q), wanted(q, all)
		if !sameList(got, want) {
			t.Fatalf("%s: %+v: %d receipts, want %d: %v, want %v", what, q, len(got), len(want), indexesOf(got), indexesOf(want))
		}
		if len(want) > 0 {
			hits++
		}
	}
	if hits < rounds/5 {
		t.Errorf("%s: only %d of %d queries want anything", what, hits, rounds)
	}
}

func indexesOf(list []receipts.Found) (indexes []uint64) {
	for _, f := range list {
		indexes = append(indexes, f.Index)
	}
	return indexes
}

// TestListsAreTheSameWithAnIndex asks a log for what it holds in many ways, page by
// page: without an index, with one, and with one of a part of it, each answer is what
// reading every record gives.
func TestListsAreTheSameWithAnIndex(t *testing.T) {
	rounds := 10
	if drill() {
		rounds = 5000
	}
	dir, all := pickLog(t, 500)
	compareLists(t, dir, all, rounds, "without an index")
	for _, entries := range []uint32{70, 64, 500} {
		removeIndexes(t, dir)
		if err := receipts.Index(filepath.Join(dir, "receipts"), entries); err != nil {
			t.Fatal(err)
		}
		files := indexesIn(t, dir)
		if len(files) < 5 {
			t.Fatalf("%d index files", len(files))
		}
		compareLists(t, dir, all, rounds, fmt.Sprintf("blocks of %d", entries))
	}
	files := indexesIn(t, dir)
	os.Remove(files[1])
	os.Truncate(files[2], int64(len(read(t, files[2])))-5)
	os.Truncate(files[3], 0)
	compareLists(t, dir, all, rounds, "some of the indexes are gone")
}

func indexesIn(t testing.TB, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "receipts", "*.idx"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func removeIndexes(t testing.TB, dir string) {
	for _, f := range indexesIn(t, dir) {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
}
