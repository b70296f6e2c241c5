package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"agentgw/internal/config"
	"agentgw/internal/registry"
)

// addSettingsFlags gives a command a flag for every setting.
func addSettingsFlags(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false // the table's order groups them
	config.Flags(cmd.Flags())
}

// addHomeFlags is addSettingsFlags for a command that needs to know where
// registry and data folder are. It finds them as serve does, so all settings can
// be given, but its help tells of these alone, behind the flags of its own.
func addHomeFlags(cmd *cobra.Command) {
	addSettingsFlags(cmd)
	shown := []string{"--registry", "--data-dir"}
	for _, row := range config.Table() {
		if !slices.Contains(shown, row.Flag) {
			cmd.Flags().Lookup(strings.TrimPrefix(row.Flag, "--")).Hidden = true
		}
	}
}

// purpose is what settings are read for.
type purpose int

const (
	toAdminister purpose = iota // keys, credentials and the like: no registry is needed
	toReload                    // to be served, by a gateway that runs
	toStart                     // to be served
)

// settings reads the settings and the registry for a start. Its errors carry the
// exit code, and name every problem of both.
func (c *cli) settings(cmd *cobra.Command) (*config.Settings, *registry.Snapshot, error) {
	settings, snapshot, err := c.readSettings(cmd, toStart)
	if settings == nil {
		return settings, snapshot, err
	}
	for _, w := range slices.Concat(setInVain(snapshot), settings.Risks(), localLinks(settings, snapshot)) {
		if c.logsJSON(settings) { // whoever collects the log reads nothing else there
			c.logger(settings).Warn("a setting or the registry file", "warning", w)
		} else {
			c.sayWarning(w)
		}
	}
	return settings, snapshot, err
}

// settingsWithoutRegistry is settings for commands that work on the data
// folder and need no registry: where nobody named one and the default file is
// not there, the snapshot is nil.
func (c *cli) settingsWithoutRegistry(cmd *cobra.Command) (*config.Settings, *registry.Snapshot, error) {
	settings, snapshot, err := c.readSettings(cmd, toAdminister)
	if settings != nil {
		for _, w := range setInVain(snapshot) {
			c.sayWarning(w)
		}
	}
	return settings, snapshot, err
}

func (c *cli) readSettings(cmd *cobra.Command, purpose purpose) (*config.Settings, *registry.Snapshot, error) {
	path, explicit, err := config.RegistryPath(cmd.Flags(), c.environ)
	if err != nil {
		return nil, nil, exit(exitCodeOf(problemsOf(err)), err)
	}
	load := registry.Load
	if purpose == toReload {
		load = registry.LoadAgain
	}
	snapshot, err := load(path)
	if errors.Is(err, fs.ErrNotExist) && !explicit && purpose == toAdminister {
		snapshot, err = nil, nil
	}
	if !explicit {
		err = sayWhatIsMissing(err)
	}
	settings, configErr := c.loadSettings(cmd, snapshot, err)
	problems := slices.Concat(problemsOf(err), problemsOf(configErr))
	if purpose != toAdminister {
		problems = append(problems, misruled(snapshot)...)
		problems = append(problems, together(snapshot, settings)...)
	}
	if purpose == toStart {
		problems = append(problems, unfitToStart(settings)...)
	}
	switch {
	case err != nil && !errors.As(err, new(registry.Problems)): // the file cannot be read
		return nil, nil, exit(exitCannotRun, errors.Join(err, configErr))
	case len(problems) > 0:
		problems.Sort()
		return nil, nil, exit(exitCodeOf(problems), problems)
	}
	return settings, snapshot, nil
}

// sayWhatIsMissing adds to the error of a default registry that is not there
// what it is and what to do without one.
func sayWhatIsMissing(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%w: that file says which services are served; name yours with --registry FILE or AGENTGATE_REGISTRY (agentgw demo needs none)", err)
}

// setInVain are the warnings of what is set and not acted upon.
func setInVain(snapshot *registry.Snapshot) []string {
	var texts []string
	for _, w := range warnings(snapshot) {
		texts = append(texts, w.Error())
	}
	return texts
}

// localLinks warns of services whose accounts people connect, where nobody has said at
// what address they reach the gateway.
func localLinks(settings *config.Settings, snapshot *registry.Snapshot) []string {
	if settings.PublicURL != "" {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(snapshot.Services)) {
		if c := snapshot.Services[name].Credential; c.OAuth2 != nil && c.OAuth2.Flow == registry.FlowAuthorizationCode {
			return []string{fmt.Sprintf("%s: services.%s: people connect accounts by links to AGENTGATE_PUBLIC_URL, which is not set: they open on the gateway's own computer alone", c.Pos, name)}
		}
	}
	return nil
}

func (c *cli) sayWarning(text string) {
	fmt.Fprintf(c.stderr, "agentgw: warning: %s\n", text)
}

// loadSettings joins flags, environment and the server: section of the
// registry, if there is one. err is what reading that ended with: of a file that
// is no YAML nobody knows what it sets.
func (c *cli) loadSettings(cmd *cobra.Command, snapshot *registry.Snapshot, err error) (*config.Settings, error) {
	var server []config.Setting
	switch {
	case snapshot != nil:
		for _, s := range snapshot.Server {
			server = append(server, config.Setting{Name: s.Name, Value: s.Value, Where: s.Pos.String(), Doubt: s.Doubt})
		}
	case err != nil:
		server = []config.Setting{{Doubt: true}}
	}
	return config.Load(cmd.Flags(), c.environ, server)
}

// defaults are the limits that hold where the registry says nothing.
func defaults(settings *config.Settings) registry.Defaults {
	return registry.Defaults{
		KeyRPS: settings.RateKeyRPS, KeyBurst: settings.RateKeyBurst,
		TenantRPS: settings.RateTenantRPS, TenantBurst: settings.RateTenantBurst,
		TenantMaxInflight:    settings.TenantMaxInflight,
		KeyBurstDefaulted:    settings.Derived("AGENTGATE_RATE_KEY_BURST"),
		TenantBurstDefaulted: settings.Derived("AGENTGATE_RATE_TENANT_BURST"),
		Source:               settings.Source,
	}
}
