package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"agentgw/internal/receipts"
)

func (c *cli) receiptsVerifyCommand() *cobra.Command {
	var (
		asJSON             bool
		vkeyFiles, anchors []string
		opened             openedParams
	)
	cmd := &cobra.Command{
		Use:   "verify PATH... --vkey FILE... [--anchor FILE]...",
		Short: "Prove offline that no receipt was altered, and up to an anchor that none is missing",
		Long: `Prove offline, with the verifier key alone, that no receipt was altered, reordered or
inserted and, up to an anchor, that none is missing. PATH is a data folder, a copy of one
that holds only its receipts, or the receipts folder itself; the gateway may be running.
Or it is a file: the proof of one receipt, which takes no anchor, or an export, whose
anchor is an older checkpoint of the tenant's tree. With a proof, --salt and --params show
what the call's parameters were: see "receipts open".

--vkey is a file with what "receipts key" printed, --anchor one with what "receipts
checkpoint" printed, or with the checkpoint at the end of a tenant's proof; both prove
something only if they were kept where whoever could change the log could not change
them. A key inside the log is shown and never trusted.

Several logs, as those of a fleet, are verified at once: --vkey is given for each, or is a file
with a line for each, and --anchor likewise. Which is whose is told by their names. The report
is of each and of all together; it names those that ended without a seal, and the keys whose
log is not among them. The exit code is the worst of all: 1, 2, 3, 4, 0, in this order.

Exits with 0 where all holds up to the anchor, 1 where something does not hold, 2 where
the key is not the log's, 3 where the log cannot be read or there is none, and 4 where all holds but it is
not proven that nothing is missing: no anchor, a selection, or the log itself declares gaps.`,
		Args: atLeastOne("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			vkeys, err := readKeys(vkeyFiles)
			if err != nil {
				return err
			}
			pinned, err := readAnchors(anchors)
			if err != nil {
				return err
			}
			given, err := opened.read(cmd)
			if err != nil {
				return err
			}
			if len(args) > 1 || len(vkeys) > 1 || len(pinned) > 1 {
				if given != nil {
					return exit(exitUsage, errors.New("--salt and --params go with the proof of one receipt"))
				}
				return c.verifySeveral(args, vkeys, pinned, asJSON)
			}
			if proof, ok := readProof(args[0]); ok {
				if len(pinned) > 0 {
					return exit(exitUsage, errors.New("a proof takes no --anchor: it ends with its own checkpoint"))
				}
				return c.verifyProof(proof, vkeys[0], given, asJSON)
			}
			if given != nil {
				return exit(exitUsage, errors.New("--salt and --params go with the proof of one receipt"))
			}
			var anchor []byte
			if len(pinned) > 0 {
				anchor = pinned[0].signed
			}
			x := examine(args[0], vkeys[0], anchor, c.progress())
			switch {
			case x.err != nil:
				return exit(x.code, x.err)
			case asJSON:
				err = c.printJSON(x.found())
			default:
				err = x.print(c.stdout)
			}
			if err != nil {
				return exit(exitCannotRun, err)
			}
			if x.code != exitDone {
				return exit(x.code, nil)
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&vkeyFiles, "vkey", nil, "file with the verifier key (required); of several logs again for each, or a file with a line for each")
	cmd.Flags().StringArrayVar(&anchors, "anchor", nil, "file with a checkpoint that was kept elsewhere; of several logs again for each")
	cmd.Flags().StringVar(&opened.salt, "salt", "", "the salt of the receipt, as \"receipts open\" tells it")
	cmd.Flags().StringVar(&opened.file, "params", "", "file with the bytes of the call's parameters, as they were sent")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

func printVerification(out io.Writer, r *receipts.Report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	printVerdict(w, r.Verdict, r.Why)
	if d := r.Damage; d != nil {
		fmt.Fprintf(w, "first fault\t%s line %d, byte %d, entry %d, id %s\n", d.File, d.Line, d.Offset, d.Index, cell(d.ID))
	}
	if r.StoppedAt != nil {
		fmt.Fprintf(w, "\treading stopped at entry %d; nothing after it was looked at\n", *r.StoppedAt)
		fmt.Fprintf(w, "entries read\t%d, of which %d under a signature\n", r.Size, r.Covered)
	} else {
		fmt.Fprintf(w, "entries\t%d, of which %d under a signature\n", r.Size, r.Covered)
		fmt.Fprintf(w, "root\t%s\n", r.Root)
		if r.First != nil {
			fmt.Fprintf(w, "time\t%s to %s\n", r.First.Format(time.RFC3339), r.Last.Format(time.RFC3339))
		}
	}
	if r.Pruned > 0 {
		fmt.Fprintf(w, "pruned\t< %d: retention has removed the entries before this one\n", r.Pruned)
	}
	if r.Torn > 0 {
		fmt.Fprintf(w, "torn tail\t%d bytes\n", r.Torn)
	}
	if r.Anchor > 0 {
		fmt.Fprintf(w, "anchor\t%d entries%s\n", r.Anchor, lastOne(r.AnchorTime))
	}
	if t := r.TreeAnchor; t != nil {
		fmt.Fprintf(w, "anchor\t%d records of tenant %s (%s)%s\n", t.Size, cell(t.Tenant), printable(t.Origin), lastOne(r.AnchorTime))
	}
	fmt.Fprintf(w, "trusted key\t%s\n", printable(r.TrustedKey))
	if len(r.Keys) > 1 {
		for _, k := range r.Keys {
			fmt.Fprintf(w, "key from entry %d\t%s\n", k.From, cell(k.VKey))
		}
	} else if r.LogKey != "" && r.LogKey != r.TrustedKey {
		fmt.Fprintf(w, "key in the log\t%s (not trusted)\n", cell(r.LogKey))
	}
	if r.StoppedAt == nil {
		printContents(w, r)
	}
	printProven(w, r.Proven, r.NotProven)
	return w.Flush()
}

func printVerdict(w io.Writer, v receipts.Verdict, why string) {
	fmt.Fprintf(w, "verdict\t%s\n", strings.ToUpper(string(v)))
	fmt.Fprintf(w, "\t%s\n", printable(why))
}

func printProven(w io.Writer, proven, not []string) {
	for i, p := range proven {
		fmt.Fprintf(w, "%s\t%s\n", first(i, "proven"), printable(p))
	}
	for i, p := range not {
		fmt.Fprintf(w, "%s\t%s\n", first(i, "not proven"), printable(p))
	}
}

// printContents tells what the log holds. Of one that was read in part it would
// be wrong.
func printContents(w io.Writer, r *receipts.Report) {
	fmt.Fprintf(w, "kinds\t%s\n", kinds(r.Kinds))
	fmt.Fprintf(w, "files\t%d segments, %d batches, %d signatures checked\n", r.Segments, r.Batches, r.Checkpoints)
	fmt.Fprintf(w, "tenants\t%d\n", r.Tenants)
	fmt.Fprintf(w, "repaired tails\t%d\n", r.Repaired)
	fmt.Fprintf(w, "unknown outcomes\t%d\n", r.Unknown)
	printSummarised(w, r.Summarised)
	printHalves(w, r.InFlight, r.Alone)
	fmt.Fprintf(w, "gaps\t%s\n", gaps(r.Gaps, r.Attempts, r.UncountedGaps))
	if r.Sealed {
		fmt.Fprintln(w, "end\tsealed: the gateway was stopped in good order")
	} else if r.Size > 0 {
		fmt.Fprintln(w, "end\tthe last entry is not a seal: the gateway runs, or was killed, or its end was cut off")
	}
	if r.Backwards > 0 {
		fmt.Fprintf(w, "clock\twent back %d times\n", r.Backwards)
	}
}

// printSummarised tells of refusals without a record of their own, if there are any.
func printSummarised(w io.Writer, s receipts.Summarised) {
	if s.Refusals > 0 {
		fmt.Fprintf(w, "refusals counted\t%d, in summaries instead of a record each\n", s.Refusals)
	}
}

// printHalves tells of calls of which there is an intent or an outcome alone.
func printHalves(w io.Writer, inFlight int, alone uint64) {
	if inFlight > 0 {
		fmt.Fprintf(w, "in flight\t%d, with an intent and no outcome yet\n", inFlight)
	} else {
		fmt.Fprintln(w, "in flight\t0")
	}
	if alone > 0 {
		fmt.Fprintf(w, "without intent\t%d, whose outcome is all that was written\n", alone)
	}
}

// gaps tells how often attempts went unrecorded, and how many these were.
func gaps(n, attempts, uncounted uint64) string {
	switch {
	case n == 0:
		return "0"
	case uncounted > 0:
		return fmt.Sprintf("%d, attempts answered without a record: about %d; a crash has hidden how many exactly", n, attempts)
	}
	return fmt.Sprintf("%d, attempts answered without a record: %d", n, attempts)
}

// lastOne tells how far in time an anchor goes, where that is known.
func lastOne(t *receipts.Instant) string {
	if t == nil {
		return ""
	}
	return ", the last of " + t.Format(time.RFC3339)
}

// first labels the first line of several.
func first(i int, label string) string {
	if i > 0 {
		return ""
	}
	return label
}
