package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"agentgw/internal/drilltest"
	"agentgw/internal/pgtest"
)

// TestTheDatabaseGoesAway: whether it is down or hangs, calls with known keys go on from memory
// and none waits for it; what would change something says why it cannot; a replica stays
// ready; and all is as before when it is back, with what was done meanwhile by nobody.
func TestTheDatabaseGoesAway(t *testing.T) {
	for _, how := range []string{"stopped", "halted"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t)
			s := newStateful(t, 2, server.Database(t), "")
			s.must("x\n", "credentials", "set", "--service", "s")
			s.createKey("k")
			eventually(t, "all take the key", func() bool { return s.all(200) })
			if how == "stopped" {
				server.Stop()
			} else {
				server.Halt(t)
			}
			awake := func(i int) string { return s.metric(i, "agentgate_state_ok") }
			eventually(t, "both have seen it", func() bool { return awake(0) == "0" && awake(1) == "0" })

			const calls = 100
			var slowest time.Duration
			began := time.Now()
			for i := range calls {
				at := time.Now()
				if status, code := s.call(i%2, "s", "get"); status != 200 {
					t.Fatalf("%d %s", status, code)
				}
				slowest = max(slowest, time.Since(at))
			}
			each := time.Since(began) / calls
			if slowest > 2*time.Second {
				t.Errorf("a call took %v: it waits for the database", slowest)
			}
			for i := range s.agents {
				if !ready(s.admins[i]) {
					t.Errorf("replica %d is not ready, and serves", i)
				}
			}
			for _, ask := range [][3]string{
				{"POST", "/admin/v1/keys", `{"id":"meanwhile","services":["s"],"users":["*"]}`}, {"DELETE", "/admin/v1/keys/k", ""}, {"GET", "/admin/v1/keys", ""},
				{"GET", "/admin/v1/limits/explain?key=k&service=s&action=get", ""},
			} {
				if status, answer := s.operate(0, ask[0], ask[1], ask[2]); status != 503 || !strings.Contains(answer, `"unavailable"`) || !strings.Contains(answer, "the state database is away") {
					t.Errorf("%s %s: %d %s", ask[0], ask[1], status, answer)
				}
			}
			out, errs, code := s.command("", "keys", "create", "--id", "meanwhile", "--services", "*", "--users", "*")
			if code != exitCannotRun || out != "" || !strings.Contains(errs, "AGENTGATE_DATABASE_URL") || !strings.Contains(errs, "the state database is away") {
				t.Errorf("keys create: %d %q %q", code, out, errs)
			}
			// The registry file is taken over meanwhile, with the keys that are known.
			text, err := os.ReadFile(s.registry)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(s.registry, append(text, "      again: {method: GET, path: /get}\n"...), 0o600); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the changed file is in force", func() bool { status, _ := s.call(0, "s", "again"); return status == 200 })

			if how == "stopped" {
				server.Again(t)
			} else {
				server.Resume(t)
			}
			eventually(t, "both have it again", func() bool { return awake(0) == "1" && awake(1) == "1" })
			eventually(t, "changes are pushed again", func() bool {
				return s.metric(0, "agentgate_state_pushed") == "1" && s.metric(1, "agentgate_state_pushed") == "1"
			})
			if list := s.must("", "keys", "list"); strings.Contains(list, "meanwhile") {
				t.Errorf("what was refused was done:\n%s", list)
			}
			eventually(t, "the key is revoked", func() bool { status, _ := s.operate(0, "DELETE", "/admin/v1/keys/k", ""); return status == 200 })
			eventually(t, "both have seen it", func() bool { return s.all(401) })
			for i, said := range s.said {
				text := said.String()
				if strings.Count(text, "nothing can be changed") != 1 || !strings.Contains(text, "the state database answers again") {
					t.Errorf("replica %d tells of it %d times:\n%s", i, strings.Count(text, "nothing can be changed"), text)
				}
			}
			drilltest.Row(t, "the state database goes away", fmt.Sprintf("%s; %d calls with a known key at 2 replicas", how, calls),
				fmt.Sprintf("all served, %v each, the slowest %v", each.Round(10*time.Microsecond), slowest.Round(time.Millisecond)), "all; none waits (100 ms)", slowest < 100*time.Millisecond)
		})
	}
}

// TestServeWithADatabaseThatIsNot: a start says what is wrong by the name of the setting, and
// no password; check does without connecting.
func TestServeWithADatabaseThatIsNot(t *testing.T) {
	folder := t.TempDir()
	s := &stateful{replicas: &replicas{t: t}, folder: folder, registry: folder + "/registry.yaml", binary: program(t, folder)}
	if err := os.WriteFile(s.registry, []byte("version: 1\nservices: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const away = "AGENTGATE_DATABASE_URL=postgres://u:s3cr3t@127.0.0.1:1/d"
	const vaultKey = "AGENTGATE_VAULT_KEY=" + vaultKeyOfTests
	for _, c := range []struct {
		env  []string
		args []string
		code int
		want string
	}{
		{[]string{away, vaultKey}, []string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, exitCannotRun, "AGENTGATE_DATABASE_URL: the state database is away"},
		{[]string{away}, []string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, exitCannotRun, "AGENTGATE_DATABASE_URL: needs AGENTGATE_VAULT_KEY"},
		{[]string{away}, []string{"check"}, exitNotHold, "AGENTGATE_DATABASE_URL: needs AGENTGATE_VAULT_KEY"},
		{[]string{away, vaultKey}, []string{"check"}, exitDone, ""},
		{[]string{"AGENTGATE_DATABASE_URL=postgres://u:s3c@r3t@h/d", vaultKey}, []string{"check"}, exitNotHold, "AGENTGATE_DATABASE_URL: has two @"},
		{[]string{away}, []string{"keys", "list"}, exitCannotRun, "AGENTGATE_DATABASE_URL: the state database is away"},
		{[]string{away}, []string{"credentials", "list"}, exitCannotRun, "AGENTGATE_DATABASE_URL: the state database is away"},
		{[]string{away}, []string{"explain", "--key", "k", "--service", "s", "--action", "a"}, exitCannotRun, "AGENTGATE_DATABASE_URL: the state database is away"},
	} {
		s.env = append(os.Environ(), c.env...)
		out, errs, code := s.command("", c.args...)
		if code != c.code || !strings.Contains(out+errs, c.want) || strings.Contains(out+errs, "s3c") {
			t.Errorf("%q with %q: %d\n%s%s", c.args, c.env, code, out, errs)
		}
		if _, err := os.Stat(folder + "/none/state.db"); err == nil {
			t.Errorf("%q made a state of its own", c.args)
		}
	}
}
