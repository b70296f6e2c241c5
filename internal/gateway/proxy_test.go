package gateway_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/identity"
	"agentgw/internal/receipts"
)

// proxyRegistry has a service that lets its actions alone through, one for
// everything, and one for everything with a credential of each kind.
const proxyRegistry = `
version: 1
services:
  s:
    base_url: %[1]s/base
    allow_private: true
    actions:
      queue: {method: GET, path: "/q/{vhost}/jobs", params: {vhost: string}}
      file: {method: GET, path: "/f/{id}.json", params: {id: string}}
      pair: {method: GET, path: "/p/{a}-{b}", params: {a: string, b: string}}
      one: {method: GET, path: "/x/{id}", params: {id: string}}
      all: {method: GET, path: "/x/all", params: {}}
      escaped: {method: GET, path: "/x/a%2Fb", params: {}}
      find: {method: GET, path: "/find/{n}", params: {n: int, q: "string?", many: "array?", on: "bool?", state: {type: string, enum: [open, shut], required: false}, X-Trace: {in: header, required: false}}}
      make: {method: POST, path: "/m/{owner}", params: {owner: string, title: string, n: "int?", page: {type: integer, in: query, required: false}}}
      drop: {method: DELETE, path: "/m/{owner}", params: {owner: string}}
      list: {method: GET, path: /list}
      head: {method: GET, path: /head, params: {X-Of: {in: header, type: string}}}
      chat: {method: POST, path: /chat}
      same-a: {method: GET, path: "/same/{x}", params: {x: string}}
      farther: {method: GET, path: "/both/{x}/there", params: {x: string}}
      nearer: {method: GET, path: "/both/here/{x}", params: {x: string}}
      same-b: {method: GET, path: "/same/{y}", params: {y: string}}
  any: {base_url: "%[1]s", allow_private: true, passthrough: true, actions: {report: {method: GET, path: "/reports/{id}", params: {id: string}}}}
  bearer: {base_url: "%[1]s", allow_private: true, passthrough: true, credential: {type: bearer}}
  own: {base_url: "%[1]s", allow_private: true, passthrough: true, credential: {type: header, name: X-Api-Key}}
  query: {base_url: "%[1]s", allow_private: true, passthrough: true, credential: {type: query, name: api key}}
`

func proxyWorld(t *testing.T, w *wire, keys ...*identity.Key) *world {
	t.Helper()
	if len(keys) == 0 {
		keys = []*identity.Key{tireless("k")}
	}
	return setup{registry: strings.ReplaceAll(proxyRegistry, "%[1]s", w.url()), vault: fullVault(t)}.world(t, hello, keys...)
}

