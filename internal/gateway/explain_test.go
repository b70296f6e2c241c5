package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/config"
	"agentgw/internal/explain"
	"agentgw/internal/gateway"
	"agentgw/internal/identity"
	"agentgw/internal/registry"
	"agentgw/internal/rules"
	"agentgw/internal/vault"
)

const explainedRegistry = `
tenants:
  team: {rps: 3, burst: 30, max_inflight: 7}
  free: {rps: 0, max_inflight: 0}
services:
  plain: {base_url: "%[1]s", allow_private: true, actions: {get: {method: GET, path: /get}}}
  limited: {base_url: "%[1]s", allow_private: true, rate_limit: {rps: 2}, max_inflight: 5, actions: {get: {method: GET, path: /get}}}
  keyed: {base_url: "%[1]s", allow_private: true, credential: {type: bearer}, actions: {get: {method: GET, path: /get}}}
  personal: {base_url: "%[1]s", allow_private: true, credential: {type: bearer, scope: user}, actions: {get: {method: GET, path: /get}}}
  signed: {base_url: "%[1]s", allow_private: true, delegation: required, actions: {get: {method: GET, path: /get}}}
`

// holds is a vault without secrets.
type holds = vault.Index

// explainer explains what the world's gateway, started by setup s, decides by.
func (w *world) explainer(file string) gateway.Explainer {
	w.t.Helper()
	snapshot, err := registry.Parse("registry.yaml", []byte(strings.ReplaceAll(file, "%[1]s", w.upstream.URL)))
	if err != nil {
		w.t.Fatal(err)
	}
	effective, err := snapshot.Effective(registry.Defaults{
		KeyRPS: w.settings.RateKeyRPS, KeyBurst: w.settings.RateKeyBurst,
		TenantRPS: w.settings.RateTenantRPS, TenantBurst: w.settings.RateTenantBurst, TenantMaxInflight: w.settings.TenantMaxInflight,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return gateway.Explainer{Settings: w.settings, Registry: snapshot, Effective: effective, Levels: w.limiter, Nanos: w.nanos}
}

// TestExplainAgreesWithTheCall: of every call, made for real, the answer says
// the code and status that it ends with, whom it is charged to, and every policy
// that its answer tells of, with the same numbers, and no other.
func TestExplainAgreesWithTheCall(t *testing.T) {
	past, future := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	keys := []*identity.Key{
		{ID: "all", Services: []string{"*"}, Users: []string{"*"}},
		{ID: "teamed", Services: []string{"*"}, Users: []string{"*"}, Tenant: "team", Limits: &identity.Limits{RPS: 1, Burst: 9}},
		{ID: "free", Services: []string{"*"}, Users: []string{"*"}, Tenant: "free"},
		{ID: "crew", Services: []string{"plain", "limited"}, Users: []string{"ann", "bob", "cid"}},
		{ID: "narrow", Services: []string{"plain", "limited"}, Actions: []string{"limited.*"}, Users: []string{"*"}},
		{ID: "late", Services: []string{"*"}, Users: []string{"*"}, NotAfter: past},
		{ID: "early", Services: []string{"*"}, Users: []string{"*"}, NotBefore: future},
	}
	w := setup{registry: explainedRegistry, vault: holds{{Service: "personal", User: "ann"}: true}, settings: func(s *config.Settings) { s.KeyMaxPrincipals = 2 }}.world(t, hello, keys...)
	x := w.explainer(explainedRegistry)
	x.Vault = holds{{Service: "personal", User: "ann"}: true}
	asked := 0
	for _, key := range keys {
		for _, service := range []string{"plain", "limited", "keyed", "personal", "signed", "none"} {
			for _, action := range []string{"get", "none"} {
				for _, user := range []string{"", "ann", "cid", "eve"} {
					asked++
					q := explain.Question{Key: key.ID, Service: service, Action: action, User: user}
					a, err := x.Explain(q, key, "", w.clock.Now())
					if err != nil {
						t.Fatal(err)
					}
					got := w.act(key.ID, actBody(service, action, user, ""))
					records := w.ledger.all()
					record := records[len(records)-1]
					w.clock.Advance(time.Minute) // everything is full again

					status, code := 200, ""
					if a.Refused != nil {
						status, code = a.Refused.Status, a.Refused.Code
						if a.Refused.Why == "" || !strings.Contains(got.body, fmt.Sprintf(`"detail":%q`, a.Refused.Detail)) {
							t.Errorf("%+v: why %q, told %q: %s", q, a.Refused.Why, a.Refused.Detail, got.body)
						}
					}
					if got.status != status || got.code != code {
						t.Errorf("%+v: explained as %d %s, got %d %s", q, status, code, got.status, got.code)
					}
					if a.Tenant != "" && record.Tenant != a.Tenant {
						t.Errorf("%+v: explained as charged to %s, was to %s", q, a.Tenant, record.Tenant)
					}
					explained, told := map[string]int64{}, map[string]int64{}
					for _, l := range a.Limits {
						if !l.Off && l.Step > 1 { // a key that is good is not told of its address
							explained[l.Policy] = int64(l.Burst + l.MaxInflight)
						}
					}
					for name, g := range got.fields(t) {
						told[name] = g.quota
					}
					if diff := cmp.Diff(told, explained); diff != "" {
						t.Errorf("%+v: the policies that are told (-) and explained (+):\n%s", q, diff)
					}
				}
			}
		}
	}
	if asked != 7*6*2*4 {
		t.Errorf("%d calls", asked)
	}
}

// TestExplainTellsLevelsAndTakesNothing: asking takes no token, makes no entry, and tells how the
// limits of a running gateway stand.
func TestExplainTellsLevelsAndTakesNothing(t *testing.T) {
	up := newHeldStreams()
	file := "tenants:\n  t: {rps: 1, burst: 5, max_inflight: 2}\nservices:\n" + serviceLine("slow", "rate_limit: {rps: 1, burst: 3}, max_inflight: 4,")
	key := of("t", limited("k", 1, 9))
	w := setup{registry: file, settings: func(s *config.Settings) { s.MaxInflight, s.TenantQueue, s.TenantQueueWait = 6, 3, time.Minute }}.world(t, up.serve, key)
	x := w.explainer(file)
	levels := func() map[string]string {
		t.Helper()
		a, err := x.Explain(explain.Question{Key: "k", Service: "slow", Action: "get"}, key, "", w.clock.Now())
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for _, l := range a.Limits {
			text := ""
			if l.Level.Remaining != nil {
				text = fmt.Sprint(*l.Level.Remaining, " left")
			}
			if l.Level.InFlight != nil {
				text += fmt.Sprint(" ", *l.Level.InFlight, " in flight")
			}
			if l.Level.Queued != nil {
				text += fmt.Sprint(*l.Level.Queued, " queued")
			}
			all[l.Policy] = text
		}
		return all
	}
	full := map[string]string{
		"key": "9 left", "tenant": "5 left", "service": "3 left",
		"inflight": "2 left 0 in flight", "service-inflight": "4 left 0 in flight", "process-inflight": "6 left 0 in flight", "queue": "0 queued",
	}
	for range 2 {
		if diff := cmp.Diff(full, levels()); diff != "" {
			t.Errorf("before any call: %s", diff)
		}
	}
	if n := w.table().Entries; n != 0 {
		t.Errorf("asking made %d entries", n)
	}
	end := w.hold(up, "k", streamCall("slow", ""))
	held := map[string]string{
		"key": "8 left", "tenant": "4 left", "service": "2 left",
		"inflight": "1 left 1 in flight", "service-inflight": "3 left 1 in flight", "process-inflight": "5 left 1 in flight", "queue": "0 queued",
	}
	if diff := cmp.Diff(held, levels()); diff != "" {
		t.Errorf("while one runs: %s", diff)
	}
	another := w.hold(up, "k", streamCall("slow", ""))
	var waited told
	done := make(chan struct{})
	go func() { defer close(done); waited = w.act("k", plainCall("slow", "")) }()
	eventually(t, "a third waits", func() bool { return levels()["queue"] == "1 queued" })
	end()
	another()
	if <-done; waited.status != 200 || levels()["queue"] != "0 queued" {
		t.Errorf("%d %s, and then %s", waited.status, waited.code, levels()["queue"])
	}
}

// TestExplainABlockedTenant: the block is step 5's, before any of its limits.
func TestExplainABlockedTenant(t *testing.T) {
	key := everything("k")
	w := newWorld(t, hello, key)
	x := w.explainer(worldRegistry)
	w.limiter.Block(0, "key:k")
	a, err := x.Explain(explain.Question{Key: "k", Service: "tools", Action: "stream"}, key, "", w.clock.Now())
	if err != nil || a.Refused == nil || a.Refused.Step != 5 || a.Refused.Code != "tenant_blocked" || len(a.Limits) != 7 {
		t.Errorf("%v %+v", err, a)
	}
	if got := w.act("k", streamCall("tools", "")); got.code != "tenant_blocked" || !strings.Contains(got.body, a.Refused.Detail) {
		t.Errorf("%s %s", got.code, got.body)
	}
	// Without a gateway that runs nobody is blocked.
	x.Levels = nil
	a, err = x.Explain(explain.Question{Key: "k", Service: "tools", Action: "stream"}, key, "", w.clock.Now())
	if err != nil || a.Refused != nil || a.Limits[0].Level != nil {
		t.Errorf("%v %+v", err, a)
	}
}

// TestExplainWhatNoCallCanName: it is refused where the call would be, in the words
// that the agent is told.
func TestExplainWhatNoCallCanName(t *testing.T) {
	key := everything("k")
	w := newWorld(t, hello, key)
	x := w.explainer(worldRegistry)
	x.Levels = nil
	for member, q := range map[string]explain.Question{
		"on_behalf_of": {Service: "tools", Action: "get", User: "a\x00b"}, "service": {Service: strings.Repeat("s", 300), Action: "get"}, "action": {Service: "tools", Action: "g\tet"},
	} {
		q.Key = "k"
		a, err := x.Explain(q, key, "", w.clock.Now())
		if err != nil || a.Refused == nil || a.Refused.Step != 3 || len(a.Limits) != 1 || !strings.HasPrefix(a.Refused.Detail, member+" is longer than") {
			t.Fatalf("%s: %v %+v", member, err, a.Refused)
		}
		body, _ := json.Marshal(map[string]string{"service": q.Service, "action": q.Action, "on_behalf_of": q.User})
		if q.User == "" {
			body, _ = json.Marshal(map[string]string{"service": q.Service, "action": q.Action})
		}
		if got := w.act("k", string(body)); got.status != a.Refused.Status || got.code != a.Refused.Code || !strings.Contains(got.body, a.Refused.Detail) {
			t.Errorf("%s: the call gets %d %s", member, got.status, got.body)
		}
	}
	if a, err := x.Explain(explain.Question{Key: "k", Service: "tools", Action: "get", User: strings.Repeat("u", 256)}, key, "", w.clock.Now()); err != nil || a.Refused != nil {
		t.Errorf("a long name: %v %+v", err, a.Refused)
	}
}

// TestExplainWhatIsNoAction: of a request by /proxy that is none of the declared actions
// the operator is told what is missing. The agent is told the same whether the service is
// there or not, and what it may call or not.
func TestExplainWhatIsNoAction(t *testing.T) {
	file := `
rules: [{name: reads, key: request.method, max: 5, window: 1m}]
services:
  shop: {base_url: "%[1]s", allow_private: true, actions: {find: {method: GET, path: /find}}}
  open: {base_url: "%[1]s", allow_private: true, passthrough: true, actions: {find: {method: GET, path: /find}}}
`
	whole := &identity.Key{ID: "whole", Services: []string{"shop", "open", "gone"}, Users: []string{"*"}}
	part := &identity.Key{ID: "part", Services: []string{"shop", "open", "gone"}, Actions: []string{"*.find"}, Users: []string{"*"}}
	w := newWorld(t, hello, whole, part)
	x := w.explainer(file)
	x.Levels = nil
	set, err := rules.Compile(x.Registry)
	if err != nil {
		t.Fatal(err)
	}
	x.Rules = set
	const told = "no action of %s that this key may call has this method and path; anything else wants a key for all of the service, and passthrough at the service"
	for _, c := range []struct {
		key             *identity.Key
		service, action string
		why, detail     string
	}{
		{whole, "shop", "*", "the path is none of the declared actions of shop, and the service has no passthrough: true", fmt.Sprintf(told, "shop")},
		{part, "shop", "*", "the path is none of the declared actions of shop, and the service has no passthrough: true", fmt.Sprintf(told, "shop")},
		{part, "open", "*", "what is none of the declared actions wants a key for open.*, and the key's actions are *.find", fmt.Sprintf(told, "open")},
		{whole, "gone", "*", `the registry has no service "gone"`, fmt.Sprintf(told, "gone")},
		{whole, "shop", "fnd", `the service shop has no action "fnd"`, "this key may not call shop.fnd, or there is no such action"},
		{whole, "gone", "fnd", `the registry has no service "gone"`, "this key may not call gone.fnd, or there is no such action"},
		{part, "shop", "fnd", `the service shop has no action "fnd"`, "this key may not call shop.fnd, or there is no such action"},
	} {
		a, err := x.Explain(explain.Question{Key: c.key.ID, Service: c.service, Action: c.action}, c.key, "", w.clock.Now())
		if err != nil || a.Refused == nil || a.Refused.Code != "scope_denied" || a.Refused.Why != c.why || a.Refused.Detail != c.detail {
			t.Errorf("%s %s.%s: %v %+v", c.key.ID, c.service, c.action, err, a.Refused)
		}
	}
	a, err := x.Explain(explain.Question{Key: "whole", Service: "open", Action: "*"}, whole, "", w.clock.Now())
	if err != nil || a.Refused != nil || len(a.Rules) != 1 || a.Rules[0].Applies != "depends on request.method" {
		t.Errorf("what is passed on: %v %+v %+v", err, a.Refused, a.Rules)
	}
}
