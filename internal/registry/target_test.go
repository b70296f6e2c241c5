package registry_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/registry"
)

// action declares one action of a service at base.
func action(t testing.TB, base, method, path, params string) *registry.Action {
	t.Helper()
	s, err := registry.Parse("t.yaml", fmt.Appendf(nil,
		"version: 1\nservices:\n  s:\n    base_url: %q\n    actions:\n      go: {method: %s, path: %q, params: %s}\n",
		base, method, path, params))
	if err != nil {
		t.Fatal(err)
	}
	return s.Services["s"].Actions["go"]
}

const anyParam = "{v: {type: [string, number, boolean]}}"

func TestPathValueIsOneSegment(t *testing.T) {
	tests := []struct{ value, want string }{
		{`"jobs"`, "jobs"},
		{`"/"`, "%2F"},
		{`"a/b"`, "a%2Fb"},
		{`"a//b"`, "a%2F%2Fb"},
		{`"%2F"`, "%252F"},
		{`"%252F"`, "%25252F"},
		{`"%2"`, "%252"},
		{`"%2520"`, "%252520"},
		{`"v1%2e0"`, "v1%252e0"},
		{`"%"`, "%25"},
		{`"%zz"`, "%25zz"},
		{`"a b"`, "a%20b"},
		{`"a+b"`, "a%2Bb"},
		{`"a?x=1"`, "a%3Fx%3D1"},
		{`"a#f"`, "a%23f"},
		{`"@evil.example"`, "%40evil.example"},
		{`":80@evil"`, "%3A80%40evil"},
		{`"//evil"`, "%2F%2Fevil"},
		{`"a;b"`, "a%3Bb"},
		{`"a;.."`, "a%3B.."},
		{`"//"`, "%2F%2F"},
		{`"a/"`, "a%2F"},
		{`"..."`, "..."},
		{`"..a"`, "..a"},
		{`"é"`, "%C3%A9"},
		{`"\u00e9"`, "%C3%A9"},
		{`"．．"`, "%EF%BC%8E%EF%BC%8E"},
		{`"{v}"`, "%7Bv%7D"},
		{`"${HOME}"`, "%24%7BHOME%7D"},
		{`"A-Z.a_z~0"`, "A-Z.a_z~0"},
		{`12345678901234567890`, "12345678901234567890"},
		{`1.50`, "1.50"},
		{`-1`, "-1"},
		{`true`, "true"},
	}
	for _, tt := range tests {
		a := action(t, "https://u.example/v1", "GET", "/q/{v}/end", anyParam)
		got, err := a.Target([]byte(`{"v":` + tt.value + `}`))
		if err != nil {
			t.Errorf("%s: %v", tt.value, err)
			continue
		}
		if want := "https://u.example/v1/q/" + tt.want + "/end"; got.URL.String() != want {
			t.Errorf("%s: %s, want %s", tt.value, got.URL, want)
		}
		if got.Body != nil || got.Header != nil || got.Method != "GET" {
			t.Errorf("%s: %+v", tt.value, got)
		}
	}
}

func TestPathValueRefused(t *testing.T) {
	values := []string{
		`""`, `"."`, `".."`, `"../../admin"`, `"a/../b"`, `"a/."`, `"./a"`, `"a/.."`, `"/./"`, `"..//admin"`,
		`"%2e%2e"`, `"%2E"`, `".%2e/admin"`, `"%2e%2E%2fadmin"`, `"%252e%252e"`, `"%25252E."`, `"a%2f..%2Fb"`, `"a%5c..%5Cb"`,
		`"..;"`, `"..;/admin"`, `"..;x=1/admin"`, `"%2e%2e%3badmin"`, `".;"`,
		`"a\\b"`, `"..\\.."`, `"\u0000"`, `"a\r\nHost: evil"`, `"a\nb"`, `"a\tb"`, `"\u007f"`,
		`null`, `[]`, `["a"]`, `{}`,
	}
	for _, v := range values {
		// The schema takes anything, so that the place itself must refuse.
		a := action(t, "https://u.example", "GET", "/q/{v}", "{v: {}}")
		got, err := a.Target([]byte(`{"v":` + v + `}`))
		var refused *registry.ParamError
		if !errors.As(err, &refused) || refused.Param != "v" {
			t.Errorf("%s: %+v, %v", v, got, err)
		}
	}
}

