package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentgw/internal/vault"
)

func (c *cli) receiptsShredCommand() *cobra.Command {
	var (
		asJSON, yes bool
		tenant      string
	)
	cmd := &cobra.Command{
		Use:   "shred --tenant TENANT --yes",
		Short: "Delete the key of a tenant's parameters, so that nobody can ever show them",
		Long: `Delete the key that the salts of a tenant's receipts come from. Nobody, with the data
folder and the vault key neither, can then say of any parameters whether they were those of
the tenant's receipts so far. The log is not changed: receipts, proofs and exports verify as
before. There is no way back, so it wants --yes.

Running gateways follow within two seconds: they forget the key and make another for later
receipts. Of receipts written in between nobody can show the parameters. A salt that was
told before ("receipts open") stays told, and a backup of the data folder has the key still.
So have a shared database's log and backups, under the vault key (docs/fleet.md).

To do it again does no harm. Exits with 1 where the tenant has never had such a key.`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if tenant == "" {
				return exit(exitUsage, errors.New("shred needs --tenant: whose parameters"))
			}
			if !strings.Contains(tenant, ":") {
				tenant = "tenant:" + tenant
			}
			if !yes {
				return exit(exitUsage, fmt.Errorf("this makes it impossible, for good, to show the parameters of any receipt that %s has had; if that is what you want, add --yes", printable(tenant)))
			}
			return c.withStore(cmd, func(ctx context.Context, at home) error {
				key, err := vault.Shred(ctx, at.store, tenant, time.Now())
				switch {
				case errors.Is(err, vault.ErrNoKey):
					return exit(exitNotHold, fmt.Errorf("%s: %w: it has had no receipt, or is misspelt", printable(tenant), err))
				case errors.Is(err, vault.ErrShredded) && !asJSON:
					_, err = fmt.Fprintf(c.stdout, "the key %s of %s was deleted before, and there has been no other since: the parameters of its receipts cannot be shown any more\n", key, printable(tenant))
					return err
				case err != nil && !errors.Is(err, vault.ErrShredded):
					return exit(exitCannotRun, err)
				case asJSON:
					return c.printJSON(map[string]any{"tenant": tenant, "key": key, "shredded": true})
				}
				_, err = fmt.Fprintf(c.stdout, "the key %s of %s is deleted: the parameters of its receipts cannot be shown any more\n", key, printable(tenant))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "whose (acme, or in full tenant:acme, human:user-42; required)")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	addHomeFlags(cmd)
	return cmd
}
