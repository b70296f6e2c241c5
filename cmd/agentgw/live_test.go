package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/spf13/pflag"

	"agentgw/internal/config"
	"agentgw/internal/registry"
	"agentgw/internal/tools"
)

// TestChangesReachARunningGateway: what another process does with keys and
// credentials holds at the gateway within two seconds.
func TestChangesReachARunningGateway(t *testing.T) {
	upstream := httptest.NewServer(tools.Handler("the-tool-token", clockwork.NewRealClock()))
	defer upstream.Close()
	data := t.TempDir()
	snapshot, err := registry.Parse("r.yaml", []byte("version: 1\nservices:\n  tools:\n    base_url: "+upstream.URL+
		"\n    allow_private: true\n    credential: {type: bearer}\n    actions:\n      search: {method: GET, path: /search, params: {q: string}}\n"))
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
	s, err := start(settings, snapshot, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop(context.Background())

	command := func(stdin string, args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		c := &cli{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs, environ: []string{"AGENTGATE_DATA_DIR=" + data}}
		if code := c.run(args); code != exitDone {
			t.Fatalf("%v: exit %d: %s", args, code, errs.String())
		}
		return out.String()
	}
	var made struct{ Key string }
	text := command("", "keys", "create", "--id", "bot", "--services", "*", "--users", "*", "--json")
	if err := json.Unmarshal([]byte(text), &made); err != nil {
		t.Fatal(err)
	}
	soon := func(what, want string) {
		t.Helper()
		var got string
		for passed := napping(t); passed() < 2*time.Second; time.Sleep(20 * time.Millisecond) {
			r, err := http.NewRequest("POST", "http://"+s.agentsListener.Addr().String()+"/v1/act",
				strings.NewReader(`{"service":"tools","action":"search","params":{"q":"x"}}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Agentgate-Key", made.Key)
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			if got = res.Status + " " + res.Header.Get("Agentgate-Code"); got == want {
				if strings.Contains(string(body), "the-tool-token") {
					t.Error("the credential reached the agent")
				}
				return
			}
		}
		t.Errorf("%s: after two seconds %q, want %q", what, got, want)
	}
	soon("a new key", "403 Forbidden credential_missing")
	command("the-tool-token\n", "credentials", "set", "--service", "tools")
	soon("a new credential", "200 OK ")
	command("", "credentials", "remove", "--service", "tools")
	soon("a removed credential", "403 Forbidden credential_missing")
	command("", "keys", "revoke", "bot")
	soon("a revoked key", "401 Unauthorized unauthenticated")
}