// Dots that only meet in the finished segment are as dangerous as those that
// came together.
func TestPathPartsDoNotMakeDots(t *testing.T) {
	tests := []struct{ path, value string }{
		{"/q/{a}.", "."},
		{"/q/.{a}", "."},
		{"/q/%2e{a}", "."},
		{"/q/.{a}", "%2e"},
		{"/q/..{a}x", ";"},
		{"/q/x{a}..", "/"},
		{"/q/..{a}x", "/"},
		{"/q/x%2f{a}", "."},
	}
	for _, tt := range tests {
		a := action(t, "https://u.example", "GET", tt.path, "{a: string}")
		if got, err := a.Target([]byte(`{"a":"` + tt.value + `"}`)); err == nil {
			t.Errorf("%s: %s", tt.path, got.URL)
		}
		if _, err := a.Target([]byte(`{"a":"x"}`)); err != nil {
			t.Errorf("%s: %v", tt.path, err)
		}
	}
}

func TestTemplates(t *testing.T) {
	tests := []struct{ base, path, params, declared, want string }{
		{"https://u.example", "/f/{id}.json", `{"id":"7"}`, "{id: string}", "https://u.example/f/7.json"},
		{"https://u.example", "/f/{a}-{b}", `{"b":"2","a":"1"}`, "{a: string, b: string}", "https://u.example/f/1-2"},
		{"https://u.example", "/f/{a}-{b}", `{"b":"-","a":"-"}`, "{a: string, b: string}", "https://u.example/f/---"},
		{"https://u.example/", "/x", ``, "{}", "https://u.example/x"},
		{"https://u.example/v1/", "/x/", ``, "{}", "https://u.example/v1/x/"},
		{"https://u.example/v1", "/", ``, "{}", "https://u.example/v1/"},
		{"https://u.example/a%2Fb", "/x", ``, "{}", "https://u.example/a%2Fb/x"},
		{"https://u.example", "/a%2fb/c%20d", ``, "{}", "https://u.example/a%2fb/c%20d"},
		{"https://u.example", "/v1:batch/a,b;c=d", ``, "{}", "https://u.example/v1:batch/a,b;c=d"},
		{"http://[2001:db8::5]:8080/x", "/y", ``, "{}", "http://[2001:db8::5]:8080/x/y"},
		{"http://[::1]", "/y", ``, "{}", "http://[::1]/y"},
		{"https://U.Example:8443", "/y", ``, "{}", "https://U.Example:8443/y"},
	}
	for _, tt := range tests {
		got, err := action(t, tt.base, "GET", tt.path, tt.declared).Target([]byte(tt.params))
		if err != nil {
			t.Errorf("%s%s: %v", tt.base, tt.path, err)
		} else if got.URL.String() != tt.want {
			t.Errorf("%s%s: %s, want %s", tt.base, tt.path, got.URL, tt.want)
		}
	}
}

