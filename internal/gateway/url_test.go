package gateway_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

const urlRegistry = `
version: 1
services:
  s:
    base_url: %[1]s/base
    allow_private: true
    actions:
      queue: {method: GET, path: "/q/{vhost}/jobs", params: {vhost: {type: [string, number, boolean]}}}
      file: {method: GET, path: "/f/{id}.json", params: {id: string}}
      pair: {method: GET, path: "/f/{a}-{b}", params: {a: string, b: string}}
      report: {method: GET, path: "/reports/{id}", params: {id: string}}
      find: {method: GET, path: /s, params: {q: string, list: "array?", "a b": "string?"}}
      both: {method: DELETE, path: "/d/{id}", params: {id: string, why: string}}
      make: {method: POST, path: "/m/{id}", params: {id: string, page: {type: integer, in: query, required: false}, text: "string?"}}
`

// call is the JSON of an act on the service s.
func call(t *testing.T, action string, params map[string]any) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{"service": "s", "action": action, "params": params})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// target returns the method and the target of the one request that arrived.
func target(t *testing.T, w *wire) string {
	t.Helper()
	got := w.take()
	if len(got) != 1 {
		t.Fatalf("%d requests arrived: %q", len(got), got)
	}
	line := lines(got[0])[0]
	return strings.TrimSuffix(line, " HTTP/1.1")
}

// TestPathOnTheWire: a value is one segment of the path, byte for byte as
// written here, and an upstream that decodes it has what the caller gave.
func TestPathOnTheWire(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	g := wired(t, w, urlRegistry)
	for value, want := range map[string]string{
		"/": "%2F", "%2F": "%252F", "%2f": "%252f", "a/b": "a%2Fb", "a%2Fb": "a%252Fb", "//": "%2F%2F", "a/": "a%2F", "jobs%2F": "jobs%252F",
		"%20": "%2520", "%25": "%2525", "%252F": "%25252F", "%": "%25", "%zz": "%25zz", "%2": "%252",
		"a+b": "a%2Bb", "a b": "a%20b", "a&c=d": "a%26c%3Dd", "é": "%C3%A9", "a#b": "a%23b", "a?b": "a%3Fb", "a;b": "a%3Bb", "a:b@c": "a%3Ab%40c",
		"//evil.example/x": "%2F%2Fevil.example%2Fx", "@evil.example": "%40evil.example", "http://evil": "http%3A%2F%2Fevil",
		"{vhost}": "%7Bvhost%7D", "${HOME}": "%24%7BHOME%7D", "...": "...", "..a": "..a", "~a-b_c.d": "~a-b_c.d",
		"\u2025": "%E2%80%A5", "\uff0e\uff0e": "%EF%BC%8E%EF%BC%8E", "\U0001f600": "%F0%9F%98%80",
		strings.Repeat("é/", 5000): strings.Repeat("%C3%A9%2F", 5000),
	} {
		if res := g.act("k", call(t, "queue", map[string]any{"vhost": value})); res.status != 200 {
			t.Errorf("%.80q: %d %s", value, res.status, res.body)
			w.take()
			continue
		}
		got := target(t, w)
		if got != "GET /base/q/"+want+"/jobs" {
			t.Errorf("%.80q arrived as %.200s", value, got)
		}
		segments := strings.Split(strings.TrimPrefix(got, "GET "), "/")
		if decoded, err := url.PathUnescape(segments[3]); len(segments) != 5 || err != nil || decoded != value {
			t.Errorf("%.80q is %.80q to the upstream", value, decoded)
		}
	}
	for value, want := range map[string]string{"12345678901234567890": "12345678901234567890", "1.50": "1.50", "true": "true"} {
		if res := g.act("k", `{"service":"s","action":"queue","params":{"vhost":`+value+`}}`); res.status != 200 {
			t.Errorf("%s: %d %s", value, res.status, res.body)
		}
		if got := target(t, w); got != "GET /base/q/"+want+"/jobs" {
			t.Errorf("%s arrived as %s", value, got)
		}
	}
}

