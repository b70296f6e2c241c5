package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/spf13/cobra"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/registry"
	"agentgw/internal/secret"
	"agentgw/internal/store"
	"agentgw/internal/tools"
	"agentgw/internal/vault"
)

// demoRegistry is the demo's registry.yaml. docs/trying-limits.md changes it.
const demoRegistry = `version: 1
server: {}
tenants: {}
rules: []
services:
  tools:
    base_url: %s
    allow_private: true
    credential: {type: bearer}
    actions:
      search: {method: GET, path: /search, params: {q: string}}
      ticks: {method: GET, path: /ticks, params: {count: "int?", every: "int?"}}
      note: {method: POST, path: /notes, params: {text: string}}
      fail: {method: GET, path: /fail, params: {status: "int?"}}
  payroll:
    base_url: %s
    allow_private: true
    actions:
      read: {method: GET, path: /search, params: {q: string}}
`

func (c *cli) demoCommand() *cobra.Command {
	var listen, adminListen string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a gateway with a tool service behind it, to try it out",
		Long: `Runs a small tool service and a gateway in front of it, on loopback, and prints
curl lines to try. Ends with Ctrl-C.

Registry and state are in a temporary folder, which goes with it. The gateway
takes no settings from the environment: those in the server: section of
registry.yaml in that folder are in force within a second of a change, and so
are tenants, keys, rules and services there. docs/trying-limits.md tells what
to try.`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			folder, err := os.MkdirTemp("", "agentgw-demo-")
			if err != nil {
				return exit(exitCannotRun, err)
			}
			defer func() { _ = os.RemoveAll(folder) }()
			signals := takeSignals()
			defer signals.release()
			given := map[string]string{"data-dir": folder, "registry": filepath.Join(folder, "registry.yaml")}
			for name, address := range map[string]string{"listen": listen, "admin-listen": adminListen} {
				if cmd.Flags().Changed(name) { // else an error would blame a flag that nobody gave
					given[name] = address
				}
			}
			return c.demo(given, signals, asJSON)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "the agents' address")
	cmd.Flags().StringVar(&adminListen, "admin-listen", "127.0.0.1:9090", "the operators' address")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as one JSON object")
	return cmd
}

// demo runs the demo with these flags of serve.
func (c *cli) demo(given map[string]string, signals signals, asJSON bool) error {
	token := rand.Text()
	upstream, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return exit(exitCannotRun, err)
	}
	service := &http.Server{Handler: tools.Handler(token, clockwork.NewRealClock()), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = service.Serve(upstream) }()
	defer func() { _ = service.Close() }()

	base := "http://" + upstream.Addr().String()
	folder := given["data-dir"]
	if err := os.WriteFile(given["registry"], fmt.Appendf(nil, demoRegistry, base, base), 0o600); err != nil {
		return exit(exitCannotRun, err)
	}
	serve := &cobra.Command{Use: "serve"}
	addSettingsFlags(serve)
	for name, value := range given {
		if err := serve.Flags().Set(name, value); err != nil {
			return exit(exitUsage, err)
		}
	}
	bare := *c
	bare.environ = nil // the demo is the same wherever it runs
	settings, snapshot, err := bare.readSettings(serve, toStart)
	if err != nil {
		return err
	}
	key, err := c.furnish(folder, settings, token)
	if err != nil {
		return exit(exitCannotRun, err)
	}
	s, err := start(settings, snapshot, func() (*config.Settings, *registry.Snapshot, error) {
		return bare.readSettings(serve, toReload)
	}, c.logger(settings))
	if err != nil {
		return exit(exitCannotRun, err)
	}
	if err := os.WriteFile(filepath.Join(folder, "log.vkey"), []byte(s.receipts.VerifierKey()+"\n"), 0o600); err != nil {
		s.stop(context.Background())
		return exit(exitCannotRun, err)
	}
	d := newDemonstration(s, folder, key)
	if !asJSON {
		c.sayDemo(d)
	} else if err := c.printJSON(d); err != nil {
		s.stop(context.Background())
		return exit(exitCannotRun, err)
	}
	return c.untilStopped(s, signals)
}

// furnish puts the demo's key and the tool service's credential where a real
// gateway would find them.
func (c *cli) furnish(folder string, settings *config.Settings, token string) (secret.Text, error) {
	ctx := context.Background()
	state, err := store.Open(ctx, folder)
	if err != nil {
		return secret.Text{}, err
	}
	defer func() { _ = state.Close() }()
	kek, err := vault.LoadKEK(ctx, vault.KEKSource{Value: settings.VaultKey, Folder: folder}, state)
	if err != nil {
		return secret.Text{}, err
	}
	v, err := vault.Load(ctx, state, kek)
	if err != nil {
		return secret.Text{}, err
	}
	if err := v.Set(ctx, vault.Ref{Service: "tools"}, vault.Form{Type: vault.TypeBearer}, secret.New(token), time.Now()); err != nil {
		return secret.Text{}, err
	}
	text, digest := identity.NewKey()
	return text, state.AddKey(ctx, store.Key{
		ID: "demo", Digest: digest, Services: []string{"tools"}, Users: []string{"*"}, CreatedAt: time.Now(),
	})
}

// demonstration is what the demo shows: lines for a shell, and where to find what.
type demonstration struct {
	Agents    string   `json:"agents"`
	Operators string   `json:"operators"`
	Key       string   `json:"key"`
	Data      string   `json:"data"`
	Allowed   string   `json:"allowed"`
	Stream    string   `json:"stream"`
	Refused   string   `json:"refused"`
	Verify    []string `json:"verify"`
}

func newDemonstration(s *server, folder string, key secret.Text) demonstration {
	d := demonstration{
		Agents: s.agentsListener.Addr().String(), Operators: s.operatorsListener.Addr().String(), Key: key.Reveal(), Data: folder,
	}
	act := "curl -sS -i http://" + d.Agents + "/v1/act -H 'Authorization: Bearer " + d.Key + "' -H 'Content-Type: application/json' -d "
	me, err := os.Executable()
	if err != nil {
		me = "agentgw"
	}
	d.Allowed = act + `'{"service":"tools","action":"search","params":{"q":"gateways"}}'`
	d.Stream = act + `'{"service":"tools","action":"ticks","params":{"count":5}}' -N`
	d.Refused = act + `'{"service":"payroll","action":"read","params":{"q":"salaries"}}'`
	d.Verify = []string{
		fmt.Sprintf("%s receipts checkpoint --data %s > %s/anchor", me, folder, folder),
		fmt.Sprintf("%s receipts verify %s --vkey %s/log.vkey --anchor %s/anchor", me, folder, folder, folder),
	}
	return d
}

func (c *cli) sayDemo(d demonstration) {
	fmt.Fprintf(c.stdout, `AgentGate demo: the gateway is on %s, operators on %s.

An allowed call:
%s

A stream, event by event (it holds one of the tenant's slots to its last byte):
%s

A refused call (the key may not call payroll):
%s

Verify the receipts offline, up to the checkpoint taken here:
%s

Its folder; a change of registry.yaml there is in force within a second (docs/trying-limits.md):
DEMO=%s

Ctrl-C ends the demo and removes its folder.
`, d.Agents, d.Operators, d.Allowed, d.Stream, d.Refused, strings.Join(d.Verify, "\n"), d.Data)
}
