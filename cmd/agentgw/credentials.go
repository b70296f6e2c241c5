package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"agentgw/internal/gateway"
	"agentgw/internal/literal"
	"agentgw/internal/redact"
	"agentgw/internal/registry"
	"agentgw/internal/secret"
	"agentgw/internal/vault"
)

// maxSecret is far above what any upstream takes in a header.
const maxSecret = 64 << 10

func (c *cli) credentialsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "credentials",
		Short: "Keep the credentials that the services ask for",
		Long: `Keep the credentials that the services ask for, sealed in the state store.

Running gateways follow within two seconds. No command shows a stored secret.`,
		Args: aCommand,
		RunE: c.needCommand,
	}
	cmd.AddCommand(c.credentialsSetCommand(), c.credentialsLinkCommand(), c.credentialsListCommand(), c.credentialsRemoveCommand(), c.credentialsRewrapCommand())
	return cmd
}

// credentialFlags adds the flags that name a credential.
func credentialFlags(cmd *cobra.Command, ref *vault.Ref, asJSON *bool) {
	cmd.Flags().StringVar(&ref.Service, "service", "", "the service (required)")
	cmd.Flags().StringVar(&ref.User, "user", "", "the user whose own credential it is; the shared one if not given")
	cmd.Flags().BoolVar(asJSON, "json", false, "print as JSON")
	if err := cmd.MarkFlagRequired("service"); err != nil {
		panic(err) // the flag is not there: a mistake in the lines above
	}
	addHomeFlags(cmd)
}

// checkRef refuses names that no credential can be stored under. An empty
// --user, as of an unset shell variable, must not mean the shared credential.
func checkRef(cmd *cobra.Command, ref vault.Ref) error {
	if !registry.IsID(ref.Service) {
		return fmt.Errorf("--service: %s is not the name of a service", literal.Quote(ref.Service))
	}
	if cmd.Flags().Changed("user") && ref.User == "" {
		return errors.New("--user: is empty; leave it out for the shared credential")
	}
	return nil
}

// checkNewRef is checkRef for what is to be kept: a person whom no call can name would
// never be given it.
func checkNewRef(cmd *cobra.Command, ref vault.Ref) error {
	if u := ref.User; !utf8.ValidString(u) || len(u) > 256 || strings.ContainsFunc(u, unicode.IsControl) {
		return fmt.Errorf("--user: %s is longer than 256 bytes, is no UTF-8 or has control characters: no call can name it", literal.Quote(u))
	}
	return checkRef(cmd, ref)
}