func TestQuery(t *testing.T) {
	const declared = `{q: {}, n: {type: number, required: false}, list: {type: array, required: false}, "a&b": "string?"}`
	tests := []struct{ params, want string }{
		{`{"q":"a+b"}`, "q=a%2Bb"},
		{`{"q":"a%2Bb"}`, "q=a%252Bb"},
		{`{"q":"a b"}`, "q=a%20b"},
		{`{"q":"a&c=d"}`, "q=a%26c%3Dd"},
		{`{"q":"é#b"}`, "q=%C3%A9%23b"},
		{`{"q":""}`, "q="},
		{`{"q":"a;b"}`, "q=a%3Bb"},
		{`{"q":"{n}"}`, "q=%7Bn%7D"},
		{`{"n":1.50,"q":true}`, "q=true&n=1.50"},
		{`{"list":["x","y z",3],"q":"1"}`, "q=1&list=x&list=y%20z&list=3"},
		{`{"list":[],"q":"1"}`, "q=1"},
		{`{"q":"1","a&b":"="}`, "q=1&a%26b=%3D"},
	}
	for _, method := range []string{"GET", "HEAD", "DELETE"} {
		a := action(t, "https://u.example", method, "/s", declared)
		for _, tt := range tests {
			got, err := a.Target([]byte(tt.params))
			if err != nil {
				t.Errorf("%s: %v", tt.params, err)
			} else if got.URL.RawQuery != tt.want || got.Body != nil {
				t.Errorf("%s: %s %s, want %s", tt.params, got.URL.RawQuery, got.Body, tt.want)
			}
		}
		for _, params := range []string{`{"q":null}`, `{"q":{}}`, `{"q":"","list":[[1]]}`, `{"q":"","list":[{}]}`, `{"q":"","list":[null]}`} {
			if got, err := a.Target([]byte(params)); err == nil {
				t.Errorf("%s: %s", params, got.URL)
			}
		}
	}
}

