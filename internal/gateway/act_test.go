package gateway

import (
	"fmt"
	"runtime"
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
		{"a key as a service", `{"service":"` + aKey + `","action":"c"}`, "service holds a gateway key"},
		{"a key within an action", `{"service":"a","action":"get ` + aKey + `."}`, "action holds a gateway key"},
		{"a key as a user", `{"service":"a","action":"c","on_behalf_of":"\u0061` + aKey[1:] + `"}`, "on_behalf_of holds a gateway key"},
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
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), aKey)):
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
}

const aKey = "agw_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklm"

// object is one of so many members, of which the names hold what an object's syntax
// is made of.
func object(members int) string {
	var b strings.Builder
	for i := range members {
		fmt.Fprintf(&b, `,"%d\"{:[\\":0`, i)
	}
	return "{" + b.String()[1:] + "}"
}

// TestMembersAreBounded: in one object, wherever it stands, and before anything is
// set aside for their names. Many objects may have many together.
func TestMembersAreBounded(t *testing.T) {
	act := func(params string) []byte { return []byte(`{"service":"a","action":"b","params":` + params + `}`) }
	most, more := object(10_000), object(10_001)
	for name, c := range map[string]struct {
		params  string
		refused bool
	}{
		"most": {most, false}, "more": {more, true}, "most within": {`{"x":[` + most + "," + most + `]}`, false}, "more within": {`{"x":[{},` + more + `]}`, true},
		"behind others": {`{"x":` + most + `,"y":{"z":` + more + `}}`, true}, "a long text": {`{"x":"` + strings.Repeat(":", 1_000_000) + `"}`, false},
		"many objects": {`{"x":[{"a":{"b":1},"c":2}` + strings.Repeat(`,{"a":{"b":1},"c":2}`, 20_000) + `]}`, false},
	} {
		if _, err := parseAct(act(c.params)); (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "more than 10000 members, as far as byte ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, raw := range map[string][]byte{"members": act(object(700_000)), "depth": act(strings.Repeat("[", 10_000_000))} {
		if took := allocated(func() { _, _ = parseAct(raw) }); took > 2<<20 {
			t.Errorf("%s: of %d bytes, %d more are set aside to refuse them", name, len(raw), took)
		}
	}
}

// allocated is how many bytes f allocates, if nothing else does meanwhile.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
