package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"agentgw/internal/receipts"
)

// lists measures pages of 100 of a log that run has written, each so many times.
func lists(dir string, times int) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "list\treceipts\tp50 ms\tp99 ms\tCPU ms")
	for _, c := range []struct {
		name  string
		query receipts.Query
	}{
		{"the newest", receipts.Query{}},
		{"the oldest", receipts.Query{Oldest: true}},
		{"of a tenant", receipts.Query{Tenant: "t-77"}},
		{"of a tenant and a code", receipts.Query{Tenant: "t-77", Why: "rate_limited"}},
		{"of nobody", receipts.Query{Tenant: "nobody"}},
		{"of a tenant, with another's key", receipts.Query{Tenant: "t-7", Key: "agent-8-0"}},
		{"refused, with the ending of a call", receipts.Query{Why: "timeout", Decision: receipts.Refused}},
	} {
		c.query.Limit = 100
		took := make([]time.Duration, times)
		var page *receipts.Page
		var before, after unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &before); err != nil {
			return err
		}
		for i := range took {
			began := time.Now()
			var err error
			if page, err = receipts.List(context.Background(), filepath.Join(dir, "receipts"), c.query); err != nil {
				return err
			}
			took[i] = time.Since(began)
		}
		if err := unix.Getrusage(unix.RUSAGE_SELF, &after); err != nil {
			return err
		}
		slices.Sort(took)
		cpu := time.Duration(after.Utime.Nano()+after.Stime.Nano()-before.Utime.Nano()-before.Stime.Nano()) / time.Duration(times)
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		fmt.Fprintf(w, "%s\t%d\t%.2f\t%.2f\t%.2f\n", c.name, len(page.Receipts), ms(took[times/2]), ms(took[times*99/100]), ms(cpu))
	}
	return w.Flush()
}
