package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/admin"
	"agentgw/internal/identity"
	"agentgw/internal/receipts"
	"agentgw/internal/store"
)

// stateRegistry is what the commands that change state are tested against.
const stateRegistry = `version: 1
tenants:
  acme: {rps: 200, burst: 400}
keys:
  - {id: static, sha256: "0000000000000000000000000000000000000000000000000000000000000000", services: ["*"], users: ["*"]}
services:
  github:
    base_url: https://api.example.com
    credential: {type: bearer, scope: user}
    actions:
      list_issues: {method: GET, path: /issues}
      create_issue: {method: POST, path: /issues}
  search:
    base_url: https://search.example.com
    credential: {type: basic}
    actions:
      find: {method: GET, path: /find}
  plain:
    base_url: https://plain.example.com
    actions:
      get: {method: GET, path: /}
  mail:
    base_url: https://mail.example.com
    credential: {type: oauth2, authorize_url: https://mail.example.com/authorize, token_url: https://mail.example.com/token, client_id: gw}
`

// bench is a folder with nothing but what a test puts there.
type bench struct {
	t    *testing.T
	data string
	env  []string
	log  *receipts.Log // that openLog has opened last, in data
}

func newBench(t *testing.T, registry string) *bench {
	t.Helper()
	t.Chdir(t.TempDir())
	if registry != "" {
		if err := os.WriteFile("registry.yaml", []byte(registry), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &bench{t: t, data: "data"}
}

// run runs a command line and returns what it printed.
func (b *bench) run(stdin string, args ...string) (code int, stdout, stderr string) {
	b.t.Helper()
	var out, errs strings.Builder
	c := &cli{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs, environ: b.env}
	code = c.run(append([]string{}, args...)) // without any it would take those of the test
	return code, out.String(), errs.String()
}

// want runs a command line that is to end with that code.
func (b *bench) want(code int, args ...string) (stdout, stderr string) {
	b.t.Helper()
	got, stdout, stderr := b.run("", args...)
	if got != code {
		b.t.Fatalf("%q: exit code %d, want %d; it says %s%s", args, got, code, stdout, stderr)
	}
	return stdout, stderr
}

func (b *bench) store() *store.Store {
	b.t.Helper()
	s, err := store.Open(b.t.Context(), b.data)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (b *bench) keys() []store.Key {
	b.t.Helper()
	keys, err := b.store().Keys(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return keys
}

func TestKeysCreate(t *testing.T) {
	b := newBench(t, stateRegistry)
	before := time.Now()
	stdout, stderr := b.want(exitDone, "keys", "create", "--id", "ci-bot", "--services", "github, search", "--actions", "github.list_*,search.*",
		"--users", "user-42,u 7", "--tenant", "acme", "--rps", "0.5", "--burst", "3", "--user", "o1", "--space", "o2", "--org", "o3", "--expires", "720h", "--json")
	after := time.Now()
	var made map[string]string
	if err := json.Unmarshal([]byte(stdout), &made); err != nil {
		t.Fatalf("%q: %v", stdout, err)
	}
	digest, ok := identity.ParseKey(made["key"])
	if len(made) != 2 || made["id"] != "ci-bot" || !ok || stderr != "agentgw: made a new data folder ./data\n" {
		t.Fatalf("it prints %q and %q", stdout, stderr)
	}
	keys := b.keys()
	if len(keys) != 1 {
		t.Fatalf("%d keys are stored", len(keys))
	}
	got := keys[0]
	if got.CreatedAt.Before(before) || got.CreatedAt.After(after) || got.NotAfter.Sub(got.CreatedAt) != 720*time.Hour {
		t.Errorf("made at %v, until %v", got.CreatedAt, got.NotAfter)
	}
	got.CreatedAt, got.NotAfter = time.Time{}, time.Time{}
	want := store.Key{
		ID: "ci-bot", Digest: digest, Services: []string{"github", "search"}, Actions: []string{"github.list_*", "search.*"},
		Users: []string{"user-42", "u 7"}, Tenant: "acme", Limits: &store.Limits{RPS: 0.5, Burst: 3}, User: "o1", Space: "o2", Org: "o3",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if stdout, _ := b.want(exitDone, "keys", "list"); strings.Contains(stdout, "agw_") {
		t.Errorf("the list tells a key:\n%s", stdout)
	}
	if stdout, _ := b.want(exitDone, "keys", "list", "--json"); strings.Contains(stdout, "agw_") || strings.Contains(stdout, "digest") {
		t.Errorf("the list tells a key:\n%s", stdout)
	}
	// For people, and with as little as will do.
	stdout, _ = b.want(exitDone, "keys", "create", "--id", "ops", "--services", "*", "--users", "*")
	if lines := strings.Split(stdout, "\n"); len(lines) != 3 || lines[0] != "id   ops" || !identity.LooksLikeKey(strings.TrimPrefix(lines[1], "key  ")) {
		t.Errorf("it prints %q", stdout)
	}
	if k := b.keys()[1]; k.Limits != nil || !k.NotAfter.IsZero() || k.Actions != nil {
		t.Errorf("a plain key has %+v", k)
	}
	// A rate alone brings its burst.
	b.want(exitDone, "keys", "create", "--id", "slow", "--services", "*", "--users", "*", "--rps", "2.5")
	if k := b.keys()[2]; *k.Limits != (store.Limits{RPS: 2.5, Burst: 3}) {
		t.Errorf("a rate alone became %+v", k.Limits)
	}
}

func TestKeysCreateRefuses(t *testing.T) {
	b := newBench(t, stateRegistry)
	b.want(exitDone, "keys", "create", "--id", "taken", "--services", "*", "--users", "*")
	for _, c := range []struct {
		args string // after --id x --services * --users *; the last of a flag counts
		code int
		says string
	}{
		{"--id taken", exitCannotRun, `key "taken": exists already`},
		{"--id static", exitUsage, `--id: key "static" exists already, at registry.yaml:5:5`},
		{"--id Upper", exitUsage, `--id: "Upper" is not an id`},
		{"--id -", exitUsage, `--id: "-" is not an id`},
		{"--id=", exitUsage, `--id: "" is not an id`},
		{"--services=", exitUsage, "--services: holds an empty name"},
		{"--services github,", exitUsage, "--services: holds an empty name"},
		{"--services github,github", exitUsage, `--services: "github" is there twice`},
		{"--services github,*", exitUsage, "--services: * stands for all, and so stands alone"},
		{"--services gihub", exitUsage, `--services: there is no service "gihub" in registry.yaml`},
		{"--services GitHub", exitUsage, `--services: "GitHub" is not the name of a service`},
		{"--users=", exitUsage, "--users: holds an empty name"},
		{"--users a,*", exitUsage, "--users: * stands for all, and so stands alone"},
		{"--users a\x1bb", exitUsage, `--users: "a\x1bb" holds a control character`},
		{"--actions=", exitUsage, "--actions: holds an empty name"},
		{"--actions github.[a-z]*", exitUsage, `--actions: "github.[a-z]*" is no pattern`},
		{"--actions github.lsit_*", exitUsage, `--actions: "github.lsit_*" matches no declared action`},
		{"--services plain --actions github.list_*", exitUsage, `--actions: "github.list_*" matches no declared action`},
		{"--tenant none", exitUsage, `--tenant: there is no tenant "none" in registry.yaml`},
		{"--tenant=", exitUsage, `--tenant: "" is not the name of a tenant`},
		{"--rps 0", exitUsage, "--rps: 0 disables the key's limit while a tenant rate is on: AGENTGATE_RATE_TENANT_RPS is 100 (default)"},
		{"--rps 5 --burst 0", exitUsage, "--rps: 0 disables the key's limit"},
		{"--rps 0 --rate-tenant-rps 0", exitUsage, "tenants.acme.rps is 200 (registry.yaml:3:10)"},
		{"--burst 5", exitUsage, "--rps: a burst without its rate limits nothing"},
		{"--rps 0 --burst 5", exitUsage, "--rps: a burst without its rate limits nothing"},
		{"--rps -1", exitUsage, `--rps: "-1" is negative`},
		{"--rps NaN", exitUsage, `--rps: "NaN" is not a finite number`},
		{"--rps 1 --burst 3601", exitUsage, "--rps: a burst of 3601 is more than an hour of its rate of 1 a second"},
		{"--rps 1 --burst x", exitUsage, `--rps: its burst: "x" is not a plain whole number`},
		{"--expires 0", exitUsage, "--expires: a key that expires at once cannot be used"},
		{"--expires -1h", exitUsage, `--expires: "-1h" is negative`},
		{"--expires 30", exitUsage, `--expires: "30" has no unit`},
		{"--not-before 2026-12-01", exitUsage, `--not-before: "2026-12-01" is not a time with its zone`},
		{"--not-before=", exitUsage, `--not-before: "" is not a time with its zone`},
		{"--not-before 2199-01-01T00:00:00Z --expires 1h", exitUsage, "--expires: ends before it begins (not-before)"},
		{"--expires 1000000h", exitUsage, "--expires: over a hundred years"},
		{"--id Bad --rps x", exitUsage, `--rps: "x" is not a plain decimal number`}, // with the other
		{"--id Bad --rps x", exitUsage, `--id: "Bad" is not an id`},
		{"--rate-key-rps 0", exitCannotRun, "--rate-key-rps: 0 disables the key limit"}, // serve would not start
		{"extra", exitUsage, "agentgw keys create takes no argument: the key is described by flags"},
	} {
		args := []string{"keys", "create", "--id", "x", "--services", "*", "--users", "*"}
		args = append(args, strings.Split(c.args, " ")...)
		stdout, stderr := b.want(c.code, args...)
		if !strings.Contains(stderr, c.says) || stdout != "" {
			t.Errorf("%s: it says %q and %q, without %q", c.args, stdout, stderr, c.says)
		}
	}
	if keys := b.keys(); len(keys) != 1 {
		t.Errorf("%d keys are stored", len(keys))
	}
	for _, missing := range []string{"id", "services", "users"} {
		var args []string
		for _, f := range []string{"id", "services", "users"} {
			if f != missing {
				args = append(args, "--"+f, "y")
			}
		}
		if _, stderr := b.want(exitUsage, append([]string{"keys", "create"}, args...)...); !strings.Contains(stderr, missing) {
			t.Errorf("without --%s: %q", missing, stderr)
		}
	}
}

// TestKeysWithoutRegistry: without a registry only the shape of names counts,
// and the data folder is the setting's.
func TestKeysWithoutRegistry(t *testing.T) {
	b := newBench(t, "")
	b.env = []string{"AGENTGATE_DATA_DIR=elsewhere"}
	b.data = "elsewhere"
	b.want(exitDone, "keys", "create", "--id", "a", "--services", "later", "--actions", "later.x", "--users", "u", "--tenant", "also-later")
	b.want(exitDone, "keys", "create", "--id", "b", "--services", "later", "--users", "u", "--rps", "0", "--rate-tenant-rps", "0")
	if keys := b.keys(); len(keys) != 2 || *keys[1].Limits != (store.Limits{}) {
		t.Errorf("%+v", keys)
	}
	b.want(exitUsage, "keys", "create", "--id", "c", "--services", "Later", "--users", "u")
	// A registry that was named must be there.
	b.want(exitCannotRun, "keys", "create", "--id", "c", "--services", "*", "--users", "u", "--registry", "none.yaml")
	if _, err := os.Stat("data"); !os.IsNotExist(err) {
		t.Errorf("the default folder was made: %v", err)
	}
}

func TestKeysListAndRevoke(t *testing.T) {
	b := newBench(t, stateRegistry)
	s := b.store()
	for _, k := range []store.Key{
		{ID: "valid", Services: []string{"github"}, Actions: []string{"github.*"}, Users: []string{"a", "b"}, Tenant: "acme", User: "u-7", Org: "dev", CreatedAt: time.Unix(0, 1).UTC(), NotAfter: time.Unix(1<<33, 0)},
		{ID: "old", Services: []string{"*"}, Users: []string{"*"}, CreatedAt: time.Unix(0, 1), NotAfter: time.Unix(1, 0)},
	} {
		k.Digest[0] = k.ID[0]
		if err := s.AddKey(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	stdout, _ := b.want(exitDone, "keys", "list")
	if want := `ID     STATE    SERVICES  ACTIONS   USERS  TENANT  OWNER              CREATED               EXPIRES               LAST USED
old    expired  *         -         *      -       -                  1970-01-01T00:00:00Z  1970-01-01T00:00:01Z  -
valid  valid    github    github.*  a,b    acme    user u-7, org dev  1970-01-01T00:00:00Z  2242-03-16T12:56:32Z  -
`; stdout != want {
		t.Errorf("-want +got:\n%s", cmp.Diff(want, stdout))
	}
	b.want(exitDone, "keys", "revoke", "valid")
	since := b.keys()[1].RevokedAt
	// As asked, and since when it was: a second time changes nothing.
	if stdout, _ := b.want(exitDone, "keys", "revoke", "valid"); stdout != "key valid was already revoked on "+since.Format(time.RFC3339)+"\n" {
		t.Errorf("%q", stdout)
	}
	if stdout, _ := b.want(exitDone, "keys", "revoke", "valid", "--json"); stdout != `{"id":"valid","revoked":true,"since":"`+since.Format(time.RFC3339Nano)+`"}`+"\n" {
		t.Errorf("%q", stdout)
	}
	if k := b.keys()[1]; k.RevokedAt.IsZero() {
		t.Error("it is not revoked")
	}
	stdout, _ = b.want(exitDone, "keys", "list", "--json")
	var lines []admin.Key
	if err := json.Unmarshal([]byte(stdout), &lines); err != nil || len(lines) != 2 {
		t.Fatalf("%v: %s", err, stdout)
	}
	if lines[0].State != "expired" || lines[1].State != "revoked" || lines[1].RevokedAt == nil {
		t.Errorf("%s", stdout)
	}
	if _, stderr := b.want(exitCannotRun, "keys", "revoke", "none"); !strings.Contains(stderr, `key "none": not found`) {
		t.Errorf("of none: %q", stderr)
	}
	if _, stderr := b.want(exitCannotRun, "keys", "revoke", "static"); !strings.Contains(stderr, "registry.yaml:5:5: take it out there") {
		t.Errorf("of a static key: %q", stderr)
	}
	if stdout, _ := b.want(exitDone, "keys", "revoke", "old", "--json"); stdout != `{"id":"old","revoked":true}`+"\n" {
		t.Errorf("%q", stdout)
	}
	// A key of the file with the same secret is served as before, and that is said.
	if err := s.AddKey(t.Context(), store.Key{ID: "twin", Services: []string{"*"}, Users: []string{"*"}}); err != nil {
		t.Fatal(err)
	}
	if _, stderr := b.want(exitDone, "keys", "revoke", "twin"); !strings.Contains(stderr, `key "static" at registry.yaml:5:5 has the same id or the same secret and is served still`) {
		t.Errorf("with a twin in the file: %q", stderr)
	}
	// An id that was revoked is not given again, and that is said.
	_, stderr := b.want(exitCannotRun, "keys", "create", "--id", "old", "--services", "*", "--users", "*")
	if want := fmt.Sprintf("agentgw: --id: key %q was revoked on %s; ids are not used again\n", "old", b.keys()[0].RevokedAt.Format(time.RFC3339)); stderr != want {
		t.Errorf("%q, want %q", stderr, want)
	}
}

func TestKeysListOfNone(t *testing.T) {
	b := newBench(t, "")
	b.store()
	if stdout, _ := b.want(exitDone, "keys", "list", "--json"); stdout != "[]\n" {
		t.Errorf("%q", stdout)
	}
}

// TestAKeyIsWrittenNowhere looks through all that keys create leaves behind.
func TestAKeyIsWrittenNowhere(t *testing.T) {
	b := newBench(t, "")
	stdout, _ := b.want(exitDone, "keys", "create", "--id", "a", "--services", "*", "--users", "*", "--json")
	var made struct{ Key string }
	if err := json.Unmarshal([]byte(stdout), &made); err != nil || !identity.LooksLikeKey(made.Key) {
		t.Fatalf("%v: %s", err, stdout)
	}
	files, err := filepath.Glob(filepath.Join(b.data, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		content, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(content), made.Key) || strings.Contains(string(content), made.Key[4:40]) {
			t.Errorf("%s holds the key", f)
		}
	}
}
