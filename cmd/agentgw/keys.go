package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"agentgw/internal/identity"
	"agentgw/internal/store"
)

func (c *cli) keysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Make, list, rotate and revoke gateway keys",
		Long: `Make, list, rotate and revoke the gateway keys of the state store.

Running gateways follow within two seconds. Keys that are declared in the
registry are not in the store: they are listed by agentgw check, rotated in the
file (docs/registry.md), and revoked by taking them out of it.`,
		Args: aCommand,
		RunE: c.needCommand,
	}
	cmd.AddCommand(c.keysCreateCommand(), c.keysListCommand(), c.keysRotateCommand(), c.keysRevokeCommand())
	return cmd
}

func (c *cli) keysCreateCommand() *cobra.Command {
	var ask keyRequest
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "create --id ID --services LIST --users LIST",
		Short: "Make a key and print it, this once",
		Long: `Make a key and print it. It is printed this once: the store keeps its hash.

Lists are separated by commas; '*' alone stands for everything.`,
		Example: `  agentgw keys create --id ci-bot --services github,search --users user-42 --expires 720h
  agentgw keys create --id ops --services '*' --users '*' --json`,
		Args: noArguments("the key is described by flags"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withNewStore(cmd, func(ctx context.Context, at home) error {
				return c.createKey(ctx, cmd, at, &ask, asJSON)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&ask.id, "id", "", "the key's name: up to 64 of a-z 0-9 . _ - (required)")
	f.StringVar(&ask.services, "services", "", "services that it may call (required)")
	f.StringVar(&ask.users, "users", "", "users on whose behalf it may call (on_behalf_of; required)")
	f.StringVar(&ask.actions, "actions", "", "patterns over SERVICE.ACTION that narrow the services, such as github.list_*")
	f.StringVar(&ask.tenant, "tenant", "", "the named tenant that its calls are charged to")
	f.StringVar(&ask.rps, "rps", "", "its own rate in calls a second, instead of the default")
	f.StringVar(&ask.burst, "burst", "", "burst of --rps; the rate rounded up, at least 1, if not given")
	f.StringVar(&ask.user, "user", "", "the user whose key this is, for rules and identity_limits; not for whom it may act (--users)")
	f.StringVar(&ask.space, "space", "", "the space whose key this is, likewise")
	f.StringVar(&ask.org, "org", "", "the organisation whose key this is, likewise")
	f.StringVar(&ask.notBefore, "not-before", "", "when it begins to be valid, such as 2026-12-01T00:00:00Z; at once if not given")
	f.StringVar(&ask.expires, "expires", "", "how long it is valid, such as 720h, from now; for ever if not given")
	f.BoolVar(&asJSON, "json", false, "print as JSON")
	for _, name := range []string{"id", "services", "users"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // the flag is not there: a mistake in the lines above
		}
	}
	addHomeFlags(cmd)
	return cmd
}

func (c *cli) createKey(ctx context.Context, cmd *cobra.Command, at home, ask *keyRequest, asJSON bool) error {
	ask.given = func(flag string) bool { return cmd.Flags().Changed(flag) }
	ask.named = func(flag string) string { return "--" + flag }
	limits, err := at.limits()
	if err != nil {
		return exit(exitCannotRun, err)
	}
	k, err := ask.key(at, limits, time.Now())
	if err != nil {
		return exit(exitUsage, err)
	}
	text, digest := identity.NewKey()
	k.Digest = digest
	if err := at.store.AddKey(ctx, k); err != nil {
		if old, _ := at.storedKey(ctx, k.ID); errors.Is(err, store.ErrExists) && old != nil && !old.RevokedAt.IsZero() {
			err = fmt.Errorf("--id: key %q was revoked on %s; ids are not used again", k.ID, when(&old.RevokedAt))
		}
		return exit(exitCannotRun, err)
	}
	if asJSON {
		return c.printJSON(map[string]string{"id": k.ID, "key": text.Reveal()})
	}
	return c.printTable(func(w *tabwriter.Writer) {
		fmt.Fprintf(w, "id\t%s\nkey\t%s\n", k.ID, text.Reveal())
	})
}

func (c *cli) keysListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the keys of the state store, revoked ones too",
		Long: `List the keys of the state store, revoked ones too, each with when a call came
with it last. A key that is being rotated has a second line, of its older secret,
as long as that is valid. A running gateway writes last uses down every 10 seconds
and when it stops; one that is killed loses those since.`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withStore(cmd, func(ctx context.Context, at home) error {
				lines, _, err := keyLines(ctx, at.store, time.Now())
				if err != nil {
					return exit(exitCannotRun, err)
				}
				return c.listKeys(lines, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	addHomeFlags(cmd)
	return cmd
}

func (c *cli) keysRevokeCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke a key for good; its id is not given again",
		Args:  oneArgument("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withStore(cmd, func(ctx context.Context, at home) error {
				return c.revokeKey(ctx, at, args[0], asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	addHomeFlags(cmd)
	return cmd
}

func (c *cli) revokeKey(ctx context.Context, at home, id string, asJSON bool) error {
	before, err := at.storedKey(ctx, id)
	if err != nil {
		return exit(exitCannotRun, err)
	}
	err = at.store.RevokeKey(ctx, id, time.Now())
	if static := at.staticKey(id); static != nil && errors.Is(err, store.ErrNotFound) {
		err = fmt.Errorf("key %q is declared at %s: take it out there", id, static.Pos)
	}
	if err != nil {
		return exit(exitCannotRun, err)
	}
	if static := at.staticTwin(before); static != nil {
		fmt.Fprintf(c.stderr, "agentgw: key %q at %s has the same id or the same secret and is served still: take it out there\n", static.ID, static.Pos)
	}
	if before != nil && !before.RevokedAt.IsZero() {
		if asJSON {
			return c.printJSON(map[string]any{"id": id, "revoked": true, "since": before.RevokedAt})
		}
		fmt.Fprintf(c.stdout, "key %s was already revoked on %s\n", id, when(&before.RevokedAt))
		return nil
	}
	if asJSON {
		return c.printJSON(map[string]any{"id": id, "revoked": true})
	}
	fmt.Fprintf(c.stdout, "key %s is revoked\n", id)
	return nil
}

func (c *cli) printTable(fill func(w *tabwriter.Writer)) error {
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fill(w)
	if err := w.Flush(); err != nil {
		return exit(exitCannotRun, err)
	}
	return nil
}

// when prints a time to the second, or a dash for none.
func when(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
