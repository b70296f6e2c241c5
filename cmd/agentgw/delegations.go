package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"agentgw/internal/delegation"
	"agentgw/internal/identity"
	"agentgw/internal/literal"
	"agentgw/internal/registry"
	"agentgw/internal/store"
	"agentgw/internal/vault"
)

func (c *cli) delegationsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delegations",
		Short: "Issue, inspect, narrow and revoke delegations",
		Long: `Issue, inspect, narrow and revoke delegations: signed grants by which an agent
acts for a human, sent in Agentgate-Delegation. docs/delegation.md tells of them.

Running gateways follow within two seconds.`,
		Args: aCommand,
		RunE: c.needCommand,
	}
	cmd.AddCommand(c.delegationsIssueCommand(), c.delegationsInspectCommand(), c.delegationsNarrowCommand(),
		c.delegationsRevokeCommand(), c.delegationsRotateCommand())
	return cmd
}

// rootKEK is the vault key, under which roots are kept.
func rootKEK(ctx context.Context, at home) (vault.KEK, error) {
	return vault.LoadKEK(ctx, kekSource(at.settings), at.store)
}

func (c *cli) delegationsRevokeCommand() *cobra.Command {
	var agent, user string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "revoke JTI | --agent ID | --user U",
		Short: "Take delegations back, and all that was made of them",
		Long: `Take delegations back: one by its id, with every one that was narrowed from it; or
all that an agent takes part in, or all of a user, that were issued until now. Calls
that run by one end. What is issued later is not touched.

The id of a delegation is printed by issue and inspect, and stands in receipts.`,
		Example: `  agentgw delegations revoke 5WQ2M3KXJ7Y4VZLR6CETB4NUAH
  agentgw delegations revoke --user alice`,
		Args: atMostOne("JTI"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := store.Revocation{RevokedAt: time.Now()}
			given := 0
			for kind, name := range map[string]string{store.RevokedAgent: agent, store.RevokedUser: user} {
				if cmd.Flags().Changed(kind) {
					given++
					r.Kind, r.Name = kind, name
				}
			}
			if len(args) == 1 {
				given++
				r.Kind, r.Name = store.RevokedToken, args[0]
			}
			if given != 1 {
				return exit(exitUsage, fmt.Errorf("one of JTI, --agent and --user is wanted: %s", cmd.UseLine()))
			}
			if err := checkRevocation(&r); err != nil {
				return exit(exitUsage, err)
			}
			return c.withStore(cmd, func(ctx context.Context, at home) error { return c.revokeDelegations(ctx, at, r, asJSON) })
		},
	}
	cmd.Flags().StringVar(&agent, "agent", "", "the agent: a key's id, or oidc:ISSUER#SUBJECT")
	cmd.Flags().StringVar(&user, "user", "", "the user, as in on_behalf_of")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	addHomeFlags(cmd)
	return cmd
}

// checkRevocation refuses what would revoke nothing and look as if it did. A delegation
// and its receipts say user:alice for alice, and whoever is called user:alice himself is
// told apart by saying it twice.
func checkRevocation(r *store.Revocation) error {
	switch r.Kind {
	case store.RevokedToken:
		if err := delegation.CheckID(r.Name); err != nil {
			return fmt.Errorf("JTI: %w", err) // without it, which may be a whole token
		}
	case store.RevokedAgent:
		if err := checkAgentName(r.Name); err != nil {
			return fmt.Errorf("--agent: %w", err)
		}
	case store.RevokedUser:
		name, prefixed := strings.CutPrefix(r.Name, "user:")
		switch {
		case r.Name == "":
			return errors.New("--user: is empty")
		case prefixed && !strings.HasPrefix(name, "user:"):
			return fmt.Errorf("--user: in a delegation %s is the user %s: write that, or user:%[1]s for whoever is called so in on_behalf_of", r.Name, literal.Quote(name))
		case prefixed:
			r.Name = name
		}
	}
	return nil
}

// checkAgentName says why nobody could be an agent of that name, or nil.
func checkAgentName(name string) error {
	if _, _, ok := identity.ParseCallerID(name); ok || registry.IsID(name) {
		return nil
	}
	if bare, prefixed := strings.CutPrefix(name, "agent:"); prefixed && checkAgentName(bare) == nil {
		return fmt.Errorf("in a delegation %s is the agent %s: write that", name, bare)
	}
	return fmt.Errorf("%s is no agent's name: it is a key's id, or oidc:ISSUER#SUBJECT", literal.Quote(name))
}

