package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"agentgw/internal/identity"
	"agentgw/internal/literal"
	"agentgw/internal/secret"
	"agentgw/internal/store"
)

func (c *cli) keysRotateCommand() *cobra.Command {
	var asJSON bool
	var grace string
	cmd := &cobra.Command{
		Use:   "rotate ID",
		Short: "Give a key a new secret and print it, this once; the old one is valid for a while",
		Long: `Give a key a new secret and print it. It is printed this once: the store keeps its
hash. Id, scope, limits, tenant and expiry stay, and both secrets are the same
caller, with one bucket. The old secret is valid for --grace from now, but no
longer than the key; then calls that run with it are ended. keys list shows
which secret is still in use. With --grace 0 every older secret ends at once.`,
		Example: `  agentgw keys rotate ci-bot
  agentgw keys rotate ci-bot --grace 0 --json`,
		Args: oneArgument("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withStore(cmd, func(ctx context.Context, at home) error {
				return c.rotateKey(ctx, at, args[0], grace, asJSON)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&grace, "grace", "24h", "how long the old secret is valid still, such as 24h; 0: not at all")
	f.BoolVar(&asJSON, "json", false, "print as JSON")
	addHomeFlags(cmd)
	return cmd
}

// rotated is a new secret of a key.
type rotated struct {
	ID       string     `json:"id"`
	Key      string     `json:"key"`
	OldUntil *time.Time `json:"old_expires_at,omitempty"` // absent: the old one is no longer valid
}

func (c *cli) rotateKey(ctx context.Context, at home, id, grace string, asJSON bool) error {
	d, err := literal.Duration(grace)
	if err == nil && d > longestLife {
		err = errors.New("over a hundred years")
	}
	if err != nil {
		return exit(exitUsage, fmt.Errorf("--grace: %w", err))
	}
	text, until, err := rotate(ctx, at.store, id, d, time.Now())
	if static := at.staticKey(id); static != nil && errors.Is(err, store.ErrNotFound) {
		err = fmt.Errorf("key %q is declared at %s: put the new key's SHA-256 there as sha256, and the old one under retiring with its not_after", id, static.Pos)
	}
	if err != nil {
		return exit(exitCannotRun, err)
	}
	if asJSON {
		return c.printJSON(rotated{ID: id, Key: text.Reveal(), OldUntil: given(until)})
	}
	return c.printTable(func(w *tabwriter.Writer) {
		fmt.Fprintf(w, "id\t%s\nkey\t%s\n", id, text.Reveal())
		if until.IsZero() {
			fmt.Fprintf(w, "old key\tno longer valid\n")
			return
		}
		fmt.Fprintf(w, "old key\tvalid until %s\n", when(&until))
	})
}

// rotate gives a stored key a new secret, and returns its text and until when the old
// one is valid; the zero time is that it is no longer.
func rotate(ctx context.Context, s *store.Store, id string, grace time.Duration, now time.Time) (text secret.Text, until time.Time, err error) {
	keys, err := s.Keys(ctx)
	if err != nil {
		return text, until, err
	}
	end := now.Add(grace)
	for _, k := range keys {
		switch {
		case k.ID != id || k.NotAfter.IsZero():
		case !now.Before(k.NotAfter):
			return text, until, fmt.Errorf("key %q has expired on %s, and a new secret would have too: make another key", id, when(&k.NotAfter))
		case end.After(k.NotAfter):
			end = k.NotAfter
		}
	}
	text, digest := identity.NewKey()
	err = s.RotateKey(ctx, id, digest, now, end)
	switch {
	case errors.Is(err, store.ErrTwoSecrets):
		return secret.Text{}, until, fmt.Errorf("%w: wait for the end of the older one (keys list), or end both with --grace 0", err)
	case err != nil:
		return secret.Text{}, until, err
	case end.After(now):
		until = end
	}
	return text, until, nil
}