// proxied is the text of a request by key with these header lines, and a body where the
// method is followed by one.
func (w *world) proxied(method, target, key, body string, header ...string) string {
	head := method + " /proxy/" + target + " HTTP/1.1\r\nHost: gateway\r\n"
	if key != "" {
		head += "Authorization: Bearer " + w.keys[key] + "\r\n"
	}
	if body != "" {
		head += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	for _, line := range header {
		head += line + "\r\n"
	}
	return head + "\r\n" + body
}

// TestProxyRelaysBytes: path and query arrive as they were sent, every byte of them.
func TestProxyRelaysBytes(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	g := proxyWorld(t, w)
	for sent, want := range map[string]string{
		"s/q/%2F/jobs": "/base/q/%2F/jobs", "s/q/%2f/jobs": "/base/q/%2f/jobs", "s/q/a%2Fb/jobs": "/base/q/a%2Fb/jobs", "s/q/b%2F/jobs": "/base/q/b%2F/jobs",
		"s/q/%2520/jobs": "/base/q/%2520/jobs", "s/q/%25/jobs": "/base/q/%25/jobs", "s/q/%252F/jobs": "/base/q/%252F/jobs", "s/q/a+b:c@d;e=f,g/jobs": "/base/q/a+b:c@d;e=f,g/jobs",
		"s/q/%e4%B8%ad/jobs": "/base/q/%e4%B8%ad/jobs", "s/q/.../jobs": "/base/q/.../jobs", "s/q/..a/jobs": "/base/q/..a/jobs",
		"s/f/a.json": "/base/f/a.json", "s/f/a.b%20c.json": "/base/f/a.b%20c.json", "s/p/a-b": "/base/p/a-b", "s/x/all": "/base/x/all", "s/x/alle": "/base/x/alle", "s/x/a%2Fb": "/base/x/a%2Fb",
		"s/find/5?q=a%2Bb+c%20d&many=1&many=x%26y&state=open": "/base/find/5?q=a%2Bb+c%20d&many=1&many=x%26y&state=open",
		"s/find/5?": "/base/find/5?", "s/find/5?&&": "/base/find/5?&&", "s/list": "/base/list", "s/list?any=1": "/base/list?any=1",
		"any": "/", "any/": "/", "any/x/%2520": "/x/%2520", "any/x/%25": "/x/%25", "any/x/%252F": "/x/%252F", "any/x/%2F": "/x/%2F", "any/x/%41%7e": "/x/%41%7e", "any/x/": "/x/", "any?a": "/?a",
		"any/d?sig=a%2Fb%2bc%3D&b=1&a=2&a=1&B=%zz&;c=1;d={}[]|^'\"<>\\`": "/d?sig=a%2Fb%2bc%3D&b=1&a=2&a=1&B=%zz&;c=1;d={}[]|^'\"<>\\`",
		"any/d?a=%x&b=1": "/d?a=%x&b=1", "any/d?tool=read;tool=delete": "/d?tool=read;tool=delete", "any/d?a=//../..": "/d?a=//../..", "any/d?\xc3\xa9": "/d?\xc3\xa9",
		"any/reports/7": "/reports/7", "query/x?b=1": "/x?b=1&api%20key=u%3As3cr3t%2B%26", "query/x": "/x?api%20key=u%3As3cr3t%2B%26",
	} {
		res, body := g.send(g.proxied("GET", sent, "k", ""))
		if res.StatusCode != 200 || body != "{}" {
			t.Errorf("%s: %s %s", sent, res.Status, body)
			w.take()
			continue
		}
		if got := target(t, w); got != "GET "+want {
			t.Errorf("%s arrived as %s, want %s", sent, got, want)
		}
	}
	if res, body := g.send(strings.Replace(g.proxied("GET", "any/x", "k", ""), "GET /", "GET http://evil.example/", 1)); res.StatusCode != 200 {
		t.Errorf("an absolute target: %s %s", res.Status, body)
	}
	if got := w.take(); len(got) != 1 || !strings.HasPrefix(got[0], "GET /x HTTP/1.1\r\nHost: "+w.listener.Addr().String()+"\r\n") {
		t.Errorf("an absolute target arrived as %q", got)
	}
	// What looks like a path below /proxy/ may stand where the target has none.
	for _, target := range []string{"http://evil.example?/proxy/any/x", "x:y://evil.example/proxy/any/x", "x:y?z://evil.example/proxy/any/x", "/v1/nothing?://evil.example/proxy/any/x"} {
		res, body := g.send(strings.Replace(g.proxied("GET", "any/x", "k", ""), "/proxy/any/x", target, 1))
		if res.StatusCode != 404 || res.Header.Get("Agentgate-Code") != "bad_request" {
			t.Errorf("%s: %s %s", target, res.Status, body)
		}
	}
	if got := w.take(); len(got) > 0 {
		t.Errorf("the query of another path arrived as %q", got)
	}
}

// TestProxyRefusesWhatIsAmbiguous: a path in which two servers could see two is 400, before
// any limit of a tenant is met, and reaches nobody. So is a query that somebody has to
// judge and that can be read in two ways.
func TestProxyRefusesWhatIsAmbiguous(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	g := proxyWorld(t, w)
	for _, path := range []string{
		"/.", "/..", "/./", "/../payroll", "/reports/../payroll", "/reports/%2e%2e/payroll", "/reports/.%2E/payroll", "/reports/%2E./payroll", "/reports//../payroll", "/reports/..;/payroll",
		"/reports/..;a=b/payroll", "/reports/..%3b/payroll", "/reports/%252e%252e/payroll", "/reports/%25252e./payroll", "/a%2F..%2Fb", "/a%2F..", "/..%2Fb", "/a%252F..%252Fb", "/..%5Cpayroll", "/a/..%255c..",
		"//", "/a//b", "/a//", "//a", "//evil.example/a", "/a%00", "/%0d%0aX-Evil:1", "/%7F", "/a%5Cb", "/a\\b", "/..\\b", "/a{b}", "/a|b", "/a^b", "/a`b", "/a\"b", "/<a>", "/[a]", "/\xc3\xa9", "/#a", "/a#b",
	} {
		for _, service := range []string{"s", "any", "bearer"} {
			res, body := g.send(g.proxied("GET", service+path, "k", ""))
			if res.StatusCode != 400 || res.Header.Get("Agentgate-Code") != "bad_request" {
				t.Errorf("%s%s: %s %s", service, path, res.Status, body)
			}
			if p := res.Header.Get("Ratelimit-Policy"); strings.Contains(p, "tenant") {
				t.Errorf("%s%s: a tenant's limit was met: %s", service, path, p)
			}
		}
	}
	// net/http finds these itself.
	for _, path := range []string{"/%", "/%z", "/%zz", "/a%2", "/a b", "/a\x01", "/a\x7f"} {
		if res, body := g.send(g.proxied("GET", "any"+path, "k", "")); res.StatusCode != 400 {
			t.Errorf("%q: %s %s", path, res.Status, body)
		}
	}
	for _, sent := range []string{
		"s/find/5?q=1;q=2", "s/find/5?q=%zz", "s/find/5?%zz=1", "s/find/5?q=1&q=2", "s/find/5?q=a%;b", "s/find/5?Q=1", "s/find/5?evil=1", "s/find/5?n=6", "s/find/5?X-Trace=1", "s/find/5?q=%ff",
		"s/find/5?state=odd", "s/find/five", "s/find/05", "s/find/5?on=maybe", "s/x/all?q=1", "query/x?api%20key=1", "query/x?a;API+KEY=1", "query/x?api+key",
	} {
		res, body := g.send(g.proxied("GET", sent, "k", ""))
		if res.StatusCode != 400 || res.Header.Get("Agentgate-Code") != "bad_params" {
			t.Errorf("%s: %s %s", sent, res.Status, body)
		}
	}
	for sent, names := range map[string]string{"s/find/5?evil=1": "params.evil", "s/find/5?state=odd": "params.state", "s/find/five": "params.n:", "s/find/5?q=1&q=2": "params.q: is given twice"} {
		if _, body := g.send(g.proxied("GET", sent, "k", "")); !strings.Contains(body, names) {
			t.Errorf("%s does not name %s: %s", sent, names, body)
		}
	}
	if got := w.take(); len(got) > 0 {
		t.Errorf("the upstream saw %q", got)
	}
	if n := g.inFlight("key:k"); n != 0 {
		t.Errorf("%d slots are taken", n)
	}
}

// TestProxyMatchesActions: what a request is called is told by its method and its path as
// sent, the most exact action first; what is no action needs a service that lets it pass,
// and a key for all of that.
func TestProxyMatchesActions(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	some := tireless("some")
	some.Services, some.Actions = []string{"s", "any"}, []string{"s.one", "s.same-b", "any.report"}
	most := tireless("most")
	most.Services, most.Actions = []string{"s", "any"}, []string{"*.*"}
	none := tireless("none")
	none.Services = []string{"bearer"}
	named := tireless("named")
	named.Users = []string{"u-1", "u-2"}
	g := proxyWorld(t, w, tireless("k"), some, most, none, named)
	for _, c := range []struct {
		method, sent, key, who string
		status                 int
		code, action           string
	}{
		{"GET", "s/x/1", "k", "", 200, "", "one"},
		{"GET", "s/x/all", "k", "", 200, "", "all"},
		{"GET", "s/x/a%2Fb", "k", "", 200, "", "escaped"},
		{"GET", "s/x/a%2fb", "k", "", 400, "bad_request", ""},
		{"GET", "s/x/1", "some", "", 200, "", "one"},
		{"GET", "s/x/all", "some", "", 403, "scope_denied", "all"},
		{"GET", "s/x/%61ll", "some", "", 400, "bad_request", ""},
		{"GET", "s/same/1", "k", "", 200, "", "same-a"},
		{"GET", "s/same/1", "some", "", 200, "", "same-b"},
		{"GET", "s/both/here/there", "k", "", 200, "", "nearer"}, // the exact segment from the left
		{"GET", "s/x%2Fall", "k", "", 404, "action_not_found", "*"},
		{"GET", "s/%78/all", "k", "", 400, "bad_request", ""},
		{"GET", "s/p/a-b-c", "k", "", 400, "bad_request", ""},
		{"GET", "s/p/a--b", "k", "", 400, "bad_request", ""},
		{"GET", "s/x/", "k", "", 404, "action_not_found", "*"},
		{"GET", "s/x", "k", "", 404, "action_not_found", "*"},
		{"GET", "s/x/1/", "k", "", 404, "action_not_found", "*"},
		{"GET", "s/X/1", "k", "", 404, "action_not_found", "*"},
		{"GET", "s/f/.json", "k", "", 404, "action_not_found", "*"},
		{"GET", "s/f/a.json%20", "k", "", 404, "action_not_found", "*"},
		{"POST", "s/x/1", "k", "", 404, "action_not_found", "*"},
		{"HEAD", "s/x/1", "k", "", 404, "action_not_found", "*"},
		{"POST", "s/x/1", "some", "", 403, "scope_denied", "*"},
		{"GET", "s/payroll", "some", "", 403, "scope_denied", "*"},
		{"GET", "any/payroll", "some", "", 403, "scope_denied", "*"},
		{"GET", "any/reports/1", "some", "", 200, "", "report"},
		{"GET", "any/%72eports/1", "most", "", 400, "bad_request", ""},
		{"GET", "any/payroll", "most", "", 200, "", "*"},
		{"PROPFIND", "any/payroll", "most", "", 200, "", "*"},
		{"GET", "s/x/1", "none", "", 403, "scope_denied", "*"},
		{"GET", "nobody/x", "none", "", 403, "scope_denied", "*"},
		{"GET", "nobody/x", "k", "", 404, "service_not_found", "*"},
		{"GET", "%61ny/x", "k", "", 404, "service_not_found", "*"},
		{"GET", "any/x", "named", "", 403, "scope_denied", "*"},
		{"GET", "any/x", "named", "u-3", 403, "scope_denied", "*"},
		{"GET", "any/x", "named", "u-2", 200, "", "*"},
		{"GET", "any/x", "", "", 401, "unauthenticated", ""},
	} {
		before := len(g.ledger.all())
		var header []string
		if c.who != "" {
			header = append(header, "Agentgate-On-Behalf-Of: "+c.who)
		}
		raw := g.proxied(c.method, c.sent, c.key, "", header...)
		if c.method == "HEAD" {
			raw = strings.Replace(raw, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1)
		}
		p := g.dial()
		p.write(raw)
		res, err := http.ReadResponse(p.r, &http.Request{Method: c.method})
		if err != nil {
			t.Fatal(err)
		}
		_ = p.c.Close()
		if res.StatusCode != c.status || res.Header.Get("Agentgate-Code") != c.code {
			t.Errorf("%s %s by %s: %s %s, want %d %s", c.method, c.sent, c.key, res.Status, res.Header.Get("Agentgate-Code"), c.status, c.code)
		}
		records := g.ledger.all()[before:]
		if len(records) == 0 || records[0].Action != c.action || c.status == 200 && (records[0].Method != c.method || records[0].Principal != c.who) {
			t.Errorf("%s %s by %s: its record is %+v", c.method, c.sent, c.key, records)
		}
		if n := len(w.take()); n != map[bool]int{true: 1}[c.status == 200] {
			t.Errorf("%s %s by %s: the upstream saw %d requests", c.method, c.sent, c.key, n)
		}
	}
	// An act cannot name what is no action.
	if res := g.act("k", `{"service":"any","action":"*"}`); res.status != 404 || res.code != "action_not_found" {
		t.Errorf("an act of *: %d %s", res.status, res.body)
	}
	for _, header := range [][]string{{"Agentgate-On-Behalf-Of: u-1", "Agentgate-On-Behalf-Of: u-1"}, {"Agentgate-On-Behalf-Of:"}, {"Agentgate-On-Behalf-Of: a\tb"}, {"Agentgate-On-Behalf-Of: \xff"}} {
		if res, body := g.send(g.proxied("GET", "any/x", "k", "", header...)); res.StatusCode != 400 {
			t.Errorf("%q: %s %s", header, res.Status, body)
		}
	}
}

// TestProxyMethods: a method that is not for services is 405 before a dial, and so is
// one that nobody knows.
func TestProxyMethods(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	g := proxyWorld(t, w)
	for _, method := range []string{"TRACE", "BREW", "get", "PRI2", "M-SEARCH"} {
		res, body := g.send(g.proxied(method, "any/x", "k", ""))
		if res.StatusCode != 405 || res.Header.Get("Agentgate-Code") != "method_not_allowed" || !slices.Contains(strings.Split(res.Header.Get("Allow"), ", "), "PATCH") {
			t.Errorf("%s: %s %v %s", method, res.Status, res.Header, body)
		}
	}
	if res, _ := g.send("CONNECT /proxy/any/x HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer " + g.keys["k"] + "\r\n\r\n"); res.StatusCode/100 == 2 {
		t.Errorf("CONNECT: %s", res.Status)
	}
	if res, body := g.send(g.proxied("GET", "any/x", "k", "", "Connection: Upgrade", "Upgrade: WebSocket")); res.StatusCode != 400 {
		t.Errorf("a WebSocket: %s %s", res.Status, body)
	}
	if got := w.take(); len(got) > 0 || w.connections() > 0 {
		t.Errorf("the upstream saw %q", got)
	}
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "REPORT", "QUERY"} {
		if res, body := g.send(g.proxied(method, "any/x", "k", "")); res.StatusCode != 200 {
			t.Errorf("%s: %s %s", method, res.Status, body)
		}
		if got := target(t, w); got != method+" /x" {
			t.Errorf("%s arrived as %s", method, got)
		}
	}
}