// TestPathNeverClimbs: what could lead out of the action's path is refused
// before the upstream hears of it.
func TestPathNeverClimbs(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	g := wired(t, w, urlRegistry)
	for _, value := range []string{
		"", ".", "..", "/./", "../payroll", "./../payroll", "%2e%2e/payroll", ".%2E/payroll", "%2E%2e%2Fpayroll", "%252e%252e%252fpayroll", "..//payroll", "/../payroll",
		"..;/payroll", "..;a=b/payroll", "..%3b/payroll", "..\\payroll", "..%5Cpayroll", "\x00", "a\x00", "a\r\nX-Evil: 1", "a\nb", "\t", "\x7f",
	} {
		res := g.act("k", call(t, "report", map[string]any{"id": value}))
		if res.status != 400 || res.code != "bad_params" || !strings.Contains(res.body, "params.id") {
			t.Errorf("%q: %d %s", value, res.status, res.body)
		}
	}
	for _, params := range []string{
		`{}`, `{"id":null}`, `{"id":["a"]}`, `{"id":{}}`, `{"id":"a","ID":"b"}`, `{"id":"a","path":"/payroll"}`, `{"id":"a","host":"evil"}`, `{"id":"\ud800"}`,
	} {
		if res := g.act("k", `{"service":"s","action":"report","params":`+params+`}`); res.status != 400 {
			t.Errorf("%s: %d %s", params, res.status, res.body)
		}
	}
	if got := w.take(); len(got) > 0 {
		t.Errorf("the upstream saw %q", got)
	}
}

