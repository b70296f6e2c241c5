package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentgw/internal/delegation"
	"agentgw/internal/identity"
	"agentgw/internal/literal"
	"agentgw/internal/registry"
	"agentgw/internal/store"
	"agentgw/internal/vault"
)

// delegationRequest is what issue and narrow were asked for, as text.
type delegationRequest struct {
	user, agent, tenant string
	grants              []string
	expires             string
	depth               int
	cnf                 string
}

func (r *delegationRequest) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.agent, "agent", "", "the agent that may use it: a key's id, or oidc:ISSUER#SUBJECT (required)")
	f.StringArrayVar(&r.grants, "grant", nil, `SERVICE.ACTION that it may call, or SERVICE.* for all that there are now; with constraints on parameters behind it: 'github.create_issue{"owner":{"const":"acme"}}'; may be given several times`)
	f.IntVar(&r.depth, "depth", 0, "how often it may be handed on, up to 3")
	f.StringVar(&r.cnf, "cnf", "", "the key that may hand it on: its thumbprint (RFC 7638), or a file with the public key (PEM or JWK, Ed25519)")
	if err := cmd.MarkFlagRequired("agent"); err != nil {
		panic(err) // the flag is not there: a mistake in the lines above
	}
}

func (c *cli) delegationsIssueCommand() *cobra.Command {
	var ask delegationRequest
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "issue --user U --agent KEYID --grant SERVICE.ACTION [--grant ...]",
		Short: "Issue a delegation and print it",
		Long: `Issue a delegation and print it: the user lets the agent make these calls for him,
until it expires. The agent sends it in Agentgate-Delegation. It is of no use to
anybody else, and is not kept.

A constraint is {"const":v}, {"enum":[v,...]}, {"prefix":"s"} or {"max":n}.`,
		Example: `  agentgw delegations issue --user alice --agent ci-bot --grant github.list_issues
  agentgw delegations issue --user alice --agent planner --expires 8h --depth 1 --cnf planner.pub \
    --grant 'github.create_issue{"owner":{"const":"acme"}}'`,
		Args: noArguments("the delegation is described by flags"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withNewStore(cmd, func(ctx context.Context, at home) error { return c.issueDelegation(ctx, at, &ask, asJSON) })
		},
	}
	cmd.Flags().StringVar(&ask.user, "user", "", "the user who delegates, as in on_behalf_of (required)")
	ask.flags(cmd)
	cmd.Flags().StringVar(&ask.expires, "expires", "1h", "how long it is good, up to 24h")
	cmd.Flags().StringVar(&ask.tenant, "tenant", "", "the named tenant of an agent that has no key; of one that has, the key says it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	for _, name := range []string{"user", "grant"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // the flag is not there: a mistake in the lines above
		}
	}
	addHomeFlags(cmd)
	return cmd
}

func (c *cli) issueDelegation(ctx context.Context, at home, ask *delegationRequest, asJSON bool) error {
	revocations, err := at.store.Revocations(ctx)
	if err != nil {
		return exit(exitCannotRun, err)
	}
	agent, err := at.staticOrStored(ctx, ask.agent)
	if err != nil {
		return exit(exitCannotRun, err)
	}
	g, err := ask.grant(declared(at.snapshot), notBefore(time.Now(), revocations, func(r store.Revocation) bool {
		return r.Kind == store.RevokedUser && r.Name == ask.user || r.Kind == store.RevokedAgent && r.Name == ask.agent
	}))
	if err == nil {
		err = errors.Join(checkBounds(&g, at.snapshot), ask.fits(&g, agent, at.snapshot, time.Now()))
	}
	if err != nil {
		return exit(exitUsage, err)
	}
	kek, err := rootKEK(ctx, at)
	if err != nil {
		return exit(exitCannotRun, err)
	}
	root, err := vault.SigningRoot(ctx, at.store, kek, time.Now())
	if err != nil {
		return exit(exitCannotRun, err)
	}
	token, said, err := delegation.Issue(root, root.ID, at.settings.DelegationURI(), g)
	if err != nil {
		return exit(exitUsage, err)
	}
	if len(token) > delegation.MaxBytes {
		return exit(exitUsage, fmt.Errorf("the delegation is %d bytes long and may be %d: grant less in one", len(token), delegation.MaxBytes))
	}
	if asJSON {
		return c.printJSON(issued{Token: token, ID: said.ID, ExpiresAt: g.Until.UTC(), Kid: root.ID})
	}
	fmt.Fprintln(c.stdout, token)
	return nil
}

