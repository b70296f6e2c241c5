package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentgw/internal/identity"
	"agentgw/internal/receipts"
	"agentgw/internal/vault"
)

// opening is a gateway with an open service whose callers have one call a minute.
func opening(t *testing.T) *reloading {
	t.Helper()
	r := newReloading(t, "{rps: 1}")
	r.open("rate_caller_rpm: 1")
	return r
}

// open puts a file with that server: section and the open service in force.
func (r *reloading) open(settings string) {
	r.t.Helper()
	r.settings, r.more = settings, fmt.Sprintf("  llm: {base_url: %q, allow_private: true, access: open, passthrough: true}\n", r.url)
	r.reload("{rps: 1}")
}

// stranger calls the open service with a bearer token, and returns the answer's status and
// its receipt.
func (r *reloading) stranger(bearer string) (status int, receipt string) {
	r.t.Helper()
	request, err := http.NewRequest("GET", "http://"+r.server.agentsListener.Addr().String()+"/proxy/llm/x", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+bearer)
	res, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	_ = res.Body.Close()
	_, rest, _ := strings.Cut(res.Header.Get("Agentgate-Receipt"), `id="`)
	receipt, _, _ = strings.Cut(rest, `"`)
	return res.StatusCode, receipt
}

// TestHealthIsNeverLimited, nor metrics, whatever callers have used up.
func TestHealthIsNeverLimited(t *testing.T) {
	r := opening(t)
	for i, want := range []int{200, 429, 429} {
		if status, _ := r.stranger("sk-1"); status != want {
			t.Fatalf("call %d: %d", i, status)
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/healthz", "/metrics"} {
		for i := range 10 {
			if status, body := get(t, "GET", "http://"+r.server.operatorsListener.Addr().String()+path, "Bearer sk-1", ""); status != 200 {
				t.Fatalf("%s, %d: %d %s", path, i, status, body)
			}
		}
	}
	_, metrics := r.operate("GET", "/metrics", "")
	for _, line := range []string{
		`agentgate_buckets{level="empty",limit="caller"} 1`, `agentgate_decisions_total{code="rate_limited",limit="caller",service="llm"} 2`, `agentgate_limiter_entries{table="open_callers"} 1`,
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("the metrics have no line %s", line)
		}
	}
}

