package main

import (
	"context"
	"encoding/json"
	"io"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"agentgw/internal/config"
	"agentgw/internal/registry"
)

// startWith starts a gateway on these addresses for a registry and returns its
// log.
func startWith(t *testing.T, host, file string) (*server, *lockedBuffer) {
	t.Helper()
	flags := pflag.NewFlagSet("t", pflag.ContinueOnError)
	config.Flags(flags)
	if err := flags.Parse([]string{"--data-dir", t.TempDir(), "--listen", host + ":0", "--admin-listen", host + ":0"}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "r.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	snapshot, err := registry.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	var server []config.Setting
	for _, s := range snapshot.Server {
		server = append(server, config.Setting{Name: s.Name, Value: s.Value, Where: s.Pos.String()})
	}
	settings, err := config.Load(flags, nil, server)
	if err != nil {
		t.Fatal(err)
	}
	settings.Registry = path
	said := &lockedBuffer{}
	s, err := start(settings, snapshot, func() (*config.Settings, *registry.Snapshot, error) { return settings, snapshot, nil },
		slog.New(slog.NewJSONHandler(said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop(context.Background()) })
	return s, said
}

// TestStartSaysTheLimits: the log of a start has every limit that holds, off
// included.
func TestStartSaysTheLimits(t *testing.T) {
	_, said := startWith(t, "127.0.0.1", "server: {max_inflight: 50, tenant_queue: 4}\ntenants: {acme: {rps: 2.5, max_inflight: 8, weight: 3}, free: {rps: 0, max_inflight: 0}}\n"+
		"services: {search: {base_url: \"https://u.example\", rate_limit: {rps: 5}, max_inflight: 3}, rest: {base_url: \"https://u.example\"}}\n"+
		strings.TrimSuffix(aKey, "\n")+"\n    limits: {rps: 1, burst: 2}\n")
	var got struct {
		Keys, Tenants, Services, Process map[string]string
	}
	for line := range strings.Lines(said.String()) {
		if strings.Contains(line, `"limits in force"`) {
			if err := json.Unmarshal([]byte(line), &got); err != nil {
				t.Fatal(err)
			}
		}
	}
	for what, maps := range map[string][2]map[string]string{
		"keys":     {got.Keys, {"ci": "1/s burst 2", "all others": "20/s burst 40"}},
		"tenants":  {got.Tenants, {"acme": "2.5/s burst 3 inflight 8 weight 3", "free": "no limit", "all others": "100/s burst 200 inflight 32"}},
		"process":  {got.Process, {"inflight": "50", "queue of each tenant": "4 for 1s at most"}},
		"services": {got.Services, {"search": "5/s burst 5 inflight 3", "rest": "no limit"}},
	} {
		if diff := cmp.Diff(maps[1], maps[0]); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
}

// TestIPv6Listeners: both listeners take an address in brackets, and what an
// upstream sends without being asked is in no log.
func TestIPv6Listeners(t *testing.T) {
	upstream, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6 here: %v", err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		c, err := upstream.Accept()
		if err != nil {
			return
		}
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nX: s3cr3t\r\n\r\n")
		_, _ = io.Copy(io.Discard, c) // up to the gateway's hanging up, which it does when it has seen that
		_ = c.Close()
	}()
	defer func() { _ = upstream.Close(); <-gone }()
	var unasked lockedBuffer
	defer stdlog.SetOutput(stdlog.Writer())
	stdlog.SetOutput(&unasked)

	s, said := startWith(t, "[::1]", "services: {search: {base_url: \"http://"+upstream.Addr().String()+"\", allow_private: true, actions: {get: {method: GET, path: /x}}}}\n")
	res, err := http.Get("http://" + s.operatorsListener.Addr().String() + "/livez")
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("%v, %v", res, err)
	}
	_ = res.Body.Close()
	r, err := http.NewRequest("POST", "http://"+s.agentsListener.Addr().String()+"/v1/act", strings.NewReader(`{"service":"search","action":"get"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Agentgate-Key", s.firstKey.Reveal())
	if res, err = http.DefaultClient.Do(r); err != nil || res.StatusCode != 200 {
		t.Fatalf("%v, %v", res, err)
	}
	_ = res.Body.Close()
	<-gone
	if out := unasked.String() + said.String(); strings.Contains(out, "s3cr3t") {
		t.Error(out)
	}
}