// issued is a delegation as issue and narrow print it.
type issued struct {
	Token     string    `json:"token"`
	ID        string    `json:"jti"`
	ExpiresAt time.Time `json:"expires_at"`
	Kid       string    `json:"kid,omitempty"` // of the root that signed it
}

// notBefore is the second from which a delegation of now is to be: behind those in which
// what concerns it was revoked, or it would be over with what was issued before. A
// revocation has to come behind them too, lest it miss what was put off like that.
func notBefore(now time.Time, revocations []store.Revocation, concerns func(store.Revocation) bool) time.Time {
	from := now.Truncate(time.Second)
	for _, r := range revocations {
		if r.Kind != store.RevokedToken && concerns(r) && !from.After(r.RevokedAt) && r.RevokedAt.Before(now.Add(delegation.Leeway)) {
			from = r.RevokedAt.Truncate(time.Second).Add(time.Second)
		}
	}
	return from
}

// declared are the actions of a registry, by service; nil where there is none.
func declared(snapshot *registry.Snapshot) map[string][]string {
	if snapshot == nil {
		return nil
	}
	all := map[string][]string{}
	for name, s := range snapshot.Services {
		all[name] = slices.Sorted(maps.Keys(s.Actions))
	}
	if snapshot.Tunnels != nil {
		all[registry.TunnelService] = snapshot.Tunnels.Hosts()
	}
	return all
}