// TestQueryOnTheWire: a value is one value of the query, and no text in it
// makes a second parameter.
func TestQueryOnTheWire(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	g := wired(t, w, urlRegistry)
	for value, want := range map[string]string{
		"": "", "a+b": "a%2Bb", "a%2Bb": "a%252Bb", "a b": "a%20b", "a%20b": "a%2520b", "a&c=d": "a%26c%3Dd", "%C3%A9": "%25C3%25A9", "é": "%C3%A9", "a#b": "a%23b",
		"read;tool=delete": "read%3Btool%3Ddelete", "%x&b=1": "%25x%26b%3D1", "../..": "..%2F..", "\x00\r\n": "%00%0D%0A", "?": "%3F", "[]": "%5B%5D",
		strings.Repeat("&", 10000): strings.Repeat("%26", 10000),
	} {
		if res := g.act("k", call(t, "find", map[string]any{"q": value})); res.status != 200 {
			t.Errorf("%.80q: %d %s", value, res.status, res.body)
			w.take()
			continue
		}
		got := target(t, w)
		if got != "GET /base/s?q="+want {
			t.Errorf("%.80q arrived as %.200s", value, got)
		}
		_, raw, _ := strings.Cut(got, "?")
		query, err := url.ParseQuery(raw)
		if err != nil || len(query) != 1 || len(query["q"]) != 1 || query.Get("q") != value {
			t.Errorf("%.80q is %.200q to the upstream (%v)", value, query, err)
		}
	}
	for _, c := range []struct {
		action string
		params map[string]any
		want   string
	}{
		{"find", map[string]any{"q": "1", "list": []any{"x&y", 2, true}, "a b": "="}, "GET /base/s?q=1&list=x%26y&list=2&list=true&a%20b=%3D"},
		{"find", map[string]any{"list": []any{}, "q": "1"}, "GET /base/s?q=1"},
		{"both", map[string]any{"id": "a/b", "why": "no?"}, "DELETE /base/d/a%2Fb?why=no%3F"},
		{"make", map[string]any{"id": "1", "page": 2}, "POST /base/m/1?page=2"},
	} {
		if res := g.act("k", call(t, c.action, c.params)); res.status != 200 {
			t.Errorf("%s: %d %s", c.want, res.status, res.body)
		}
		if got := target(t, w); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// TestTemplatesOnTheWire: variables with something beside them are filled in,
// and no brace reaches the upstream.
func TestTemplatesOnTheWire(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	g := wired(t, w, urlRegistry)
	for _, c := range []struct {
		action string
		params map[string]any
		want   string
	}{
		{"file", map[string]any{"id": "7"}, "GET /base/f/7.json"},
		{"file", map[string]any{"id": "{id}"}, "GET /base/f/%7Bid%7D.json"},
		{"pair", map[string]any{"a": "1", "b": "2"}, "GET /base/f/1-2"},
		{"pair", map[string]any{"a": "{b}", "b": "-"}, "GET /base/f/%7Bb%7D--"},
	} {
		if res := g.act("k", call(t, c.action, c.params)); res.status != 200 {
			t.Errorf("%s: %d %s", c.want, res.status, res.body)
		}
		if got := target(t, w); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// TestOwnPathsAreNeverMended: the gateway's own paths match as they were sent.
// A path that could be read as one of them leads nowhere, without a redirect,
// and a target that is none is refused before it costs a token.
func TestOwnPathsAreNeverMended(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	g := wired(t, w, urlRegistry)
	body := call(t, "find", map[string]any{"q": "1"})
	post := func(target string) (*http.Response, string) {
		return g.send(strings.Replace(g.raw(body), "/v1/act", target, 1))
	}
	other := []string{"/v1/act/", "//v1/act", "/v1//act", "/v1/./act", "/x/../v1/act", "/v1/%61ct", "/v1%2Fact", "/V1/act", "/v1/act;x", "/v1/act%20", "/", "*"}
	for _, target := range other {
		if res, text := post(target); res.StatusCode != 404 || res.Header.Get("Location") != "" {
			t.Errorf("%s: %s %s", target, res.Status, text)
		}
	}
	left := g.limiterLeft("k")
	if spent := 10000 - left; spent != int64(len(other)) {
		t.Errorf("%d paths that lead nowhere cost %d tokens", len(other), spent)
	}
	for _, target := range []string{"/v1/act%", "/v1/act%zz", "/v1/%2", "/v1/a\x01ct", "v1/act", "/v1/act /x"} {
		if res, text := post(target); res.StatusCode != 400 {
			t.Errorf("%q: %s %s", target, res.Status, text)
		}
	}
	if now := g.limiterLeft("k"); now != left {
		t.Errorf("targets that are none cost %d tokens", left-now)
	}
	if got := w.take(); len(got) > 0 {
		t.Errorf("the upstream saw %q", got)
	}
	// A query says nothing here, whoever reads it how.
	if res, text := post("/v1/act?service=payroll;action=x&a=%zz"); res.StatusCode != 200 {
		t.Errorf("with a query: %s %s", res.Status, text)
	}
	if got := target(t, w); got != "GET /base/s?q=1" {
		t.Errorf("with a query: %s", got)
	}
}

// TestIPv6Upstream: an address in brackets is dialled as such, with the
// scheme's own port where it names none, and is in Host with its brackets.
func TestIPv6Upstream(t *testing.T) {
	for _, c := range []struct{ listen, host string }{{"[::1]:0", ""}, {"[::1]:80", "[::1]"}} {
		l, err := net.Listen("tcp", c.listen)
		if err != nil {
			t.Logf("nothing can listen on %s here: %v", c.listen, err)
			continue
		}
		_ = l.Close()
		w := newWire(t, c.listen, says(helloBytes))
		host := c.host
		if host == "" {
			host = w.listener.Addr().String()
		}
		g := setup{registry: strings.ReplaceAll(urlRegistry, "%[1]s", "http://"+host)}.world(t, hello, tireless("k"))
		if res := g.act("k", call(t, "find", map[string]any{"q": "1"})); res.status != 200 {
			t.Fatalf("%s: %d %s", host, res.status, res.body)
		}
		got := lines(w.take()[0])
		if want := fmt.Sprintf("Host: %s", host); got[0] != "GET /base/s?q=1 HTTP/1.1" || got[1] != want || !strings.HasPrefix(host, "[") {
			t.Errorf("%s: %q", host, got)
		}
	}
}
