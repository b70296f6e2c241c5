package gateway

import (
	"strings"
	"testing"
)

func TestParseAct(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"whole", `{"service":"a","action":"b","on_behalf_of":"u","params":{"x":1}}`, ""},
		{"least", `{"service":"a","action":"b"}`, ""},
		{"not an object", `[]`, "one JSON object"},
		{"empty", ``, "one JSON object"},
		{"twice", `{"service":"a","service":"b","action":"c"}`, "not valid near byte"},
		{"twice inside", `{"service":"a","action":"c","params":{"x":1,"x":2}}`, "not valid near byte"},
		{"case twin", `{"service":"a","Service":"b","action":"c"}`, "unknown member"},
		{"lone surrogate", `{"service":"a","action":"c","params":{"x":"\ud800"}}`, "not valid near byte"},
		{"bad utf-8", "{\"service\":\"a\xff\",\"action\":\"c\"}", "not UTF-8"},
		{"NUL", `{"service":"a\u0000","action":"c"}`, "control characters"},
		{"after", `{"service":"a","action":"b"} {}`, "after the JSON object"},
		{"cut", `{"service":"a","action":"b"`, "JSON"},
		{"number", `{"service":1,"action":"b"}`, "service must be a string"},
		{"no service", `{"action":"b"}`, "service is missing"},
		{"no action", `{"service":"b"}`, "action is missing"},
		{"params", `{"service":"a","action":"b","params":[]}`, "params must be an object"},
		{"nobody", `{"service":"a","action":"b","on_behalf_of":""}`, "on_behalf_of is empty"},
		{"long", `{"service":"` + strings.Repeat("a", 257) + `","action":"b"}`, "longer than"},
		{"deep", `{"service":"a","action":"b","params":` + strings.Repeat(`{"a":`, 20000) + `1` + strings.Repeat(`}`, 20001), "not valid"},
	} {
		_, err := parseAct([]byte(c.body))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: refused: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
}

func FuzzParseAct(f *testing.F) {
	f.Add([]byte(`{"service":"a","action":"b","params":{"n":9007199254740993}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := parseAct(raw)
		if err == nil && (a.Service == "" || a.Action == "" || len(a.Service) > 256) {
			t.Errorf("accepted %q as %+v", raw, a)
		}
	})
}
