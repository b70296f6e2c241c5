package main

import (
	"bytes"
	"cmp"
	"context"
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

	"agentgw/internal/literal"
	"agentgw/internal/receipts"
)

func (c *cli) receiptsListCommand() *cobra.Command {
	var (
		asJSON       bool
		q            receipts.Query
		since, until string
		cursor       string
	)
	cmd := &cobra.Command{
		Use:   "list [PATH...]",
		Short: "List the newest receipts",
		Long: `List the newest receipts, the newest last, one line for each attempt: how it ended or
why it was refused, or its intent while it runs. A summary, of refusals that were too many
to be recorded one by one, is one line too, and says how many; and so is a gap, of attempts
that were answered while no receipt could be written. --json prints an array of the records.

--oldest lists from the oldest on. Where there are more than --limit, standard error says
with what --cursor the next ones are listed.

With AGENTGATE_DATABASE_URL they are those of all replicas, by their time, as far as each has
shipped them to the database. PATH is a data folder, or a copy of one, that is read instead;
of several the receipts are listed as if they were of one log.`,
		RunE: func(cmd *cobra.Command, paths []string) (err error) {
			now := time.Now()
			if q.From, err = parseMoment("--since", since, now); err != nil {
				return exit(exitUsage, err)
			}
			if q.To, err = parseMoment("--until", until, now); err != nil {
				return exit(exitUsage, err)
			}
			if err := checkRange(q); err != nil {
				return exit(exitUsage, err)
			}
			for _, name := range []string{"tenant", "key", "service", "request", "code", "decision", "since", "until"} {
				if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
					return exit(exitUsage, fmt.Errorf("--%s is empty: leave it out, and all are listed", name))
				}
			}
			if q.Limit < 0 {
				return exit(exitUsage, fmt.Errorf("--limit %d: want 0 (all) or more", q.Limit))
			}
			if what := wrongWhy(q.Why); what != "" {
				return exit(exitUsage, fmt.Errorf("--code %s: %s", literal.Quote(q.Why), what))
			}
			if err := checkDecision(q.Decision); err != nil {
				return exit(exitUsage, err)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			rows, more, err := c.listFrom(ctx, cmd, paths, q, cursor)
			if err != nil {
				return err
			}
			if !q.Oldest {
				slices.Reverse(rows)
			}
			if asJSON {
				err = printRows(c.stdout, rows)
			} else {
				err = c.tabulate(rows)
			}
			if err == nil && len(rows) == 0 {
				_, err = fmt.Fprintln(c.stderr, "no receipt matches")
			}
			if err == nil && more != "" {
				_, err = fmt.Fprintf(c.stderr, "there are more: --cursor %s\n", more)
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&q.Tenant, "tenant", "", "only of this tenant (acme, or in full tenant:acme, human:user-42)")
	fs.StringVar(&q.Key, "key", "", "only of this key's id, or of this caller of an open service (open:...)")
	fs.StringVar(&q.Service, "service", "", "only of this service")
	fs.StringVar(&q.Request, "request", "", "only of this request: the X-Request-Id of the answer")
	fs.StringVar(&q.Why, "code", "", "only with this code or ending, as in the column WHY (scope_denied, outcome_unknown)")
	fs.StringVar(&q.Decision, "decision", "", "only allowed or refused")
	fs.StringVar(&since, "since", "", "only from this time on, or this long ago (2026-01-02T15:04:05Z, 2026-01-02 for its first moment in UTC, 15m)")
	fs.StringVar(&until, "until", "", "only before this time (as --since)")
	fs.IntVar(&q.Limit, "limit", 50, "at most so many; 0: all")
	fs.BoolVar(&q.Oldest, "oldest", false, "the oldest, and not the newest")
	fs.StringVar(&cursor, "cursor", "", "go on where a list ended")
	fs.BoolVar(&asJSON, "json", false, "print as JSON")
	addHomeFlags(cmd)
	return cmd
}

func printRows(w io.Writer, rows []receipts.Found) error {
	var b bytes.Buffer
	b.WriteString("[")
	for i, r := range rows {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n")
		b.Write(r.Line)
	}
	b.WriteString("\n]\n")
	_, err := w.Write(b.Bytes())
	return err
}

func (c *cli) tabulate(rows []receipts.Found) error {
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TIME\tID\tTENANT\tKEY\tSERVICE\tACTION\tDECISION\tSTATUS\tWHY\tBYTES\tMS")
	for _, found := range rows {
		r := found.Record
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\n",
			r.Time.Format(time.RFC3339), cell(r.ID), cell(r.Tenant), cell(cmp.Or(r.Key, r.Caller)), cell(r.Service), cell(r.Action),
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
// many refusals it stands for, and of a gap how many attempts.
func why(r *receipts.Record) string {
	text := string(r.Ending)
	switch {
	case r.Kind == receipts.KindIntent:
		return receipts.Running
	case r.Kind == receipts.KindGap && r.Ending == receipts.OutcomeUnknown: // a crash has hidden how many exactly
		return fmt.Sprintf("gap (%s), about %d times", r.Reason, r.Count)
	case r.Kind == receipts.KindGap:
		return fmt.Sprintf("gap (%s), %d times", r.Reason, r.Count)
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
