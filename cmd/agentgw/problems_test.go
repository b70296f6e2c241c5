package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// manyMistakes has one of each step in which a registry is checked.
const manyMistakes = `version: 1
services: {}
keys:
  - {id: k, sha256: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", services: ["*"], users: ["*"], limits: {rps: 0}}
bogus: 1
server: {rate_key_rps2: 3, Rate_Key_rps: 1, stream_idle: 30}
`

var manyProblems = []string{
	"registry.yaml:4:129: keys[0].limits.rps: 0 disables the key's limit while a tenant rate is on: AGENTGATE_RATE_TENANT_RPS is 100 (default)",
	"registry.yaml:5:1: bogus: unknown key; it belongs under server, if it is a setting",
	"registry.yaml:6:10: server.rate_key_rps2: there is no such setting; did you mean rate_key_rps?",
	"registry.yaml:6:28: server.Rate_Key_rps: there is no such setting; did you mean rate_key_rps?",
	`registry.yaml:6:45: server.stream_idle: "30" has no unit: write 250ms, 30s or 10m`,
	`environment: AGENTGATE_MAX_INFLIGHT: "x" is not a plain whole number such as 20`,
	"environment: AGENTGATE_VAULT_KEY: is not 32 bytes in hexadecimal (64 digits) or base64 (43 characters, or 44 with the padding)",
	"environment: AGENTGATE_TLS_CERT_FILE: none with its key none: open none: no such file or directory",
}

// TestEveryProblemIsToldAtOnce: of the file, of the settings, of the two
// together and of what they name, by check and by serve alike.
func TestEveryProblemIsToldAtOnce(t *testing.T) {
	b := newBench(t, manyMistakes)
	b.env = []string{"AGENTGATE_MAX_INFLIGHT=x", "AGENTGATE_VAULT_KEY=aa", "AGENTGATE_TLS_CERT_FILE=none", "AGENTGATE_TLS_KEY_FILE=none"}
	want := strings.Join(manyProblems, "\n") + "\n"
	stdout, stderr := b.want(exitNotHold, "check")
	if diff := cmp.Diff(want, stdout); diff != "" || stderr != "" {
		t.Errorf("check: %s%s", diff, stderr)
	}
	_, stderr = b.want(exitCannotRun, "serve")
	if diff := cmp.Diff("agentgw: "+want, stderr); diff != "" {
		t.Errorf("serve: %s", diff)
	}
	if _, err := os.Stat("data"); err == nil {
		t.Error("a data folder was made")
	}
}

// TestNoProblemOfWhatCouldNotBeRead: a limit is not held against one that is in
// doubt.
func TestNoProblemOfWhatCouldNotBeRead(t *testing.T) {
	const key = "keys: [{id: k, sha256: \"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\", services: [\"*\"], users: [\"*\"], limits: {rps: 0}}]\n"
	for name, c := range map[string]struct {
		file, want string
	}{
		"a tenant rate in doubt":     {key + "server: {rate_tenant_rps: off}\n", `r.yaml:2:10: server.rate_tenant_rps: "off" is not a plain decimal number such as 20 or 0.5` + "\n"},
		"a tenant rate given twice":  {key + "server: {rate_tenant_rps: 5, rate_tenant_rps: 0}\n", "r.yaml:2:30: server.rate_tenant_rps: is given twice; the first is at 2:10\n"},
		"a section that is none":     {key + "server: [rate_tenant_rps]\n", "r.yaml:2:9: server: must be a mapping of names to values, not a list\n"},
		"a section that is misspelt": {key + "sever: {rate_tenant_rps: 0}\n", "r.yaml:2:1: sever: unknown key; did you mean server?\n"},
		"a key rate in doubt":        {"server: {rate_key_burst: 0, rate_key_rps: x}\n", `r.yaml:1:29: server.rate_key_rps: "x" is not a plain decimal number such as 20 or 0.5` + "\n"},
		"a rate that is too small":   {"server: {rate_key_rps: 0.0000000001}\n", "r.yaml:1:10: server.rate_key_rps: a burst of 1 is more than an hour of its rate of 0.0000000001 a second\n"},
		"a file that is no YAML":     {"server: {rate_tenant_rps: 0\nx", "r.yaml:3:1: not sound YAML: did not find expected ',' or '}'; a text with a comma, a bracket, a quote or a colon in it may want quotes around it\n"},
	} {
		if code, out, _ := runCheck(t, c.file, nil, "r.yaml"); code != exitNotHold || out != c.want {
			t.Errorf("%s: exit %d\n%s", name, code, cmp.Diff(c.want, out))
		}
	}
}