func (c *cli) credentialsSetCommand() *cobra.Command {
	var ref vault.Ref
	var file string
	var client, asJSON bool
	cmd := &cobra.Command{
		Use:   "set --service S [--user U] [--client-secret] [--from-file F]",
		Short: "Store a credential, read from standard input or a file",
		Long: `Store a credential, in the place of the one that is there.

The secret is read from standard input or --from-file, never from an argument,
which other users of this computer could see. One line end at its end is
dropped. For a service of type basic it is user:password. For one of type oauth2
it is a refresh token that you have of elsewhere (agentgw credentials link gets
one by itself), or with --client-secret the secret of the gateway's client.

A credential is kept for the host of the service's base_url, or of its token_url,
and goes to no other: where that changes, set it again.`,
		Example: `  printf %s "$TOKEN" | agentgw credentials set --service github
  agentgw credentials set --service github --user user-42 --from-file token.txt`,
		Args: noArguments("the secret comes from standard input or --from-file; one that was typed here may be in the history of the shell"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkNewRef(cmd, ref); err != nil {
				return exit(exitUsage, err)
			}
			return c.withNewStore(cmd, func(ctx context.Context, at home) error {
				return c.setCredential(ctx, at, ref, client, file, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&client, "client-secret", false, "it is the secret of the oauth2 client that the gateway is for this service")
	cmd.Flags().StringVar(&file, "from-file", "", "the file that holds the secret; standard input if not given")
	credentialFlags(cmd, &ref, &asJSON)
	return cmd
}

func (c *cli) setCredential(ctx context.Context, at home, ref vault.Ref, client bool, file string, asJSON bool) error {
	form, err := c.formOf(at, ref, client)
	if err != nil {
		return exit(exitUsage, err)
	}
	text, err := c.readSecret(file)
	if err != nil {
		return err
	}
	v, err := at.vault(ctx)
	if err != nil {
		return exit(exitCannotRun, err)
	}
	now := time.Now()
	entry := vault.Entry{Ref: ref, Kind: vault.KindSecret, Host: form.Host, UpdatedAt: now}
	switch {
	case client:
		entry.Kind, entry.Host = vault.KindClient, form.OAuth2.Host()
		err = v.SetClient(ctx, ref.Service, form.OAuth2, text, now)
	case form.OAuth2 != nil:
		entry.Kind = vault.KindToken
		err = v.SetRefresh(ctx, ref, form, text, now)
	default:
		err = v.Set(ctx, ref, form, text, now)
	}
	switch {
	case errors.Is(err, vault.ErrUnfit):
		return exit(exitUsage, err)
	case err != nil:
		return exit(exitCannotRun, err)
	}
	if entry.Kind == vault.KindSecret && len(text.Reveal()) < redact.Shortest {
		fmt.Fprintf(c.stderr, "agentgw: warning: fewer than %d bytes are not taken out of an answer that repeats them\n", redact.Shortest)
	}
	if asJSON {
		return c.printJSON(newCredentialLine(entry))
	}
	fmt.Fprintf(c.stdout, "the credential is stored: %s\n", ref)
	return nil
}

// vault opens the vault of the store.
func (h home) vault(ctx context.Context) (*vault.Vault, error) {
	kek, err := vault.LoadKEK(ctx, kekSource(h.settings), h.store)
	if err != nil {
		return nil, err
	}
	return vault.Load(ctx, h.store, kek)
}

// formOf returns how the service wants the credential, or the secret of its client,
// where there is a registry to tell. A credential on the wrong side of per user and
// shared is stored all the same, since the registry may be about to change, but said.
func (c *cli) formOf(at home, ref vault.Ref, client bool) (vault.Form, error) {
	if at.snapshot == nil {
		if client {
			return vault.Form{}, errors.New("--client-secret: only a registry tells whose secret that is; name it with --registry FILE")
		}
		return vault.Form{}, nil
	}
	service := at.snapshot.Services[ref.Service]
	if service == nil {
		return vault.Form{}, fmt.Errorf("--service: there is no service %q in %s", ref.Service, at.snapshot.File)
	}
	credential := service.Credential
	switch {
	case credential.Type == vault.TypeNone:
		return vault.Form{}, fmt.Errorf("--service: %s takes no credential (%s)", ref.Service, service.Pos)
	case client && (credential.OAuth2 == nil || credential.OAuth2.ClientAuth == "none"):
		return vault.Form{}, fmt.Errorf("--client-secret: %s has no oauth2 client with a secret (%s)", ref.Service, service.Pos)
	case client && ref.User != "":
		return vault.Form{}, errors.New("--client-secret: a client is nobody's own; leave --user out")
	case client:
	case credential.OAuth2 != nil && credential.OAuth2.Flow == registry.FlowClientCredentials:
		return vault.Form{}, fmt.Errorf("--service: %s gets tokens of its own, and needs only the secret of its client: give --client-secret (%s)", ref.Service, service.Pos)
	case credential.PerUser && ref.User == "":
		fmt.Fprintf(c.stderr, "agentgw: warning: %s uses each user's own credential and never the shared one (%s)\n", ref.Service, service.Pos)
	case !credential.PerUser && ref.User != "":
		fmt.Fprintf(c.stderr, "agentgw: warning: %s uses the shared credential for every user (%s)\n", ref.Service, service.Pos)
	}
	return gateway.CredentialForm(service), nil
}

// readSecret reads the secret without its last line end, and no more than that:
// what else is white space may be part of it. Errors name where it was read
// from, and nothing of it.
func (c *cli) readSecret(file string) (secret.Text, error) {
	in, name := c.stdin, "standard input"
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return secret.Text{}, exit(exitCannotRun, fmt.Errorf("--from-file: %w", err))
		}
		defer func() { _ = f.Close() }() // it was only read
		in, name = f, file
	} else if isTerminal(c.stdin) {
		fmt.Fprintln(c.stderr, "agentgw: reading the secret from standard input; end it with Ctrl-D")
	}
	b, err := io.ReadAll(io.LimitReader(in, maxSecret+1))
	if err != nil {
		return secret.Text{}, exit(exitCannotRun, fmt.Errorf("reading the secret from %s: %w", name, err))
	}
	text := string(b)
	if cut, found := strings.CutSuffix(text, "\n"); found {
		text = strings.TrimSuffix(cut, "\r")
	}
	switch {
	case text == "":
		return secret.Text{}, exit(exitUsage, fmt.Errorf("the secret from %s is empty", name))
	case len(text) > maxSecret:
		return secret.Text{}, exit(exitUsage, fmt.Errorf("the secret from %s is over %d bytes", name, maxSecret))
	}
	return secret.New(text), nil
}

// credentialLine is a credential as credentials list shows it.
type credentialLine struct {
	Service   string    `json:"service"`
	User      string    `json:"user,omitempty"` // absent: shared
	UpdatedAt time.Time `json:"updated_at"`
	Kind      string    `json:"kind"` // secret, token or client_secret
	Host      string    `json:"host,omitempty"`
	State     string    `json:"state"` // ok, or reconnect_required
}

func newCredentialLine(e vault.Entry) credentialLine {
	l := credentialLine{Service: e.Service, User: e.User, UpdatedAt: e.UpdatedAt.UTC(), Kind: e.Kind, Host: e.Host, State: "ok"}
	if e.Reconnect {
		l.State = "reconnect_required"
	}
	return l
}

func (c *cli) credentialsListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List whose credentials are stored, never a secret",
		Args:  noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withStore(cmd, func(ctx context.Context, at home) error {
				entries, err := vault.Entries(ctx, at.store)
				if err != nil {
					return exit(exitCannotRun, err)
				}
				return c.listCredentials(entries, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	addHomeFlags(cmd)
	return cmd
}

func (c *cli) listCredentials(entries []vault.Entry, asJSON bool) error {
	lines := make([]credentialLine, 0, len(entries))
	for _, e := range entries {
		lines = append(lines, newCredentialLine(e))
	}
	if asJSON {
		return c.printJSON(lines)
	}
	return c.printTable(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "SERVICE\tUSER\tUPDATED\tKIND\tSTATE\tHOST")
		for _, l := range lines {
			user := printable(l.User)
			if user == "" {
				user = "(shared)"
			}
			host := l.Host
			if host == "" {
				host = "(any)"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", l.Service, user, when(&l.UpdatedAt), l.Kind, l.State, host)
		}
	})
}

func (c *cli) credentialsRemoveCommand() *cobra.Command {
	var ref vault.Ref
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "remove --service S [--user U]",
		Short: "Remove a credential",
		Args:  noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkRef(cmd, ref); err != nil {
				return exit(exitUsage, err)
			}
			return c.withStore(cmd, func(ctx context.Context, at home) error {
				switch err := vault.Remove(ctx, at.store, ref); {
				case errors.Is(err, vault.ErrMissing):
					return exit(exitCannotRun, fmt.Errorf("there is no such credential: %s", ref))
				case err != nil:
					return exit(exitCannotRun, err)
				}
				if asJSON {
					return c.printJSON(map[string]any{"service": ref.Service, "user": ref.User, "removed": true})
				}
				fmt.Fprintf(c.stdout, "the credential is removed: %s\n", ref)
				return nil
			})
		},
	}
	credentialFlags(cmd, &ref, &asJSON)
	return cmd
}