// checkAgent refuses an agent that nobody here is: a misspelt one would go on. Without a
// registry it is not known who there is.
func (h home) checkAgent(ctx context.Context, name string) error {
	if h.snapshot == nil {
		return nil
	}
	if issuer, _, ok := identity.ParseCallerID(name); ok {
		if !slices.ContainsFunc(h.snapshot.Issuers, func(i registry.Issuer) bool { return i.Issuer == issuer }) {
			return exit(exitUsage, fmt.Errorf("--agent: %s has no issuer %s; nothing is revoked", h.snapshot.File, literal.Quote(issuer)))
		}
		return nil
	}
	var ids []string
	for _, k := range h.snapshot.Keys {
		ids = append(ids, k.ID)
	}
	stored, err := h.store.Keys(ctx)
	if err != nil {
		return exit(exitCannotRun, err)
	}
	for _, k := range stored {
		ids = append(ids, k.ID)
	}
	if slices.Contains(ids, name) {
		return nil
	}
	hint := ""
	if near := literal.Nearest(name, ids); near != "" {
		hint = "; did you mean " + near + "?"
	}
	return exit(exitUsage, fmt.Errorf("--agent: there is no key %s; nothing is revoked%s", literal.Quote(name), hint))
}

func (c *cli) revokeDelegations(ctx context.Context, at home, r store.Revocation, asJSON bool) error {
	if r.Kind == store.RevokedAgent {
		if err := at.checkAgent(ctx, r.Name); err != nil {
			return err
		}
	}
	before, err := at.store.Revocations(ctx)
	if err != nil {
		return exit(exitCannotRun, err)
	}
	r.RevokedAt = notBefore(r.RevokedAt, before, func(store.Revocation) bool { return r.Kind != store.RevokedToken })
	if err := at.store.RevokeDelegations(ctx, r); err != nil {
		return exit(exitCannotRun, err)
	}
	if asJSON {
		return c.printJSON(map[string]any{r.Kind: r.Name, "revoked": true})
	}
	switch r.Kind {
	case store.RevokedToken:
		fmt.Fprintf(c.stdout, "noted: delegation %s, and all that was made of it, is refused from now on; ids are not kept, so nobody looked whether there is one\n", r.Name)
	case store.RevokedUser:
		fmt.Fprintf(c.stdout, "noted: all delegations of the user %s that were issued until now are revoked; users are not kept, so nobody looked whether there are any\n", literal.Quote(r.Name))
	default:
		fmt.Fprintf(c.stdout, "all delegations of the %s %s that were issued until now are revoked\n", r.Kind, literal.Quote(r.Name))
	}
	return nil
}

func (c *cli) delegationsRotateCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Sign delegations with a new key from now on",
		Long: `Sign delegations with a new key from now on. What the key before it signed holds
until it is over; what an older key signed does not any more. To void all that was
issued, rotate twice.`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withStore(cmd, func(ctx context.Context, at home) error { return c.rotateRoot(ctx, at, asJSON) })
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	addHomeFlags(cmd)
	return cmd
}

func (c *cli) rotateRoot(ctx context.Context, at home, asJSON bool) error {
	kek, err := rootKEK(ctx, at)
	if err != nil {
		return exit(exitCannotRun, err)
	}
	root, err := vault.RotateRoot(ctx, at.store, kek, time.Now())
	if errors.Is(err, store.ErrConflict) {
		err = fmt.Errorf("another process rotated at the same moment; nothing was done here: %w", err)
	}
	if err != nil {
		return exit(exitCannotRun, err)
	}
	roots, err := at.store.Roots(ctx)
	if err != nil {
		return exit(exitCannotRun, err)
	}
	var kids []string
	for _, r := range roots {
		kids = append(kids, r.ID)
	}
	if asJSON {
		return c.printJSON(map[string]any{"kid": root.ID, "trusted": kids})
	}
	return c.printTable(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "ROOT\tSIGNS\tMADE")
		for _, r := range roots {
			signs := "no; what it signed holds"
			if r.ID == root.ID {
				signs = "yes"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", r.ID, signs, when(&r.CreatedAt))
		}
	})
}

// staticOrStored returns the key of that id as agents are known by it, or nil.
func (h home) staticOrStored(ctx context.Context, id string) (*delegate, error) {
	if k := h.staticKey(id); k != nil {
		return &delegate{Key: staticKey(k)}, nil
	}
	k, err := h.storedKey(ctx, id)
	if err != nil || k == nil {
		return nil, err
	}
	return &delegate{Key: storedKey(*k), revoked: k.RevokedAt}, nil
}
