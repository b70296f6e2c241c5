package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"agentgw/internal/gateway"
	"agentgw/internal/registry"
	"agentgw/internal/vault"
)

// maxLink is how long a link may be good: it lies in somebody's mail meanwhile.
const maxLink = 7 * 24 * time.Hour

func (c *cli) credentialsLinkCommand() *cobra.Command {
	var ref vault.Ref
	var expires time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "link --service S [--user U] [--expires 1h]",
		Short: "Print a link by which a person connects an account, once",
		Long: `Print a link by which a person connects an account of a service whose credential
is oauth2: whoever opens it is sent to the service, and grants the access there.
It is good once, and whoever has it can use it: send it to the person alone.

The link leads to AGENTGATE_PUBLIC_URL. The service must know the address
AGENTGATE_PUBLIC_URL/oauth/SERVICE/callback as one that it may send people to.`,
		Example: `  agentgw credentials link --service github --user user-42`,
		Args:    noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkNewRef(cmd, ref); err != nil {
				return exit(exitUsage, err)
			}
			if expires <= 0 || expires > maxLink {
				return exit(exitUsage, fmt.Errorf("--expires: is not over 0 and up to %s", maxLink))
			}
			return c.withNewStore(cmd, func(ctx context.Context, at home) error {
				return c.linkCredential(ctx, at, ref, expires, asJSON)
			})
		},
	}
	cmd.Flags().DurationVar(&expires, "expires", time.Hour, "how long the link is good")
	credentialFlags(cmd, &ref, &asJSON)
	return cmd
}

func (c *cli) linkCredential(ctx context.Context, at home, ref vault.Ref, expires time.Duration, asJSON bool) error {
	if at.snapshot == nil {
		return exit(exitUsage, errors.New("only a registry tells where an account is; name it with --registry FILE"))
	}
	form, err := c.formOf(at, ref, false)
	if err != nil {
		return exit(exitUsage, err)
	}
	service := at.snapshot.Services[ref.Service]
	if form.OAuth2 == nil || service.Credential.OAuth2.Flow != registry.FlowAuthorizationCode {
		return exit(exitUsage, fmt.Errorf("--service: %s has no accounts that people connect: its credential is of type %s (%s)", ref.Service, form.Type, service.Pos))
	}
	if host, _, err := net.SplitHostPort(at.settings.Listen); at.settings.PublicURL == "" && (err != nil || host == "") {
		return exit(exitUsage, errors.New("AGENTGATE_PUBLIC_URL is not set, and AGENTGATE_LISTEN has no host to make a link of"))
	}
	now := time.Now()
	secret, err := vault.NewLink(ctx, at.store, ref, now, now.Add(expires))
	if err != nil {
		return exit(exitCannotRun, err)
	}
	if at.settings.PublicURL == "" {
		c.sayWarning("AGENTGATE_PUBLIC_URL is not set: the link opens on this computer alone")
	}
	url := gateway.StartOf(at.settings.PeopleURL(), ref.Service, secret)
	if asJSON {
		return c.printJSON(map[string]any{"url": url, "service": ref.Service, "user": ref.User, "expires_at": now.Add(expires).UTC()})
	}
	fmt.Fprintln(c.stdout, url)
	fmt.Fprintf(c.stderr, "agentgw: good once, until %s, for %s\n", now.Add(expires).Format(time.RFC3339), ref)
	return nil
}
