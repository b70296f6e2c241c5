package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"agentgw/internal/config"
	"agentgw/internal/registry"
)

// startIn starts a gateway without static keys in a data folder.
func startIn(t *testing.T, data string, log *slog.Logger) (*server, error) {
	t.Helper()
	snapshot, err := registry.Parse("r.yaml", []byte("version: 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("t", pflag.ContinueOnError)
	config.Flags(flags)
	if err := flags.Parse([]string{"--data-dir", data, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	settings, err := config.Load(flags, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return start(settings, snapshot, nil, log)
}

// TestSecretsAreTheirOwnersAlone: each file that a first start makes, also where
// one with another mode stood in its place; one that others may read is warned of.
func TestSecretsAreTheirOwnersAlone(t *testing.T) {
	data := t.TempDir()
	for _, name := range []string{"first-key", "first-key.new", "admin-token.new"} {
		if err := os.WriteFile(filepath.Join(data, name), []byte("an old one, and a longer one than any that is made in its place\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(data, name), 0o644); err != nil { // whatever the umask
			t.Fatal(err)
		}
	}
	log := &lockedBuffer{}
	s, err := startIn(t, data, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log.String(), "a secret can be read") {
		t.Error(log.String())
	}
	if text, err := os.ReadFile(filepath.Join(data, "first-key")); err != nil || string(text) != s.firstKey.Reveal()+"\n" {
		t.Errorf("first-key holds %q, %v", text, err)
	}
	if text, err := os.ReadFile(filepath.Join(data, "admin-token")); err != nil || string(text) != s.adminToken.Reveal()+"\n" || len(text) < 40 {
		t.Errorf("admin-token holds %d bytes, %v", len(text), err)
	}
	s.stop(context.Background())
	if left, _ := filepath.Glob(filepath.Join(data, "*.new")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	names := []string{"vault-key", "admin-token", "receipt-signing-key", "first-key"}
	for _, name := range names {
		info, err := os.Stat(filepath.Join(data, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
	for i, name := range names {
		if err := os.Chmod(filepath.Join(data, name), []os.FileMode{0o640, 0o604, 0o620, 0o601}[i]); err != nil {
			t.Fatal(err)
		}
	}
	if s, err = startIn(t, data, slog.New(slog.NewTextHandler(log, nil))); err != nil {
		t.Fatal(err)
	}
	s.stop(context.Background())
	for i, name := range names {
		want := filepath.Join(data, name) + " has mode " + []string{"0640", "0604", "0620", "0601"}[i]
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("without %q:\n%s", want, log.String())
		}
	}
}

// TestAStartThatFailsMakesNoFirstKey: the next good one makes it, and tells.
func TestAStartThatFailsMakesNoFirstKey(t *testing.T) {
	data := t.TempDir()
	for _, name := range []string{"vault-key", "admin-token"} {
		path := filepath.Join(data, name)
		if err := os.WriteFile(path, []byte("\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := startIn(t, data, slog.New(slog.DiscardHandler)); err == nil {
			s.stop(context.Background())
			t.Fatalf("an empty %s was taken", name)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(data, "first-key")); err == nil {
			t.Errorf("a start that failed of the %s has made a first key", name)
		}
	}
	s, err := startIn(t, data, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.stop(context.Background())
	if s.firstKey.Empty() {
		t.Error("the good start made no first key, and so tells of none")
	}
}
