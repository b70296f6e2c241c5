// Command longlog writes a receipt log of many records, as a gateway with many
// tenants would have: to measure what reads it.
//
//	go run ./longlog -records 1000000 -dir /tmp/long
//	../agentgw receipts key --data /tmp/long > /tmp/long.vkey
//	time ../agentgw receipts verify /tmp/long --vkey /tmp/long.vkey
//	go run ./longlog -lists 200 -dir /tmp/long     # what pages of 100 take
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

func main() {
	records := flag.Int("records", 1_000_000, "how many records")
	tenants := flag.Int("tenants", 1000, "of how many tenants, each with two keys")
	dir := flag.String("dir", "", "the data folder to write; there must be no log in it")
	times := flag.Int("lists", 0, "measure lists of the log that is there, so many of each, and write none")
	flag.Parse()
	if *times > 0 {
		if err := lists(*dir, *times); err != nil {
			log.Fatal(err)
		}
		return
	}
	if err := run(*dir, *records, *tenants); err != nil {
		log.Fatal(err)
	}
}

func run(dir string, records, tenants int) error {
	if dir == "" {
		return fmt.Errorf("longlog needs -dir")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	l, err := receipts.Open(dir, receipts.Options{Clock: clockwork.NewRealClock(), Replica: "gw-1"})
	if err != nil {
		return err
	}
	if l.Stats().Size > 1 {
		return fmt.Errorf("%s: there is a log already", dir)
	}
	began := time.Now()
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range 512 {
		wg.Go(func() {
			for failed.Load() == nil && l.Stats().Size < uint64(records) {
				if err := attempt(l, int(next.Add(1)), tenants); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	fmt.Printf("%d records in %d batches, %s\n", l.Stats().Size, l.Stats().Batches, time.Since(began).Round(time.Millisecond))
	return l.Close()
}

// attempt leaves the records of one call: nine in ten are admitted.
func attempt(l *receipts.Log, n, tenants int) error {
	tenant := n * 7919 % tenants
	key := fmt.Sprintf("agent-%d-%d", tenant, n%2)
	r := receipts.Record{
		ID: receipts.NewID(), Kind: receipts.KindIntent, Tenant: fmt.Sprintf("tenant:t-%d", tenant), Caller: "key:" + key, Key: key,
		Principal: fmt.Sprintf("user-%d", n%5000), Service: fmt.Sprintf("service-%d", n%12), Action: "list_issues", Method: "GET",
		Params:   &receipts.ParamsHash{Alg: "hmac-sha256", Hash: "3q2-7wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},
		Decision: receipts.Allowed, RequestID: "req-0123456789abcdef", ClientAddr: "203.0.113.7",
	}
	if n%10 == 3 {
		r.Kind, r.Decision, r.Code, r.Limit, r.Status = receipts.KindRefusal, receipts.Refused, "rate_limited", "tenant", 429
		if n%100 == 3 {
			r.Code, r.Limit, r.Status = "scope_denied", "", 403
		}
		_, err := l.Append(&r)
		return err
	}
	if _, err := l.Append(&r); err != nil {
		return err
	}
	r.Kind, r.Time, r.Status, r.In, r.Out, r.Ending = receipts.KindOutcome, time.Time{}, 200, 120, 20_480, receipts.Complete
	r.QueueMicros, r.UpstreamMicros, r.TotalMicros = 12, 20_431, 21_077
	if n%1000 == 7 {
		r.Status, r.Ending = 504, receipts.Timeout
	}
	_, err := l.Append(&r)
	return err
}
