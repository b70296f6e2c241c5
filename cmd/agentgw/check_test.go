package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// runCheck runs `agentgw check` in a folder that holds r.yaml.
func runCheck(t *testing.T, file string, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("r.yaml", []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	c := &cli{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, environ: environ}
	code = c.run(append([]string{"check"}, args...))
	return code, out.String(), errs.String()
}

const soundRegistry = `version: 1
server: {rate_tenant_rps: 50, rate_tenant_burst: 60, max_inflight: 90, receipt_retention: 720h}
tenants:
  acme: {rps: 2.5, max_inflight: 64, weight: 2}
keys:
  - id: ci-bot
    sha256: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    services: ["*"]
    users: ["*"]
    tenant: acme
    limits: {rps: 5, burst: 10}
services:
  a: {base_url: "https://u.example", rate_limit: {rps: 0.5}, max_inflight: 8}
  b: {base_url: "https://u.example"}
`

func TestCheckPrintsEffectiveLimits(t *testing.T) {
	code, out, errs := runCheck(t, soundRegistry, []string{"AGENTGATE_RATE_KEY_RPS=7", "AGENTGATE_TENANT_QUEUE=4"}, "r.yaml")
	want := `r.yaml is sound. Limits are per process: N replicas admit up to N times as much.

KEY           RPS  BURST  TENANT  FROM
ci-bot        5    10     acme    r.yaml:11:14
(all others)  7    40     -       environment AGENTGATE_RATE_KEY_RPS, burst: default AGENTGATE_RATE_KEY_BURST

TENANT        RPS  BURST          FROM                                                                             IN FLIGHT  FROM                                   WEIGHT
acme          2.5  3 (defaulted)  r.yaml:4:10                                                                      64         r.yaml:4:20                            2
(all others)  50   60             r.yaml:2:10 server.rate_tenant_rps, burst: r.yaml:2:31 server.rate_tenant_burst  32         default AGENTGATE_TENANT_MAX_INFLIGHT  1

SERVICE  RPS PER KEY  BURST          FROM          IN FLIGHT  FROM          TIMEOUT
a        0.5          1 (defaulted)  r.yaml:13:51  8          r.yaml:13:62  30s
b        off          off            -             off        -             30s

PROCESS               VALUE  FROM
in flight             90     r.yaml:2:54 server.max_inflight
queue of each tenant  4      environment AGENTGATE_TENANT_QUEUE
wait at most          1s     default AGENTGATE_TENANT_QUEUE_WAIT
receipts are kept     720h   r.yaml:2:72 server.receipt_retention

A burst marked (defaulted) is not in the file: it is one second of its rate, at least 1.
`
	if code != exitDone || errs != "" {
		t.Errorf("exit %d, %s", code, errs)
	}
	if diff := cmp.Diff(want, out); diff != "" {
		t.Error(diff)
	}
}

// TestCheckListsRules: identity limits and rules, with what is switched off.
func TestCheckListsRules(t *testing.T) {
	file := "version: 1\nidentity_limits: {org: 5, user: 0}\nrules:\n  - {name: per-ip, key: client_ip, window: 1m, max: 10}\n" +
		"  - {name: bytes, key: org, window: 1h, max: \"user == null ? 1 : 2\", count: bytes, mode: observe, when: \"true\"}\n  - {name: idle, key: org, window: 1h, max: 0}\n"
	code, out, errs := runCheck(t, file, nil, "r.yaml")
	want := `
RULE    KEY        WHEN  COUNT     MAX                   WINDOW  MODE     FROM
user    user       -     requests  off                   1s      enforce  r.yaml:2:27
org     org        -     requests  5                     1s      enforce  r.yaml:2:19
per-ip  client_ip  -     requests  10                    1m      enforce  r.yaml:4:5
bytes   org        true  bytes     user == null ? 1 : 2  1h      observe  r.yaml:5:5
idle    org        -     requests  off                   1h      enforce  r.yaml:6:5
`
	if code != exitDone || errs != "" || !strings.Contains(out, want) {
		t.Errorf("exit %d %s\n%s", code, errs, out)
	}
}

// TestCheckWarnsOfNamesThatAreNot: a rule about a service or an action that there is
// not never acts.
func TestCheckWarnsOfNamesThatAreNot(t *testing.T) {
	file := "services: {tools: {base_url: \"https://u.example\", actions: {get: {method: GET, path: /}}}}\nrules:\n" +
		"  - {name: a, key: caller, window: 1m, max: 10, when: service == \"tools\" && \"gett\" != action}\n" +
		"  - {name: b, key: caller, window: 1m, max: 'service in [\"tools\", \"tolls\"] ? 1 : 2', when: action == \"get\" && caller == \"x\"}\n"
	code, out, _ := runCheck(t, file, nil, "r.yaml")
	_, got, _ := strings.Cut(out, "\nwarning")
	want := ": r.yaml:3:55: rules.a.when: there is no action \"gett\", with which this compares\n" +
		"warning: r.yaml:4:45: rules.b.max: there is no service \"tolls\", with which this compares\n"
	if diff := cmp.Diff(want, got); diff != "" || code != exitDone {
		t.Errorf("exit %d %s", code, diff)
	}
}

// TestCheckTellsOfExpressions beside every other mistake, in the order of the file.
func TestCheckTellsOfExpressions(t *testing.T) {
	file := "version: 1\nserver: {rate_key_rps: 0}\nrules:\n  - {name: a, key: usr, window: 1m, max: 5}\n  - {name: b, key: caller, window: 1x, max: caller, when: (}\n"
	code, out, _ := runCheck(t, file, nil, "r.yaml")
	want := `r.yaml:2:10: server.rate_key_rps: 0 disables the key limit while a tenant rate is on: AGENTGATE_RATE_TENANT_RPS is 100 (default)
r.yaml:4:20: rules[0].key: undeclared reference to 'usr' (did you mean 'user'?) (at character 1)
r.yaml:5:36: rules[1].window: "1x" is not a duration such as 250ms, 30s or 10m
r.yaml:5:45: rules[1].max: yields a text, not a number
r.yaml:5:59: rules[1].when: is no expression, from character 2 on: there it ends, too early
`
	if diff := cmp.Diff(want, out); diff != "" || code != exitNotHold {
		t.Errorf("exit %d %s", code, diff)
	}
}

func TestCheckJSON(t *testing.T) {
	code, out, _ := runCheck(t, soundRegistry+"tunnels: {allow: [\"10.0.0.1:443\"]}\n", nil, "--json", "r.yaml")
	var r report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitDone {
		t.Fatalf("%d %v %s", code, err, out)
	}
	if r.Tenants[0].Weight != 2 || r.Tenants[0].WeightSource != "r.yaml:4:38" || *r.Process.MaxInflight != 90 || r.Process.TenantQueue != 0 || r.Process.QueueWait != "1s" {
		t.Errorf("%+v %+v", r.Tenants[0], r.Process)
	}
	if !r.OK || len(r.SHA256) != 64 || *r.Keys[0].RPS != 5 || !r.Tenants[0].BurstDefaulted || *r.Tenants[0].MaxInflight != 64 || r.Services[1].RPS != nil {
		t.Errorf("%s", out)
	}
	if diff := cmp.Diff([]string{"r.yaml:15:19: tunnels.allow[0]: every tunnel to it will be refused: the address is private, loopback or link-local; if it is meant, add allow_private: true"}, r.Warnings); diff != "" {
		t.Error(diff)
	}

	code, out, _ = runCheck(t, "version: 1\nserver: {rate_key_rps: 0}\n", nil, "--json", "r.yaml")
	var refused struct {
		OK       bool
		Problems []finding
	}
	if err := json.Unmarshal([]byte(out), &refused); err != nil || code != exitNotHold || refused.OK {
		t.Fatalf("%d %v %s", code, err, out)
	}
	want := []finding{{"r.yaml", 2, 10, "server.rate_key_rps", "0 disables the key limit while a tenant rate is on: AGENTGATE_RATE_TENANT_RPS is 100 (default)"}}
	if diff := cmp.Diff(want, refused.Problems); diff != "" {
		t.Error(diff)
	}
}

func TestCheckRefuses(t *testing.T) {
	tests := []struct {
		name, file string
		environ    []string
		args       []string
		code       int
		want       string // of standard output
	}{
		{"file and environment together", "version: 1\nservces: {}\ntenants: {a: {rps: 010}}\n", []string{"AGENTGATE_TENANT_QEUE=1", "AGENTGATE_MAX_INFLIGHT=x"}, []string{"r.yaml"}, exitNotHold,
			`r.yaml:2:1: servces: unknown key; did you mean services?
r.yaml:3:20: tenants.a.rps: "010" is not a plain decimal number such as 20 or 0.5
environment: AGENTGATE_TENANT_QEUE: there is no such setting; did you mean AGENTGATE_TENANT_QUEUE?
environment: AGENTGATE_MAX_INFLIGHT: "x" is not a plain whole number such as 20
`},
		{"server section", "server:\n  stream_idle: 30\n", nil, []string{"r.yaml"}, exitNotHold,
			"r.yaml:2:3: server.stream_idle: \"30\" has no unit: write 250ms, 30s or 10m\n"},
		{"registry by flag", "a: 1\n", nil, []string{"--registry", "r.yaml"}, exitNotHold, "r.yaml:1:1: a: unknown key; it belongs under server, if it is a setting\n"},
		{"registry by environment", "a: 1\n", []string{"AGENTGATE_REGISTRY=r.yaml"}, nil, exitNotHold, "r.yaml:1:1: a: unknown key; it belongs under server, if it is a setting\n"},
		{"key limit off", "version: 1\n", []string{"AGENTGATE_RATE_KEY_RPS=0"}, []string{"r.yaml"}, exitNotHold,
			"environment: AGENTGATE_RATE_KEY_RPS: 0 disables the key limit while a tenant rate is on: AGENTGATE_RATE_TENANT_RPS is 100 (default)\n"},
		{"key limit off, tenant rate by environment", "version: 1\n", []string{"AGENTGATE_RATE_KEY_RPS=0", "AGENTGATE_RATE_TENANT_RPS=50"}, []string{"r.yaml"}, exitNotHold,
			"environment: AGENTGATE_RATE_KEY_RPS: 0 disables the key limit while a tenant rate is on: AGENTGATE_RATE_TENANT_RPS is 50 (environment)\n"},
		{"key limit off by a burst of the environment", "server: {rate_key_rps: 5}\n", []string{"AGENTGATE_RATE_KEY_BURST=0"}, []string{"r.yaml"}, exitNotHold,
			"environment: AGENTGATE_RATE_KEY_BURST: 0 disables the key limit while a tenant rate is on: AGENTGATE_RATE_TENANT_RPS is 100 (default)\n"},
		{"key limit off by a burst of the file", "server: {rate_key_rps: 5, rate_key_burst: 0}\n", nil, []string{"r.yaml"}, exitNotHold,
			"r.yaml:1:27: server.rate_key_burst: 0 disables the key limit while a tenant rate is on: AGENTGATE_RATE_TENANT_RPS is 100 (default)\n"},
		{"tenant rate off by the environment", "server: {rate_tenant_rps: 5, rate_tenant_burst: 7}\n", []string{"AGENTGATE_RATE_TENANT_RPS=0"}, []string{"r.yaml"}, exitNotHold,
			"r.yaml:1:30: server.rate_tenant_burst: a burst without its rate limits nothing, and environment AGENTGATE_RATE_TENANT_RPS is 0: give a rate, or 0 for both\n"},
		{"no file", "version: 1\n", nil, []string{"none.yaml"}, exitCannotRun, ""},
		{"default file missing", "version: 1\n", nil, nil, exitCannotRun, ""},
		{"two files", "version: 1\n", nil, []string{"r.yaml", "r.yaml"}, exitUsage, ""},
		{"a file and a flag", "version: 1\n", nil, []string{"r.yaml", "--registry", "other.yaml"}, exitUsage, ""},
		{"a flag that is none", "version: 1\n", nil, []string{"--colour", "r.yaml"}, exitUsage, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errs := runCheck(t, tt.file, tt.environ, tt.args...)
			if code != tt.code || out != tt.want {
				t.Errorf("exit %d, want %d\n%s", code, tt.code, cmp.Diff(tt.want, out))
			}
			if (errs != "") != (code != exitNotHold) {
				t.Errorf("standard error: %q", errs)
			}
		})
	}
}

func TestCheckTakesTheSample(t *testing.T) {
	sample, err := filepath.Abs("../../registry.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if code, out, errs := runCheck(t, "", nil, sample); code != exitDone || !strings.Contains(out, "github ") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}
