package registry_test

import (
	"net/url"
	"path"
	"strings"
	"testing"

	"agentgw/internal/registry"
)

const relayed = `
version: 1
services:
  s:
    base_url: http://u.example:81/base/v1
    passthrough: true
    actions:
      one: {method: GET, path: "/x/{id}", params: {id: string, q: "string?", n: "int?", many: "array?"}}
      all: {method: GET, path: "/x/all", params: {}}
      file: {method: GET, path: "/f/{a}-{b}.json", params: {a: string, b: string}}
      deep: {method: GET, path: "/d/{a}/e/{b}", params: {a: string, b: {type: [integer, boolean]}}}
      make: {method: GET, path: "/m/{id}", params: {id: string}}
`

// FuzzRelay: what goes out is what came, byte for byte, at the service's host and below
// its base path, however often somebody decodes it and whatever he takes for a slash; and an
// action that it is said to be would make the same request of the parameters that it is
// said to have.
func FuzzRelay(f *testing.F) {
	for _, seed := range []string{
		"", "/", "/x/1", "/x/%2F", "/x/%61ll", "/x/..", "/x/%2e%2E", "/x/%252e%252e/y", "/x/..;a", "/x/a%2F..%2Fb", "/x/%5c..%5c", "/x//y", "/x/%00", "/f/a-b.json", "/f/a-b-c.json", "/f/-.json", "/d/a/e/5",
		"/d/a/e/true", "/d/a/e/05", "/m/%ff", "/x/%e4%b8%ad", "@evil.example/", "//evil.example", "/\\evil.example", "/x?y", "/x#y", ":80", "/%zz", "/x/{id}", "/x/;/..;", "/x/%3b/..%3bq",
	} {
		f.Add(seed, "")
		f.Add(seed, "?q=a%2Bb+c&n=7&many=1&many=2")
	}
	for _, query := range []string{"?", "?&&", "?q", "?q=1;n=2", "?q=%zz", "?n=x", "?Q=1", "?#", "? ", "?q=1&q=2", "?%71=1"} {
		f.Add("/x/1", query)
	}
	snapshot, err := registry.Parse("registry.yaml", []byte(relayed))
	if err != nil {
		f.Fatal(err)
	}
	s := snapshot.Services["s"]
	anyone := func(string) bool { return true }
	f.Fuzz(func(t *testing.T, sent, query string) {
		if query != "" && query[0] != '?' {
			query = "?" + query
		}
		target, err := s.Relay("GET", sent, query)
		if (err == nil) != (registry.CheckTarget(sent, strings.TrimPrefix(query, "?")) == nil) {
			t.Fatalf("%q %q: it is refused at one step and not at another: %v", sent, query, err)
		}
		if err != nil {
			return
		}
		u := target.URL
		if got, want := u.RequestURI(), "/base/v1"+sent+query; got != want || u.Host != "u.example:81" || u.Scheme != "http" || u.User != nil || u.Fragment != "" {
			t.Fatalf("%q %q went out as %q to %q", sent, query, got, u.Host)
		}
		for plain, i := u.EscapedPath(), 0; i < 6; i++ {
			slashes := strings.ReplaceAll(plain, "\\", "/")
			var segments []string
			for segment := range strings.SplitSeq(slashes, "/") {
				before, _, _ := strings.Cut(segment, ";")
				segments = append(segments, before)
			}
			if clean := path.Clean(strings.Join(segments, "/")); clean != "/base/v1" && !strings.HasPrefix(clean, "/base/v1/") {
				t.Fatalf("%q leads to %q for who decodes %d times", sent, clean, i)
			}
			if plain, err = url.PathUnescape(plain); err != nil {
				break
			}
		}
		action, err := s.Match("GET", sent, anyone)
		if err != nil || action == nil {
			return
		}
		params, err := action.Carried(registry.Sent{Path: sent, Query: strings.TrimPrefix(query, "?")})
		if err != nil {
			return
		}
		built, err := action.Target(params)
		if err != nil {
			t.Fatalf("%q %q has the parameters %s of %s, of which there is no request: %v", sent, query, params, action.Name, err)
		}
		if built.URL.Path != u.Path || strings.Count(built.URL.EscapedPath(), "/") != strings.Count(u.EscapedPath(), "/") {
			t.Fatalf("%q has the parameters %s of %s, which make %q", sent, params, action.Name, built.URL.EscapedPath())
		}
		a, b := u.Query(), built.URL.Query()
		for name := range a {
			if strings.Join(a[name], "\x00") != strings.Join(b[name], "\x00") {
				t.Fatalf("%q has the parameters %s, which make %q", query, params, built.URL.RawQuery)
			}
		}
	})
}
