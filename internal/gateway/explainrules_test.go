package gateway_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/explain"
	"agentgw/internal/gateway"
	"agentgw/internal/registry"
	"agentgw/internal/rules"
)

// TestExplainTellsWhatRulesMean: which apply to a call, for whom, and how their
// counts stand; of those that look at what only a call has, at what.
func TestExplainTellsWhatRulesMean(t *testing.T) {
	file := ruledFile(`  - {name: own, key: caller, window: 1h, max: 5000, count: bytes}
  - {name: vip, key: principal_or_ip, window: 1h, max: "user == 'u' ? 10 : 1"}
  - {name: elsewhere, key: caller, when: "service == 'other'", window: 1h, max: 5, mode: observe, cost: true}
  - {name: sized, key: request.params.id, when: request.bytes > 3, window: 1h, max: 5, count: request.params.n}
  - {name: broken, key: user + space, window: 1h, max: 5}
  - {name: off, key: caller, window: 1h, max: 0}
  - {name: untold, key: caller, window: 1h, max: "5 / size(action + 'x' == 'getx' ? '' : 'x')", mode: observe}
identity_limits: {user: 3, org: 4}
`)
	k := owned(roomy("a"), "u", "", "")
	w := setup{registry: file}.world(t, hello, k)
	for range 2 {
		w.act("a", plainCall("tools", "ann")).want(t, "a call", 200, "", "")
	}
	x := w.explainer(file)
	set, err := rules.Compile(x.Registry)
	if err != nil {
		t.Fatal(err)
	}
	x.Rules = set
	at := func(place string) string { return "registry.yaml:" + place }
	ask := func(x gateway.Explainer, user string) []explain.Rule {
		a, err := x.Explain(explain.Question{Key: "a", Service: "tools", Action: "get", User: user}, k, "", w.clock.Now())
		if err != nil {
			t.Fatal(err)
		}
		return a.Rules
	}
	ends := 55*time.Minute + 55*time.Second
	level := func(counted, most int64, ends time.Duration) *explain.RuleLevel {
		return &explain.RuleLevel{Counted: counted, Max: most, EndsMS: ends.Milliseconds()}
	}
	bytes := 2 * (int64(len(plainCall("tools", "ann"))) + int64(len(`{"hello":1}`)))
	base := func(name, key, most string) explain.Rule {
		return explain.Rule{Step: 5, Name: name, Key: key, Window: "1h", Max: most, Count: registry.CountRequests, Mode: "enforce", OnStoreFailure: "open"}
	}
	with := func(r explain.Rule, change func(*explain.Rule)) explain.Rule {
		change(&r)
		return r
	}
	want := []explain.Rule{
		with(base("user", "user", "3"), func(r *explain.Rule) {
			r.Window, r.Applies, r.Source, r.Level = "1s", "yes, as u", at("16:19"), level(2, 3, time.Second)
		}),
		with(base("org", "org", "4"), func(r *explain.Rule) { r.Window, r.Applies, r.Source = "1s", "no: the key has no org", at("16:28") }),
		with(base("own", "caller", "5000"), func(r *explain.Rule) {
			r.Applies, r.Count, r.Source, r.Level = "yes, as key:a", "bytes", at("9:5"), level(bytes, 5000, ends)
		}),
		with(base("vip", "principal_or_ip", "user == 'u' ? 10 : 1"), func(r *explain.Rule) {
			r.Applies, r.Source, r.Level = "yes, as human:ann", at("10:5"), level(2, 10, ends)
		}),
		with(base("elsewhere", "caller", "5"), func(r *explain.Rule) {
			r.When, r.Cost, r.Mode, r.Applies, r.Source = "service == 'other'", true, "observe", "no: its when does not hold, or its key is null or empty", at("11:5")
		}),
		with(base("sized", "request.params.id", "5"), func(r *explain.Rule) {
			r.When, r.Count, r.Applies, r.Source = "request.bytes > 3", "request.params.n", "depends on request.bytes, request.params", at("12:5")
		}),
		with(base("broken", "user + space", "5"), func(r *explain.Rule) {
			r.Applies, r.Source, r.Level = "yes, as one of those whose key has no result", at("13:5"), level(2, 5, ends)
		}),
		with(base("off", "caller", "0"), func(r *explain.Rule) { r.Applies, r.Source = "no: a max of 0 switches it off", at("14:5") }),
		with(base("untold", "caller", "5 / size(action + 'x' == 'getx' ? '' : 'x')"), func(r *explain.Rule) {
			r.Mode, r.Applies, r.Source, r.Level = "observe", "yes, as key:a", at("15:5"), level(0, 0, ends) // a maximum without a result is none
		}),
	}
	if diff := cmp.Diff(want, ask(x, "ann")); diff != "" {
		t.Error(diff)
	}
	x.Levels = nil
	for i := range want {
		want[i].Level = nil
	}
	want[3].Applies = "depends on principal_or_ip"
	if diff := cmp.Diff(want, ask(x, "")); diff != "" {
		t.Error(diff)
	}
}
