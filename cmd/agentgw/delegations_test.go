package main

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentgw/internal/identity"
	"agentgw/internal/store"
)

// holderJWK is the key of RFC 8037, appendix A.1, and its thumbprint of A.3.
const (
	holderJWK   = `{"kty":"OKP","crv":"Ed25519","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`
	holderPrint = "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
)

const delegationRegistry = `version: 1
tenants:
  acme: {rps: 200, burst: 400}
issuers:
  - {issuer: "https://idp.example", audience: agentgate}
services:
  github:
    base_url: https://api.example.com
    actions:
      list_issues: {method: GET, path: "/{owner}/issues", params: {owner: string}}
      create_issue: {method: POST, path: /issues, params: {title: string}}
  git.hub:
    base_url: https://api.example.com
    actions: {get: {method: GET, path: /}, a.b: {method: GET, path: /}}
  git:
    base_url: https://api.example.com
    actions: {hub.get: {method: GET, path: /}, a.b: {method: GET, path: /}}
`

// delegating is a bench with the keys planner, of the tenant acme, for alice and
// github alone, and anybody.
func delegating(t *testing.T) *bench {
	b := newBench(t, delegationRegistry)
	b.want(exitDone, "keys", "create", "--id", "planner", "--services", "github", "--users", "alice", "--tenant", "acme")
	b.want(exitDone, "keys", "create", "--id", "anybody", "--services", "*", "--users", "*")
	b.write("holder.jwk", []byte(holderJWK))
	return b
}

// claimsOf inspects a chain, which is to end with that code, and returns what its links say.
func (b *bench) claimsOf(code int, chain string) (links []map[string]any, reason string) {
	b.t.Helper()
	got, stdout, stderr := b.run(chain, "delegations", "inspect", "--json")
	var in struct {
		Holds  bool
		Reason string
		Links  []struct{ Claims map[string]any }
	}
	if err := json.Unmarshal([]byte(stdout), &in); err != nil || got != code || in.Holds != (code == 0) {
		b.t.Fatalf("exit code %d, want %d: %s%s", got, code, stdout, stderr)
	}
	for _, l := range in.Links {
		links = append(links, l.Claims)
	}
	return links, in.Reason
}

func (b *bench) issue(args ...string) string {
	b.t.Helper()
	stdout, _ := b.want(exitDone, append([]string{"delegations", "issue"}, args...)...)
	return strings.TrimSpace(stdout)
}

// TestADelegationIsIssued, with what was asked for and nothing else, and printed alone.
func TestADelegationIsIssued(t *testing.T) {
	b := delegating(t)
	token := b.issue("--user", "alice", "--agent", "planner", "--grant", `github.list_issues{"owner":{"const":"acme"}}`, "--grant", "github.*")
	links, _ := b.claimsOf(exitDone, token)
	c := links[0]
	if c["iss"] != "urn:agentgate" || c["aud"] != "urn:agentgate" || c["sub"] != "user:alice" || c["tenant"] != "acme" || fmt.Sprint(c["act"]) != "map[sub:agent:planner]" ||
		c["del_depth"] != 0.0 || c["cnf"] != nil || c["par"] != nil || c["exp"].(float64)-c["nbf"].(float64) != 3600 || len(links) != 1 {
		t.Errorf("%v", c)
	}
	if got := fmt.Sprint(c["authorization_details"]); got != "[map[actions:[list_issues] constraints:map[owner:map[const:acme]] service:github type:agent_action] "+
		"map[actions:[create_issue list_issues] service:github type:agent_action]]" {
		t.Errorf("%s", got)
	}
	b.env = []string{"AGENTGATE_PUBLIC_URL=https://gw.example/"}
	if _, reason := b.claimsOf(exitNotHold, token); reason != "wrong_issuer" {
		t.Errorf("for another gateway: %s", reason)
	}
	stdout, _ := b.want(exitDone, "delegations", "issue", "--user", "u", "--agent", "anybody", "--grant", "git.hub.a.b", "--expires", "24h",
		"--depth", "3", "--cnf", holderPrint, "--json")
	var said issued
	if err := json.Unmarshal([]byte(stdout), &said); err != nil {
		t.Fatal(err)
	}
	links, _ = b.claimsOf(exitDone, said.Token)
	c = links[0]
	if c["aud"] != "https://gw.example" || c["tenant"] != nil || c["jti"] != said.ID || !strings.HasPrefix(said.Kid, "root-") || fmt.Sprint(c["cnf"]) != "map[jkt:"+holderPrint+"]" ||
		c["exp"].(float64) != float64(said.ExpiresAt.Unix()) || c["exp"].(float64)-c["nbf"].(float64) != 24*3600 {
		t.Errorf("%v %+v", c, said)
	}
	again := b.issue("--user", "u", "--agent", "anybody", "--grant", "github.list_issues", "--depth", "1", "--cnf", "holder.jwk")
	if links, _ = b.claimsOf(exitDone, again); fmt.Sprint(links[0]["cnf"]) != "map[jkt:"+holderPrint+"]" || links[0]["jti"] == said.ID {
		t.Errorf("%v", links[0])
	}
	callers := b.issue("--user", "u", "--agent", "oidc:https://idp.example#sub", "--tenant", "acme",
		"--grant", "github.list_issues", "--grant", "git.a.b", "--grant", "github.create_issue", "--grant", "github.*", "--grant", `github.list_issues{"owner":{"const":"a"}}`)
	links, _ = b.claimsOf(exitDone, callers)
	if got := fmt.Sprint(links[0]["authorization_details"]); got != "[map[actions:[list_issues create_issue] service:github type:agent_action] "+
		"map[actions:[a.b] service:git type:agent_action] map[actions:[list_issues] constraints:map[owner:map[const:a]] service:github type:agent_action]]" {
		t.Errorf("%s", got)
	}
	b.write("registry.yaml", []byte(strings.Replace(delegationRegistry, "https://idp.example", "https://idp.example/", 1)))
	if _, reason := b.claimsOf(exitNotHold, callers); reason != "revoked" {
		t.Errorf("of an issuer that is gone: %s", reason)
	}
}

