package receipts_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	_ "modernc.org/sqlite"

	"agentgw/internal/receipts"
)

// The record that each of the two ways stores.
func benchRecord() *receipts.Record {
	return &receipts.Record{
		Kind: receipts.KindOutcome, Tenant: "human:user-42", Caller: "key:ci-bot", Key: "ci-bot", Principal: "user-42",
		Service: "github", Action: "list_issues", Method: "GET",
		Params:   &receipts.ParamsHash{Alg: "hmac-sha256", Hash: "3q2-7wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},
		Decision: receipts.Allowed, Status: 200, In: 120, Out: 20_480, Ending: receipts.Complete,
		QueueMicros: 12, UpstreamMicros: 20_431, TotalMicros: 21_077, RequestID: "req-0123456789abcdef", ClientAddr: "203.0.113.7",
	}
}

// burst runs n appends from so many goroutines that each wait for their own.
func burst(b *testing.B, writers, n int, do func() error) time.Duration {
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	began := time.Now()
	for range writers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := do(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// BenchmarkDurable compares a receipt in this log with the usual way, one
// transaction and one signature for each receipt. Both wait for the disk. The
// two take turns, a quarter of a second each, so that whatever else the machine
// does falls on both; the ratio is the median over the turns.
func BenchmarkDurable(b *testing.B) {
	for _, writers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			l, err := receipts.Open(b.TempDir(), receipts.Options{Clock: clockwork.NewRealClock(), Replica: "gw-1"})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			log := func() error {
				_, err := l.Append(benchRecord())
				return err
			}
			usual := usualWay(b)
			perTurn := func(do func() error) int { // as many as take about that long
				took := burst(b, writers, 100+4*writers, do)
				return max(writers, int(float64(100+4*writers)*0.25/took.Seconds()))
			}
			logTurn, usualTurn := perTurn(log), perTurn(usual)
			var logRates, usualRates, ratios []float64
			for b.Loop() {
				mine := float64(logTurn) / burst(b, writers, logTurn, log).Seconds()
				theirs := float64(usualTurn) / burst(b, writers, usualTurn, usual).Seconds()
				logRates, usualRates, ratios = append(logRates, mine), append(usualRates, theirs), append(ratios, mine/theirs)
			}
			b.ReportMetric(median(logRates), "log/s")
			b.ReportMetric(median(usualRates), "sqlite/s")
			b.ReportMetric(median(ratios), "ratio")
			if s := l.Stats(); s.Batches > 0 {
				b.ReportMetric(float64(s.Appended)/float64(s.Batches), "receipts/batch")
			}
		})
	}
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// usualWay returns a function that stores one receipt as most do.
func usualWay(b *testing.B) func() error {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "receipts.db")+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1) // one writer, as SQLite has it anyway
	if _, err := db.Exec(`create table receipts (id text primary key, body blob, signature blob)`); err != nil {
		b.Fatal(err)
	}
	_, key, _ := ed25519.GenerateKey(rand.Reader)
	return func() error {
		r := benchRecord()
		r.ID = receipts.NewID()
		body, err := json.Marshal(r)
		if err != nil {
			return err
		}
		tx, err := db.Begin()
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.Exec(`insert into receipts values (?, ?, ?)`, r.ID, body, ed25519.Sign(key, body)); err != nil {
			return err
		}
		return tx.Commit()
	}
}

// BenchmarkAppend is what one record costs in time and memory, the disk left
// out: nothing is synced.
func BenchmarkAppend(b *testing.B) {
	o := receipts.Options{Clock: clockwork.NewRealClock(), Replica: "gw-1"}
	receipts.SetNoSync(&o)
	l, err := receipts.Open(b.TempDir(), o)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := l.Append(benchRecord()); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	dir := b.TempDir()
	l, err := receipts.Open(dir, receipts.Options{Clock: clockwork.NewRealClock(), Replica: "gw-1"})
	if err != nil {
		b.Fatal(err)
	}
	const n = 20_000
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range n / 64 {
				l.Append(benchRecord())
			}
		})
	}
	wg.Wait()
	size := l.Stats().Size
	anchor := l.Checkpoint()
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		r, err := receipts.Verify(dir, l.VerifierKey(), anchor, nil)
		if err != nil || r.Verdict != receipts.Holds {
			b.Fatal(r, err)
		}
	}
	b.ReportMetric(float64(size)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
