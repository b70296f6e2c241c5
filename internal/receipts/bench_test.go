package receipts_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

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

// side runs b.N appends from so many goroutines that each wait for their own.
func side(b *testing.B, writers int, do func() error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
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
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "receipts/s")
}

// BenchmarkDurable compares a receipt in this log with the usual way, one
// transaction and one signature for each receipt. Both wait for the disk.
func BenchmarkDurable(b *testing.B) {
	for _, writers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("log/writers=%d", writers), func(b *testing.B) {
			l, err := receipts.Open(b.TempDir(), receipts.Options{Clock: clockwork.NewRealClock(), Replica: "gw-1"})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			b.ReportAllocs()
			side(b, writers, func() error {
				_, err := l.Append(benchRecord())
				return err
			})
			if s := l.Stats(); s.Batches > 0 {
				b.ReportMetric(float64(s.Appended)/float64(s.Batches), "receipts/batch")
			}
		})
		b.Run(fmt.Sprintf("sqlite/writers=%d", writers), func(b *testing.B) {
			db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "receipts.db")+
				"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)&_txlock=immediate")
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			db.SetMaxOpenConns(1) // one writer, as SQLite has it anyway
			if _, err := db.Exec(`create table receipts (id text primary key, body blob, signature blob)`); err != nil {
				b.Fatal(err)
			}
			_, key, _ := ed25519.GenerateKey(rand.Reader)
			side(b, writers, func() error {
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
			})
		})
	}
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
