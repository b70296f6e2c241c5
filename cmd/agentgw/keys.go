package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"agentgw/internal/identity"
	"agentgw/internal/store"
)

func (c *cli) keysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Make, list and revoke gateway keys",
		Long: `Make, list and revoke the gateway keys of the state store.

Running gateways follow within two seconds. Keys that are declared in the
registry are not in the store: they are listed by agentgw check, and revoked by
taking them out of the file.`,
		Args: aCommand,
		RunE: c.needCommand,
	}
	cmd.AddCommand(c.keysCreateCommand(), c.keysListCommand(), c.keysRevokeCommand())
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
	f.StringVar(&ask.expires, "expires", "", "how long it is valid, such as 720h; for ever if not given")
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
		Args:  noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withStore(cmd, func(ctx context.Context, at home) error {
				keys, err := at.store.Keys(ctx)
				if err != nil {
					return exit(exitCannotRun, err)
				}
				return c.listKeys(keys, time.Now(), asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	addHomeFlags(cmd)
	return cmd
}

// keyLine is a key as keys list shows it.
type keyLine struct {
	ID        string     `json:"id"`
	State     string     `json:"state"` // valid, expired or revoked
	Services  []string   `json:"services"`
	Actions   []string   `json:"actions,omitempty"`
	Users     []string   `json:"users"`
	Tenant    string     `json:"tenant,omitempty"`
	RPS       *float64   `json:"rps,omitempty"`
	Burst     *int       `json:"burst,omitempty"`
	User      string     `json:"user,omitempty"`
	Space     string     `json:"space,omitempty"`
	Org       string     `json:"org,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
}

func newKeyLine(k store.Key, now time.Time) keyLine {
	line := keyLine{
		ID: k.ID, State: "valid", Services: k.Services, Actions: k.Actions, Users: k.Users, Tenant: k.Tenant,
		User: k.User, Space: k.Space, Org: k.Org, CreatedAt: k.CreatedAt,
	}
	if k.Limits != nil {
		line.RPS, line.Burst = &k.Limits.RPS, &k.Limits.Burst
	}
	if !k.NotAfter.IsZero() {
		line.ExpiresAt = &k.NotAfter
		if !now.Before(k.NotAfter) {
			line.State = "expired"
		}
	}
	if !k.RevokedAt.IsZero() {
		line.RevokedAt, line.State = &k.RevokedAt, "revoked"
	}
	return line
}

func (c *cli) listKeys(keys []store.Key, now time.Time, asJSON bool) error {
	lines := make([]keyLine, 0, len(keys))
	for _, k := range keys {
		lines = append(lines, newKeyLine(k, now))
	}
	if asJSON {
		return c.printJSON(lines)
	}
	return c.printTable(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "ID\tSTATE\tSERVICES\tACTIONS\tUSERS\tTENANT\tOWNER\tCREATED\tEXPIRES")
		for _, l := range lines {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.ID, l.State, strings.Join(l.Services, ","),
				orDash(strings.Join(l.Actions, ",")), printable(strings.Join(l.Users, ",")), orDash(l.Tenant), orDash(printable(l.owner())), when(&l.CreatedAt), when(l.ExpiresAt))
		}
	})
}

// owner is whose key it is, in words.
func (l keyLine) owner() string {
	var all []string
	for _, of := range []struct{ what, who string }{{"user", l.User}, {"space", l.Space}, {"org", l.Org}} {
		if of.who != "" {
			all = append(all, of.what+" "+of.who)
		}
	}
	return strings.Join(all, ", ")
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
