package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"agentgw/internal/receipts"
)

func (c *cli) receiptsExportCommand() *cobra.Command {
	var (
		asJSON                    bool
		tenant, out, since, until string
		q                         receipts.Query
	)
	cmd := &cobra.Command{
		Use:   "export --tenant TENANT --out FILE [DATA...]",
		Short: "Write a tenant's receipts to a file that can be verified alone",
		Long: `Write the records of one tenant, up to the newest signature, to a file that is verified
alone, with the log's key. It shows nothing of other tenants, not even how much they call:

  agentgw receipts export --tenant acme --out acme.export
  agentgw receipts verify acme.export --vkey log.vkey

Without --since, --until and --decision these are all, and that none is missing is proven.
With them it is a selection: of the tenant's other records it shows how many they are.

It reads the whole log, and the signing key of the data folder; a gateway may be running.
FILE must not be there; it appears once it is whole. Exits with 1 where the tenant has no
receipt.

DATA are other data folders than that of the settings, as those of a fleet: FILE is then a
folder, which gets a file for each log that has receipts of the tenant. They are verified at
once, by the keys of all logs.`,
		RunE: func(cmd *cobra.Command, logs []string) (err error) {
			keep, err := exportFilter(q, since, until, time.Now())
			switch {
			case err != nil:
				return exit(exitUsage, err)
			case tenant == "":
				return exit(exitUsage, errors.New("export needs --tenant: whose receipts"))
			case out == "":
				return exit(exitUsage, errors.New("export needs --out: the file to write"))
			}
			if !strings.Contains(tenant, ":") {
				tenant = "tenant:" + tenant
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if len(logs) > 0 {
				return c.exportLogs(ctx, logs, tenant, keep, out, asJSON)
			}
			data, err := c.dataFolder(cmd)
			if err != nil {
				return err
			}
			if err := noFolder(data); err != nil {
				return exit(exitCannotRun, err)
			}
			done, err := receipts.Export(ctx, data, tenant, keep, out, c.progress())
			switch {
			case errors.Is(err, receipts.ErrNoTenant):
				return exit(exitNotHold, fmt.Errorf("%s: %s: %w", data, tenant, err))
			case errors.Is(err, fs.ErrExist):
				return exit(exitCannotRun, fmt.Errorf("--out %s: there is a file already, which is not written over", out))
			case err != nil:
				return exit(exitCannotRun, err)
			case asJSON:
				return c.printJSON(struct {
					Out    string `json:"out"`
					Tenant string `json:"tenant"`
					*receipts.Exported
				}{out, tenant, done})
			}
			return c.sayExported(out, tenant, done)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&tenant, "tenant", "", "whose (acme, or in full tenant:acme, human:user-42; required)")
	fs.StringVar(&out, "out", "", "the file to write; it must not be there (required)")
	fs.StringVar(&since, "since", "", "only records from this time on, or this long ago (2026-01-02T15:04:05Z, 2026-01-02 for its first moment in UTC, 15m)")
	fs.StringVar(&until, "until", "", "only records before this time (as --since)")
	fs.StringVar(&q.Decision, "decision", "", "only allowed or refused")
	fs.BoolVar(&asJSON, "json", false, "print as JSON")
	addHomeFlags(cmd)
	return cmd
}

// exportLogs is export of several logs.
func (c *cli) exportLogs(ctx context.Context, logs []string, tenant string, keep func(*receipts.Record) bool, out string, asJSON bool) error {
	list, err := exportSeveral(ctx, logs, tenant, keep, out, c.progress())
	switch {
	case errors.Is(err, fs.ErrExist):
		return exit(exitCannotRun, fmt.Errorf("--out %s: %w; files that are there are not written over", out, err))
	case err != nil:
		return exit(exitCannotRun, err)
	case !slices.ContainsFunc(list, func(e oneExport) bool { return e.Exported != nil }):
		return exit(exitNotHold, fmt.Errorf("%s: %w", tenant, receipts.ErrNoTenant))
	case asJSON:
		return c.printJSON(list)
	}
	for _, e := range list {
		if e.Exported == nil {
			_, err = fmt.Fprintf(c.stdout, "%s: no receipt of %s\n", e.Log, printable(tenant))
		} else {
			err = c.sayExported(e.Out, tenant, e.Exported)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) sayExported(out, tenant string, done *receipts.Exported) error {
	gone := ""
	if done.Pruned > 0 {
		gone = fmt.Sprintf("; %d were removed by retention (pruned)", done.Pruned)
	}
	_, err := fmt.Fprintf(c.stdout, "%s: %d of the %d records of %s%s\n", out, done.Shown, done.Size, printable(tenant), gone)
	return err
}

// exportFilter is which records are to be shown; nil is all.
func exportFilter(q receipts.Query, since, until string, now time.Time) (func(*receipts.Record) bool, error) {
	var err error
	if q.From, err = parseMoment("--since", since, now); err != nil {
		return nil, err
	}
	if q.To, err = parseMoment("--until", until, now); err != nil {
		return nil, err
	}
	if err := checkRange(q); err != nil {
		return nil, err
	}
	if err := checkDecision(q.Decision); err != nil {
		return nil, err
	}
	if since == "" && until == "" && q.Decision == "" {
		return nil, nil
	}
	return q.Wants, nil
}

// openExport opens a file that begins as an export; ok is false for anything else.
func openExport(path string) (f *os.File, ok bool) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil, false
	}
	if f, err = os.Open(path); err != nil {
		return nil, false
	}
	begin := make([]byte, len(receipts.ExportHeader))
	n, _ := io.ReadFull(f, begin)
	if _, err := f.Seek(0, io.SeekStart); err != nil || !receipts.IsExport(begin[:n]) {
		_ = f.Close()
		return nil, false
	}
	return f, true
}

func printExport(out io.Writer, r *receipts.ExportReport) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	printVerdict(w, r.Verdict, r.Why)
	if r.Verdict == receipts.Holds || r.Verdict == receipts.Unproven {
		fmt.Fprintf(w, "tenant\t%s\n", cell(r.Tenant))
		fmt.Fprintf(w, "records\t%d, of which %d are shown and %d left out\n", r.Size, r.Shown, r.LeftOut)
		if r.First != nil {
			fmt.Fprintf(w, "time\t%s to %s\n", r.First.Format(time.RFC3339), r.Last.Format(time.RFC3339))
		}
		fmt.Fprintf(w, "kinds\t%s\n", kinds(r.Kinds))
		fmt.Fprintf(w, "tree\t%s\n", printable(r.Origin))
		fmt.Fprintf(w, "root\t%s\n", r.Root)
		fmt.Fprintf(w, "unknown outcomes\t%d\n", r.Unknown)
		printSummarised(w, r.Summarised)
		if r.LeftOut == 0 {
			printHalves(w, r.InFlight, r.Alone)
		}
		fmt.Fprintf(w, "gaps\t%s\n", gaps(r.Gaps, r.Attempts, r.UncountedGaps))
	} else {
		fmt.Fprintf(w, "lines read\t%d\n", r.Lines)
	}
	if r.Anchor > 0 {
		fmt.Fprintf(w, "anchor\t%d records%s\n", r.Anchor, lastOne(r.AnchorTime))
	}
	fmt.Fprintf(w, "trusted key\t%s\n", printable(r.TrustedKey))
	printProven(w, r.Proven, r.NotProven)
	return w.Flush()
}

// kinds tells how many records there are of each kind.
func kinds(counted map[string]uint64) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(counted)) {
		list = append(list, fmt.Sprintf("%d %s", counted[k], k))
	}
	return cell(strings.Join(list, ", "))
}
