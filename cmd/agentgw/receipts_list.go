package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/spf13/cobra"

	"agentgw/internal/receipts"
)

// row is a receipt in the list: its last record so far.
type row struct {
	index  uint64
	line   json.RawMessage
	record *receipts.Record
}

func (c *cli) receiptsListCommand() *cobra.Command {
	var (
		asJSON bool
		f      receiptFilter
		since  string
		limit  int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the newest receipts",
		Long: `List the newest receipts, the newest last, one line for each attempt: how it ended or
why it was refused, or its intent while it runs. A summary, of refusals that were too many
to be recorded one by one, is one line too, and says how many. --json prints an array of the records.`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if f.since, err = parseSince(since, time.Now()); err != nil {
				return exit(exitUsage, err)
			}
			if limit < 0 {
				return exit(exitUsage, fmt.Errorf("--limit %d: want 0 (all) or more", limit))
			}
			if err := f.check(); err != nil {
				return exit(exitUsage, err)
			}
			folder, err := c.receiptsFolder(cmd)
			if err != nil {
				return err
			}
			rows, err := collect(folder, f, limit)
			if err != nil {
				return exit(exitCannotRun, err)
			}
			if asJSON {
				return printRows(c.stdout, rows)
			}
			return c.tabulate(rows)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.tenant, "tenant", "", "only of this tenant (acme, or in full tenant:acme, human:user-42)")
	fs.StringVar(&f.key, "key", "", "only of this key's id")
	fs.StringVar(&f.service, "service", "", "only of this service")
	fs.StringVar(&f.request, "request", "", "only of this request: the X-Request-Id of the answer")
	fs.StringVar(&f.why, "code", "", "only with this code or ending, as in the column WHY (scope_denied, outcome_unknown)")
	fs.StringVar(&f.decision, "decision", "", "only allowed or refused")
	fs.StringVar(&since, "since", "", "only from this time on, or this long ago (2026-01-02T15:04:05Z, 2026-01-02 for its first moment in UTC, 15m)")
	fs.IntVar(&limit, "limit", 50, "at most so many, the newest; 0: all")
	fs.BoolVar(&asJSON, "json", false, "print as JSON")
	addHomeFlags(cmd)
	return cmd
}

// collect reads the log once. It keeps limit rows and the calls in flight.
func collect(folder string, f receiptFilter, limit int) ([]row, error) {
	var rows []row
	running := map[string]row{}
	err := receipts.Scan(folder, func(s receipts.Stored) error {
		r := s.Record
		if !r.Begins() {
			delete(running, r.ID)
		}
		if !ofCalls(r.Kind) || !f.wants(r) {
			return nil
		}
		found := row{s.Index, bytes.Clone(s.Line), r}
		if r.Begins() {
			running[r.ID] = found
			return nil
		}
		rows = append(rows, found)
		// Cut now and then, so that a long log does not have to fit in memory.
		if limit > 0 && len(rows) >= 2*limit+1024 {
			rows = slices.Delete(rows, 0, len(rows)-limit)
		}
		return nil
	})
	for _, r := range running {
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.index, b.index) })
	if limit > 0 && len(rows) > limit {
		rows = rows[len(rows)-limit:]
	}
	return rows, err
}

// ofCalls reports whether records of a kind are about calls, and not about the log.
func ofCalls(k receipts.Kind) bool {
	switch k {
	case receipts.KindIntent, receipts.KindOutcome, receipts.KindRefusal, receipts.KindSummary:
		return true
	}
	return false
}

func printRows(w io.Writer, rows []row) error {
	var b bytes.Buffer
	b.WriteString("[")
	for i, r := range rows {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n")
		b.Write(r.line)
	}
	b.WriteString("\n]\n")
	_, err := w.Write(b.Bytes())
	return err
}

func (c *cli) tabulate(rows []row) error {
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TIME\tID\tTENANT\tKEY\tSERVICE\tACTION\tDECISION\tSTATUS\tWHY\tBYTES\tMS")
	for _, found := range rows {
		r := found.record
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\n",
			r.Time.Format(time.RFC3339), cell(r.ID), cell(r.Tenant), cell(r.Key), cell(r.Service), cell(r.Action),
			cell(r.Decision), status(r), cell(why(r)), r.Out, r.TotalMicros/1000)
	}
	return w.Flush()
}

func cell(s string) string {
	if s == "" {
		return "-"
	}
	return printable(s)
}

func status(r *receipts.Record) string {
	if r.Status == 0 {
		return "-"
	}
	return strconv.Itoa(r.Status)
}

// why is the refusal's code and limit, or how the call ended; of a summary also how
// many refusals it stands for.
func why(r *receipts.Record) string {
	text := string(r.Ending)
	switch {
	case r.Kind == receipts.KindIntent:
		return stillRunning
	case r.Limit != "":
		text = r.Code + " (" + r.Limit + ")"
	case r.Code != "":
		text = r.Code
	}
	switch {
	case r.Kind != receipts.KindSummary:
		return text
	case r.Begins() || r.Ending == receipts.OutcomeUnknown: // more may have come
		return fmt.Sprintf("%s, %d times or more", text, r.Count)
	}
	return fmt.Sprintf("%s, %d times", text, r.Count)
}

func (c *cli) receiptsTailCommand() *cobra.Command {
	var (
		asJSON, follow bool
		last           int
	)
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print the newest records, and new ones as they come",
		Long: `Print the newest records, each on one line; with --follow also those that come, until
Ctrl-C. --json prints each record as it is stored.`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if last < 0 {
				return exit(exitUsage, fmt.Errorf("--lines %d: want 0 or more", last))
			}
			folder, err := c.receiptsFolder(cmd)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if !follow {
				stop() // Follow looks once and ends
			}
			if err := c.tail(ctx, folder, last, asJSON); err != nil {
				return exit(exitCannotRun, err)
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new records")
	cmd.Flags().IntVarP(&last, "lines", "n", 10, "how many to begin with")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON, one record a line")
	addHomeFlags(cmd)
	return cmd
}

func (c *cli) tail(ctx context.Context, folder string, last int, asJSON bool) error {
	var held []string // until the end has been reached for the first time
	reached := false
	say := func(line string) error {
		_, err := fmt.Fprintln(c.stdout, line)
		return err
	}
	return receipts.Follow(ctx, clockwork.NewRealClock(), folder,
		func(s receipts.Stored) error {
			line := string(s.Line)
			if !asJSON {
				line = oneLine(s.Record)
			}
			if reached {
				return say(line)
			}
			if held = append(held, line); len(held) > 2*last+64 {
				held = slices.Delete(held, 0, len(held)-last)
			}
			return nil
		},
		func() error {
			for _, line := range held[max(0, len(held)-last):] {
				if err := say(line); err != nil {
					return err
				}
			}
			held, reached = nil, true
			return nil
		})
}

func oneLine(r *receipts.Record) string {
	what := "-"
	if r.Service != "" {
		what = printable(r.Service + "." + r.Action)
	}
	return fmt.Sprintf("%s  %-8s  %s  %s  %s  %s  %s",
		r.Time.Format(time.RFC3339), r.Kind, cell(r.ID), cell(r.Tenant), what, status(r), cell(why(r)))
}