// TestAFileThatIsNoYAMLMaySetAnything: the environment is judged by itself alone.
func TestAFileThatIsNoYAMLMaySetAnything(t *testing.T) {
	code, out, _ := runCheck(t, "server: {rate_key_burst: 1\nx", []string{"AGENTGATE_RATE_KEY_RPS=0.01", "AGENTGATE_MAX_INFLIGHT=x"}, "r.yaml")
	want := "r.yaml:3:1: not sound YAML: did not find expected ',' or '}'; a text with a comma, a bracket, a quote or a colon in it may want quotes around it\nenvironment: AGENTGATE_MAX_INFLIGHT: \"x\" is not a plain whole number such as 20\n"
	if code != exitNotHold || out != want {
		t.Errorf("exit %d\n%s", code, cmp.Diff(want, out))
	}
}

// TestCheckFindsWhatAStartRefuses: the certificate and the vault key, and makes
// nothing.
func TestCheckFindsWhatAStartRefuses(t *testing.T) {
	folder := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert, key := pemPair(t, 1)
	_, other := pemPair(t, 2)
	certFile, keyFile, otherFile := write("cert", cert), write("key", key), write("other", other)
	for _, c := range []struct {
		env  []string
		want string // "": all is well
	}{
		{[]string{"AGENTGATE_TLS_CERT_FILE=" + certFile, "AGENTGATE_TLS_KEY_FILE=" + keyFile, "AGENTGATE_VAULT_KEY=" + strings.Repeat("61", 24) + "0123456789abcdef"}, ""},
		{[]string{"AGENTGATE_TLS_CERT_FILE=" + certFile, "AGENTGATE_TLS_KEY_FILE=" + otherFile}, "environment: AGENTGATE_TLS_CERT_FILE: " + certFile + " with its key " + otherFile + ": tls: private key does not match"},
		{[]string{"AGENTGATE_TLS_CERT_FILE=" + certFile, "AGENTGATE_TLS_KEY_FILE=" + folder + "/none"}, "environment: AGENTGATE_TLS_CERT_FILE: " + certFile + " with its key " + folder + "/none: open "},
		{[]string{"AGENTGATE_VAULT_KEY=" + strings.Repeat("0", 64)}, "environment: AGENTGATE_VAULT_KEY: is one that anybody would try"},
		{[]string{"AGENTGATE_VAULT_KEY=aa"}, "environment: AGENTGATE_VAULT_KEY: is not 32 bytes"},
		{[]string{"AGENTGATE_VAULT_KEY_FILE=" + keyFile}, "environment: AGENTGATE_VAULT_KEY_FILE: is not 32 bytes"},
		{[]string{"AGENTGATE_LISTEN=127.0.0.1:9090"}, "environment: AGENTGATE_LISTEN: is taken by AGENTGATE_ADMIN_LISTEN already"},
	} {
		code, out, _ := runCheck(t, "version: 1\n", c.env, "r.yaml")
		if want := map[bool]int{true: exitDone, false: exitNotHold}[c.want == ""]; code != want || !strings.HasPrefix(out, c.want) {
			t.Errorf("%v: exit %d\n%s", c.env, code, out)
		}
		if _, err := os.Stat("data"); err == nil {
			t.Errorf("%v: a data folder was made", c.env)
		}
	}
}

// TestAReloadTellsEveryProblem: each with its own line and column.
func TestAReloadTellsEveryProblem(t *testing.T) {
	r := newReloading(t, "{rps: 1}")
	if err := os.WriteFile(r.file, []byte(manyMistakes+"tenants: {T: {}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	status, body := r.operate(http.MethodPost, "/admin/v1/reload", "Bearer the-operators-token")
	var answer struct {
		Problems []struct {
			File         string
			Line, Column int
			Path         string
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusUnprocessableEntity {
		t.Fatalf("%d %v %s", status, err, body)
	}
	var got []string
	for _, p := range answer.Problems {
		if p.File != r.file || p.Column == 0 {
			t.Errorf("%+v", p)
		}
		got = append(got, p.Path)
	}
	want := []string{"keys[0].limits.rps", "bogus", "server.rate_key_rps2", "server.Rate_Key_rps", "server.stream_idle", "tenants.T"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestCheckSaysThatABurstFollows: of the server: section as of every other rate.
func TestCheckSaysThatABurstFollows(t *testing.T) {
	_, out, _ := runCheck(t, "server: {rate_key_rps: 7.2, rate_tenant_rps: 50, rate_tenant_burst: 60}\n", nil, "r.yaml")
	for _, want := range []string{"(all others)  7.2  8 (defaulted)", "(all others)  50   60  ", "A burst marked (defaulted)"} {
		if !strings.Contains(out, want) {
			t.Errorf("without %q:\n%s", want, out)
		}
	}
}
