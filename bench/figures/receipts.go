package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"
	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"agentgw/internal/receipts"
)

// writers is how many wait for a receipt of theirs at the same time.
const writers = 64

// receipts measures the receipt log beside what is usually done: a row in SQLite,
// in a transaction of its own and with an Ed25519 signature of its own; once with
// the sync that makes it last, and once without.
func (b *bench) receipts() error {
	folder := filepath.Join(b.folder, "receipts")
	l, err := receipts.Open(folder, receipts.Options{Clock: clockwork.NewRealClock(), Replica: "gw-1"})
	if err != nil {
		return err
	}
	durable, err := openUsual(filepath.Join(b.folder, "durable.db"), "FULL")
	if err != nil {
		return err
	}
	defer func() { _ = durable.db.Close() }()
	loose, err := openUsual(filepath.Join(b.folder, "loose.db"), "OFF")
	if err != nil {
		return err
	}
	defer func() { _ = loose.db.Close() }()

	ways := []func() error{func() error { _, err := l.Append(oneReceipt()); return err }, durable.add, loose.add}
	var rates, p99 [3][]float64
	for round := -1; round < b.rounds; round++ {
		for i, add := range ways {
			seconds := b.seconds / 2
			if round < 0 {
				seconds = min(seconds, 0.3)
			}
			rate, slow, err := crowd(seconds, add)
			if err != nil {
				return err
			}
			if round >= 0 {
				rates[i], p99[i] = append(rates[i], rate), append(p99[i], slow)
			}
		}
	}
	b.table.exceed("durable receipts, 64 writers, beside a SQLite transaction and a signature each", "/s", rates[0], rates[1], 50)
	b.table.compare("  their p99", "ms", p99[0], p99[1], ratios(p99[0], p99[1]), 0.01)
	b.table.exceed("  beside the same without its sync", "/s", rates[0], rates[2], 10)

	if err := b.lone(l); err != nil {
		return err
	}
	size, anchor, key := l.Stats().Size, l.Checkpoint(), l.VerifierKey()
	if err := l.Close(); err != nil {
		return err
	}
	var ours, theirs []float64
	for range b.rounds {
		began := time.Now()
		r, err := receipts.Verify(folder, key, anchor, nil)
		if err != nil || r.Verdict != receipts.Holds {
			return fmt.Errorf("the log does not verify: %+v, %w", r, err)
		}
		ours = append(ours, float64(r.Size)/time.Since(began).Seconds())
		rate, err := loose.verify(50_000)
		if err != nil {
			return err
		}
		theirs = append(theirs, rate)
	}
	b.table.exceed(fmt.Sprintf("receipts verified, of %d, beside a signature each", size), "/s", ours, theirs, 50)
	b.table.bound("  1,000,000 at that rate", "s", 1e6/median(ours), number(1e6/median(theirs), "s"), 2)
	return b.recorded()
}

func oneReceipt() *receipts.Record {
	return &receipts.Record{
		Kind: receipts.KindOutcome, Tenant: "human:user-42", Caller: "key:ci-bot", Key: "ci-bot", Principal: "user-42",
		Service: "github", Action: "list_issues", Method: "GET",
		Params:   &receipts.ParamsHash{Alg: receipts.ParamsAlg, Hash: "3q2-7wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", Key: "0123456789abcdef"},
		Decision: receipts.Allowed, Status: 200, In: 120, Out: 20_480, Ending: receipts.Complete,
		QueueMicros: 12, UpstreamMicros: 20_431, TotalMicros: 21_077, RequestID: "req-0123456789abcdef", ClientAddr: "203.0.113.7",
	}
}

// crowd has all writers add for so long, and gives receipts a second and the p99
// of their waiting in milliseconds.
func crowd(seconds float64, add func() error) (rate, p99 float64, err error) {
	var (
		wg    sync.WaitGroup
		took  [writers][]time.Duration
		fails [writers]error
		began = time.Now()
		until = began.Add(time.Duration(seconds * float64(time.Second)))
	)
	for i := range writers {
		wg.Go(func() {
			for from := time.Now(); from.Before(until) && fails[i] == nil; {
				fails[i] = add()
				now := time.Now()
				took[i], from = append(took[i], now.Sub(from)), now
			}
		})
	}
	wg.Wait()
	all := slices.Concat(took[:]...)
	slices.Sort(all)
	return float64(len(all)) / time.Since(began).Seconds(), ms(quantile(all, 0.99)), errors.Join(fails[:]...)
}

// usual is the usual way.
type usual struct {
	db     *sql.DB
	key    ed25519.PrivateKey
	public ed25519.PublicKey
}

func openUsual(path, sync string) (*usual, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous("+sync+")&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // one writer, as SQLite has it anyway; more of them are slower
	if _, err := db.Exec(`CREATE TABLE receipts (id TEXT PRIMARY KEY, body BLOB, signature BLOB)`); err != nil {
		return nil, err
	}
	public, key, err := ed25519.GenerateKey(rand.Reader)
	return &usual{db, key, public}, err
}

func (u *usual) add() error {
	r := oneReceipt()
	r.ID = receipts.NewID()
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tx, err := u.db.Begin()
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // says so after Commit
	if _, err := tx.Exec(`INSERT INTO receipts VALUES (?, ?, ?)`, r.ID, body, ed25519.Sign(u.key, body)); err != nil {
		return err
	}
	return tx.Commit()
}

// verify checks the signatures of at most so many rows, and gives rows a second.
func (u *usual) verify(most int) (float64, error) {
	began, n := time.Now(), 0
	rows, err := u.db.Query(`SELECT body, signature FROM receipts LIMIT ?`, most)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }() // rows.Err has told by then
	for ; rows.Next(); n++ {
		var body, signature sql.RawBytes
		if err := rows.Scan(&body, &signature); err != nil {
			return 0, err
		}
		if !ed25519.Verify(u.public, body, signature) {
			return 0, errors.New("a signature does not hold")
		}
	}
	return float64(n) / time.Since(began).Seconds(), rows.Err()
}

// lone is how long one writer waits that is alone, beside a bare write and sync of
// as many bytes in the same place. The two take turns one by one: a disk has moods.
func (b *bench) lone(l *receipts.Log) error {
	f, err := os.Create(filepath.Join(b.folder, "bare"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 64<<20); err != nil {
		b.table.note("space could not be reserved for the bare writes: %v", err)
	}
	line := make([]byte, 1100) // a record, the line of its batch, and the checkpoint of the one before
	var at int64
	bare := func() error {
		if _, err := f.WriteAt(line, at); err != nil {
			return err
		}
		at += int64(len(line))
		return unix.Fdatasync(int(f.Fd()))
	}
	append := func() error { _, err := l.Append(oneReceipt()); return err }
	var waits [2][]float64
	for range b.rounds {
		var took [2][]float64
		for range 100 {
			for i, write := range []func() error{append, bare} {
				from := time.Now()
				if err := write(); err != nil {
					return err
				}
				took[i] = slices.Concat(took[i], []float64{ms(time.Since(from))})
			}
		}
		for i := range waits {
			waits[i] = slices.Concat(waits[i], []float64{median(took[i])})
		}
	}
	b.table.compare("a lone writer's wait, beside a bare write and sync", "ms", waits[0], waits[1], ratios(waits[0], waits[1]), 1.2)
	return nil
}
