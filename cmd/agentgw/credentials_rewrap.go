package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"agentgw/internal/vault"
)

func (c *cli) credentialsRewrapCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rewrap",
		Short: "Wrap all keys of the store under the vault key that took the place of another",
		Long: `Wrap all keys of the state store anew: under AGENTGATE_VAULT_KEY, where they are
wrapped by AGENTGATE_VAULT_KEY_PREVIOUS. What they seal stays as it is. Give each
gateway both keys first; when this says 0 the previous one is needed no more.

Credentials of persons that an earlier version sealed under the key of the shared
ones are sealed anew as well, each under a key of that person's. Update each gateway
that runs on this data folder first: an earlier one does not find them then.

It may be broken off at any time and run again: all that is there can be read.`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withStore(cmd, func(ctx context.Context, at home) error {
				kek, err := vault.LoadKEK(ctx, kekSource(at.settings), at.store)
				if err != nil {
					return exit(exitCannotRun, err)
				}
				done, err := vault.Rewrap(ctx, at.store, kek)
				if err != nil {
					return exit(exitCannotRun, fmt.Errorf("after %d keys: %w", done, err))
				}
				sealed, err := vault.Reseal(ctx, at.store, kek, time.Now())
				if err != nil {
					return exit(exitCannotRun, fmt.Errorf("after %d keys and %d credentials: %w", done, sealed, err))
				}
				if asJSON {
					return c.printJSON(map[string]any{"rewrapped": done, "resealed": sealed})
				}
				fmt.Fprintf(c.stdout, "keys wrapped anew: %d\ncredentials sealed anew: %d\n", done, sealed)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	addHomeFlags(cmd)
	return cmd
}
