package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"agentgw/internal/identity"
)

// everySection is a registry with every member that there is.
const everySection = `{"version": 1,
"server": {"rate_key_rps": 1000, "listen": "127.0.0.1:0", "trusted_proxies": ["10.0.0.0/8"], "drain_timeout": "30s", "log_level": "info", "tenant_max_inflight": 7},
"tenants": {"acme": {"rps": 20, "burst": 40, "max_inflight": 64, "weight": 2}},
"keys": [{"id": "bot", "sha256": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "services": ["header", "query"], "actions": ["header.get"],
  "users": ["u"], "tenant": "acme", "limits": {"rps": 5, "burst": 10}, "user": "u", "space": "s", "org": "o",
  "not_before": "2020-01-01T00:00:00Z", "not_after": "2199-01-01T00:00:00Z",
  "retiring": {"sha256": "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210", "not_after": "2026-12-01T00:00:00Z"}}],
"issuers": [{"issuer": "https://idp.example", "audience": "a", "tenant_claim": "t", "user_claim": "u", "space_claim": "s", "org_claim": "o", "tenants": {"Org": "acme"}}],
"services": {
  "header": {"base_url": "https://u.example/v1", "access": "key", "dialect": "native", "rate_limit": {"rps": 5, "burst": 10}, "max_inflight": 8, "timeout": "30s",
    "delegation": "optional", "credential": {"type": "header", "scope": "user", "name": "X-Token"}, "allow_private": true, "passthrough": false, "on_store_failure": "open",
    "actions": {"get": {"method": "POST", "path": "/a/{p}", "params": {"p": "string", "state": {"type": "string", "enum": ["open"], "pattern": "^o", "required": false},
      "X-In": {"in": "header", "type": "string"}, "list": {"type": "array", "items": {"type": "string", "format": "email"}}}}}},
  "query": {"base_url": "https://u.example", "credential": {"type": "query", "name": "token"}, "actions": {"get": {"method": "GET", "path": "/"}}},
  "oauth": {"base_url": "https://u.example", "credential": {"type": "oauth2", "authorize_url": "https://idp.example/a", "token_url": "https://idp.example/t", "client_id": "c", "scopes": ["r"], "flow": "authorization_code",
    "client_auth": "post", "issuer": "https://idp.example", "authorize_params": {"access_type": "offline"}, "token_params": {"audience": "a"}, "allow_private": false}},
  "machine": {"base_url": "https://u.example", "credential": {"type": "oauth2", "flow": "client_credentials", "token_url": "https://idp.example/t", "client_id": "c"}},
  "open": {"base_url": "https://u.example", "access": "open", "passthrough": true, "websocket": {"charge": ["response.create"]}}},
"tunnels": {"allow": ["api.example.com:443"], "bytes_per_window": "100MiB", "window": "1h", "on_exhausted": "finish", "allow_private": false},
"rules": [{"name": "r", "key": "caller", "window": "1m", "max": 5, "count": "requests", "when": "true", "cost": true, "mode": "enforce", "on_store_failure": "open"}],
"identity_limits": {"user": 20, "space": 30, "org": 60}}`

// places finds every member and item below v, by the way to it.
func places(v any, way ...any) (all [][]any) {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			all = append(all, places(member, append(slices.Clone(way), name)...)...)
		}
	case []any:
		for i, item := range v {
			all = append(all, places(item, append(slices.Clone(way), i)...)...)
		}
	}
	if len(way) > 0 {
		all = append(all, way)
	}
	return all
}

