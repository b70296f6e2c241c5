package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestParseBatch: as strict as an act is, at every depth; and nothing of a batch is read of
// which a part cannot be.
func TestParseBatch(t *testing.T) {
	one := `{"service":"a","action":"b"}`
	many := func(n int) string { return `{"calls":[` + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + `]}` }
	for _, c := range []struct{ name, body, want string }{
		{"whole", `{"calls":[{"service":"a","action":"b","on_behalf_of":"u","params":{"x":1}}, ` + one + `]}`, ""},
		{"one person for all", `{"on_behalf_of":"u","calls":[` + one + `]}`, ""},
		{"the person last", `{"calls":[` + one + `],"on_behalf_of":"u"}`, ""},
		{"sixty-four", many(64), ""},
		{"sixty-five", many(65), "more than 64 calls"},
		{"very many", many(100_000), "more than 64 calls"},
		{"none", `{"calls":[]}`, "missing or empty"},
		{"no calls", `{}`, "missing or empty"},
		{"null", `{"calls":null}`, "must be a list"},
		{"an act", one, "unknown member"},
		{"a list", `[` + one + `]`, "one JSON object"},
		{"empty", ``, "one JSON object"},
		{"twice", `{"calls":[` + one + `],"calls":[` + one + `]}`, "not valid near byte"},
		{"twice in a call", `{"calls":[{"service":"a","service":"b","action":"c"}]}`, "calls[0]: the JSON is not valid near byte"},
		{"twice in parameters", `{"calls":[` + one + `,{"service":"a","action":"c","params":{"x":1,"x":2}}]}`, "calls[1]: the JSON is not valid near byte"},
		{"case twin", `{"calls":[` + one + `],"Calls":[]}`, "unknown member"},
		{"case twin in a call", `{"calls":[{"service":"a","Service":"b","action":"c"}]}`, "calls[0]: unknown member"},
		{"not an object", `{"calls":[` + one + `,7]}`, "calls[1] must be an object"},
		{"not a list", `{"calls":` + one + `}`, "must be a list"},
		{"no action", `{"calls":[{"service":"a"}]}`, "calls[0]: action is missing"},
		{"parameters", `{"calls":[{"service":"a","action":"b","params":[]}]}`, "calls[0]: params must be an object"},
		{"both", `{"calls":[` + one + `,{"service":"a","action":"b","on_behalf_of":"u"}],"on_behalf_of":"u"}`, "calls[1] has an on_behalf_of, and so has the batch"},
		{"nobody", `{"calls":[` + one + `],"on_behalf_of":""}`, "on_behalf_of is empty"},
		{"a person that is none", `{"calls":[` + one + `],"on_behalf_of":["u"]}`, "must be a string"},
		{"a key as a person", `{"calls":[` + one + `],"on_behalf_of":"` + aKey + `"}`, "on_behalf_of holds a gateway key"},
		{"after", `{"calls":[` + one + `]} {}`, "after the JSON object"},
		{"cut", `{"calls":[` + one, "not valid"},
		{"a comma", `{"calls":[` + one + `,]}`, "not valid"},
		{"two commas", `{"calls":[` + one + `,,` + one + `]}`, "not valid"},
		{"deep", `{"calls":[{"service":"a","action":"b","params":` + strings.Repeat(`{"a":`, 20000) + `1` + strings.Repeat(`}`, 20002) + `]}`, "not valid"},
		{"bad utf-8", "{\"calls\":[{\"service\":\"a\xff\",\"action\":\"c\"}]}", "not UTF-8"},
		{"members", `{"calls":[{"service":"a","action":"b","params":` + object(10_001) + `}]}`, "more than 10000 members"},
	} {
		_, calls, err := parseBatch([]byte(c.body))
		switch {
		case c.want == "" && (err != nil || len(calls) == 0):
			t.Errorf("%s: refused: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), aKey)):
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
	_, calls, err := parseBatch([]byte(`{"on_behalf_of":"u","calls":[ {"service":"a","action":"b","params":{"x": 1.0}} , ` + one + `]}`))
	if want := fmt.Sprint([]act{{Service: "a", Action: "b", Principal: "u", Params: []byte(`{"x": 1.0}`), size: 48}, {Service: "a", Action: "b", Principal: "u", size: 28}}); err != nil || fmt.Sprint(calls) != want {
		t.Errorf("%v, %v, want %s", err, calls, want)
	}
}

// TestResultsAreReadable: whatever a service answers, its result is JSON that every reader
// takes, and says how the body is to be read.
func TestResultsAreReadable(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct{ contentType, body, want string }{
		{"application/json", `{"a":9007199254740993, "b":[1.0]}`, `{"a":9007199254740993, "b":[1.0]},"encoding":"json"`},
		{"Application/Problem+JSON; charset=utf-8", `"x"`, `"x","encoding":"json"`},
		{"application/json", "null\n", "null\n,\"encoding\":\"json\""},
		{"application/json", ``, `null`},
		{"application/json", "  ", `"  ","encoding":"text"`},
		{"application/json", `{"a":1`, `"{\"a\":1","encoding":"text"`},
		{"application/json", `1 2`, `"1 2","encoding":"text"`},
		{"application/json", `{} x`, `"{} x","encoding":"text"`},
		{"application/json", `{"a":1,"a":2}`, `"{\"a\":1,\"a\":2}","encoding":"text"`},
		{"application/json", "\ufeff{}", "\"\ufeff{}\",\"encoding\":\"text\""},
		{"application/json", `{"a":[1e308,-1E-400]}`, `{"a":[1e308,-1E-400]},"encoding":"json"`},
		{"application/json", `{"a":[1e999999]}`, `"{\"a\":[1e999999]}","encoding":"text"`},
		{"application/json", `-1E309`, `"-1E309","encoding":"text"`},
		{"application/json", strings.Repeat("9", 310), `"` + strings.Repeat("9", 310) + `","encoding":"text"`},
		{"application/json", deep(128), deep(128) + `,"encoding":"json"`},
		{"application/json", deep(129), `"` + deep(129) + `","encoding":"text"`},
		{"application/json", "{\"a\":\"\xff\"}", `"eyJhIjoi/yJ9","encoding":"base64"`},
		{"text/plain", "a\"\n\u2028", "\"a\\\"\\n\u2028\",\"encoding\":\"text\""},
		{"image/png", "\x89PNG", `"iVBORw==","encoding":"base64"`},
		{"", `{}`, `"{}","encoding":"text"`},
	} {
		k := &keptAnswer{header: map[string][]string{"Content-Type": {c.contentType}, "X-B": {"1", "2\xff"}}, receipt: "id"}
		k.WriteHeader(200)
		_, _ = k.Write([]byte(c.body))
		want := `{"status":200,"headers":{"Content-Type":` + string(appendText(nil, c.contentType)) + `,"X-B":"1, 2` + "\ufffd" + `"},"body":` + c.want + `,"receipt":"id"}`
		if got := string(k.appendResult(nil)); got != want {
			t.Errorf("%s %q:\n%.200s, want\n%.200s", c.contentType, c.body, got, want)
		}
		if text := k.appendResult(nil); !embeddable(text) && !strings.Contains(c.body, "[[[") {
			t.Errorf("%s %q: no reader takes %.200s", c.contentType, c.body, text)
		}
	}
}

// TestEachLineOfAKeyForIdempotencyIsOfOneCall: two calls of a batch have none in common, by
// whichever line a service goes.
func TestEachLineOfAKeyForIdempotencyIsOfOneCall(t *testing.T) {
	of := http.Header{"Idempotency-Key": {"a", "b"}}
	for i, want := range []string{"[a-0 b-0]", "[a-1 b-1]"} {
		if got := fmt.Sprint(partHeader(of, i)["Idempotency-Key"]); got != want {
			t.Errorf("call %d has %s, want %s", i, got, want)
		}
	}
}