// TestADelegationThatCouldNeverHold is not issued, and the flag is named.
func TestADelegationThatCouldNeverHold(t *testing.T) {
	b := delegating(t)
	b.want(exitDone, "keys", "create", "--id", "gone", "--services", "*", "--users", "*")
	b.want(exitDone, "keys", "revoke", "gone")
	b.write("other", []byte("x"))
	base := map[string]string{"user": "alice", "agent": "planner", "grant": "github.list_issues"}
	for _, c := range []struct {
		change map[string]string
		want   string
	}{
		{map[string]string{"user": "bob"}, `--user: the key planner may not act for "bob"`},
		{map[string]string{"user": ""}, `--user: the key planner may not act for ""`},
		{map[string]string{"agent": "nobody"}, `--agent: there is no key "nobody"`},
		{map[string]string{"agent": ""}, `--agent: "" is no agent's name`},
		{map[string]string{"agent": "agent:planner"}, "--agent: in a delegation agent:planner is the agent planner: write that"},
		{map[string]string{"agent": "oidc:https://idp.example"}, `--agent: "oidc:https://idp.example" is no agent's name`},
		{map[string]string{"agent": "oidc:https://idp.example/#a"}, `has no issuer "https://idp.example/"`},
		{map[string]string{"agent": "oidc:https://idp.example#a", "tenant": "nope"}, `--tenant: there is no tenant "nope"`},
		{map[string]string{"agent": "gone"}, "--agent: the key gone was revoked on "},
		{map[string]string{"agent": "anybody", "tenant": "acme"}, "--tenant: the key anybody is of another tenant, or of none"},
		{map[string]string{"grant": "github.nope"}, `--grant: "github.nope" is no SERVICE.ACTION that there is`},
		{map[string]string{"grant": "github"}, `--grant: "github" is no SERVICE.ACTION that there is`},
		{map[string]string{"agent": "anybody", "grant": "git.hub.get"}, `--grant: "git.hub.get" can be read in several ways`},
		{map[string]string{"grant": "git.hub.a.b"}, "--grant: the key planner may not call git.hub.a.b"},
		{map[string]string{"grant": `github.list_issues{"owner":{"regex":"x"}}`}, `--grant: "github.list_issues": constraints are an object such as`},
		{map[string]string{"grant": `github.list_issues{"owner":{"const":"a"},"owner":{"const":"b"}}`}, "constraints are an object such as"},
		{map[string]string{"grant": `github.*{"owner":{"const":"a"}}`}, `--grant: github.create_issue has no parameter "owner" to constrain`},
		{map[string]string{"expires": "25h"}, "--expires: 25h is not between 1s and 24h"},
		{map[string]string{"expires": "0s"}, "--expires: "},
		{map[string]string{"expires": "1d"}, `--expires: "1d" is in days`},
		{map[string]string{"depth": "4", "cnf": holderPrint}, "--depth: 4 is not 0 to 3"},
		{map[string]string{"depth": "1"}, "--depth: what may be handed on names the key that may do so"},
		{map[string]string{"cnf": holderPrint}, "--cnf: what may not be handed on needs no key"},
		{map[string]string{"depth": "1", "cnf": holderPrint + "="}, "is not the thumbprint of a key (RFC 7638)"},
		{map[string]string{"depth": "1", "cnf": "other"}, "--cnf: other holds no Ed25519 key"},
	} {
		args := []string{"delegations", "issue"}
		for _, flags := range []map[string]string{base, c.change} {
			for name, value := range flags {
				if _, changed := c.change[name]; changed == (fmt.Sprint(flags) == fmt.Sprint(c.change)) {
					args = append(args, "--"+name, value)
				}
			}
		}
		code, stdout, stderr := b.run("", args...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit code %d: %s%s\nwant %s", c.change, code, stdout, stderr, c.want)
		}
	}
}