func TestBodyKeepsItsBytes(t *testing.T) {
	a := action(t, "https://u.example", "POST", "/r/{repo}", `{repo: string, title: string, n: "number?", tags: "array?", deep: "object?", X-Trace: {type: string, in: header, required: false}, page: {type: integer, in: query, required: false}}`)
	tests := []struct{ params, url, body string }{
		{`{"repo":"a","title":"\u00e9 {repo} ${HOME}"}`, "/r/a", `{"title":"\u00e9 {repo} ${HOME}"}`},
		{`{"n":1.50e+2,"repo":"a","title":"t"}`, "/r/a", `{"title":"t","n":1.50e+2}`},
		{`{"repo":"a","title":"t","n":123456789012345678901234567890}`, "/r/a", `{"title":"t","n":123456789012345678901234567890}`},
		{`{"repo":"a","title":"t","tags":[ 1,  "a" ],"deep":{"b":1, "a":2}}`, "/r/a", `{"title":"t","tags":[ 1,  "a" ],"deep":{"b":1, "a":2}}`},
		{` { "repo" : "a" , "title" : "t" , "page" : 2 } `, "/r/a?page=2", `{"title":"t"}`},
	}
	for _, tt := range tests {
		params := []byte(tt.params)
		got, err := a.Target(params)
		if err != nil {
			t.Errorf("%s: %v", tt.params, err)
			continue
		}
		for i := range params { // the target must not share the caller's memory
			params[i] = 'x'
		}
		if got.URL.RequestURI() != tt.url || string(got.Body) != tt.body {
			t.Errorf("%s: %s %s", tt.params, got.URL.RequestURI(), got.Body)
		}
		if diff := cmp.Diff(http.Header{"Content-Type": {"application/json"}}, got.Header); diff != "" {
			t.Error(diff)
		}
	}
	// Without a body parameter there is no body; with only optional ones there
	// is an empty object, since the service expects JSON.
	if got, err := action(t, "https://u.example", "POST", "/r/{a}", "{a: string}").Target([]byte(`{"a":"1"}`)); err != nil || got.Body != nil || got.Header != nil {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := action(t, "https://u.example", "POST", "/r", `{a: "string?"}`).Target(nil); err != nil || string(got.Body) != "{}" {
		t.Errorf("%+v %v", got, err)
	}
}

func TestHeaderParameters(t *testing.T) {
	a := action(t, "https://u.example", "GET", "/x", "{x-trace-id: {in: header}}")
	got, err := a.Target([]byte(`{"x-trace-id":"a b é"}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(http.Header{"X-Trace-Id": {"a b é"}}, got.Header); diff != "" || got.URL.RawQuery != "" {
		t.Error(diff, got.URL)
	}
	for _, v := range []string{`"a\r\nX-Evil: 1"`, `"a\nb"`, `"\u0000"`, `"\u007f"`, `"\u0085"`, `"\t"`, `" a"`, `"a "`, `null`, `["a"]`, `{}`} {
		if got, err := a.Target([]byte(`{"x-trace-id":` + v + `}`)); err == nil {
			t.Errorf("%s: %q", v, got.Header)
		}
	}
}

// TestLargeParameters: what a schema asks nothing of costs no more than its bytes,
// whatever it holds, and what it asks about is bounded.
func TestLargeParameters(t *testing.T) {
	a := action(t, "https://u.example", "POST", "/r", `{text: "string?", list: "array?", any: "object?", numbers: {type: array, items: {type: number, description: n}, required: false},
		whole: {type: array, items: {type: integer}, required: false}, held: {type: object, additionalProperties: {type: number}, required: false},
		few: {type: array, maxItems: 3, items: {type: number}, required: false}}`)
	row := `{"a":1,"b":[2,"x"]}`
	for name, value := range map[string]string{
		"text": `"` + strings.Repeat("x", 2_000_000) + `"`, "list": "[" + strings.Repeat(row+",", 100_000) + row + "]", "any": `{"rows":[` + strings.Repeat(row+",", 100_000) + row + "]}",
		"numbers": "[" + strings.Repeat("-0.125,", 300_000) + "1e9]", "whole": "[" + strings.Repeat("4711,", 400_000) + "0]",
	} {
		var before, after runtime.MemStats
		params := []byte(`{"` + name + `":` + value + `}`)
		runtime.ReadMemStats(&before)
		got, err := a.Target(params)
		runtime.ReadMemStats(&after)
		if err != nil || !bytes.Equal(got.Body, params) {
			t.Errorf("%s: %v", name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 3*uint64(len(params))/2 { // the body is a copy
			t.Errorf("%s: %d bytes took %d", name, len(params), took)
		}
	}
	members := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"%d":0`, i)
		}
		return `{"held":{` + b.String()[1:] + `}}`
	}
	const many = "holds more than 100000 values and names of members, which is more than a schema is asked about"
	for _, tt := range []struct{ params, want string }{
		{members(49_999), ""},
		{members(50_000), "params.held: " + many},
		{`{"few":[` + strings.Repeat("1,", 200_000) + `1]}`, "params.few: " + many},
		{`{"numbers":[1,"x"]}`, "params.numbers: /1 must be number, not string"},
		{`{"numbers":[1,1e999999]}`, "params.numbers: holds a number that is too long"},
		{`{"numbers":{"0":1}}`, "params.numbers: must be array, not object"},
		{`{"whole":[1,2.0,30000000000000000000]}`, ""},
		{`{"whole":[1,2.5]}`, "params.whole: /1 must be integer, not number"},
		{`{"few":[1,2,3,4]}`, "params.few: maxItems: got 4, want 3"},
		{`{"list":{}}`, "params.list: must be array, not object"},
		{`{"any":[]}`, "params.any: must be object, not array"},
	} {
		_, err := a.Target([]byte(tt.params))
		if got := fmt.Sprint(err); tt.want == "" && err != nil || tt.want != "" && got != tt.want {
			t.Errorf("%.40s: %s, want %s", tt.params, got, tt.want)
		}
	}
}

func TestParamErrors(t *testing.T) {
	a := action(t, "https://u.example", "GET", "/r/{owner}",
		`{owner: string, state: {type: string, enum: [open, closed], required: false}, n: "int?", mail: {type: string, format: email, required: false}, code: {type: string, pattern: "^[a-z]+$", required: false}, list: {type: array, items: {type: integer, maximum: 5}, required: false}}`)
	deep := strings.Repeat("[", 65) + strings.Repeat("]", 65)
	tests := []struct{ params, want string }{
		{``, "params.owner: is missing"},
		{`{}`, "params.owner: is missing"},
		{`null`, "params: must be an object"},
		{`[]`, "params: must be an object"},
		{`"a"`, "params: must be an object"},
		{`{"owner":"a","Owner":"b"}`, "params.Owner: is not a parameter of this action"},
		{`{"owner":"a","x":1}`, "params.x: is not a parameter of this action"},
		{`{"owner":"a","owner":"b"}`, "params.owner: is given twice"},
		{`{"owner":"a","own\u0065r":"b"}`, "params.owner: is given twice"},
		{`{"owner":1}`, "params.owner: must be string, not number"},
		{`{"owner":"a","n":1.5}`, "params.n: must be integer, not number"},
		{`{"owner":"a","n":"1"}`, "params.n: must be integer, not string"},
		{`{"owner":"a","n":1e999999999}`, "params.n: holds a number that is too long"},
		{`{"owner":"a","n":1` + strings.Repeat("0", 500) + `}`, "params.n: holds a number that is too long"},
		{`{"owner":"a","state":"shut"}`, "params.state: value must be one of 'open', 'closed'"},
		{`{"owner":"a","mail":"s3cr3t"}`, "params.mail: is not a valid email"},
		{`{"owner":"a","code":"S3CR3T"}`, "params.code: does not match the pattern ^[a-z]+$"},
		{`{"owner":"a","list":[1,9]}`, "params.list: /1 maximum: got 9, want 5"},
		{`{"owner":"a","list":[1e999999]}`, "params.list: holds a number that is too long"},
		{`{"owner":"a","list":` + deep + `}`, "params.list: nests deeper than 64"},
		{`{"owner":"a"} {}`, "params: something follows the object"},
		{`{"owner":"a"}x`, "params: something follows the object"},
		{`{"owner":"` + "\xff" + `"}`, "params: is not sound JSON at byte 10: invalid UTF-8"},
		{`{"owner":"` + "\xc0\xae" + `"}`, "params: is not sound JSON at byte 10: invalid UTF-8"},
		{`{"owner":"\ud800"}`, `params: is not sound JSON at byte 10: invalid surrogate pair ` + "`" + `\ud800"}` + "` in string"},
		{`{"owner":"a",}`, "params: is not sound JSON at byte 12: invalid character ',' at start of value"},
		{`{"owner":01}`, "params.owner: must be string, not number"},
		{`{"owner":"a"`, "params: is not sound JSON at byte 12: unexpected EOF"},
		{`{"owner":NaN}`, "params: is not sound JSON at byte 9: invalid character 'N' at start of value"},
		{`{"owner":"a", // x` + "\n}", "params: is not sound JSON at byte 14: invalid character '/' at start of value"},
		{`{"` + strings.Repeat("é", 50) + `":1}`, "params." + strings.Repeat("é", 32) + "...: is not a parameter of this action"},
	}
	for _, tt := range tests {
		got, err := a.Target([]byte(tt.params))
		var refused *registry.ParamError
		if !errors.As(err, &refused) {
			t.Errorf("%s: %+v, %v", tt.params, got, err)
		} else if err.Error() != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.params, err, tt.want)
		}
	}
	if _, err := a.Target([]byte(`{"owner":"a","n":1.0,"state":"open","list":[5]}`)); err != nil {
		t.Error(err) // 1.0 is an integer to JSON Schema
	}
}

