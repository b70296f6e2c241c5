package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentgw/internal/vault"
)

// sends returns the Authorization header that a credential makes, with the
// vault key that the commands left in the data folder.
func (b *bench) sends(ref vault.Ref, form vault.Form) string {
	b.t.Helper()
	s := b.store()
	kek, err := vault.LoadKEK(b.t.Context(), vault.KEKSource{Folder: b.data}, s)
	if err != nil {
		b.t.Fatal(err)
	}
	v, err := vault.Load(b.t.Context(), s, kek)
	if err != nil {
		b.t.Fatal(err)
	}
	c, err := v.Open(b.t.Context(), ref, form)
	if err != nil {
		return err.Error()
	}
	r := &http.Request{}
	if err := c.Apply(r); err != nil {
		return err.Error()
	}
	return r.Header.Get("Authorization")
}

func TestCredentialsSetReadsTheSecret(t *testing.T) {
	b := newBench(t, "")
	form := vault.Form{Type: vault.TypeBearer}
	for _, c := range []struct {
		in, want string // want "" for a refusal
		says     string
	}{
		{"abc", "abc", ""},
		{"abc\n", "abc", ""},
		{"abc\r\n", "abc", ""},
		{" abc ", " abc ", ""},
		{"abc\n\n", "", "control character (0x0a)"},
		{"abc\r", "", "control character (0x0d)"},
		{"-----BEGIN\nabc\n-----END\n", "", "control character (0x0a)"},
		{"", "", "is empty"},
		{"\n", "", "is empty"},
		{"\r\n", "", "is empty"},
		{strings.Repeat("a", 64<<10), strings.Repeat("a", 64<<10), ""},
		{strings.Repeat("a", 64<<10+1), "", "is over 65536 bytes"},
	} {
		for _, from := range []string{"standard input", "secret.txt"} {
			stdin, args := c.in, []string{"credentials", "set", "--service", "s"}
			if from != "standard input" {
				if err := os.WriteFile(from, []byte(c.in), 0o600); err != nil {
					t.Fatal(err)
				}
				stdin, args = "not this", append(args, "--from-file", from)
			}
			code, stdout, stderr := b.run(stdin, args...)
			short := c.in[:min(len(c.in), 20)]
			if c.want != "" {
				if got := b.sends(vault.Ref{Service: "s"}, form); code != exitDone || got != "Bearer "+c.want {
					t.Errorf("%q from %s: exit code %d, %s%s", short, from, code, stdout, stderr)
				}
			} else if code != exitUsage || !strings.Contains(stderr, c.says) {
				t.Errorf("%q from %s: exit code %d, %s%s", short, from, code, stdout, stderr)
			}
			if strings.Contains(stdout+stderr, "abc") || c.says == "is empty" && !strings.Contains(stderr, from) {
				t.Errorf("%q from %s: it says %s%s", short, from, stdout, stderr)
			}
		}
	}
	// What was refused has changed nothing: the last good one is there.
	if got := b.sends(vault.Ref{Service: "s"}, form); len(got) < 64<<10 {
		t.Errorf("a refused secret took the place of a good one: %s", got)
	}
	if _, stderr := b.want(exitCannotRun, "credentials", "set", "--service", "s", "--from-file", "none.txt"); !strings.Contains(stderr, "none.txt") {
		t.Errorf("of no file: %q", stderr)
	}
	// Never an argument.
	b.want(exitUsage, "credentials", "set", "--service", "s", "canary")
	b.want(exitUsage, "credentials", "set", "--service", "s", "--secret", "canary")
}

