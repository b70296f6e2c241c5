package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"agentgw/internal/config"
	"agentgw/internal/registry"
)

// addSettingsFlags gives a command a flag for every setting, so that each
// command finds registry and data folder in the way that serve does.
func addSettingsFlags(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false // the table's order groups them
	config.Flags(cmd.Flags())
}

// settings reads the settings and the registry, which must be there. Its
// errors carry the exit code, and name every problem of both.
func (c *cli) settings(cmd *cobra.Command) (*config.Settings, *registry.Snapshot, error) {
	settings, snapshot, err := c.readSettings(cmd, true)
	c.sayUnserved(settings, snapshot)
	return settings, snapshot, err
}

// settingsWithoutRegistry is settings for commands that work on the data
// folder and need no registry: where nobody named one and the default file is
// not there, the snapshot is nil.
func (c *cli) settingsWithoutRegistry(cmd *cobra.Command) (*config.Settings, *registry.Snapshot, error) {
	settings, snapshot, err := c.readSettings(cmd, false)
	c.sayUnserved(settings, snapshot)
	return settings, snapshot, err
}

func (c *cli) readSettings(cmd *cobra.Command, needRegistry bool) (*config.Settings, *registry.Snapshot, error) {
	path, explicit, err := config.RegistryPath(cmd.Flags(), c.environ)
	if err != nil {
		return nil, nil, exit(exitCannotRun, err)
	}
	snapshot, err := registry.Load(path)
	if errors.Is(err, fs.ErrNotExist) && !explicit && !needRegistry {
		snapshot, err = nil, nil
	}
	settings, configErr := c.loadSettings(cmd, snapshot)
	if err := errors.Join(err, configErr); err != nil {
		return nil, nil, exit(exitCannotRun, err)
	}
	return settings, snapshot, nil
}

// sayUnserved warns of what is set and not acted upon; of nothing where the
// settings could not be read.
func (c *cli) sayUnserved(settings *config.Settings, snapshot *registry.Snapshot) {
	if settings == nil {
		return
	}
	for _, w := range unserved(snapshot) {
		fmt.Fprintf(c.stderr, "agentgw: warning: %v\n", w)
	}
	for _, w := range settings.Unserved() {
		fmt.Fprintf(c.stderr, "agentgw: warning: %s\n", w)
	}
}

// loadSettings joins flags, environment and the server: section of the
// registry, if there is one.
func (c *cli) loadSettings(cmd *cobra.Command, snapshot *registry.Snapshot) (*config.Settings, error) {
	var server []config.Setting
	if snapshot != nil {
		for _, s := range snapshot.Server {
			server = append(server, config.Setting{Name: s.Name, Value: s.Value, Where: s.Pos.String()})
		}
	}
	return config.Load(cmd.Flags(), c.environ, server)
}

func unserved(snapshot *registry.Snapshot) registry.Problems {
	if snapshot == nil {
		return nil
	}
	return snapshot.Unserved()
}

// defaults are the limits that hold where the registry says nothing.
func defaults(settings *config.Settings) registry.Defaults {
	return registry.Defaults{
		KeyRPS: settings.RateKeyRPS, KeyBurst: settings.RateKeyBurst,
		TenantRPS: settings.RateTenantRPS, TenantBurst: settings.RateTenantBurst,
		TenantMaxInflight: settings.TenantMaxInflight,
		Source:            settings.Source,
	}
}