// TestProxyHeadersOnTheWire: an agent's own header goes on, but for what speaks of a
// connection, of who calls and from where, and its credentials. Of a gateway key nothing
// goes on in whatever place it came.
func TestProxyHeadersOnTheWire(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	g := proxyWorld(t, w)
	key := g.keys["k"]
	sent := append(slices.Clone(hostile), connections...)
	sent = append(sent, "Anthropic-Version: 2023-06-01", "X-Stainless-Lang: js", "Content-Type: text/x", "If-None-Match: \"a\"", "Range: bytes=0-1", "X-Goog-Api-Key: "+key, "X-Odd: a "+key+" b", "Api-Key: mine",
		"Agentgate-Key: "+key, "X-Api-Key: "+key, "X-Forwarded-Proto: https", "X-Client-Ip: 1.2.3.4", "Agentgate-On-Behalf-Of: u", "X-Empty:", "Upgrade-Insecure-Requests: 1")
	passed := []string{
		"Accept: text/plain", "Accept-Language: de", "Anthropic-Version: 2023-06-01", "Content-Encoding: identity", "Content-Type: text/x", "Idempotency-Key: once", "If-None-Match: \"a\"", "Last-Event-Id: 7",
		"Origin: https://evil", "Range: bytes=0-1", "Referer: https://evil", "Te: trailers", "Tracestate: a=b", "Upgrade-Insecure-Requests: 1", "User-Agent: agentgw/test", "X-Empty: ", "X-Gateway-Tenant: acme", "X-Request-Id: ID", "X-Stainless-Lang: js",
	}
	for service, credential := range map[string][]string{
		"any": nil, "bearer": {"Authorization: Bearer u:s3cr3t+&", "Accept-Encoding: identity"}, "own": {"X-Api-Key: u:s3cr3t+&", "Accept-Encoding: identity"},
	} {
		res, body := g.send(g.proxied("GET", service+"/x", "k", "", sent...))
		if res.StatusCode != 200 {
			t.Fatalf("%s: %s %s", service, res.Status, body)
		}
		got := withoutID(t, w)
		want := append(slices.Clone(passed), credential...)
		slices.Sort(want)
		host := got[1]
		rest := slices.Sorted(slices.Values(got[2:]))
		if got[0] != "GET /x HTTP/1.1" || host != "Host: "+w.listener.Addr().String() {
			t.Errorf("%s: %q", service, got[:2])
		}
		if diff := cmp.Diff(want, rest); diff != "" {
			t.Errorf("%s: %s", service, diff)
		}
	}
	for _, name := range []string{
		"Cookie", "Cookie2", "Api-Key", "X-Goog-Api-Key", "X-Auth-Token", "X-Access-Token", "Private-Token", "Proxy-Authorization", "Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Prefix",
		"X-Real-Ip", "True-Client-Ip", "X-Host", "X-Original-Url", "X-Rewrite-Url", "X-Http-Method-Override", "X-Method-Override", "X-Request-Id", "Agentgate-Tenant", "Keep-Alive", "Trailer",
	} {
		if res, body := g.send(g.proxied("GET", "any/x", "k", "", name+": X-Canary")); res.StatusCode != 200 {
			t.Errorf("%s: %s %s", name, res.Status, body)
		}
		if got := strings.Join(w.take(), ""); strings.Contains(got, "Canary") {
			t.Errorf("%s arrived: %q", name, got)
		}
	}
	if res, body := g.send(g.proxied("GET", "any/x", "k", "", "X_Tenant: evil")); res.StatusCode != 400 {
		t.Errorf("a name with an underscore: %s %s", res.Status, body)
	}
	for _, sent := range []string{"any/x?key=" + key, "any/" + key, "any/x?a=1&k=x" + key + "y"} {
		if res, body := g.send(g.proxied("GET", sent, "k", "")); res.StatusCode != 400 || strings.Contains(body, key) {
			t.Errorf("%.12s: %s %s", sent, res.Status, body)
		}
	}
	if got := w.take(); len(got) > 0 {
		t.Errorf("the upstream saw %q", got)
	}
}

