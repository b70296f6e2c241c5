package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"agentgw/internal/identity"
)

// TestNoHeaderStandsForAKey: no name, user agent or origin lets anybody in.
func TestNoHeaderStandsForAKey(t *testing.T) {
	g := newWorld(t, hello, everything("k"))
	for _, line := range []string{
		"User-Agent: GoogleHC/1.0", "User-Agent: kube-probe/1.30", "User-Agent: ELB-HealthChecker/2.0", "User-Agent: agentgw",
		"X-Forwarded-User: k", "X-Auth-Request-User: k", "X-Remote-User: k", "X-Forwarded-For: 127.0.0.1", "Forwarded: for=127.0.0.1",
		"X-Forwarded-Uri: /livez", "X-Original-Url: /livez", "X-Http-Method-Override: OPTIONS", "Agentgate-On-Behalf-Of: root", "X-Internal: 1", "Mcp-Init-Host: tools",
		"Host: gateway/..;/livez", "Authorization: Bearer", "Cookie: key=k", "Origin: null",
	} {
		for _, path := range []string{"/v1/act", "/v1/services", "/v1/services/tools", "/v1/whoami", "/v1/receipts/0", "/proxy/tools/get/1", "/livez", "/metrics", "/admin/v1/config", "/"} {
			method := "GET"
			if path == "/v1/act" {
				method = "POST"
			}
			host := "Host: gateway\r\n"
			if strings.HasPrefix(line, "Host:") {
				host = ""
			}
			res, body := g.send(method + " " + path + " HTTP/1.1\r\n" + host + line + "\r\nContent-Length: 0\r\n\r\n")
			if res.StatusCode != 401 && (res.StatusCode != 400 || host != "") {
				t.Errorf("%s, %s: %s %s", line, path, res.Status, body)
			}
		}
		g.clock.Advance(60_000_000_000) // of failures an address has so many a minute
	}
	if n := g.upstreamRequests(); n != 0 {
		t.Errorf("the upstream was called %d times", n)
	}
}

// routing are headers that some gateway or other lets choose where a request goes.
func routing() (names []string) {
	for _, prefix := range []string{"", "X-", "X-Forwarded-", "X-Original-", "X-Rewrite-", "SW-", "Agentgate-", "Mcp-", "Helicone-", "X-Gateway-", "X-Proxy-"} {
		for _, word := range []string{"Url", "Uri", "Host", "Base-Url", "Target", "Target-Url", "Upstream", "Endpoint", "Server", "Destination", "Backend", "Api-Base", "Route", "Scheme", "Port", "Prefix", "Path", "Init-Host"} {
			if name := prefix + word; name != "Host" {
				names = append(names, name)
			}
		}
	}
	return append(names, "Proxy", "Forwarded", "Referer", "Origin", "Via", "Alt-Svc", "Location", "X-Envoy-Original-Dst-Host", "X-Real-Ip", "X-Http-Method-Override", "From")
}

// TestNothingButTheRegistryPicksTheUpstream: a service's address is the registry's,
// whatever an agent says in headers, query, body or parameters.
func TestNothingButTheRegistryPicksTheUpstream(t *testing.T) {
	w, evil := newWire(t, "", says(helloBytes)), newWire(t, "", says(helloBytes))
	g := headeredWorld(t, w)
	address := evil.listener.Addr().String()
	names := routing()
	if len(names) < 200 {
		t.Fatalf("%d names", len(names))
	}
	called := 0
	for _, name := range names {
		for _, value := range []string{"http://" + address + "/", address} {
			if res, body := g.send(g.raw(`{"service":"bearer","action":"get"}`, name+": "+value)); res.StatusCode != 200 {
				t.Errorf("%s: %s %s", name, res.Status, body)
			}
			called++
		}
		g.clock.Advance(1_000_000_000) // or the tenant's tokens would end
	}
	if n := len(w.take()); n != called {
		t.Errorf("%d requests of %d calls", n, called)
	}
	for _, member := range []string{"api_base", "base_url", "endpoint", "host", "url", "upstream", "server", "headers", "Host"} {
		if res := g.act("k", fmt.Sprintf(`{"service":"bearer","action":"get",%q:"http://%s/"}`, member, address)); res.status != 400 {
			t.Errorf("member %s: %d %s", member, res.status, res.body)
		}
		if res := g.act("k", fmt.Sprintf(`{"service":"bearer","action":"get","params":{%q:"http://%s/"}}`, member, address)); res.status != 400 {
			t.Errorf("parameter %s: %d %s", member, res.status, res.body)
		}
	}
	raw := strings.Replace(g.raw(`{"service":"bearer","action":"get"}`), "POST /v1/act", "POST /v1/act?base_url=http://"+address+"&service=evil&host="+address, 1)
	if res, body := g.send(raw); res.StatusCode != 200 {
		t.Errorf("%s %s", res.Status, body)
	}
	if got := withoutID(t, w); got[0] != "GET /x HTTP/1.1" {
		t.Errorf("a query: %q", got[0])
	}
	if n := evil.connections(); n != 0 {
		t.Errorf("somebody else was called %d times", n)
	}
}

