package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"agentgw/internal/receipts"
)

func (c *cli) receiptsProveCommand() *cobra.Command {
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:   "prove ID",
		Short: "Print a proof of one receipt that can be verified alone",
		Long: `Print a proof that one receipt is in the log: its newest record, its place in its tenant's
tree, and a signed checkpoint of that tree (https://c2sp.org/tlog-proof). It shows nothing
of other tenants, and whoever has it verifies it with the log's key alone:

  agentgw receipts prove ID > receipt.tlog-proof
  agentgw receipts verify receipt.tlog-proof --vkey log.vkey

The id is the one in the Agentgate-Receipt header, alone or as it stands there, id="...".
It reads the whole log, and the signing key of the data folder. A gateway that runs proves
a receipt to its caller at once: GET /v1/receipts/ID. Exits with 1 where there is none.`,
		Args: oneArgument("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := c.dataFolder(cmd)
			if err != nil {
				return err
			}
			if err := noFolder(data); err != nil {
				return exit(exitCannotRun, err)
			}
			id := bareID(args[0])
			proofs, err := receipts.ProveIn(data, id, c.progress())
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return exit(exitCannotRun, fmt.Errorf("a proof is signed with the log's key, which is in its data folder: %w", err))
			case err != nil:
				return exit(exitCannotRun, err)
			case len(proofs) == 0:
				return noReceipt(id, data, filepath.Join(data, "receipts"))
			}
			if asJSON {
				return c.printProofs(id, proofs)
			}
			if !all {
				proofs = proofs[len(proofs)-1:]
			}
			for _, p := range proofs {
				if _, err := c.stdout.Write(p.Text); err != nil {
					return exit(exitCannotRun, err)
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "prove each record of the receipt, one proof behind the other")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print all as JSON, as GET /v1/receipts/ID does")
	addHomeFlags(cmd)
	return cmd
}

func (c *cli) printProofs(id string, proofs []receipts.Proof) error {
	out := struct {
		ID      string            `json:"id"`
		Records []json.RawMessage `json:"records"`
		Proof   string            `json:"proof"`
		Proofs  []string          `json:"proofs"`
	}{ID: id}
	for _, p := range proofs {
		out.Records, out.Proof = append(out.Records, p.Record), string(p.Text)
		out.Proofs = append(out.Proofs, out.Proof)
	}
	return c.printJSON(out)
}

// maxProofFile is more than any file of proofs has.
const maxProofFile = 16 << 20

// readProof reads a file that begins as a proof; ok is false for anything else.
func readProof(path string) (text []byte, ok bool) {
	f, err := os.Open(path)
	if err != nil {
		return nil, false
	}
	defer func() { _ = f.Close() }()
	begin := make([]byte, len(receipts.ProofHeader))
	if _, err := io.ReadFull(f, begin); err != nil || string(begin) != receipts.ProofHeader {
		return nil, false
	}
	rest, err := io.ReadAll(io.LimitReader(f, maxProofFile))
	return append(begin, rest...), err == nil
}

// verifyProof verifies a proof, and what was opened with it if that is not nil.
func (c *cli) verifyProof(proof []byte, vkey string, opened *openedParams, asJSON bool) error {
	report, err := receipts.VerifyProof(proof, vkey)
	if err != nil {
		return exit(exitUsage, err)
	}
	if opened != nil {
		report.CheckParams(opened.bytes, opened.params)
	}
	if asJSON {
		err = c.printJSON(report)
	} else {
		err = printProof(c.stdout, report)
	}
	if err != nil {
		return exit(exitCannotRun, err)
	}
	if code := report.Verdict.ExitCode(); code != exitDone {
		return exit(code, nil)
	}
	return nil
}

func printProof(out io.Writer, r *receipts.ProofReport) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	printVerdict(w, r.Verdict, r.Why)
	for _, p := range r.Records {
		fmt.Fprintf(w, "record\t%s\n", printable(string(p.Record)))
		fmt.Fprintf(w, "place\tleaf %d of %d in %s\n", p.Index, p.Size, printable(p.Origin))
	}
	printProven(w, r.Proven, r.NotProven)
	return w.Flush()
}