// TestProxyKeys: the key stands in any of three headers, and two of two callers are
// nobody's.
func TestProxyKeys(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	g := proxyWorld(t, w, tireless("k"), tireless("other"))
	key, other := g.keys["k"], g.keys["other"]
	for _, c := range []struct {
		header []string
		status int
		code   string
	}{
		{[]string{"Authorization: Bearer " + key}, 200, ""},
		{[]string{"x-api-key: " + key}, 200, ""},
		{[]string{"agentgate-key: " + key}, 200, ""},
		{[]string{"Authorization: Bearer sk-another-vendors", "x-api-key: " + key}, 200, ""},
		{[]string{"Authorization: Bearer " + key, "x-api-key: " + key, "Agentgate-Key: " + key}, 200, ""},
		{[]string{"Authorization: Bearer " + key, "x-api-key: " + other}, 400, "bad_request"},
		{[]string{"Agentgate-Key: " + other, "x-api-key: " + key}, 400, "bad_request"},
		{[]string{"Authorization: Bearer " + key, "Authorization: Bearer " + key}, 400, "bad_request"},
		{[]string{"x-goog-api-key: " + key}, 401, "unauthenticated"},
		{nil, 401, "unauthenticated"},
	} {
		res, body := g.send(g.proxied("GET", "any/x", "", "", c.header...))
		if res.StatusCode != c.status || res.Header.Get("Agentgate-Code") != c.code {
			t.Errorf("%q: %s %s", c.header, res.Status, body)
		}
		if got := strings.Join(w.take(), ""); strings.Contains(got, "agw_") || strings.Contains(got, "sk-") {
			t.Errorf("%q arrived as %q", c.header, got)
		}
	}
	for _, target := range []string{"any/" + key, "any/x?k=" + key, "any/x?k=agw%5f" + key[4:], "any/a%67w_" + key[4:], "any/x?agw_" + key[4:52] + fmt.Sprintf("%%%02x", key[52])} {
		if res, body := g.send(g.proxied("GET", target, "", "", "x-api-key: "+key)); res.StatusCode != 400 || res.Header.Get("Agentgate-Code") != "bad_request" {
			t.Errorf("%s: %s %s", target, res.Status, body)
		}
		if got := w.take(); len(got) != 0 {
			t.Errorf("%q arrived as %q", target, got)
		}
	}
}

