package rules_test

import (
	"errors"
	"testing"
	"time"

	"agentgw/internal/registry"
	"agentgw/internal/rules"
)

// FuzzCharge: whatever strangers send, a rule has an answer within what can be
// counted, and says nothing of what they sent.
func FuzzCharge(f *testing.F) {
	for _, seed := range []string{`{}`, `{"q":"x","n":1,"l":[1,2]}`, `{"q":null,"n":-1e999,"l":{}}`, `{"n":NaN`, `{"q":{"q":{"q":[]}},"n":18446744073709551616}`, ``, `[`, `{"q":"\u0000"}`} {
		f.Add([]byte(seed), "alice", int64(7))
	}
	list := compile(f, `
rules:
  - {name: a, key: request.params.q, window: 1m, max: request.params.n, count: size(request.params)}
  - {name: b, key: "principal_or_ip + string(request.params.q)", window: 1m, max: 5, count: request.params.n * 2}
  - {name: c, key: "request.params.l.map(x, x + 1)[0]", window: 1m, max: 5, when: "request.params.l.exists(x, x == request.params.q)"}
  - {name: d, key: "request.params.?q", window: 1m, max: "request.params.?n.orValue(3)", count: bytes}
  - {name: e, key: principal, window: 1m, max: 5, when: "request.params.q.matches('^(a|x)+[0-9]*$')"}
`)
	words := map[string]bool{}
	for _, why := range []string{
		"it looks at a parameter that is not there", "its result is neither a text nor null", "it looks past the end of a list", "a value is of another type than it takes",
		"its result is neither true nor false", "its result is no number", "it divides by zero", "its result is negative", "a number is too large",
		"it would take too much work", "it has no result",
	} {
		words[why] = true
	}
	f.Fuzz(func(t *testing.T, params []byte, principal string, n int64) {
		c := call()
		c.Params, c.Principal, c.Bytes = params, principal, n
		for _, r := range list {
			ch, applies := r.Charge(c)
			if applies && (ch.Partition == "" || len(ch.Partition) > 128 || ch.Count < 0 || ch.Count > max(n, registry.MaxQuota+1) || ch.Max < -1 || ch.Max > registry.MaxQuota) {
				t.Fatalf("%s: %+v", r.Name, ch)
			}
			for _, fault := range ch.Faults {
				if !words[fault.Why] {
					t.Fatalf("%s: %s", r.Name, fault.Why)
				}
			}
		}
	})
}

// FuzzCompile: whatever an operator writes is refused with a place, or is a rule
// that has an answer.
func FuzzCompile(f *testing.F) {
	for _, seed := range []string{
		"caller", "org == null ? caller : org", "request.params.q", "[1,2].map(x, x)[0]", "'a' +", "{", "request", "1/0", "caller.matches('(')", "caller.matches(org)", "matches(caller, '(.*a.*){900}b')", "[1].map(x, 'a').exists(y, y.matches('a'))", "b'x'", "{'a': 1}.a",
		"request.params.l.all(x, request.params.l.all(y, request.params.l.all(z, x == y)))", "timestamp(0)", "dyn(null)", "\\", "'\\u0000'", "optional.of(caller)", "a.b.c.d", "0x10u", "-9223372036854775808",
		"google.protobuf.Int64Value{value: 3}", "type(caller)", "has(request.params.q)", "[optional.none()][0]",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if text == "" { // which the registry refuses
			t.Skip()
		}
		pos := registry.Position{File: "r", Line: 3, Column: 5}
		for _, part := range []string{"key", "when", "max", "count"} {
			one := registry.Rule{Name: "r", Window: time.Minute, Key: "caller", Most: 5, Count: registry.CountRequests}
			switch part {
			case "key":
				one.Key, one.KeyPos = text, pos
			case "when":
				one.When, one.WhenPos = text, pos
			case "max":
				one.Max, one.MaxPos = text, pos
			case "count":
				one.Count, one.CountPos = text, pos
			}
			set, err := rules.Compile(&registry.Snapshot{Rules: []registry.Rule{one}})
			var problems registry.Problems
			if err != nil && (!errors.As(err, &problems) || problems[0].Line != 3 || problems[0].Path != "rules[0]."+part || problems[0].What == "") {
				t.Fatalf("%v", err)
			}
			for _, r := range set.Rules() {
				if ch, applies := r.Charge(call()); applies && (ch.Partition == "" || ch.Count < 0 || ch.Count > registry.MaxQuota+1 || ch.Max < -1 || ch.Max > registry.MaxQuota) {
					t.Fatalf("%q: %+v", text, ch)
				}
			}
		}
	})
}
