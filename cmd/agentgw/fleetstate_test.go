package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentgw/internal/drilltest"
	"agentgw/internal/freeport"
	"agentgw/internal/pgtest"
	"agentgw/internal/store"
)

// stateful are replicas, as processes, that have their state in one database.
type stateful struct {
	*replicas
	url, binary, folder, registry string
	env                           []string
}

// newStateful starts so many in front of an upstream that keeps calls of hold until it is told to
// let them go, and tells of the credential that came with one. There is no key yet. services
// are more of the registry.
func newStateful(t *testing.T, n int, url, services string) *stateful {
	t.Helper()
	r := &replicas{t: t, stay: make(chan struct{}), requests: map[string]bool{}}
	r.upstream = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("X-Came-With", req.Header.Get("X-Secret"))
		if req.URL.Path == "/stream" {
			_, _ = io.WriteString(w, "begun\n")
			_ = http.NewResponseController(w).Flush()
			req.URL.Path = "/hold"
		}
		r.serve(w, req)
	}))
	t.Cleanup(r.upstream.Close)
	s := &stateful{replicas: r, url: url, folder: t.TempDir()}
	s.registry = filepath.Join(s.folder, "registry.yaml")
	text := fmt.Sprintf(`version: 1
server: {rate_key_rps: 10000, rate_key_burst: 10000, rate_tenant_rps: 10000, rate_tenant_burst: 10000, tenant_max_inflight: 1000}
services:
  s:
    base_url: %s
    allow_private: true
    credential: {type: header, name: X-Secret}
    actions:
      get: {method: GET, path: /get}
      hold: {method: GET, path: /hold}
      stream: {method: GET, path: /stream}
`, r.upstream.URL) + services
	if err := os.WriteFile(s.registry, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.binary = program(t, s.folder)
	s.env = append(os.Environ(), "AGENTGATE_DATABASE_URL="+url, "AGENTGATE_VAULT_KEY="+vaultKeyOfTests, "AGENTGATE_ADMIN_TOKEN="+operatorOfTests)
	s.start(n)
	return s
}

// operatorOfTests is one that was drawn.
const operatorOfTests = "a665a45920422f9d417e4867efdc4fb8a04a1f3fff1fa07e998e86f7f7a27ae3"

// start starts so many at once, each with a folder of its own.
func (s *stateful) start(n int) {
	s.t.Helper()
	first := len(s.agents)
	for i := first; i < first+n; i++ {
		agents, admin, said := freeport.Address(s.t), freeport.Address(s.t), &lockedBuffer{}
		data := filepath.Join(s.folder, fmt.Sprint("data", i))
		cmd := exec.Command(s.binary, "serve", "--registry", s.registry, "--data", data, "--listen", agents, "--admin-listen", admin)
		cmd.Env, cmd.Stderr = s.env, said
		if err := cmd.Start(); err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		s.agents, s.admins, s.running, s.said, s.data = append(s.agents, agents), append(s.admins, admin), append(s.running, cmd), append(s.said, said), append(s.data, data)
	}
	for i := first; i < first+n; i++ {
		if !ready(s.admins[i]) {
			s.t.Fatalf("replica %d did not get ready:\n%s", i, s.said[i].String())
		}
	}
}