// TestUpstreamSeesWhatWasChecked sends targets over a real socket.
func TestUpstreamSeesWhatWasChecked(t *testing.T) {
	type seen struct{ uri, q string }
	requests := make(chan seen, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requests <- seen{r.RequestURI, r.URL.Query().Get("q")}
	}))
	defer server.Close()
	a := action(t, server.URL+"/base", "GET", "/q/{vhost}/{name}", "{vhost: string, name: string, q: string}")
	for _, term := range []string{"a+b", "a b", "a&c=d", "é", "a#b", "%2B", "/", "a;b", "x=y"} {
		quoted := fmt.Sprintf("%q", term)
		target, err := a.Target([]byte(`{"vhost":` + quoted + `,"name":"jobs","q":` + quoted + `}`))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultTransport.RoundTrip(&http.Request{Method: target.Method, URL: target.URL, Header: http.Header{}})
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		got := <-requests
		if got.q != term || got.uri != target.URL.RequestURI() {
			t.Errorf("%q arrived as %+v, built as %s", term, got, target.URL.RequestURI())
		}
		segments := strings.Split(strings.TrimPrefix(strings.SplitN(got.uri, "?", 2)[0], "/base/q/"), "/")
		if vhost, err := url.PathUnescape(segments[0]); len(segments) != 2 || err != nil || vhost != term {
			t.Errorf("%q arrived in segments %q", term, segments)
		}
	}
}