// TestProxyParameters: those of an action that the registry describes are held to it
// wherever they stand, and nothing else may stand there; what goes out is what came, byte
// for byte. A receipt commits to the bytes that were judged.
func TestProxyParameters(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	g := proxyWorld(t, w)
	for _, c := range []struct {
		method, sent, body string
		header             []string
		status             int
		code, says         string
	}{
		{"POST", "s/m/acme", `{"title":"a"}`, nil, 200, "", ""},
		{"POST", "s/m/acme?page=2", "\t{ \"n\" : 1.5,\n\"title\":\"\\u0061\" } ", []string{"Content-Type: application/json; charset=utf-8"}, 400, "bad_params", "params.n"},
		{"POST", "s/m/acme?page=2", "\t{ \"n\" : 1,\n\"title\":\"\\u0061\" } ", []string{"Content-Type: application/json; charset=utf-8"}, 200, "", ""},
		{"POST", "s/m/acme", ``, nil, 400, "bad_params", "params.title"},
		{"POST", "s/m/acme", `{}`, nil, 400, "bad_params", "params.title"},
		{"POST", "s/m/acme", `{"title":"a","evil":1}`, nil, 400, "bad_params", "params.evil"},
		{"POST", "s/m/acme", `{"title":"a","owner":"b"}`, nil, 400, "bad_params", "params.owner"},
		{"POST", "s/m/acme", `{"title":"a","page":1}`, nil, 400, "bad_params", "params.page"},
		{"POST", "s/m/acme?title=b", `{"title":"a"}`, nil, 400, "bad_params", "params.title"},
		{"POST", "s/m/acme", `{"title":"a","title":"b"}`, nil, 400, "bad_params", "title"},
		{"POST", "s/m/acme", `{"title":7}`, nil, 400, "bad_params", "params.title"},
		{"POST", "s/m/acme", `{"title":"a"}{}`, nil, 400, "bad_params", ""},
		{"POST", "s/m/acme", `[{"title":"a"}]`, nil, 400, "bad_params", ""},
		{"POST", "s/m/acme", "{\"title\":\"\xff\"}", nil, 400, "bad_params", ""},
		{"POST", "s/m/acme", `title=a`, []string{"Content-Type: application/x-www-form-urlencoded"}, 415, "bad_request", ""},
		{"POST", "s/m/acme", `{"title":"a"}`, []string{"Content-Encoding: gzip"}, 415, "bad_request", ""},
		{"POST", "s/m/acme", `{"title":"&title=b&"}`, []string{"Content-Type: application/json", "Content-Type: application/x-www-form-urlencoded"}, 415, "bad_request", "once"},
		{"POST", "s/m/acme", `{"title":"a"}`, []string{"Content-Type:", "Content-Type: text/x"}, 415, "bad_request", ""},
		{"POST", "s/m/acme", `{"title":"a"}`, []string{"Content-Encoding: identity", "Content-Encoding: gzip"}, 415, "bad_request", ""},
		{"POST", "s/m/acme", `{"title":"a"}`, []string{"Content-Type: application/json; charset=utf-7"}, 415, "bad_request", ""},
		{"POST", "s/m/acme", `{"title":"a"}`, []string{"Content-Type: application/json; charset=UTF-8"}, 200, "", ""},
		{"GET", "s/head", ``, []string{"X-Of: a"}, 200, "", ""},
		{"GET", "s/head", ``, []string{"X-Of: a", "Connection: X-Of"}, 400, "bad_params", "params.X-Of"},
		{"GET", "s/head", ``, []string{"X-Of: a", "Connection: close", "Connection: x, x-of"}, 400, "bad_params", "params.X-Of"},
		{"GET", "s/head", ``, []string{"X-Of: a " + g.keys["k"]}, 400, "bad_params", "params.X-Of"},
		{"DELETE", "s/m/acme", ``, nil, 200, "", ""},
		{"DELETE", "s/m/acme", `{}`, nil, 400, "bad_params", "no body"},
		{"DELETE", "s/m/acme", ``, []string{"Transfer-Encoding: chunked"}, 200, "", ""},
		{"GET", "s/find/5?on=true&q=7&many=1", ``, []string{"X-Trace: 9"}, 200, "", ""},
		{"GET", "s/find/5", ``, []string{"X-Trace: 9", "X-Trace: 8"}, 400, "bad_params", "params.X-Trace"},
		{"POST", "s/chat", `whatever`, []string{"Content-Type: text/x"}, 200, "", ""},
	} {
		before := len(g.ledger.all())
		raw := g.proxied(c.method, c.sent, "k", c.body, c.header...)
		if slices.Contains(c.header, "Transfer-Encoding: chunked") {
			raw += "0\r\n\r\n"
		}
		res, body := g.send(raw)
		if res.StatusCode != c.status || res.Header.Get("Agentgate-Code") != c.code || !strings.Contains(body, c.says) {
			t.Errorf("%s %s %s: %s %s", c.method, c.sent, c.body, res.Status, body)
		}
		records := g.ledger.all()[before:]
		if want := commitment(records[0], c.sent, c.body); c.status != 415 && records[0].Params.Hash != want {
			t.Errorf("%s %s %s: its parameters are %+v, want %s", c.method, c.sent, c.body, records[0].Params, want)
		}
		got := w.take()
		if (len(got) == 1) != (c.status == 200) {
			t.Fatalf("%s %s %s: arrived as %q", c.method, c.sent, c.body, got)
		}
		if c.status != 200 {
			continue
		}
		if _, arrived, _ := strings.Cut(got[0], "\r\n\r\n"); arrived != c.body {
			t.Errorf("%s %s: the body arrived as %q", c.method, c.sent, arrived)
		}
		if n := records[len(records)-1].In; n != int64(len(c.body)) {
			t.Errorf("%s %s %s: %d bytes came in", c.method, c.sent, c.body, n)
		}
	}
}

// commitment is the hash of what a call by /proxy had: its target below the service
// and, of POST /m/, its body.
func commitment(r receipts.Record, sent, body string) string {
	_, target, _ := strings.Cut(sent, "/")
	text := "/" + target
	if strings.HasPrefix(target, "m/") && r.Action == "make" {
		text += "\n" + body
	}
	salt, key, _ := (&salts{}).Salt(r.Tenant, r.ID)
	return receipts.HashParams(salt, key, []byte(text)).Hash
}