// TestWhatIsKeptOfAnOpenCaller is a name that comes from the vault key, and so is the same
// after a restart: no file and no line of the log has his credential. What he asked for can
// be shown.
func TestWhatIsKeptOfAnOpenCaller(t *testing.T) {
	const secret = "sk-Pl4nt3d-9f8e7d6c5b4a"
	r := opening(t)
	data := r.server.settings.DataDir
	caller := func(receipt string) string {
		t.Helper()
		lines, err := receipts.FindIn(filepath.Join(data, "receipts"), receipt)
		if err != nil || len(lines) == 0 {
			t.Fatalf("receipt %s: %d records, %v", receipt, len(lines), err)
		}
		record, err := receipts.ParseRecord(lines[0])
		if err != nil || record.Tenant != "" || record.Key != "" {
			t.Fatalf("%+v, %v", record, err)
		}
		return record.Caller
	}
	status, allowed := r.stranger(secret)
	if status != 200 {
		t.Fatal(status)
	}
	name := caller(allowed)
	if !strings.HasPrefix(name, "open:") || len(name) != 37 {
		t.Errorf("called %q", name)
	}
	status, refused := r.stranger(secret)
	if status != 429 || caller(refused) != name {
		t.Errorf("%d, called %q", status, caller(refused))
	}
	r.server.stop(context.Background())
	if err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var text []byte
			if text, err = os.ReadFile(path); err == nil && strings.Contains(string(text), secret) {
				t.Errorf("%s has the credential", path)
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(r.log.String(), secret) {
		t.Error("the log has the credential")
	}

	text, err := os.ReadFile(filepath.Join(data, "vault-key"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := vault.ParseKEK(string(text))
	if err != nil {
		t.Fatal(err)
	}
	want, err := identity.NewPseudonyms(key.DeriveKey("foreign-credentials")).Caller(http.Header{"X-Api-Key": {secret}})
	if err != nil || name != want {
		t.Errorf("called %s, want %s (%v)", name, want, err)
	}
	b := newBench(t, "")
	out, _ := b.want(exitDone, "receipts", "open", allowed, "--json", "--data", data)
	if !json.Valid([]byte(out)) || !strings.Contains(out, `"salt"`) {
		t.Errorf("receipts open: %s", out)
	}
	for _, of := range [][]string{nil, {"--key", name}} {
		if out, _ = b.want(exitDone, append([]string{"receipts", "list", "--data", data}, of...)...); strings.Count(out, name) != 2 {
			t.Errorf("receipts list %v:\n%s", of, out)
		}
	}
}

// TestACallerLimitThatIsNone is told by check, by a start and by a reload, which leaves the
// one before in force.
func TestACallerLimitThatIsNone(t *testing.T) {
	malformed := []string{"AGENTGATE_RATE_CALLER_RPM=x", "AGENTGATE_RATE_CALLER_BURST=0"}
	if code, out, _ := runCheck(t, "version: 1\n", malformed, "r.yaml", "--rate-caller-rpm=2", "--rate-caller-burst=3"); code != exitDone {
		t.Errorf("flags over what the environment has malformed: %d %s", code, out)
	}
	for _, c := range []struct{ settings, want string }{
		{"rate_caller_rpm: 0", "server.rate_caller_rpm: 0 is not a value here; leave it unset for the default"},
		{"rate_caller_burst: 5", "server.rate_caller_burst: a burst without its rate limits nothing: give server.rate_caller_rpm too"},
		{"rate_caller_rpm: 1, rate_caller_burst: 61", "server.rate_caller_burst: a burst of 61 is more than an hour of its rate of 1 a minute"},
	} {
		file := "version: 1\nserver: {" + c.settings + "}\n"
		code, out, _ := runCheck(t, file, nil, "r.yaml")
		if code != exitNotHold || !strings.Contains(out, c.want) || !strings.HasPrefix(out, "r.yaml:2:") {
			t.Errorf("check: %d %s, want %s", code, out, c.want)
		}
		var errs strings.Builder
		serve := &cli{stdin: strings.NewReader(""), stdout: &errs, stderr: &errs}
		if code := serve.run([]string{"serve", "--registry", "r.yaml", "--data-dir", "data"}); code != exitCannotRun || !strings.Contains(errs.String(), c.want) {
			t.Errorf("serve: %d %s, want %s", code, errs.String(), c.want)
		}
		if _, err := os.Stat("data"); err == nil {
			t.Error("a start that was refused made its folder")
		}
		t.Run("reload", func(t *testing.T) {
			r := opening(t)
			r.settings = c.settings
			r.write("{rps: 1}")
			_, what, _ := strings.Cut(c.want, ": ")
			if status, body := r.operate("POST", "/admin/v1/reload", operators); status != 422 || !strings.Contains(body, what) {
				t.Errorf("reload: %d %s, want %s", status, body, c.want)
			}
			for i, want := range []int{200, 429} {
				if status, _ := r.stranger("sk-1"); status != want {
					t.Errorf("call %d after a reload that was refused: %d", i, status)
				}
			}
		})
	}
}

// TestCheckTellsTheCallerLimit where a service is open, and where it comes from.
func TestCheckTellsTheCallerLimit(t *testing.T) {
	const open = "version: 1\nserver: {rate_caller_rpm: 90}\nservices:\n  llm: {base_url: \"https://u.example\", access: open}\n"
	for _, c := range []struct {
		file string
		args []string
		want string
	}{
		{open, nil, "each caller of open services  90/min burst 90  r.yaml:2:10 server.rate_caller_rpm\n"},
		{open, []string{"--rate-caller-burst=7"}, "each caller of open services  90/min burst 7  r.yaml:2:10 server.rate_caller_rpm, burst: flag --rate-caller-burst\n"},
		{strings.Replace(open, "rate_caller_rpm: 90", "", 1), nil, "each caller of open services  off       default AGENTGATE_RATE_CALLER_RPM\n"},
		{strings.Replace(open, ", access: open", "", 1), nil, ""},
	} {
		code, out, _ := runCheck(t, c.file, nil, append(c.args, "r.yaml")...)
		if code != exitDone || !strings.Contains(out, c.want) || c.want == "" && strings.Contains(out, "each caller") || strings.Contains(out, "warning") {
			t.Errorf("%v: %d\n%s\nwant %s", c.args, code, out, c.want)
		}
	}
}
