package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAnAddressThatNobodyMayDialIsWarnedOf: by its place, and only what is sure
// to be refused.
func TestAnAddressThatNobodyMayDialIsWarnedOf(t *testing.T) {
	const file = `version: 1
services:
  a:
    base_url: http://127.0.0.1:9200/v1
  b: {base_url: "http://[::1]:9200"}
  c: {base_url: "https://169.254.169.254"}
  d: {base_url: "https://10.1.2.3", allow_private: false}
  e: {base_url: "http://LocalHost:80"}
  f: {base_url: "http://tools.localhost"}
  g: {base_url: "http://[::ffff:192.168.0.1]"}
  h: {base_url: "http://10.1.2.3", allow_private: true}
  i: {base_url: "http://8.8.8.8"}
  j: {base_url: "http://internal.example"}
  k: {base_url: "http://localhost.example"}
tunnels: {allow: ["a.example:443", "[::1]:443", "*.localhost:80", "8.8.8.8:443"]}
`
	const what = ".base_url: every call will be refused: the address is private, loopback or link-local; if it is meant, add allow_private: true"
	const tunnel = ": every tunnel to it will be refused: the address is private, loopback or link-local; if it is meant, add allow_private: true"
	want := []string{
		"r.yaml:4:15: services.a" + what, "r.yaml:5:17: services.b" + what, "r.yaml:6:17: services.c" + what, "r.yaml:7:17: services.d" + what,
		"r.yaml:8:17: services.e" + what, "r.yaml:9:17: services.f" + what, "r.yaml:10:17: services.g" + what,
		"r.yaml:15:36: tunnels.allow[1]" + tunnel, "r.yaml:15:49: tunnels.allow[2]" + tunnel,
	}
	got, problems := checked(t, file)
	if diff := cmp.Diff(want, got.Warnings); diff != "" || problems != nil {
		t.Error(diff, problems)
	}
	if code, out, _ := runCheck(t, file, nil, "r.yaml"); code != exitDone || !strings.Contains(out, "\nwarning: "+want[0]+"\n") {
		t.Errorf("exit %d\n%s", code, out)
	}
	// At a start, as the other warnings are; here of one that then fails.
	b := newBench(t, file)
	_, stderr := b.want(exitCannotRun, "serve", "--listen", "192.0.2.1:1") // nobody's address (RFC 5737)
	if !strings.HasPrefix(stderr, `{"time":`) || !strings.Contains(stderr, `"level":"WARN","msg":"a setting or the registry file","warning":"registry.yaml:4:15: services.a`) {
		t.Error(stderr)
	}
}

// TestAReloadWarns: what a start would say on standard error is in the log.
func TestAReloadWarns(t *testing.T) {
	r := newReloading(t, "{rps: 1}")
	text, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.file, fmt.Appendf(text, "  lost: {base_url: \"http://127.0.0.1:1\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, body := r.operate(http.MethodPost, "/admin/v1/reload", "Bearer the-operators-token"); status != http.StatusOK {
		t.Fatalf("%d: %s", status, body)
	}
	if log := r.log.String(); strings.Count(log, "services.lost.base_url: every call will be refused") != 1 || strings.Contains(log, "services.tools.base_url") {
		t.Error(log)
	}
}

// TestLinksThatOpenHereAlone: without a public URL whoever makes a link for a person, or
// serves a service that has such, is told that it leads to this computer.
func TestLinksThatOpenHereAlone(t *testing.T) {
	file := "services: {mail: {base_url: \"https://u.example\", credential: {type: oauth2, client_id: c, authorize_url: \"https://u.example/a\", token_url: \"https://u.example/t\"}}}\n"
	const check, link = "which is not set: they open on the gateway's own computer alone", "agentgw: warning: AGENTGATE_PUBLIC_URL is not set: the link opens on this computer alone\n"
	for _, public := range []string{"", "https://gw.example"} {
		b := newBench(t, file)
		if public != "" {
			b.env = append(b.env, "AGENTGATE_PUBLIC_URL="+public)
		}
		if stdout, _ := b.want(exitDone, "check"); strings.Contains(stdout, check) != (public == "") {
			t.Errorf("with %q check says\n%s", public, stdout)
		}
		stdout, stderr := b.want(exitDone, "credentials", "link", "--service", "mail", "--user", "u")
		if strings.Contains(stderr, link) != (public == "") || !strings.Contains(stdout, "/oauth/mail/start") {
			t.Errorf("with %q link says\n%s%s", public, stdout, stderr)
		}
		if _, stderr := b.want(exitCannotRun, "serve", "--listen", "192.0.2.1:1"); strings.Contains(stderr, "registry.yaml:1:") != (public == "") { // nobody's address (RFC 5737)
			t.Errorf("with %q serve says\n%s", public, stderr)
		}
	}
}