// with is everySection with something else at that place: another value, or,
// where name is not "", another name for the member.
func with(t *testing.T, way []any, name string, value any) []byte {
	t.Helper()
	var root any
	if err := json.Unmarshal([]byte(everySection), &root); err != nil {
		t.Fatal(err)
	}
	at := root
	for _, step := range way[:len(way)-1] {
		switch step := step.(type) {
		case string:
			at = at.(map[string]any)[step]
		case int:
			at = at.([]any)[step]
		}
	}
	switch last := way[len(way)-1].(type) {
	case int:
		at.([]any)[last] = value
	case string:
		members := at.(map[string]any)
		if name != "" {
			value = members[last]
			delete(members, last)
			last = name
		}
		members[last] = value
	}
	text, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestSecretsInTheWrongPlaceOfTheRegistry puts a gateway key in the place of every
// value, every list and every name of a registry, a password in the place of all
// that describes a credential and wherever a URL may have one, and searches what
// check, the log and the operators' side say of the file then.
func TestSecretsInTheWrongPlaceOfTheRegistry(t *testing.T) {
	r := newReloading(t, "{}")
	good, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatal(err)
	}
	var root any
	if err := json.Unmarshal([]byte(everySection), &root); err != nil {
		t.Fatal(err)
	}
	text, _ := identity.NewKey()
	key, refused := text.Reveal(), 0
	const password = "pAs5w0rd-2b7e151628aed2a6"

	// try serves the file, and returns whether it was in order.
	try := func(what string, file []byte, secret string, open bool) {
		t.Helper()
		if err := os.WriteFile(r.file, file, 0o600); err != nil {
			t.Fatal(err)
		}
		logged := len(r.log.String())
		status, reload := r.operate(http.MethodPost, "/admin/v1/reload", operators)
		if status != http.StatusOK {
			refused++
		}
		_, verbose := r.operate(http.MethodGet, "/readyz?verbose", "")
		_, config := r.operate(http.MethodGet, "/admin/v1/config", operators)
		said := map[string]string{"readyz": verbose}
		if !open {
			said["the reload's answer"], said["the configuration"], said["the log"] = reload, config, r.log.String()[logged:]
			_, out, errs := (&bench{t: t}).run("", "check", r.file)
			said["check"] = out + errs
		}
		for place, text := range said {
			for _, form := range []string{secret, secret[:len(secret)*3/4], secret[len(secret)/4:]} {
				if at := strings.Index(text, form); at >= 0 {
					t.Errorf("%s: %s says %q", what, place, text[max(0, at-120):min(len(text), at+len(form)+40)])
				}
			}
		}
	}

	all := places(root)
	if len(all) < 100 {
		t.Fatalf("%d places", len(all))
	}
	try("every section", []byte(everySection), key, false)
	if refused > 0 {
		t.Fatal("the registry is not sound as it is")
	}
	for i, way := range all {
		at := fmt.Sprint(way)
		planted := []any{key, "x " + key + "\"", []any{key}, map[string]any{key: key}, strings.Repeat("é", 30) + key, "'" + key + "'"}
		if way[0] == "rules" {
			planted = append(planted, "caller == '"+key+"'", "size('"+key+"')", "caller == '"+key+"' ? 1 : 2")
		} else if os.Getenv("DRILLS") != "full" {
			planted = append(planted[i%len(planted):][:1], key)
		}
		for _, planted := range slices.Compact(planted) {
			try("a key at "+at, with(t, way, "", planted), key, false)
		}
		if _, named := way[len(way)-1].(string); named {
			try("a key for the name "+at, with(t, way, key, nil), key, false)
		}
		// What no token asks for tells of no value at all.
		try("a password at "+at, with(t, way, "", password), password, !slices.Contains(way, any("credential")))
		if last := way[len(way)-1]; last == "base_url" || last == "issuer" || last == "authorize_url" || last == "token_url" {
			for _, url := range []string{"https://u:%s@h/x", "https://h/{x}?k=%s", "https://h/ x?k=%s", "u:%s@h", "ftp://u:%s@h?k=%s", "https://h/x?k=%[1]s@%[1]s", "h?k=%s", "https://u:%s/x@h",
				"https://%s/x@h", "https://h\\x?%s", "https://h/%%zz?%s", "https://u:p?%s@h", "https://h?k=%s#%[1]s", "https://h:x/?k=%s", "u:p?%s@h"} {
				url, _, _ := strings.Cut(fmt.Sprintf(url, password), "%!")
				try("a password in "+url+" at "+at, with(t, way, "", url), password, false)
			}
		}
	}
	// A token of another maker, where a value or a name is told of.
	const token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
	for _, way := range all {
		if last := way[len(way)-1]; last == "method" || last == "path" || last == "timeout" || last == "rps" || last == "id" {
			try(fmt.Sprint("a token at ", way), with(t, way, "", token), token, false)
			try(fmt.Sprint("a token for the name ", way), with(t, way, token, nil), token, false)
		}
	}
	// What only YAML can say.
	for _, line := range []string{"x: &%s 1", "x: *%s", "x: !%s 1", "%s: 1\n%[1]s: 2", "%s: 1\nA%[1]s: 1\na%[1]s: 2", "x: {%s?}", "x: [%s", "? %s", "%%%s", "x: \"\\%s", "\t%s"} {
		try(line, fmt.Appendf(nil, "version: 1\n"+line+"\n", key), key, false)
	}
	for _, value := range []string{"&%s bearer", "*%s", "!%s bearer", "[%s", "%s?", "'%s"} {
		try(value, fmt.Appendf(nil, "version: 1\nservices: {s: {base_url: 'https://h', credential: {type: "+value+"}}}\n", password), password, false)
	}
	if refused < len(all) {
		t.Errorf("%d files were refused, of %d places", refused, len(all))
	}
	if err := os.WriteFile(r.file, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if status, body := r.operate(http.MethodPost, "/admin/v1/reload", operators); status != http.StatusOK {
		t.Error(body)
	}
}
