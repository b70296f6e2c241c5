package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"agentgw/internal/admin"
	"agentgw/internal/identity"
)

// operateWith is operate with a body.
func (r *reloading) operateWith(method, path, token, body string) (int, string) {
	r.t.Helper()
	return raw(r.t, r.server.operatorsListener.Addr(), fmt.Sprintf("%s %s HTTP/1.1\r\nHost: g\r\nAuthorization: %s\r\nContent-Length: %d\r\n\r\n%s", method, path, token, len(body), body))
}

// TestKeysByAPI: a key that is made is served at once; one that is revoked is not, and
// what runs with it has ended, in the same request.
func TestKeysByAPI(t *testing.T) {
	r := newReloading(t, "{}")
	status, body := r.operateWith(http.MethodPost, "/admin/v1/keys", operators, `{"id":"made","services":["tools"],"actions":["tools.get","tools.hold"],"users":["*"],"tenant":"t","rps":5,"burst":10,"user":"u","not_before":"2020-01-01T00:00:00Z","expires":"720h"}`)
	var made struct{ ID, Key string }
	if err := json.Unmarshal([]byte(body), &made); status != 201 || err != nil || made.ID != "made" || !identity.LooksLikeKey(made.Key) {
		t.Fatalf("%d %s", status, body)
	}
	if status := r.statusOf(made.Key); status != 200 {
		t.Errorf("the key that was made: %d", status)
	}
	list := func() map[string]admin.Key {
		t.Helper()
		status, body := r.operate(http.MethodGet, "/admin/v1/keys", operators)
		var all struct{ Keys []admin.Key }
		if err := json.Unmarshal([]byte(body), &all); status != 200 || err != nil || strings.Contains(body, made.Key) || strings.Contains(body, "digest") {
			t.Fatalf("%d %s", status, body)
		}
		keys := map[string]admin.Key{}
		for _, k := range all.Keys {
			keys[k.ID] = k
		}
		return keys
	}
	k := list()["made"]
	if k.State != "valid" || k.From != "the state store" || k.LastUsedAt == nil || k.ExpiresAt == nil || k.NotBefore == nil || *k.RPS != 5 || *k.Burst != 10 || k.Tenant != "t" || k.User != "u" || len(k.Actions) != 2 {
		t.Errorf("%+v", k)
	}
	if k := list()["k"]; k.State != "valid" || !strings.HasSuffix(k.From, "registry.yaml:6:5") || k.CreatedAt != nil {
		t.Errorf("the file's: %+v", k)
	}
	stream := r.callAs(made.Key, "hold")
	defer func() { _ = stream.Body.Close() }()
	for range 2 { // revoked stays revoked
		if status, body := r.operate(http.MethodDelete, "/admin/v1/keys/made", operators); status != 200 || body != `{"id":"made","revoked":true}`+"\n" {
			t.Fatalf("%d %s", status, body)
		}
	}
	if status := r.statusOf(made.Key); status != 401 {
		t.Errorf("once it was revoked: %d", status)
	}
	if k := list()["made"]; k.State != "revoked" || k.RevokedAt == nil {
		t.Errorf("%+v", k)
	}
	all := make([]byte, 100)
	for n, err := 0, error(nil); err == nil; n, err = stream.Body.Read(all) {
		if n > len("begun") {
			t.Errorf("%q", all[:n])
		}
	}

	const good = `"id":"x","services":["*"],"users":["*"]`
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "", `{` + good + `,"digest":"00"}`, 400, "a member that is not one of id services"},
		{"POST", "", `{` + good + `,"Tenant":"t"}`, 400, "a member that is not one of"},
		{"POST", "", `{` + good + `,"revoked_at":null}`, 400, "a member that is not one of"},
		{"POST", "", `{` + good + `,"rps":"five"}`, 400, "another kind"},
		{"POST", "", `{"id":"x","services":"*","users":["*"]}`, 400, "another kind"},
		{"POST", "", `{` + good + `,"id":"y"}`, 400, "or has a name twice"},
		{"POST", "", `{` + good + `,"u\u0073ers":["u"]}`, 400, "or has a name twice"},
		{"POST", "", `{` + good + `,"user":"\ud800"}`, 400, "not a JSON object"},
		{"POST", "", `null`, 400, "not a JSON object"},
		{"POST", "", `[]`, 400, "not a JSON object"},
		{"POST", "", ``, 400, "not a JSON object"},
		{"POST", "", `{` + good + `} {}`, 400, "not a JSON object"},
		{"POST", "", `{` + strings.Repeat(" ", 70_000) + good + `}`, 400, "over 64 KiB"},
		{"POST", "", `{` + good + `,"rps":0}`, 400, "rps: 0 disables the key's limit"},
		{"POST", "", `{"id":"x","services":["*"],"users":["a,b"]}`, 400, "users: holds a comma"},
		{"POST", "", `{"id":"x","services":["gone"],"users":["*"]}`, 400, `services: there is no service \"gone\"`},
		{"POST", "", `{` + good + `,"not_before":"2026"}`, 400, "not_before: "},
		{"POST", "", `{"id":"x","users":["*"]}`, 400, "services: holds an empty name"},
		{"POST", "", `{"id":"made","services":["*"],"users":["*"]}`, 409, "ids are not used again"},
		{"POST", "", `{"id":"k","services":["*"],"users":["*"]}`, 400, `id: key \"k\" exists already`},
		{"DELETE", "/k", ``, 409, "registry.yaml:6:5: take it out there"},
		{"DELETE", "/none", ``, 404, "there is no such key"},
		{"DELETE", "/" + r.key, ``, 404, "there is no such key"},
		{"PUT", "/k", ``, 404, "nothing at this path"},
	} {
		status, body := r.operateWith(c.method, "/admin/v1/keys"+c.path, operators, c.body)
		if status != c.status || !strings.Contains(body, c.says) || strings.Contains(body, r.key) {
			t.Errorf("%s %s %.100s: %d %s", c.method, c.path, c.body, status, body)
		}
		status, _ = r.operateWith(c.method, "/admin/v1/keys"+c.path, "Bearer "+r.key, c.body)
		if status != 401 {
			t.Errorf("%s %s with an agent's key: %d", c.method, c.path, status)
		}
	}
	if n := len(list()); n != 2 {
		t.Errorf("%d keys are listed", n)
	}
}