// TestTokensOfOthersStopHere: whatever token an agent has for somebody else, and
// whatever it says in the gateway's name, the service sees its own credential alone.
func TestTokensOfOthersStopHere(t *testing.T) {
	w := newWire(t, "", says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSet-Cookie: session=of-the-service\r\n\r\n{}"))
	g := headeredWorld(t, w)
	const foreign = "eyJhbGciOiJSUzI1NiJ9.foreign.token"
	for _, service := range []string{"bare", "bearer", "basic", "query", "own", "proxy", "cookie"} {
		for _, gateway := range []string{"Authorization: Bearer ", "X-Api-Key: ", "Agentgate-Key: "} {
			lines := []string{gateway + g.keys["k"], "Proxy-Authorization: Bearer " + foreign, "Cookie: access_token=" + foreign, "Agentgate-Tenant: acme-" + foreign,
				"Agentgate-User: " + foreign, "Agentgate-Receipt: " + foreign, "Api-Key: " + foreign, "X-Goog-Api-Key: " + foreign, "X-Access-Token: " + foreign, "X-Amz-Security-Token: " + foreign}
			if !strings.HasPrefix(gateway, "Authorization") {
				lines = append(lines, "Authorization: Bearer "+foreign)
			}
			if !strings.HasPrefix(gateway, "X-Api-Key") {
				lines = append(lines, "X-Api-Key: "+foreign)
			}
			body := fmt.Sprintf(`{"service":%q,"action":"get"}`, service)
			res, text := g.send("POST /v1/act?access_token=" + foreign + "&a=1;b=2&%zz&hidden=" + foreign + " HTTP/1.1\r\nHost: gateway\r\n" + strings.Join(lines, "\r\n") + fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n", len(body)) + body)
			if res.StatusCode != 200 || res.Header["Set-Cookie"] != nil {
				t.Fatalf("%s, %s: %s %s", service, gateway, res.Status, text)
			}
			all := strings.Join(w.take(), "")
			if strings.Contains(all, "foreign") || strings.Contains(all, g.keys["k"]) || strings.Contains(strings.ToLower(all), "agentgate-") {
				t.Errorf("%s, %s: the service saw %q", service, gateway, all)
			}
			if first, _, _ := strings.Cut(all, "\r\n"); strings.Contains(first, "?") != (service == "query") || strings.Contains(first, "hidden") {
				t.Errorf("%s: %q", service, first)
			}
		}
	}
}

// TestNoCookieIsKept: a session that a service gives to one tenant is no other's,
// and not even its own next time.
func TestNoCookieIsKept(t *testing.T) {
	var cookies []string
	g := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		cookies = append(cookies, r.Header["Cookie"]...)
		http.SetCookie(rw, &http.Cookie{Name: "session", Value: "of-the-first", Path: "/"})
	}, everything("a"), everything("b"))
	for _, key := range []string{"a", "b", "a"} {
		if res := g.act(key, `{"service":"tools","action":"get","params":{"id":"1"}}`); res.status != 200 || res.header["Set-Cookie"] != nil {
			t.Errorf("%d %v", res.status, res.header)
		}
	}
	if len(cookies) > 0 {
		t.Errorf("the service was sent %q", cookies)
	}
}

// TestOneMethodOnly: what is no call reaches nobody, and the next caller's answer
// is his own.
func TestOneMethodOnly(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	g := headeredWorld(t, w)
	for _, method := range []string{"TRACE", "TRACK", "GET", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "BREW", "post"} {
		res, body := g.send(strings.Replace(g.raw(bareCall), "POST", method, 1))
		if res.StatusCode != 405 || strings.Contains(body, "agw_") {
			t.Errorf("%s: %s %s", method, res.Status, body)
		}
	}
	for _, target := range []string{w.listener.Addr().String(), "example.com:443", "gateway:80"} {
		res, body := g.send("CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\nAuthorization: Bearer " + g.keys["k"] + "\r\n\r\n")
		if res.StatusCode != 405 {
			t.Errorf("CONNECT %s: %s %s", target, res.Status, body)
		}
	}
	if w.connections() != 0 {
		t.Error("somebody was called")
	}
	if res, body := g.send(g.raw(bareCall)); res.StatusCode != 200 {
		t.Errorf("%s %s", res.Status, body)
	}
}

