package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentgw/internal/delegation"
	"agentgw/internal/literal"
)

func (c *cli) delegationsNarrowCommand() *cobra.Command {
	var ask delegationRequest
	var keyFile string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "narrow --key FILE --agent ID [TOKEN[,TOKEN...]]",
		Short: "Hand a delegation on to another agent, in whole or in part",
		Long: `Hand a delegation on to another agent, in whole or in part, with the key that it
names (cnf), and print the whole chain for that agent. It needs neither gateway nor
data folder. The delegation is read from standard input if it is not given.

What is left out is as it was: all grants, until the same time; but it may not be
handed on again unless --depth and --cnf say so.`,
		Example: `  openssl genpkey -algorithm ed25519 -out planner.pem
  openssl pkey -in planner.pem -pubout -out planner.pub   # for issue --cnf
  agentgw delegations narrow --key planner.pem --agent worker --expires 10m --grant github.list_issues < delegation`,
		Args: atMostOne("TOKEN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := c.argumentOrInput(args)
			if err != nil {
				return err
			}
			return c.narrowDelegation(&ask, keyFile, text, asJSON)
		},
	}
	ask.flags(cmd)
	cmd.Flags().StringVar(&ask.expires, "expires", "", "how long it is good; as long as the one that it is made of if not given")
	cmd.Flags().StringVar(&keyFile, "key", "", "file with the private key that may hand it on (PEM or JWK, Ed25519; required)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	if err := cmd.MarkFlagRequired("key"); err != nil {
		panic(err) // the flag is not there: a mistake in the lines above
	}
	return cmd
}

func (c *cli) narrowDelegation(ask *delegationRequest, keyFile, text string, asJSON bool) error {
	_, private, err := readEd25519(keyFile)
	if err != nil {
		return exit(exitCannotRun, fmt.Errorf("--key: %w", err))
	}
	if private == nil {
		return exit(exitUsage, fmt.Errorf("--key: %s holds a public key; the private one is wanted", keyFile))
	}
	now := time.Now()
	g, err := ask.grant(granted(text), now)
	if err != nil {
		return exit(exitUsage, err)
	}
	g.From = time.Time{} // from now, or when the other begins
	chain, said, err := delegation.Narrow(private, text, g, now)
	if err != nil {
		return exit(exitUsage, err)
	}
	if asJSON {
		return c.printJSON(issued{Token: chain, ID: said.ID, ExpiresAt: time.Unix(said.Until, 0).UTC()})
	}
	fmt.Fprintln(c.stdout, chain)
	return nil
}

// granted are the actions that a chain grants, by service; nil where it cannot be read.
func granted(chain string) map[string][]string {
	links, _ := delegation.Inspect(chain, nil, "", time.Time{})
	if len(links) == 0 {
		return nil
	}
	all := map[string][]string{}
	for _, d := range links[len(links)-1].Claims.Details {
		all[d.Service] = append(all[d.Service], d.Actions...)
	}
	return all
}

// argumentOrInput is the one argument, or what standard input holds, without the white
// space around it.
func (c *cli) argumentOrInput(args []string) (string, error) {
	if len(args) == 1 {
		return strings.TrimSpace(args[0]), nil
	}
	b, err := io.ReadAll(io.LimitReader(c.stdin, 2*delegation.MaxBytes))
	if err != nil {
		return "", exit(exitCannotRun, fmt.Errorf("reading standard input: %w", err))
	}
	text := strings.TrimSpace(string(b))
	if text == "" {
		return "", exit(exitUsage, errors.New("standard input is empty, where a delegation was expected: did the command before it fail?"))
	}
	return text, nil
}

// thumbprintOf reads a thumbprint, or that of the key in a file. A private key is
// taken as well: what is kept of it is the thumbprint.
func thumbprintOf(s string) (string, error) {
	if _, err := os.Stat(s); err != nil {
		if err := delegation.ParseThumbprint(s); err != nil {
			return "", fmt.Errorf("%s %w, nor a file", literal.Quote(s), err)
		}
		return s, nil
	}
	public, _, err := readEd25519(s)
	if err != nil {
		return "", err
	}
	return delegation.Thumbprint(public), nil
}

var errNoEd25519 = errors.New("holds no Ed25519 key, in PEM (PKCS #8, as openssl writes it) or as a JWK")

// readEd25519 reads a key; private is nil of a public one. Errors hold nothing of it.
func readEd25519(path string) (public ed25519.PublicKey, private ed25519.PrivateKey, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	b, err := io.ReadAll(io.LimitReader(f, maxSecret))
	if err != nil {
		return nil, nil, err
	}
	bad := fmt.Errorf("%s %w", path, errNoEd25519)
	block, _ := pem.Decode(b)
	if block == nil {
		if public, private, err = delegation.ParseJWK(b); err != nil {
			return nil, nil, bad
		}
		return public, private, nil
	}
	var parsed any
	switch block.Type {
	case "PRIVATE KEY":
		parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "PUBLIC KEY":
		parsed, err = x509.ParsePKIXPublicKey(block.Bytes)
	}
	switch key := parsed.(type) {
	case ed25519.PublicKey:
		return key, nil, nil
	case ed25519.PrivateKey:
		return key.Public().(ed25519.PublicKey), key, nil
	}
	return nil, nil, bad
}
