package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"agentgw/internal/receipts"
	"agentgw/internal/vault"
)

// openedParams are a salt and parameters, as they are given.
type openedParams struct {
	salt, file string
	bytes      [receipts.SaltSize]byte // of salt
	params     []byte                  // of the file
}

// read reads both, or nothing where neither is given.
func (o *openedParams) read(cmd *cobra.Command) (*openedParams, error) {
	salted, given := cmd.Flags().Changed("salt"), cmd.Flags().Changed("params")
	if !salted && !given {
		return nil, nil
	}
	if !salted || !given {
		return nil, exit(exitUsage, errors.New("--salt and --params go together"))
	}
	raw, err := hex.DecodeString(strings.TrimSpace(o.salt))
	if err != nil || len(raw) != len(o.bytes) {
		return nil, exit(exitUsage, fmt.Errorf("--salt: not a salt, which is %d hex digits", 2*len(o.bytes)))
	}
	copy(o.bytes[:], raw)
	if o.params, err = os.ReadFile(o.file); err != nil {
		return nil, exit(exitCannotRun, fmt.Errorf("--params: %w", err))
	}
	return o, nil
}

// openedReceipt is what is told of a receipt whose parameters are disclosed.
type openedReceipt struct {
	ID      string `json:"id"`
	Tenant  string `json:"tenant"`
	Alg     string `json:"alg"`
	Hash    string `json:"hash"`
	Salt    string `json:"salt"`
	Matches *bool  `json:"matches,omitempty"` // absent: no parameters were given
}

func (c *cli) receiptsOpenCommand() *cobra.Command {
	var (
		asJSON bool
		file   string
	)
	cmd := &cobra.Command{
		Use:   "open ID [--params FILE]",
		Short: "Print the salt of one receipt, with which its parameters can be shown",
		Long: `Print the salt of one receipt. A receipt holds a salted hash of its call's parameters;
whoever is given the salt can check parameters against it, and of no other receipt.

  agentgw receipts open ID
  agentgw receipts open ID --params params.json         # are these its parameters?

The parameters are the bytes of "params" in the call's body, as they were sent: with their
spaces, from the first brace to the last, and no line end behind it. Give the salt, the
parameters and the proof of the receipt to somebody, and he checks them alone:

  agentgw receipts verify receipt.tlog-proof --vkey log.vkey --salt SALT --params params.json

The id is the one in the Agentgate-Receipt header. It needs the data folder and its vault
key. Exits with 1 where there is no such receipt, where its key was deleted ("receipts
shred"), and where the parameters are not these.`,
		Args: oneArgument("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			folder, err := c.receiptsFolder(cmd)
			if err != nil {
				return err
			}
			var params []byte
			if cmd.Flags().Changed("params") {
				if params, err = os.ReadFile(file); err != nil {
					return exit(exitCannotRun, fmt.Errorf("--params: %w", err))
				}
			}
			record, err := committed(folder, bareID(args[0]))
			if err != nil {
				return err
			}
			return c.withStore(cmd, func(ctx context.Context, at home) error {
				salt, err := saltOf(ctx, at, record)
				if err != nil {
					return err
				}
				o := openedReceipt{ID: record.ID, Tenant: record.Tenant, Alg: record.Params.Alg, Hash: record.Params.Hash, Salt: hex.EncodeToString(salt[:])}
				if cmd.Flags().Changed("params") {
					matches := record.Params.Opens(salt, params)
					o.Matches = &matches
				}
				return c.tellOpened(o, asJSON)
			})
		},
	}
	cmd.Flags().StringVar(&file, "params", "", "file with the bytes of the call's parameters, to be compared")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	addHomeFlags(cmd)
	return cmd
}

// committed finds the record of a receipt that commits to parameters.
func committed(folder, id string) (*receipts.Record, error) {
	lines, err := receipts.FindIn(folder, id)
	if err != nil {
		return nil, exit(exitCannotRun, err)
	}
	for _, line := range lines {
		record, err := receipts.ParseRecord(line)
		switch {
		case err != nil:
			return nil, exit(exitCannotRun, err)
		case record.Params == nil:
			continue
		case record.Params.Alg != receipts.ParamsAlg:
			return nil, exit(exitCannotRun, fmt.Errorf("receipt %s: its parameters are hashed by %q, which this program cannot open", id, record.Params.Alg))
		}
		return record, nil
	}
	if len(lines) == 0 {
		return nil, exit(exitNotHold, fmt.Errorf("no receipt %q in %s", id, folder))
	}
	return nil, exit(exitNotHold, fmt.Errorf("receipt %s says nothing of parameters: its request was refused before they were read", id))
}

// saltOf makes the salt of a record again.
func saltOf(ctx context.Context, at home, r *receipts.Record) (salt [receipts.SaltSize]byte, err error) {
	kek := func() (vault.KEK, error) {
		return vault.LoadKEK(ctx, kekSource(at.settings), at.store)
	}
	salt, err = vault.OpenSalt(ctx, at.store, kek, r.Tenant, r.Params.Key, r.ID)
	switch {
	case errors.Is(err, vault.ErrShredded):
		return salt, exit(exitNotHold, fmt.Errorf("receipt %s of %s: %w: its parameters cannot be shown any more", r.ID, printable(r.Tenant), err))
	case errors.Is(err, vault.ErrNoKey):
		return salt, exit(exitCannotRun, fmt.Errorf("receipt %s: its key, %s of %s: %w", r.ID, printable(r.Params.Key), printable(r.Tenant), err))
	case err != nil:
		return salt, exit(exitCannotRun, err)
	}
	return salt, nil
}

func (c *cli) tellOpened(o openedReceipt, asJSON bool) (err error) {
	if asJSON {
		err = c.printJSON(o)
	} else {
		w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "receipt\t%s\n", printable(o.ID))
		fmt.Fprintf(w, "tenant\t%s\n", cell(o.Tenant))
		fmt.Fprintf(w, "hash\t%s (%s)\n", printable(o.Hash), printable(o.Alg))
		fmt.Fprintf(w, "salt\t%s\n", o.Salt)
		if o.Matches != nil {
			fmt.Fprintf(w, "parameters\t%s\n", map[bool]string{true: "these are the receipt's", false: "NOT THE RECEIPT'S"}[*o.Matches])
		}
		err = w.Flush()
	}
	if err == nil && o.Matches != nil && !*o.Matches {
		return exit(exitNotHold, nil)
	}
	return err
}
