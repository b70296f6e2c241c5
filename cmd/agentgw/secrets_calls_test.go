package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSecretsInManyCalls: mixed requests in their thousands, good and bad, each with
// secrets in headers, query, body and parameters, at the most talkative of log
// levels, to services that repeat what they get: none is in the log, a file or a metric, and
// of what the vault holds none is in an answer.
func TestSecretsInManyCalls(t *testing.T) {
	requests := 300
	if os.Getenv("DRILLS") == "full" {
		requests = 10_000
	}
	w := newSecretsWorld(t, "--rate-key-rps", "100000", "--rate-key-burst", "100000", "--rate-tenant-rps", "100000", "--rate-tenant-burst", "100000", "--rate-auth-per-minute", "100000")
	rnd := rand.New(rand.NewPCG(1, 2))
	names := make([]string, 0, len(planted))
	for name := range planted {
		names = append(names, name)
	}
	slices.Sort(names)
	services := make([]string, 0, len(credentials))
	for service := range credentials {
		if service != "slow" { // which takes its time
			services = append(services, service)
		}
	}
	slices.Sort(services)
	pick := func() string { return planted[names[rnd.IntN(len(names))]] }
	for range requests {
		service, place := services[rnd.IntN(len(services))], []string{"echo", "echo", pick()}[rnd.IntN(3)]
		params, err := json.Marshal(map[string]any{"place": place, "q": pick()})
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"service":%q,"action":"get","params":%s}`, service, params)
		line := "POST /v1/act?" + pick() + "=" + pick()
		headers := []string{"Authorization: Bearer " + w.key, "Cookie: " + pick(), "User-Agent: " + pick(), "X-Request-Id: " + pick(), "Traceparent: " + pick(), "Referer: https://u:" + pick() + "@h/?" + pick(), pick() + ": " + pick()}
		switch rnd.IntN(8) {
		case 0:
			headers[0] = "Authorization: Bearer " + pick()
		case 1:
			body = body[:rnd.IntN(len(body))]
		case 2:
			body = strings.Replace(body, `"q"`, `"`+pick()+`"`, 1)
		case 3:
			line = "GET /v1/services/" + pick() + "?" + pick()
		case 4:
			headers = append(headers, "X-Api-Key: "+pick())
		}
		if strings.Contains(headers[6][:20], " ") {
			headers = headers[:6]
		}
		w.say(w.server.agentsListener, request(line, body, headers...))
		if rnd.IntN(20) == 0 {
			w.say(w.server.operatorsListener, request("GET /admin/v1/"+pick()+"?"+pick(), "", "Authorization: Bearer "+pick()))
		}
	}
	w.seen.WriteString("\n-- metrics\n")
	mark := w.seen.Len()
	w.say(w.server.operatorsListener, request("GET /metrics", ""))
	answers, metrics := w.seen.String()[:mark], w.seen.String()[mark:]
	w.server.stop(context.Background())
	if strings.Count(answers, "********") < requests/10 || !strings.Contains(metrics, "agentgate_") || !strings.Contains(w.log.String(), "repeated its credential") {
		t.Errorf("the calls did not happen: %d answers marked", strings.Count(answers, "********"))
	}

	written := map[string]string{"log": w.log.String(), "metrics": metrics}
	if err := filepath.WalkDir(w.data, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "admin-token" {
			written[path] = string(w.read(path))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	secrets := map[string]string{"key": w.key}
	for name, s := range planted {
		secrets[name] = s
	}
	for service, s := range credentials {
		_, password, ok := strings.Cut(s, ":")
		if !ok {
			password = s
		}
		secrets["credential of "+service] = password
	}
	for name, s := range secrets {
		places := written
		if strings.HasPrefix(name, "credential of ") {
			places = map[string]string{"answers": answers}
			for place, text := range written {
				places[place] = text
			}
		}
		for _, form := range forms(s) {
			for place, text := range places {
				if at := strings.Index(text, form); at >= 0 {
					t.Errorf("%s stands in %s as %q: %q", name, place, form, text[max(0, at-120):min(len(text), at+len(form)+60)])
				}
			}
		}
	}
}

// TestNoOtherDoors: what tells of the inside of a process is at neither address, and
// an agent's key opens nothing at the operators'.
func TestNoOtherDoors(t *testing.T) {
	w := newSecretsWorld(t, "--rate-key-rps", "1000", "--rate-key-burst", "1000", "--rate-tenant-rps", "1000", "--rate-tenant-burst", "1000")
	defer w.server.stop(context.Background())
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/vars", "/debug/requests", "/config", "/configz", "/config_dump", "/env", "/actuator/env", "/server-status", "/v1/debug", "/admin", "/admin/v1/debug/pprof/"} {
		for _, authorization := range []string{"", "Bearer " + w.key, "Bearer " + planted["admin token"]} {
			for name, to := range map[string]string{"agents": w.server.agentsListener.Addr().String(), "operators": w.server.operatorsListener.Addr().String()} {
				if status, body := get(t, "GET", "http://"+to+path, authorization, ""); status < 400 {
					t.Errorf("%s at the %s' address: %d %.200s", path, name, status, body)
				}
			}
		}
	}
	for _, line := range []string{
		"GET config", "POST reload", "GET tenants", "GET tenants/key:bot", "POST tenants/key:bot/block", "POST tenants/key:bot/unblock", "GET limits/explain?key=bot&service=bearer&action=get", "GET receipts",
		"POST keys", "DELETE keys/bot", "PATCH keys/bot", "POST drain", "GET keys",
	} {
		method, path, _ := strings.Cut(line, " ")
		for _, body := range []string{"", `{"id":"bot","limits":{"rps":100000},"max_budget":1e9,"role":"admin","services":["*"]}`} {
			if status, said := get(t, method, "http://"+w.server.operatorsListener.Addr().String()+"/admin/v1/"+path, "Bearer "+w.key, body); status != 401 || strings.Contains(said, "bot") {
				t.Errorf("%s with an agent's key: %d %s", line, status, said)
			}
			want := 404
			if method == "GET" && body != "" {
				want = 400 // a GET with content is none
			}
			if status, said := get(t, method, "http://"+w.server.agentsListener.Addr().String()+"/admin/v1/"+path, "Bearer "+w.key, body); status != want {
				t.Errorf("%s at the agents' address: %d %s", line, status, said)
			}
		}
	}
	for _, member := range []string{"limits", "max_budget", "role", "tenant", "key", "credential", "user", "admin"} {
		if status, said := get(t, "POST", "http://"+w.server.agentsListener.Addr().String()+"/v1/act", "Bearer "+w.key, fmt.Sprintf(`{"service":"bearer","action":"get","params":{"place":"x","q":"y"},%q:"acme"}`, member)); status != 400 {
			t.Errorf("member %s: %d %s", member, status, said)
		}
	}
}

func get(t *testing.T, method, url, authorization, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}
