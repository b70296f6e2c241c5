package registry_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/registry"
)

// TestJSONOfPrograms: every escape that JSON has is read (RFC 8259, section 7).
func TestJSONOfPrograms(t *testing.T) {
	s, err := registry.Parse("r.json", []byte("\n\t"+`{"version":1,"services":{"a":{"base_url":"https:\/\/u.example\/v1","actions":{"x":{"method":"GET","path":"\/x",
	"params":{"\ud83d\ude00":{"type":"string","enum":["\u00e9\ud83d\ude00\/"],"required":false}}}}}}}`+"\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	a := s.Services["a"]
	p := a.Actions["x"].Params()[0]
	if a.BaseURL.String() != "https://u.example/v1" || a.Actions["x"].Path() != "/x" || p.Name != "😀" || string(p.Schema) != `{"type":"string","enum":["é😀/"]}` {
		t.Errorf("%v %v %s", a.BaseURL, p.Name, p.Schema)
	}
	if a.Pos.Line != 2 || a.Pos.Column != 27 || a.Actions["x"].Pos.Column != 80 {
		t.Errorf("%+v %+v", a.Pos, a.Actions["x"].Pos)
	}
	if _, err := registry.Parse("r.json", []byte(`{"version": 1, "x": "\ud83d"}`)); err == nil || !strings.Contains(err.Error(), "not sound YAML") {
		t.Errorf("half a letter: %v", err)
	}
}

// TestJSONOfProgramsIsAsStrict: where the escapes leave YAML no say.
func TestJSONOfProgramsIsAsStrict(t *testing.T) {
	_, err := registry.Parse("r.json", []byte("{\"version\":1,\n \"version\":1, \"Server\":{}, \"server\":{\"a\\/b\":null}, \"services\":{\"a\":{\"base_url\":7,\"timeout\":\"30\"}}}"))
	want := `r.json:2:2: version: is given twice; the first is at 1:2
r.json:2:15: Server: unknown key; did you mean server?
r.json:2:28: server: differs only by case from "Server" at 2:15
r.json:2:80: services.a.base_url: does not begin with http:// or https://
r.json:2:92: services.a.timeout: "30" has no unit: write 250ms, 30s or 10m`
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

// TestJSONIsReadAsYAMLIs: with the same strictness and the same places. A comment
// makes YAML of any JSON.
func TestJSONIsReadAsYAMLIs(t *testing.T) {
	for _, file := range []string{
		`{}`, `{"version":1}`, ` {"version" : "1", "server":{"rate_key_rps":2}} `, `{"version":2}`, `{"version":1,"version":1}`, `{"a":1,"A":2}`,
		"{\n  \"ä\": {\"é\": [1, 2,\n\t3]}, \"bogus\": null,\n\"server\": {\"x\": null, \"X\": true, \"y\": [], \"z\": {}}\n}",
		"{\"keys\":[{},{\"id\":\"a b\"},[],\n1],\"tenants\":{\"t\":{\"rps\":1e3,\"burst\":\"3\",\"weight\":-1,\"max_inflight\":1.0}}}",
		`{"services":{"a":{"base_url":"http://u.example","timeout":30,"passthrough":"true","allow_private":false,"rate_limit":{"rps":0.5}}}}`,
		`{"services":{"a":{"base_url":"http://u.example","actions":{"x":{"method":"GET","path":"/","params":{"p":{"type":"integer","minimum":-1.5e2,"maxLenght":1}}}}}}}`,
		`{"":1,"<<":{"a":1},"~":2,"null":3}`, `{"version":1}{"version":1}`, `{"version":1,}`, `{version: 1}`, `{"version":01}`, `{'version':1}`,
	} {
		asJSON, err := registry.Parse("f", []byte(file))
		asYAML, want := registry.Parse("f", []byte(file+"\n#"))
		if (err == nil) != (want == nil) || err != nil && err.Error() != want.Error() {
			t.Errorf("%s\n got %v\nwant %v", file, err, want)
		}
		if err == nil {
			if diff := cmp.Diff(asYAML.Server, asJSON.Server); diff != "" {
				t.Error(diff)
			}
		}
	}
}