// TestADelegationIsHandedOn without a gateway, as it was or in part, and never as more.
func TestADelegationIsHandedOn(t *testing.T) {
	b := delegating(t)
	root := b.issue("--user", "alice", "--agent", "planner", "--depth", "2", "--cnf", holderPrint,
		"--grant", "github.list_issues", "--grant", `github.create_issue{"title":{"prefix":"a"}}`)
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	b.write("second.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	for _, id := range []string{"worker", "third"} {
		b.want(exitDone, "keys", "create", "--id", id, "--services", "*", "--users", "*")
	}
	narrow := func(chain string, args ...string) (int, string, string) {
		return b.run(chain+"\n", append([]string{"delegations", "narrow"}, args...)...)
	}
	code, two, stderr := narrow(root, "--key", "holder.jwk", "--agent", "worker", "--depth", "1", "--cnf", "second.pem", "--expires", "10m")
	if code != exitDone {
		t.Fatal(stderr)
	}
	code, three, stderr := narrow(two, "--key", "second.pem", "--agent", "third", "--grant", `github.create_issue{"title":{"const":"abc"}}`)
	if code != exitDone {
		t.Fatal(stderr)
	}
	links, _ := b.claimsOf(exitDone, three)
	if len(links) != 3 || fmt.Sprint(links[1]["authorization_details"]) != fmt.Sprint(links[0]["authorization_details"]) || links[1]["exp"].(float64)-links[1]["nbf"].(float64) != 600 ||
		links[2]["exp"] != links[1]["exp"] || links[2]["cnf"] != nil || links[2]["sub"] != "user:alice" || links[2]["tenant"] != "acme" {
		t.Errorf("%v", links)
	}
	if code, ghost, stderr := narrow(two, "--key", "second.pem", "--agent", "ghost"); code != exitDone {
		t.Error(stderr)
	} else if _, reason := b.claimsOf(exitNotHold, ghost); reason != "revoked" {
		t.Errorf("for an agent that is none: %s", reason)
	}
	for name, c := range map[string]struct {
		chain string
		args  []string
		want  string
	}{
		"to nobody's name":            {two, []string{"--key", "second.pem", "--agent", "a,b"}, `--agent: "a,b" is no agent's name`},
		"the wrong key":               {root, []string{"--key", "second.pem", "--agent", "x"}, "its cnf.jkt names another, or none"},
		"handed on for the last time": {three, []string{"--key", "second.pem", "--agent", "x"}, "its cnf.jkt names another, or none"},
		"for longer":                  {two, []string{"--key", "second.pem", "--agent", "x", "--expires", "11m"}, "it ends later than the link before it"},
		"another action":              {two, []string{"--key", "second.pem", "--agent", "x", "--grant", "github.delete"}, "is no SERVICE.ACTION that there is"},
		"without a constraint":        {two, []string{"--key", "second.pem", "--agent", "x", "--grant", "github.create_issue"}, "grants what no one detail"},
		"as deep":                     {two, []string{"--key", "second.pem", "--agent", "x", "--depth", "1", "--cnf", holderPrint}, "its del_depth is not below"},
		"what is no delegation":       {"x", []string{"--key", "second.pem", "--agent", "x"}, "it has not three parts"},
		"nothing":                     {"", []string{"--key", "second.pem", "--agent", "x"}, "standard input is empty, where a delegation was expected"},
	} {
		if code, stdout, stderr := narrow(c.chain, c.args...); code != exitUsage || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit code %d: %s%s", name, code, stdout, stderr)
		}
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	b.write("public.pem", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
	if code, _, stderr := narrow(two, "--key", "public.pem", "--agent", "x"); code != exitUsage || !strings.Contains(stderr, "the private one is wanted") {
		t.Errorf("%d %s", code, stderr)
	}
}

// TestRevokingAndRotating: what inspect says afterwards, of what was issued before and
// what is issued at once after it.
func TestRevokingAndRotating(t *testing.T) {
	b := delegating(t)
	args := []string{"--user", "alice", "--agent", "planner", "--grant", "github.list_issues"}
	first, second := b.issue(args...), b.issue(args...)
	links, _ := b.claimsOf(exitDone, first)
	stdout, _ := b.want(exitDone, "delegations", "revoke", links[0]["jti"].(string))
	if !strings.Contains(stdout, "noted: delegation "+links[0]["jti"].(string)) || !strings.Contains(stdout, "nobody looked whether there is one") {
		t.Error(stdout)
	}
	_, stderr := b.want(exitUsage, "delegations", "revoke", "--agent", "planer")
	if !strings.Contains(stderr, "there is no key \"planer\"; nothing is revoked; did you mean planner?") {
		t.Error(stderr)
	}
	_, stderr = b.want(exitUsage, "delegations", "revoke", "--agent", "oidc:https://nobody.example#x")
	if !strings.Contains(stderr, "has no issuer \"https://nobody.example\"; nothing is revoked") {
		t.Error(stderr)
	}
	refused := func(token, want string) {
		t.Helper()
		if _, reason := b.claimsOf(exitNotHold, token); reason != want {
			t.Errorf("%s, want %s", reason, want)
		}
	}
	refused(first, "revoked")
	b.claimsOf(exitDone, second)
	for _, of := range [][]string{{"--user", "alice"}, {"--agent", "planner"}} {
		b.want(exitDone, append([]string{"delegations", "revoke"}, of...)...)
		refused(second, "revoked")
		second = b.issue(args...)
		b.claimsOf(exitDone, second)
	}
	b.want(exitDone, "delegations", "rotate")
	b.claimsOf(exitDone, second)
	third := b.issue(args...)
	b.want(exitDone, "delegations", "rotate")
	refused(second, "unknown_root")
	b.claimsOf(exitDone, third)
	named := b.issue("--user", "user:u", "--agent", "anybody", "--grant", "github.list_issues")
	b.want(exitDone, "delegations", "revoke", "--user", "user:user:u")
	refused(named, "revoked")
	b.want(exitDone, "keys", "revoke", "planner")
	refused(third, "revoked")
	for _, args := range [][]string{{}, {"--agent", "agent:planner"}, {"--agent", "Planner"}, {"--agent", ""}, {"--user", "user:alice"}, {"a", "b"}, {"a", "--user", "x"}, {"--user", "x", "--agent", "y"}, {"--user", ""}, {first}, {"a b"}, {""}} {
		code, stdout, stderr := b.run("", append([]string{"delegations", "revoke"}, args...)...)
		if code != exitUsage || stdout != "" || strings.Contains(stderr, first) {
			t.Errorf("%.20q: exit code %d: %s%s", args, code, stdout, stderr)
		}
	}
}

// TestDelegationsFollowTheStore: a running gateway takes a delegation that was issued
// after its start; when one is revoked by another process, calls and streams that run
// by it end within two seconds, and so they do when its agent's key is.
func TestDelegationsFollowTheStore(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer upstream.Close()
	file := "version: 1\nservices:\n  s: {base_url: " + upstream.URL + ", allow_private: true, delegation: required, actions: {get: {method: GET, path: /}}}\n"
	s, _ := startWith(t, "127.0.0.1", file)
	b := newBench(t, file)
	b.data, b.env = s.settings.DataDir, []string{"AGENTGATE_DATA_DIR=" + s.settings.DataDir}
	key := func(id string) string {
		text, digest := identity.NewKey()
		if err := b.store().AddKey(t.Context(), store.Key{ID: id, Digest: digest, Services: []string{"*"}, Users: []string{"*"}}); err != nil {
			t.Fatal(err)
		}
		return text.Reveal()
	}
	planner, worker := key("planner"), key("worker")
	open := func(key, agent string) (*http.Response, string) {
		t.Helper()
		token := b.issue("--user", "alice", "--agent", agent, "--grant", "s.get")
		var res *http.Response
		eventually(t, "the gateway knows the root", func() bool {
			r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+s.agentsListener.Addr().String()+"/v1/act", strings.NewReader(`{"service":"s","action":"get","on_behalf_of":"alice"}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+key)
			r.Header.Set("Agentgate-Delegation", token)
			if res, err = http.DefaultClient.Do(r); err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != 200 {
				_ = res.Body.Close()
			}
			return res.StatusCode == 200
		})
		links, _ := b.claimsOf(exitDone, token)
		return res, links[0]["jti"].(string)
	}
	ends := func(res *http.Response, after func()) {
		t.Helper()
		ended := make(chan error, 1)
		go func() {
			_, err := io.ReadAll(res.Body)
			ended <- err
		}()
		after()
		passed := napping(t)
		if err := <-ended; err == nil || passed() > 2*time.Second {
			t.Errorf("it ended %v after %s", err, passed())
		}
	}
	res, id := open(planner, "planner")
	other, _ := open(worker, "worker")
	ends(res, func() { b.want(exitDone, "delegations", "revoke", id) })
	ends(other, func() { b.want(exitDone, "keys", "revoke", "worker") })
}

// TestDelegationsFollowTheFile: what an agent handed on ends with its key, also where the
// key is one of the registry file and is taken out of it, and is good again when it is back.
func TestDelegationsFollowTheFile(t *testing.T) {
	r := newReloading(t, "{}")
	_, planner := identity.NewKey()
	text, worker := identity.NewKey()
	file := func(ids ...string) string {
		digests := map[string][32]byte{"planner": planner, "worker": worker}
		lines := "version: 1\nkeys:\n"
		for _, id := range ids {
			lines += fmt.Sprintf("  - {id: %s, sha256: \"%x\", services: [\"*\"], users: [\"*\"]}\n", id, digests[id])
		}
		return lines + "services:\n  s: {base_url: " + r.url + ", allow_private: true, actions: {get: {method: GET, path: /}}}\n"
	}
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(r.file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(r.file+".new", r.file); err != nil {
			t.Fatal(err)
		}
	}
	put(file("planner", "worker"))
	b := newBench(t, "")
	b.write("holder.jwk", []byte(holderJWK))
	b.env = []string{"AGENTGATE_DATA_DIR=" + r.server.settings.DataDir, "AGENTGATE_REGISTRY=" + r.file}
	root := b.issue("--user", "alice", "--agent", "planner", "--depth", "1", "--cnf", holderPrint, "--grant", "s.get")
	code, chain, stderr := b.run(root, "delegations", "narrow", "--key", "holder.jwk", "--agent", "worker")
	if code != exitDone {
		t.Fatal(stderr)
	}
	becomes := func(status int, what string) {
		t.Helper()
		eventually(t, what, func() bool {
			in, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+r.server.agentsListener.Addr().String()+"/v1/act", strings.NewReader(`{"service":"s","action":"get","on_behalf_of":"alice"}`))
			if err != nil {
				t.Fatal(err)
			}
			in.Header.Set("Authorization", "Bearer "+text.Reveal())
			in.Header.Set("Agentgate-Delegation", strings.TrimSpace(chain))
			res, err := http.DefaultClient.Do(in)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			return res.StatusCode == status
		})
	}
	becomes(200, "both keys are there")
	put(file("worker"))
	becomes(403, "the key of who handed it on is gone")
	put(file("worker", "planner"))
	becomes(200, "it is back")
}

// TestARootThatDoesNotOpenStopsTheStart, and in a gateway that runs leaves what it
// trusted before.
func TestARootThatDoesNotOpenStopsTheStart(t *testing.T) {
	b := delegating(t)
	token := b.issue("--user", "alice", "--agent", "planner", "--grant", "github.list_issues")
	s, err := startIn(t, b.data, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	bad := store.Root{ID: "root-bad", Wrapper: "x", Wrapped: []byte("half"), CreatedAt: time.Now()}
	roots, err := b.store().Roots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.store().AddRoot(t.Context(), bad, roots[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := s.live.refresh(t.Context()); err == nil || !strings.Contains(err.Error(), "root-bad") {
		t.Errorf("the running gateway took over: %v", err)
	}
	s.stop(context.Background())
	if _, err := startIn(t, b.data, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "root-bad") {
		t.Errorf("a start says %v", err)
	}
	if code, _, stderr := b.run(token, "delegations", "inspect"); code != exitCannotRun || !strings.Contains(stderr, "root-bad") {
		t.Errorf("%d %s", code, stderr)
	}
	if err := os.Remove(filepath.Join(b.data, "vault-key")); err != nil {
		t.Fatal(err)
	}
	if _, err := startIn(t, b.data, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "vault-key") {
		t.Errorf("a start without the vault key says %v", err)
	}
}
