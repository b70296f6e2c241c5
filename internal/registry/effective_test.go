package registry_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/registry"
)

var usual = registry.Defaults{KeyRPS: 20, KeyBurst: 40, TenantRPS: 100, TenantBurst: 200, TenantMaxInflight: 32}

func parse(t *testing.T, text string) *registry.Snapshot {
	t.Helper()
	s, err := registry.Parse("r.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const keyOf = `
keys:
  - id: ci
    sha256: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    services: ["*"]
    users: ["*"]
`

func TestEffectiveLimits(t *testing.T) {
	s := parse(t, `
tenants:
  rated: {rps: 7}
  capped: {max_inflight: 3}
  free: {rps: 0, max_inflight: 0}
services:
  a: {base_url: "https://u.example", rate_limit: {rps: 5, burst: 9}, max_inflight: 8}
  b: {base_url: "https://u.example"}
`+keyOf+"    limits: {rps: 0.5}\n")
	e, err := s.Effective(usual)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		got  registry.Limits
		want registry.Limits
	}{
		{"key of its own", e.Key(s.Keys[0].Rate), registry.Limits{RPS: 0.5, Burst: 1, BurstDefaulted: true, RPSFrom: "r.yaml:15:14", BurstFrom: "r.yaml:15:14"}},
		{"any key", e.Key(nil), registry.Limits{RPS: 20, Burst: 40, RPSFrom: "default AGENTGATE_RATE_KEY_RPS", BurstFrom: "default AGENTGATE_RATE_KEY_BURST"}},
		{"tenant with a rate", e.Tenant("rated"), registry.Limits{
			RPS: 7, Burst: 7, BurstDefaulted: true, MaxInflight: 32,
			RPSFrom: "r.yaml:3:11", BurstFrom: "r.yaml:3:11", MaxInflightFrom: "default AGENTGATE_TENANT_MAX_INFLIGHT",
		}},
		{"tenant with a cap", e.Tenant("capped"), registry.Limits{
			RPS: 100, Burst: 200, MaxInflight: 3,
			RPSFrom: "default AGENTGATE_RATE_TENANT_RPS", BurstFrom: "default AGENTGATE_RATE_TENANT_BURST", MaxInflightFrom: "r.yaml:4:12",
		}},
		{"tenant without limits", e.Tenant("free"), registry.Limits{RPSFrom: "r.yaml:5:10", BurstFrom: "r.yaml:5:10", MaxInflightFrom: "r.yaml:5:18"}},
		{"any tenant", e.Tenant(""), registry.Limits{
			RPS: 100, Burst: 200, MaxInflight: 32,
			RPSFrom: "default AGENTGATE_RATE_TENANT_RPS", BurstFrom: "default AGENTGATE_RATE_TENANT_BURST", MaxInflightFrom: "default AGENTGATE_TENANT_MAX_INFLIGHT",
		}},
		{"service", e.Service("a"), registry.Limits{
			RPS: 5, Burst: 9, MaxInflight: 8,
			RPSFrom: "r.yaml:7:51", BurstFrom: "r.yaml:7:59", MaxInflightFrom: "r.yaml:7:70",
		}},
		{"service without limits", e.Service("b"), registry.Limits{}},
		{"no service", e.Service("c"), registry.Limits{}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

// TestEachNumberHasItsSource: a rate and its burst may come from different
// places, and a burst that follows from its rate comes from there.
func TestEachNumberHasItsSource(t *testing.T) {
	d := usual
	d.TenantBurstDefaulted = true
	d.Source = func(setting string) string {
		return map[string]string{
			"AGENTGATE_RATE_KEY_RPS":        "flag --rate-key-rps",
			"AGENTGATE_RATE_KEY_BURST":      "environment AGENTGATE_RATE_KEY_BURST",
			"AGENTGATE_RATE_TENANT_RPS":     "my files/r.yaml:2:3 server.rate_tenant_rps",
			"AGENTGATE_RATE_TENANT_BURST":   "default",
			"AGENTGATE_TENANT_MAX_INFLIGHT": "my files/r.yaml:3:3 server.tenant_max_inflight",
		}[setting]
	}
	e, err := parse(t, "version: 1\n").Effective(d)
	if err != nil {
		t.Fatal(err)
	}
	key := registry.Limits{RPS: 20, Burst: 40, RPSFrom: "flag --rate-key-rps", BurstFrom: "environment AGENTGATE_RATE_KEY_BURST"}
	tenant := registry.Limits{
		RPS: 100, Burst: 200, BurstDefaulted: true, MaxInflight: 32,
		RPSFrom: "my files/r.yaml:2:3 server.rate_tenant_rps", BurstFrom: "my files/r.yaml:2:3 server.rate_tenant_rps",
		MaxInflightFrom: "my files/r.yaml:3:3 server.tenant_max_inflight",
	}
	if diff := cmp.Diff([]registry.Limits{key, tenant}, []registry.Limits{e.Key(nil), e.Tenant("")}); diff != "" {
		t.Error(diff)
	}
	// A problem of such a setting is told at its place.
	_, err = parse(t, "version: 1\n").Effective(registry.Defaults{KeyRPS: 1, KeyBurst: 5000, Source: func(string) string { return "my files/r.yaml:2:3 server.rate_key_burst" }})
	if err == nil || !strings.HasPrefix(err.Error(), "my files/r.yaml:2:3: server.rate_key_burst: ") {
		t.Errorf("%v", err)
	}
}

// A burst of 0 switches a limit off as a rate of 0 does; what the file gives
// is then one and the same.
func TestBurstOfZeroDisables(t *testing.T) {
	s := parse(t, "tenants: {a: {rps: 5, burst: 0}}\n")
	if r := s.Tenants["a"].Rate; r.RPS != 5 || r.Burst != 0 || !r.Disabled() {
		t.Errorf("%+v", r)
	}
	e, err := s.Effective(registry.Defaults{})
	if err != nil {
		t.Fatal(err)
	}
	if l := e.Tenant("a"); l.RPS != 0 || l.Burst != 0 {
		t.Errorf("%+v", l)
	}
}

func TestStartUpRefusals(t *testing.T) {
	source := func(setting string) string {
		return map[string]string{
			"AGENTGATE_RATE_KEY_RPS":    "environment AGENTGATE_RATE_KEY_RPS",
			"AGENTGATE_RATE_KEY_BURST":  "flag --rate-key-burst",
			"AGENTGATE_RATE_TENANT_RPS": "r.yaml:2:3 server.rate_tenant_rps",
		}[setting]
	}
	tests := []struct {
		name, file string
		d          registry.Defaults
		want       string // "": accepted
	}{
		{"usual", "version: 1\n", usual, ""},
		{"key rate 0", "version: 1\n", registry.Defaults{KeyRPS: 0, KeyBurst: 40, TenantRPS: 100, TenantBurst: 200},
			"environment: AGENTGATE_RATE_KEY_RPS: 0 disables the key limit while a tenant rate is on: AGENTGATE_RATE_TENANT_RPS is 100 (r.yaml:2:3 server.rate_tenant_rps)"},
		{"key burst 0", "version: 1\n", registry.Defaults{KeyRPS: 20, KeyBurst: 0, TenantRPS: 100, TenantBurst: 200},
			"flag: --rate-key-burst: 0 disables the key limit while a tenant rate is on: AGENTGATE_RATE_TENANT_RPS is 100 (r.yaml:2:3 server.rate_tenant_rps)"},
		{"both off", "version: 1\n", registry.Defaults{}, ""},
		{"tenant off", "version: 1\n", registry.Defaults{KeyRPS: 20, KeyBurst: 40}, ""},
		{"tenant burst off", "version: 1\n", registry.Defaults{TenantRPS: 100}, ""},
		{"named tenant on", "tenants: {acme: {rps: 5}}\n", registry.Defaults{},
			"environment: AGENTGATE_RATE_KEY_RPS: 0 disables the key limit while a tenant rate is on: tenants.acme.rps is 5 (r.yaml:1:18)"},
		{"named tenant off", "tenants: {acme: {rps: 0}}\n", registry.Defaults{}, ""},
		{"key of its own off", keyOf[1:] + "    limits: {rps: 0}\n", usual,
			"r.yaml:6:14: keys[0].limits.rps: 0 disables the key's limit while a tenant rate is on: AGENTGATE_RATE_TENANT_RPS is 100 (r.yaml:2:3 server.rate_tenant_rps)"},
		{"key of its own, burst off", keyOf[1:] + "    limits: {rps: 5, burst: 0}\n", usual,
			"r.yaml:6:22: keys[0].limits.burst: 0 disables the key's limit while a tenant rate is on: AGENTGATE_RATE_TENANT_RPS is 100 (r.yaml:2:3 server.rate_tenant_rps)"},
		{"key of its own off, tenants too", keyOf[1:] + "    limits: {rps: 0}\n", registry.Defaults{KeyRPS: 20, KeyBurst: 40}, ""},
		{"burst over an hour", "version: 1\n", registry.Defaults{KeyRPS: 0.01, KeyBurst: 40},
			"flag: --rate-key-burst: a burst of 40 is more than an hour of its rate of 0.01 a second"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.d.Source = source
			e, err := parse(t, tt.file).Effective(tt.d)
			switch {
			case tt.want == "" && (err != nil || e == nil):
				t.Error(err)
			case tt.want != "" && (err == nil || err.Error() != tt.want || e != nil):
				t.Errorf("\n got %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestCheckKey(t *testing.T) {
	on, err := parse(t, "version: 1\n").Effective(usual)
	if err != nil {
		t.Fatal(err)
	}
	off, err := parse(t, "version: 1\n").Effective(registry.Defaults{KeyRPS: 20, KeyBurst: 40})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		rate *registry.Rate
		e    *registry.Effective
		ok   bool
	}{
		{nil, on, true},
		{&registry.Rate{RPS: 5, Burst: 10}, on, true},
		{&registry.Rate{}, on, false},
		{&registry.Rate{}, off, true},
		{&registry.Rate{Burst: 10}, off, false},
		{&registry.Rate{RPS: 5}, on, false}, // a burst of 0 disables as well
		{&registry.Rate{RPS: 1, Burst: 3600}, on, true},
		{&registry.Rate{RPS: 1, Burst: 3601}, on, false},
	}
	for _, tt := range tests {
		if err := tt.e.CheckKey(tt.rate); (err == nil) != tt.ok {
			t.Errorf("%+v: %v", tt.rate, err)
		}
	}
}
