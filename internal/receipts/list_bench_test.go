package receipts_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

// BenchmarkList is what a page of 50 takes of a log of so many receipts, for whoever
// is asked about something that happens often, seldom, or never: the figure is the
// longest of them, the medians are beside it. The log has an hour of a thousand tenants; of each thousand
// calls one is refused, and one tenant called ten times in all.
func BenchmarkList(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000, 5_000_000} {
		b.Run(fmt.Sprintf("receipts=%d", n), func(b *testing.B) {
			dir, first, took := manyReceipts(b, n)
			folder := filepath.Join(dir, "receipts")
			at := func(share float64) time.Time { return first.Add(time.Duration(share * float64(time.Hour))) }
			asked := []struct {
				name  string
				query receipts.Query
				want  int
			}{
				{"newest", receipts.Query{}, 50},
				{"a_tenant", receipts.Query{Tenant: "t-7"}, 50},
				{"a_rare_tenant", receipts.Query{Tenant: "rare"}, 10},
				{"no_such_tenant", receipts.Query{Tenant: "nobody"}, 0},
				{"a_key", receipts.Query{Key: "k-11"}, 50},
				{"a_service", receipts.Query{Service: "search"}, 50},
				{"refusals", receipts.Query{Decision: receipts.Refused}, 50},
				{"a_rare_code", receipts.Query{Why: "upstream_timeout"}, 10},
				{"a_second", receipts.Query{From: at(0.5), To: at(0.5).Add(time.Second)}, 20},
				{"a_tenant_of_an_hour_ago", receipts.Query{Tenant: "t-7", To: at(0.2)}, 20},
			}
			times := make([][]float64, len(asked))
			for b.Loop() {
				for i, a := range asked {
					a.query.Limit = 50
					began := time.Now()
					page, err := receipts.List(context.Background(), folder, a.query)
					if err != nil || len(page.Receipts) < a.want {
						b.Fatalf("%s: %d, %v; want %d", a.name, len(page.Receipts), err, a.want)
					}
					times[i] = append(times[i], float64(time.Since(began))/1e6)
				}
			}
			slowest := 0.0
			for i, a := range asked {
				ms := median(times[i])
				slowest = max(slowest, ms)
				b.ReportMetric(ms, a.name+"-ms")
			}
			b.ReportMetric(slowest, "slowest-ms")
			b.ReportMetric(took.Seconds(), "written-s")
		})
	}
}

// manyReceipts writes a log of n calls, refused or complete, and indexes it. first is
// the time of the first.
func manyReceipts(b *testing.B, n int) (dir string, first time.Time, took time.Duration) {
	b.Helper()
	dir, first = b.TempDir(), time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	o := receipts.Options{Clock: clockwork.NewRealClock(), Replica: "gw-1"}
	receipts.SetNoSync(&o)
	l, err := receipts.Open(dir, o)
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	var next atomic.Int64 // so that no writer is ahead of the others, and times are about in order
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				r := benchRecord()
				r.ID, r.Time = receipts.NewID(), first.Add(time.Duration(float64(i)/float64(n)*float64(time.Hour)))
				r.Tenant, r.Key, r.Service = fmt.Sprintf("tenant:t-%d", i%1000), fmt.Sprintf("k-%d", i%1500), []string{"github", "search", "payroll"}[i%3]
				switch {
				case i%1000 == 500:
					r.Kind, r.Decision, r.Code, r.Status, r.Ending = receipts.KindRefusal, receipts.Refused, "rate_limited", 429, ""
				case i%(n/10) == 3:
					r.Tenant, r.Code, r.Status, r.Ending = "tenant:rare", "upstream_timeout", 504, receipts.Timeout
				}
				if _, err := l.Append(r); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	return dir, first, time.Since(began)
}