// TestPagesAreGivenNothing: what a browser sends for a page of whatever origin is
// let in by a key alone, which no page can send unless it is told that it may.
func TestPagesAreGivenNothing(t *testing.T) {
	g := newWorld(t, hello, everything("k"))
	const body = `{"service":"tools","action":"get","params":{"id":"1"}}`
	for _, origin := range []string{"http://evil.example", "null", "http://localhost.evil.example", "http://127.0.0.1:8080"} {
		for _, key := range []string{"", "k"} {
			r := g.request(t.Context(), key, body)
			r.Header.Set("Origin", origin)
			r.Header.Set("Content-Type", "text/plain") // which a page may send without asking
			if res := g.do(r); key == "" && res.status != 401 || key != "" && res.status != http.StatusUnsupportedMediaType {
				t.Errorf("%s, key %q: %d %s", origin, key, res.status, res.body)
			}
			r = g.request(t.Context(), key, "")
			r.Method = http.MethodOptions
			r.Header.Set("Origin", origin)
			r.Header.Set("Access-Control-Request-Method", "POST")
			r.Header.Set("Access-Control-Request-Headers", "authorization")
			res := g.do(r)
			for name := range res.header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("%s: %s is told to a page", origin, name)
				}
			}
			if res.status < 400 {
				t.Errorf("%s: a page may: %d", origin, res.status)
			}
		}
	}
	if n := g.upstreamRequests(); n != 0 {
		t.Errorf("the upstream was called %d times", n)
	}
}

// hostileTexts are what breaks queries, paths, logs and shells that are put
// together from text.
var hostileTexts = []string{
	"' OR '1'='1", "'; DROP TABLE keys; --", `" OR ""="`, "1; SELECT pg_sleep(10)", "k' UNION SELECT secret FROM credentials --", "admin'--", "k%", "k_", "k*", "*", "%27", `\`,
	"../../etc/passwd", "$(id)", "`id`", "${jndi:ldap://x}", "{{7*7}}", "%n%s", "\u202ek", "ｋ", "K", "k ", " k", "k\u0000", "k\u00ad", "İ", "null", "undefined", "true", "0", "-1", "1e309",
	"key:k", "human:k", "tenant:k", "k:overflow", "k,other", "k\tother", "<script>alert(1)</script>", strings.Repeat("k", 256),
}

// TestHostileTextsAsNames: as a key no text lets anybody in, and as a name none is
// another's.
func TestHostileTextsAsNames(t *testing.T) {
	g := newWorld(t, hello, &identity.Key{ID: "k", Services: []string{"tools"}, Users: []string{"k"}})
	for i, text := range hostileTexts {
		if printable := !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' }); printable {
			for _, line := range []string{"Authorization: Bearer ", "X-Api-Key: ", "Agentgate-Key: "} {
				body := `{"service":"tools","action":"get","on_behalf_of":"k","params":{"id":"1"}}`
				raw := fmt.Sprintf("POST /v1/act HTTP/1.1\r\nHost: gateway\r\n%s%s\r\nContent-Length: %d\r\n\r\n%s", line, text, len(body), body)
				if res, said := g.send(raw); res.StatusCode != 401 {
					t.Errorf("%s%s: %s %s", line, text, res.Status, said)
				}
			}
		}
		for _, body := range []string{
			fmt.Sprintf(`{"service":%s,"action":"get","on_behalf_of":"k"}`, jsonText(text)),
			fmt.Sprintf(`{"service":"tools","action":%s,"on_behalf_of":"k"}`, jsonText(text)),
			fmt.Sprintf(`{"service":"tools","action":"get","on_behalf_of":%s,"params":{"id":"1"}}`, jsonText(text)),
		} {
			if res := g.act("k", body); res.status != 403 && res.status != 400 {
				t.Errorf("%s: %d %s", body, res.status, res.body)
			}
		}
		if i%5 == 4 { // which no bucket is asked for
			g.clock.Advance(60_000_000_000)
		}
	}
	if n := g.upstreamRequests(); n != 0 {
		t.Errorf("the upstream was called %d times", n)
	}
	tenants := map[string]bool{}
	for _, r := range g.ledger.all() {
		tenants[r.Tenant] = true
	}
	if slices.ContainsFunc(hostileTexts, func(text string) bool { return tenants["human:"+text] }) {
		t.Errorf("tenants were made: %v", tenants)
	}
}

func jsonText(s string) string {
	b, _ := json.Marshal(s) // a string can be
	return string(b)
}
