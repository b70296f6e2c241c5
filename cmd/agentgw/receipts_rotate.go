package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"agentgw/internal/receipts"
)

func (c *cli) receiptsRotateKeyCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rotate-key",
		Short: "Make the key that signs the log from the next start on",
		Long: `Make another signing key, and print its verifier key. Nothing changes until the gateway
is started the next time: then the log is handed over to it. Its last entry under the old
key names the new one, both keys sign the log so far, and the old key is deleted. The log
keeps its name and all its receipts, and whoever holds the old verifier key, or any other
that the log has had, can verify the whole log with it: "receipts verify" shows its keys.

Proofs and exports that were made before verify with the old verifier key, later ones with
the new: hand it to those who check them.

To take it back before that start, delete receipt-signing-key.next in the data folder.
Exits with 3 where one waits already, or there is no log yet.`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := c.dataFolder(cmd)
			if err != nil {
				return err
			}
			vkey, err := receipts.PrepareKey(data)
			switch {
			case errors.Is(err, fs.ErrExist):
				return exit(exitCannotRun, fmt.Errorf("%w: it takes over at the next start; its verifier key is %s", err, vkey))
			case errors.Is(err, fs.ErrNotExist):
				return exit(exitCannotRun, fmt.Errorf("%s: no receipt log there yet: its key is made when a gateway first runs", data))
			case err != nil:
				return exit(exitCannotRun, err)
			case asJSON:
				return c.printJSON(map[string]string{"vkey": vkey})
			}
			_, err = fmt.Fprintln(c.stdout, vkey)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	addHomeFlags(cmd)
	return cmd
}
