package websocket_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"agentgw/internal/websocket"
)

func TestKind(t *testing.T) {
	for message, want := range map[string]string{
		`{"type":"response.create"}`: "response.create", `{"type":"a","x":{"type":"b","Type":"c","type":"d"}}`: "a", ` { "x" : [1,{"type":2}] , "type" : "a" } `: "a",
		`{"type":"respons\u0065.create"}`: "response.create", `{}`: "", `{"x":1}`: "", `{"typ":"a","types":"b","type ":"c","\u0074ypo":"d"}`: "", `{"x":"\"type\":\"a\"","type":""}`: "",
		"\n\t{\"type\":\"\\n\"}\r\n": "\n", `{"x":1,"x":2,"type":"a"}`: "a", `{"type":"日本"}`: "日本",
	} {
		if got, ok := websocket.Kind([]byte(message)); got != want || !ok {
			t.Errorf("%s: %q %v, want %q for certain", message, got, ok, want)
		}
	}
	for _, message := range []string{
		"", " ", "x", "null", "true", "1", `"type"`, `[]`, `[{"type":"response.create"}]`, `{`, `{"type"`, `{"type":`, `{"type":"a"`, `{"type":"a",}`, `{"type":"a"}x`, `{"type":"a"}{"type":"b"}`, "{\"type\":\"a\"}\n{}", `{type:"a"}`, `{'type':'a'}`,
		`{"type":"a","type":"a"}`, `{"type":"a","type":"b"}`, `{"type":"a","Type":"b"}`, `{"TYPE":"a"}`, `{"tYpe":1,"type":"a"}`, `{"\u0074ype":"a"}`, `{"\u0054ype":"a"}`, `{"type":"a","typ\u0065":"b"}`, `{"ty\u0070\u0065":"b","type":"a"}`,
		`{"type":1}`, `{"type":null}`, `{"type":true}`, `{"type":["response.create"]}`, `{"type":{"a":1}}`, "{\"type\":\"a\"}\x00", "\xef\xbb\xbf{\"type\":\"a\"}", "{\"type\":\"\xff\"}", "{\"a\":\"\xff\",\"type\":\"a\"}", `{"type":"\ud800"}`, `{"\ud800":1,"type":"a"}`,
		`{"type":"a","x":01}`, `{"type":"a"/**/}`, `{"type":"a","x":NaN}`, "{\"type\":\"a\nb\"}", `{"x":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `,"type":"a"}`,
	} {
		if got, ok := websocket.Kind([]byte(message)); ok {
			t.Errorf("%.80q is of kind %q, for certain", message, got)
		}
	}
}

// FuzzKind holds it to another reader: where the kind is certain, encoding/json, which
// takes the last of two names and any letter case, reads the same. It is not asked for
// numbers: one that is too large for it is lawful, and no doubt about the kind.
func FuzzKind(f *testing.F) {
	for _, s := range []string{`{"type":"a"}`, `{"Type":"a","type":"b"}`, `{"\u0074ype":"a"}`, `{"type":1}`, `[]`, `{"x":{"type":"a"},"type":"b"}`, "{\"type\":\"\xff\"}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		kind, ok := websocket.Kind([]byte(s))
		if !ok {
			return
		}
		var any map[string]json.RawMessage
		var one struct{ Type string }
		if json.Unmarshal([]byte(s), &any) != nil || json.Unmarshal([]byte(s), &one) != nil || one.Type != kind || !utf8.ValidString(s) {
			t.Fatalf("%q is of kind %q, for certain, and %q, %v", s, kind, one.Type, any)
		}
		v, is := any["type"]
		var text string
		if is && (json.Unmarshal(v, &text) != nil || text != kind) || !is && kind != "" {
			t.Fatalf("%q is of kind %q, and %s", s, kind, v)
		}
	})
}
