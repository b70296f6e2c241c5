package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// TestStartThatFails: exit 3, or 2 where a flag's value is at fault, and a line that names the setting or the file;
// nothing is left running, and nothing was made.
func TestStartThatFails(t *testing.T) {
	defer goleak.VerifyNone(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		flags []string
		code  int
		want  string
	}{
		{"agents' address", []string{"--listen", taken.Addr().String(), "--admin-listen", "127.0.0.1:0"}, exitCannotRun, "address already in use; another process has it: end that, or give another address with --listen\n"},
		{"operators' address", []string{"--listen", "127.0.0.1:0", "--admin-listen", taken.Addr().String()}, exitCannotRun, "address already in use; another process has it: end that, or give another address with --admin-listen\n"},
		{"certificate", []string{"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--tls-cert-file", plain, "--tls-key-file", plain}, exitCannotRun, "agentgw: flag: --tls-cert-file: " + plain},
		{"data folder", []string{"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--data", filepath.Join(plain, "data")}, exitCannotRun, plain},
		{"vault key", []string{"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--vault-key-file", plain}, exitCannotRun, "agentgw: flag: --vault-key-file: is not 32 bytes"},
		{"vault key by value", []string{"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--vault-key", "zz"}, exitUsage, "agentgw: flag: --vault-key: is not 32 bytes"},
		{"one address for both", []string{"--listen", "127.0.0.1:1", "--admin-listen", "127.0.0.1:1"}, exitUsage, "agentgw: flag: --admin-listen: is taken by AGENTGATE_LISTEN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			file, data := filepath.Join(folder, "registry.yaml"), filepath.Join(folder, "data")
			if err := os.WriteFile(file, []byte("version: 1\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			cli := &cli{stdin: strings.NewReader(""), stdout: &out, stderr: &errs}
			code := cli.run(append([]string{"serve", "--registry", file, "--data", data}, c.flags...))
			if code != c.code || !strings.Contains(errs.String(), c.want) {
				t.Errorf("exit %d, want %d and %q:\n%s", code, c.code, c.want, errs.String())
			}
			if _, err := os.Stat(data); err == nil {
				t.Error("it left a data folder behind")
			}
		})
	}
}