// FuzzTarget: whatever the parameters, the request stays under the base path
// of its service and has the template's segments.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{
		`{"a":"x","b":"y"}`, `{"a":"..","b":"%2e"}`, `{"a":"@evil.example/","b":"\\"}`, `{"a":"a","b":"b","q":["&","="]}`,
		`{"a":"a","b":"b","h":"x\r\n"}`, `{"a":".","b":"."}`, `{"a":1e5,"b":true}`, `{"a":"a","b":"b","q":{"x":1}}`, `{`, ``,
	} {
		f.Add([]byte(s))
	}
	a := action(f, "https://u.example:8443/v1/base", "GET", "/r/{a}/.{b}.", "{a: {}, b: {}, q: {type: [string, number, array, boolean], required: false}, h: {in: header, required: false}}")
	f.Fuzz(func(t *testing.T, params []byte) {
		got, err := a.Target(params)
		if err != nil {
			var refused *registry.ParamError
			if !errors.As(err, &refused) {
				t.Fatalf("%T", err)
			}
			return
		}
		// Read as an upstream would, from the wire form alone.
		u, err := url.Parse(got.URL.String())
		if err != nil || u.Scheme != "https" || u.Host != "u.example:8443" || u.User != nil || u.Fragment != "" {
			t.Fatalf("%s: %v", got.URL, err)
		}
		segments := strings.Split(u.EscapedPath(), "/")
		if len(segments) != 6 || !strings.HasPrefix(u.EscapedPath(), "/v1/base/r/") {
			t.Fatalf("%q", segments)
		}
		for _, s := range segments {
			decoded, err := url.PathUnescape(s)
			if err != nil {
				t.Fatal(err)
			}
			again, err := url.PathUnescape(decoded) // as some do by mistake
			if err != nil {
				again = ""
			}
			for part := range strings.FieldsFuncSeq(decoded+"/"+again, func(r rune) bool { return r == '/' || r == '\\' }) {
				if part == "." || part == ".." {
					t.Fatalf("%q climbs where it is decoded early or twice", segments)
				}
			}
		}
		for name := range u.Query() {
			if name != "q" {
				t.Fatalf("a query parameter %q of nobody's", name)
			}
		}
		for name, values := range got.Header {
			if name != "H" || len(values) != 1 || strings.ContainsAny(values[0], "\r\n\x00") {
				t.Fatalf("%q", got.Header)
			}
		}
	})
}

func BenchmarkTarget(b *testing.B) {
	a := action(b, "https://api.github.com", "GET", "/repos/{owner}/{repo}/issues", `{owner: string, repo: string, state: {type: string, enum: [open, closed, all]}, labels: "string?"}`)
	post := action(b, "https://api.github.com", "POST", "/repos/{owner}/{repo}/issues", "{owner: string, repo: string, title: string}")
	for _, bb := range []struct {
		name   string
		action *registry.Action
		params string
	}{
		{"get", a, `{"owner":"golang","repo":"go","labels":"help wanted","state":"open"}`},
		{"post", post, `{"owner":"golang","repo":"go","title":"a title of some length, as titles go"}`},
		{"refused", post, `{"owner":"golang","repo":"go"}`},
	} {
		b.Run(bb.name, func(b *testing.B) {
			params := []byte(bb.params)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = bb.action.Target(params)
			}
		})
	}
}