// command runs one against the database alone, with no data folder.
func (s *stateful) command(input string, args ...string) (out, errs string, code int) {
	s.t.Helper()
	cmd := exec.Command(s.binary, append(args, "--registry", s.registry, "--data", filepath.Join(s.folder, "none"))...)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = s.env, strings.NewReader(input), &stdout, &stderr
	_ = cmd.Run() // its exit code is what is asked for
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// must is command that has to succeed.
func (s *stateful) must(input string, args ...string) (out string) {
	s.t.Helper()
	out, errs, code := s.command(input, args...)
	if code != 0 {
		s.t.Fatalf("%q: %d %s", args, code, errs)
	}
	return out
}

// createKey makes a key that calls are made with from then on.
func (s *stateful) createKey(id string) {
	s.t.Helper()
	var made struct{ Key string }
	if err := json.Unmarshal([]byte(s.must("", "keys", "create", "--id", id, "--services", "*", "--users", "*", "--json")), &made); err != nil {
		s.t.Fatal(err)
	}
	s.key = made.Key
}

// all reports whether a call through each replica has that status.
func (s *stateful) all(status int) bool {
	for i := range s.agents {
		if got, _ := s.call(i, "s", "get"); got != status {
			return false
		}
	}
	return true
}

// operate asks the operators' API of a replica.
func (s *stateful) operate(replica int, method, path, body string) (status int, answer string) {
	s.t.Helper()
	req, err := http.NewRequest(method, "http://"+s.admins[replica]+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+operatorOfTests)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(text)
}

// stream begins one through a replica, and tells when it has ended.
func (s *stateful) stream(replica int) (ended <-chan time.Time) {
	s.t.Helper()
	req, err := http.NewRequest("POST", "http://"+s.agents[replica]+"/v1/act", strings.NewReader(`{"service":"s","action":"stream"}`))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode != http.StatusOK {
		s.t.Fatal(res, err)
	}
	end := make(chan time.Time, 1)
	go func() {
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		end <- time.Now()
	}()
	return end
}

// TestReplicasShareState: three that start at once on an empty database make one state of it;
// what is done by a command or by one of them is so on all; and nobody makes a key unasked.
func TestReplicasShareState(t *testing.T) {
	t.Parallel()
	s := newStateful(t, 3, pgtest.Start(t).Database(t), "")
	for i, data := range s.data {
		for _, name := range []string{"first-key", "vault-key", "state.db"} {
			if _, err := os.Stat(filepath.Join(data, name)); err == nil {
				t.Errorf("replica %d has a %s of its own", i, name)
			}
		}
	}
	if list := s.must("", "keys", "list"); strings.Contains(list, "first") {
		t.Errorf("there is a key that nobody made:\n%s", list)
	}
	s.must("s3cr3t-of-s\n", "credentials", "set", "--service", "s")
	s.createKey("k")
	eventually(t, "all take the key", func() bool { return s.all(200) })
	for i := range s.agents {
		req, _ := http.NewRequest("POST", "http://"+s.agents[i]+"/v1/act", strings.NewReader(`{"service":"s","action":"get"}`))
		req.Header.Set("Authorization", "Bearer "+s.key)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if got := res.Header.Get("X-Came-With"); strings.Contains(got, "s3cr3t") || got == "" {
			t.Errorf("replica %d: the credential came as %q", i, got) // seen by the upstream, and taken out of its answer
		}
	}
	if list := s.must("", "credentials", "list"); !strings.Contains(list, "s") || strings.Contains(list, "s3cr3t") {
		t.Errorf("credentials:\n%s", list)
	}
	if status, answer := s.operate(1, "POST", "/admin/v1/keys", `{"id":"by-api","services":["s"],"users":["*"]}`); status != 201 {
		t.Errorf("%d %s", status, answer)
	}
	if _, answer := s.operate(2, "GET", "/admin/v1/keys", ""); !strings.Contains(answer, `"by-api"`) || !strings.Contains(answer, `"k"`) {
		t.Errorf("the keys, by another replica: %s", answer)
	}
	// A delegation that one process issues is good at all, and revoked at all.
	token := strings.TrimSpace(s.must("", "delegations", "issue", "--user", "u", "--agent", "k", "--grant", "s.get"))
	by := func(i int) int {
		req, _ := http.NewRequest("POST", "http://"+s.agents[i]+"/v1/act", strings.NewReader(`{"service":"s","action":"get","on_behalf_of":"u"}`))
		req.Header.Set("Authorization", "Bearer "+s.key)
		req.Header.Set("Agentgate-Delegation", token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	everywhere := func(status int) func() bool {
		return func() bool { return by(0) == status && by(1) == status && by(2) == status }
	}
	eventually(t, "the delegation is good at all", everywhere(200))
	s.must("", "delegations", "revoke", "--user", "u")
	eventually(t, "the delegation is good at none", everywhere(403))
	// One more that comes later has all of it.
	s.start(1)
	if status, _ := s.call(3, "s", "get"); status != 200 {
		t.Errorf("a replica that came later: %d", status)
	}
	if by(3) != 403 {
		t.Error("a replica that came later takes a delegation that was revoked")
	}
	// One with another vault key than theirs is refused.
	theirs := s.env
	s.env = append(s.env, "AGENTGATE_VAULT_KEY="+operatorOfTests) // the last counts
	if _, errs, code := s.command("", "serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"); code != exitCannotRun || !strings.Contains(errs, "vault key") {
		t.Errorf("with another vault key: %d %s", code, errs)
	}
	s.env = theirs
	// Receipts of all are listed by each, and by the command.
	eventually(t, "receipts of all are listed", func() bool {
		_, answer := s.operate(0, "GET", "/admin/v1/receipts?limit=200", "")
		return strings.Contains(answer, `"of":"fleet"`) && strings.Count(answer, `"kind":"outcome"`) >= 10
	})
	if list := s.must("", "receipts", "list", "--json"); strings.Count(list, `"kind":"outcome"`) < 10 {
		t.Errorf("the command lists\n%s", list)
	}
}

// TestRevocationOfAFleet is seen by every replica, and ends what runs, with the push and with
// none: all who listen are thrown out again and again.
func TestRevocationOfAFleet(t *testing.T) {
	for _, how := range []string{"pushed", "not pushed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Start(t).Database(t)
			s := newStateful(t, 3, url, "")
			s.must("x\n", "credentials", "set", "--service", "s")
			s.createKey("k")
			eventually(t, "all take the key", func() bool { return s.all(200) })
			bound := 2 * time.Second
			if how == "not pushed" {
				bound = 5 * time.Second
				cutPushes(t, url)
				eventually(t, "nothing is pushed", func() bool {
					return s.metric(0, "agentgate_state_pushed") == "0" && s.metric(1, "agentgate_state_pushed") == "0" && s.metric(2, "agentgate_state_pushed") == "0"
				})
			} else {
				eventually(t, "changes are pushed", func() bool {
					return s.metric(0, "agentgate_state_pushed") == "1" && s.metric(1, "agentgate_state_pushed") == "1" && s.metric(2, "agentgate_state_pushed") == "1"
				})
			}
			var ends []<-chan time.Time
			for i := range s.agents {
				ends = append(ends, s.stream(i))
			}
			state, err := store.OpenPostgres(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			defer state.Close()
			revoked := time.Now()
			if err := state.RevokeKey(t.Context(), "k", revoked); err != nil {
				t.Fatal(err)
			}
			var last time.Duration
			for i, end := range ends {
				select {
				case at := <-end:
					last = max(last, at.Sub(revoked))
				case <-time.After(time.Minute):
					t.Fatalf("the stream of replica %d goes on", i)
				}
			}
			if !s.all(401) {
				t.Error("a replica takes a key whose streams have ended")
			}
			drilltest.Row(t, "a key of a fleet is revoked", "3 replicas, a stream each; changes are "+how, fmt.Sprintf("the last stream ended after %v", last.Round(time.Millisecond)), bound.String(), last <= bound)
		})
	}
}

// cutPushes throws out whoever listens, until the test ends.
func cutPushes(t *testing.T, url string) {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`ALTER TABLE meta DISABLE TRIGGER meta_moved`); err != nil { // what a lost notification comes to
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for ctx.Err() == nil {
			_, _ = db.ExecContext(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN %' AND pid <> pg_backend_pid()`)
			time.Sleep(5 * time.Millisecond)
		}
	})
	t.Cleanup(func() { end(); cutting.Wait(); _ = db.Close() })
}
