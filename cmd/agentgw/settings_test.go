package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"agentgw/internal/config"
	"agentgw/internal/registry"
)

func TestSettingsAndTheirRegistry(t *testing.T) {
	type reader func(*cli, *cobra.Command) (*config.Settings, *registry.Snapshot, error)
	tests := []struct {
		name    string
		file    string // registry.yaml; "": there is none
		environ []string
		read    reader
		wantErr string
		rps     float64
		nothing bool // no snapshot
	}{
		{"with a registry", "server: {rate_key_rps: 30}\n", nil, (*cli).settings, "", 30, false},
		{"with a registry, tolerant", "server: {rate_key_rps: 30}\n", nil, (*cli).settingsWithoutRegistry, "", 30, false},
		{"without", "", nil, (*cli).settings, "open registry.yaml: no such file or directory: that file says which services are served; " +
			"name yours with --registry FILE or AGENTGATE_REGISTRY (agentgw demo needs none)", 0, true},
		{"without, tolerant", "", nil, (*cli).settingsWithoutRegistry, "", 20, true},
		{"a named one must be there", "", []string{"AGENTGATE_REGISTRY=other.yaml"}, (*cli).settingsWithoutRegistry, "open other.yaml: no such file or directory", 0, true},
		{"a broken one is never tolerated", "a: 1\n", []string{"AGENTGATE_X=1"}, (*cli).settingsWithoutRegistry,
			"registry.yaml:1:1: a: unknown key; it belongs under server, if it is a setting\nenvironment: AGENTGATE_X: there is no such setting", 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if tt.file != "" {
				if err := os.WriteFile("registry.yaml", []byte(tt.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var errs bytes.Buffer
			c := &cli{stdin: strings.NewReader(""), stdout: &errs, stderr: &errs, environ: tt.environ}
			cmd := &cobra.Command{}
			addSettingsFlags(cmd)
			settings, snapshot, err := tt.read(c, cmd)
			if tt.wantErr != "" {
				var e *exitError
				if !errors.As(err, &e) || e.code != exitCannotRun || err.Error() != tt.wantErr {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || settings.RateKeyRPS != tt.rps || (snapshot == nil) != tt.nothing {
				t.Errorf("%v %v %v", settings, snapshot, err)
			}
		})
	}
}

// What is said in vain is said at every start: to whoever collects a
// log of JSON as a line of that.
func TestSettingsWarn(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("registry.yaml", []byte("tunnels: {allow: [\"10.0.0.1:443\"]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const warning = "registry.yaml:1:19: tunnels.allow[0]: every tunnel to it will be refused: the address is private, loopback or link-local; if it is meant, add allow_private: true"
	said := func(format string) string {
		var errs bytes.Buffer
		c := &cli{stderr: &errs, environ: []string{"AGENTGATE_LOG_FORMAT=" + format}}
		cmd := &cobra.Command{}
		addSettingsFlags(cmd)
		if _, _, err := c.settings(cmd); err != nil {
			t.Fatal(err)
		}
		return errs.String()
	}
	if text := said("text"); text != "agentgw: warning: "+warning+"\n" {
		t.Error(text)
	}
	var line struct{ Level, Warning string }
	if text := said("json"); json.Unmarshal([]byte(text), &line) != nil || line.Level != "WARN" || line.Warning != warning {
		t.Error(text)
	}
}

// TestTheFirstKeyIsSaid: where it is, and to a log never the key.
func TestTheFirstKeyIsSaid(t *testing.T) {
	for format, want := range map[string]string{
		"json": `"level":"WARN","msg":"made a first key for everything","file":"`,
		"text": "agentgw: made a first key for everything; it is in ",
	} {
		s, err := startIn(t, t.TempDir(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		var errs bytes.Buffer
		c := &cli{stderr: &errs}
		s.settings.LogFormat = format
		s.log = c.logger(s.settings)
		c.sayStarted(s)
		s.stop(context.Background())
		if text := errs.String(); !strings.Contains(text, want+s.firstKeyFile) || strings.Contains(text, s.firstKey.Reveal()) {
			t.Error(text)
		}
		if left := strings.TrimSpace(errs.String()); format == "json" && strings.Count(left, "\n{") != strings.Count(left, "\n") {
			t.Errorf("a line that is no JSON: %s", left)
		}
	}
}