// grant reads the request. there are the actions that can be granted, by service; nil
// where nobody knows.
func (r *delegationRequest) grant(there map[string][]string, from time.Time) (delegation.Grant, error) {
	g := delegation.Grant{User: r.user, Agent: r.agent, Tenant: r.tenant, Depth: r.depth, From: from}
	var problems []error
	fail := func(flag string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	fail("agent", checkAgentName(r.agent))
	for _, text := range r.grants {
		d, err := readGrant(text, there)
		fail("grant", err)
		g.Details = granting(g.Details, d)
	}
	if r.expires != "" {
		life, err := literal.Duration(r.expires)
		if err == nil && (life < time.Second || life > delegation.MaxLife) {
			err = fmt.Errorf("%s is not between 1s and 24h", literal.Span(life))
		}
		fail("expires", err)
		g.Until = from.Add(life)
	}
	switch {
	case r.depth < 0 || r.depth >= delegation.MaxLinks:
		fail("depth", fmt.Errorf("%d is not 0 to %d", r.depth, delegation.MaxLinks-1))
	case r.depth > 0 && r.cnf == "":
		fail("depth", errors.New("what may be handed on names the key that may do so: give --cnf too"))
	case r.depth == 0 && r.cnf != "":
		fail("cnf", errors.New("what may not be handed on needs no key: give --depth too"))
	}
	if r.cnf != "" {
		var err error
		g.Thumbprint, err = thumbprintOf(r.cnf)
		fail("cnf", err)
	}
	return g, errors.Join(problems...)
}

// granting adds d to details, of which there may be few: actions of one service that
// nothing constrains are one of them.
func granting(details []delegation.Detail, d delegation.Detail) []delegation.Detail {
	for i := range details {
		same := &details[i]
		if same.Service == d.Service && same.Constraints == nil && d.Constraints == nil && len(same.Actions)+len(d.Actions) <= delegation.MaxActions {
			for _, action := range d.Actions {
				if !slices.Contains(same.Actions, action) {
					same.Actions = append(slices.Clip(same.Actions), action)
				}
			}
			return details
		}
	}
	return append(details, d)
}

// readGrant reads SERVICE.ACTION, perhaps with constraints. Both names may hold dots,
// so that there decides where the one ends.
func readGrant(text string, there map[string][]string) (delegation.Detail, error) {
	name, bounds := text, ""
	if i := strings.IndexByte(text, '{'); i >= 0 {
		name, bounds = text[:i], text[i:]
	}
	var found []delegation.Detail
	for i := range name {
		service, action := name[:i], strings.TrimPrefix(name[i:], ".")
		if name[i] != '.' || !registry.IsID(service) || action != identity.Everything && !registry.IsID(action) {
			continue
		}
		d := delegation.Detail{Type: delegation.DetailType, Service: service, Actions: []string{action}}
		if there != nil && action == identity.Everything {
			d.Actions = there[service]
		}
		if there == nil || len(d.Actions) > 0 && slices.Contains(there[service], d.Actions[0]) {
			found = append(found, d)
		}
	}
	switch {
	case len(found) == 0 && there != nil:
		return delegation.Detail{}, fmt.Errorf("%s is no SERVICE.ACTION that there is", literal.Quote(name))
	case len(found) == 0:
		return delegation.Detail{}, fmt.Errorf("%s is not SERVICE.ACTION", literal.Quote(name))
	case len(found) > 1:
		return delegation.Detail{}, fmt.Errorf("%s can be read in several ways: there is more than one dot", literal.Quote(name))
	case found[0].Actions[0] == identity.Everything:
		return delegation.Detail{}, fmt.Errorf("%s: without a registry it is not known which actions these are", literal.Quote(name))
	}
	d := found[0]
	if bounds != "" {
		var err error
		if d.Constraints, err = delegation.ParseConstraints(bounds); err != nil {
			return d, fmt.Errorf("%s: %w", literal.Quote(name), err)
		}
	}
	return d, nil
}

// checkBounds refuses constraints that no call could keep to.
func checkBounds(g *delegation.Grant, snapshot *registry.Snapshot) error {
	if snapshot == nil {
		return nil
	}
	for _, d := range g.Details {
		for _, name := range slices.Sorted(maps.Keys(d.Constraints)) {
			for _, action := range d.Actions {
				var params []registry.Param // of a tunnel: none
				if s := snapshot.Services[d.Service]; s != nil {
					params = s.Actions[action].Params()
				}
				if !slices.ContainsFunc(params, func(p registry.Param) bool { return p.Name == name }) {
					return fmt.Errorf("--grant: %s.%s has no parameter %q to constrain", d.Service, action, name)
				}
			}
		}
	}
	return nil
}

// delegate is the key of an agent.
type delegate struct {
	*identity.Key
	revoked time.Time
}

// fits refuses what the agent could never use, and enters its tenant.
func (r *delegationRequest) fits(g *delegation.Grant, agent *delegate, snapshot *registry.Snapshot, now time.Time) error {
	if agent == nil {
		return r.fitsCaller(snapshot)
	}
	if r.tenant != "" && r.tenant != agent.Tenant {
		return fmt.Errorf("--tenant: the key %s is of another tenant, or of none", r.agent)
	}
	g.Tenant = agent.Tenant
	switch {
	case !agent.revoked.IsZero():
		return fmt.Errorf("--agent: the key %s was revoked on %s", r.agent, when(&agent.revoked))
	case !agent.NotAfter.IsZero() && !now.Before(agent.NotAfter):
		return fmt.Errorf("--agent: the key %s expired on %s", r.agent, when(&agent.NotAfter))
	case !agent.AllowsUser(r.user):
		return fmt.Errorf("--user: the key %s may not act for %s", r.agent, literal.Quote(r.user))
	}
	for _, d := range g.Details {
		for _, action := range d.Actions {
			if !agent.Allows(d.Service, action) {
				return fmt.Errorf("--grant: the key %s may not call %s.%s", r.agent, d.Service, action)
			}
		}
	}
	return nil
}

// fitsCaller is fits for an agent that has no key. Its scope is not known before it comes.
func (r *delegationRequest) fitsCaller(snapshot *registry.Snapshot) error {
	issuer, _, ok := identity.ParseCallerID(r.agent)
	if !ok {
		return fmt.Errorf("--agent: there is no key %s", literal.Quote(r.agent))
	}
	if snapshot == nil {
		return nil
	}
	if !slices.ContainsFunc(snapshot.Issuers, func(i registry.Issuer) bool { return i.Issuer == issuer }) {
		return fmt.Errorf("--agent: %s has no issuer %s", snapshot.File, literal.Quote(issuer))
	}
	if _, there := snapshot.Tenants[r.tenant]; r.tenant != "" && !there {
		return fmt.Errorf("--tenant: there is no tenant %s in %s", literal.Quote(r.tenant), snapshot.File)
	}
	return nil
}