func TestCredentialsPerUserAndShared(t *testing.T) {
	b := newBench(t, stateRegistry)
	perUser := vault.Form{Type: vault.TypeBearer, PerUser: true}
	set := func(secret string, args ...string) string {
		t.Helper()
		code, _, stderr := b.run(secret, append([]string{"credentials", "set"}, args...)...)
		if code != exitDone {
			t.Fatalf("%q: exit code %d, %s", args, code, stderr)
		}
		return stderr
	}
	if said := set("of-alice", "--service", "github", "--user", "alice"); said != "agentgw: made a new data folder ./data\n" {
		t.Errorf("it says %q", said)
	}
	if said := set("of-all", "--service", "github"); !strings.Contains(said, "github uses each user's own credential and never the shared one (registry.yaml:") {
		t.Errorf("a shared one for a service per user: %q", said)
	}
	if said := set("u:p", "--service", "search", "--user", "bob"); !strings.Contains(said, "search uses the shared credential for every user") {
		t.Errorf("a user's for a shared service: %q", said)
	}
	if got := b.sends(vault.Ref{Service: "github", User: "alice"}, perUser); got != "Bearer of-alice" {
		t.Errorf("alice sends %q", got)
	}
	if got := b.sends(vault.Ref{Service: "github", User: "bob"}, perUser); !strings.Contains(got, vault.ErrMissing.Error()) {
		t.Errorf("bob sends %q", got)
	}
	stdout, _ := b.want(exitDone, "credentials", "list")
	lines := strings.Split(stdout, "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[0], "SERVICE  USER      UPDATED") || !strings.HasPrefix(lines[1], "github   (shared)  2") ||
		!strings.HasPrefix(lines[2], "github   alice     2") || !strings.HasPrefix(lines[3], "search   bob       2") {
		t.Errorf("the list is\n%s", stdout)
	}
	for _, form := range []string{"--json", "--json=false"} {
		if stdout, _ := b.want(exitDone, "credentials", "list", form); strings.Contains(stdout, "of-a") || strings.Contains(stdout, "u:p") {
			t.Errorf("the list tells a secret:\n%s", stdout)
		}
	}
	b.want(exitDone, "credentials", "remove", "--service", "github", "--user", "alice")
	if got := b.sends(vault.Ref{Service: "github", User: "alice"}, perUser); !strings.Contains(got, vault.ErrMissing.Error()) {
		t.Errorf("after its removal alice sends %q", got)
	}
	if _, stderr := b.want(exitCannotRun, "credentials", "remove", "--service", "github", "--user", "alice"); !strings.Contains(stderr, `there is no such credential: service "github", user "alice"`) {
		t.Errorf("removing it again: %q", stderr)
	}
	if _, stderr := b.want(exitCannotRun, "credentials", "remove", "--service", "nobody"); stderr != `agentgw: there is no such credential: service "nobody", shared`+"\n" {
		t.Errorf("of a service that is none: %q", stderr)
	}
	if got := b.sends(vault.Ref{Service: "github"}, vault.Form{Type: vault.TypeBearer}); got != "Bearer of-all" {
		t.Errorf("the shared one went too: %q", got)
	}
}

// TestAShortCredentialIsWarnedOf: it could not be told from what else an answer says.
func TestAShortCredentialIsWarnedOf(t *testing.T) {
	b := newBench(t, "")
	for secret, warned := range map[string]bool{"1234567": true, "12345678": false} {
		code, _, stderr := b.run(secret, "credentials", "set", "--service", "s")
		if code != exitDone || strings.Contains(stderr, "fewer than 8 bytes") != warned || strings.Contains(stderr, secret) {
			t.Errorf("%s: %d, %q", secret, code, stderr)
		}
	}
}

func TestCredentialsRefuse(t *testing.T) {
	b := newBench(t, stateRegistry)
	for _, c := range []struct {
		args, says string
	}{
		{"set", `"service" not set`},
		{"set --service none", `--service: there is no service "none" in registry.yaml`},
		{"set --service plain", "--service: plain takes no credential (registry.yaml:"},
		{"set --service a/b", `--service: "a/b" is not the name of a service`},
		{"set --service github --user=", "--user: is empty"},
		{"remove --service github --user=", "--user: is empty"},
		{"set --service github --user=" + strings.Repeat("u", 257), "--user: \"uuu"},
		{"set --service github --user=a\nb", "--user: \"a\\nb\""},
		{"link --service github --user=" + strings.Repeat("u", 257), "--user: \"uuu"},
		{"set --service search", "a basic credential is user:password"},
	} {
		code, stdout, stderr := b.run("canary", append([]string{"credentials"}, strings.Split(c.args, " ")...)...)
		if code != exitUsage || !strings.Contains(stderr, c.says) || strings.Contains(stdout+stderr, "canary") {
			t.Errorf("%s: exit code %d, %q, %q", c.args, code, stdout, stderr)
		}
	}
	if stdout, _ := b.want(exitDone, "credentials", "list", "--json"); stdout != "[]\n" {
		t.Errorf("something was stored: %s", stdout)
	}
}

// TestCredentialsUnderAGivenKey: the key of the environment is used, and none
// is left in the folder; another one is told from it.
func TestCredentialsUnderAGivenKey(t *testing.T) {
	b := newBench(t, "")
	b.env = []string{"AGENTGATE_VAULT_KEY=" + strings.Repeat("ab", 24) + "0123456789abcdef"}
	if code, _, stderr := b.run("canary", "credentials", "set", "--service", "s"); code != exitDone {
		t.Fatal(stderr)
	}
	if _, err := os.Stat(filepath.Join(b.data, vault.KEKFileName)); !os.IsNotExist(err) {
		t.Errorf("a key was left in the folder: %v", err)
	}
	b.env = []string{"AGENTGATE_VAULT_KEY=" + strings.Repeat("cd", 24) + "0123456789abcdef"}
	if code, _, stderr := b.run("canary", "credentials", "set", "--service", "s"); code != exitCannotRun || !strings.Contains(stderr, vault.ErrWrongKEK.Error()) {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	b.env = nil
	if code, _, stderr := b.run("canary", "credentials", "set", "--service", "s"); code != exitCannotRun || !strings.Contains(stderr, "vault-key is missing") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	// What needs no key works without it.
	if stdout, _ := b.want(exitDone, "credentials", "list"); !strings.Contains(stdout, "s        (shared)") {
		t.Errorf("%s", stdout)
	}
	b.want(exitDone, "credentials", "remove", "--service", "s")
}
