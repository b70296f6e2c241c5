package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"agentgw/internal/config"
	"agentgw/internal/freeport"
	"agentgw/internal/registry"
)

// TestHealthAsksTheGatewayOfThisMachine: health says what /readyz says, by the address
// that serve would take, whatever has become of the registry file meanwhile.
func TestHealthAsksTheGatewayOfThisMachine(t *testing.T) {
	folder, admin := t.TempDir(), freeport.Address(t)
	file := filepath.Join(folder, "registry.yaml")
	if err := os.WriteFile(file, []byte("version: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	health := func(args ...string) (code int, said string) {
		var out bytes.Buffer
		c := &cli{stdout: &out, stderr: &out, environ: []string{"AGENTGATE_REGISTRY=" + file, "AGENTGATE_ADMIN_LISTEN=" + admin}}
		code = c.run(append([]string{"health"}, args...))
		return code, out.String()
	}
	want := func(when string, code int, says string, args ...string) {
		t.Helper()
		if got, said := health(args...); got != code || !strings.Contains(said, says) {
			t.Errorf("%s: exit %d, %q; want %d and %q", when, got, said, code, says)
		}
	}
	want("before a gateway runs", exitCannotRun, "no gateway answers at "+admin)

	snapshot, err := registry.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("t", pflag.ContinueOnError)
	config.Flags(flags)
	if err := flags.Parse([]string{"--data-dir", filepath.Join(folder, "data"), "--listen", "127.0.0.1:0", "--admin-listen", admin}); err != nil {
		t.Fatal(err)
	}
	settings, err := config.Load(flags, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := start(settings, snapshot, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	want("a gateway runs", exitDone, "ok")
	want("in JSON", exitDone, `{"ready":true,"said":"ok","status":200}`, "--json")
	if err := os.WriteFile(file, []byte("no registry: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	want("its file is broken meanwhile", exitDone, "ok")
	s.drain()
	want("it drains", exitNotHold, "draining")
	s.stop(context.Background())
	want("it has ended", exitCannotRun, "no gateway answers")
	want("the port is any", exitUsage, "port 0", "--admin-listen", "127.0.0.1:0")
}

func TestWhereTheGatewayOfThisMachineIs(t *testing.T) {
	for listen, want := range map[string]string{
		":9090": "127.0.0.1:9090", "0.0.0.0:9090": "127.0.0.1:9090", "[::]:9090": "[::1]:9090",
		"10.1.2.3:9090": "10.1.2.3:9090", "localhost:1": "localhost:1", "[fd00::1]:9090": "[fd00::1]:9090",
	} {
		if got, err := nearAddress(listen); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", listen, got, err, want)
		}
	}
}
