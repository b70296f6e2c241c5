package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/literal"
)

const aService = "services:\n  search:\n    base_url: https://u.example\n"

const aKey = `keys:
  - id: ci
    sha256: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    services: ["*"]
    users: ["*"]
`

// checked runs `agentgw check --json` on a file and returns what it reports.
func checked(t *testing.T, file string, environ ...string) (report, []string) {
	t.Helper()
	code, out, errs := runCheck(t, file, environ, "--json", "r.yaml")
	var got struct {
		report
		Problems []finding
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("exit %d: %v\n%s%s", code, err, out, errs)
	}
	var problems []string
	for _, p := range got.Problems {
		problems = append(problems, fmt.Sprintf("%s:%d:%d: %s: %s", p.File, p.Line, p.Column, p.Path, p.What))
	}
	if (code == exitDone) != (len(problems) == 0) || got.OK != (code == exitDone) {
		t.Fatalf("exit %d with %q", code, problems)
	}
	return got.report, problems
}

// TestLimitsAreNeverSilentlyAbsent: half a limit, an empty one and one for a
// service that is none are errors with their place; what is left out whole has
// the default, and check prints it.
func TestLimitsAreNeverSilentlyAbsent(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"service, burst alone", aService + "    rate_limit: {burst: 5}\n", "r.yaml:4:18: services.search.rate_limit: a burst without its rate limits nothing: rps is missing"},
		{"service, empty", aService + "    rate_limit: {}\n", "r.yaml:4:17: services.search.rate_limit: rps is missing; a limit without a rate limits nothing"},
		{"service, nothing", aService + "    rate_limit:\n", "r.yaml:4:16: services.search.rate_limit: must be a mapping of names to values, not nothing"},
		{"tenant, burst alone", "tenants:\n  acme: {burst: 5}\n", "r.yaml:2:10: tenants.acme: a burst without its rate limits nothing: rps is missing"},
		{"tenant, nothing", "tenants:\n  acme:\n", "r.yaml:2:8: tenants.acme: must be a mapping of names to values, not nothing"},
		{"key, burst alone", aKey + "    limits: {burst: 5}\n", "r.yaml:6:14: keys[0].limits: a burst without its rate limits nothing: rps is missing"},
		{"key, empty", aKey + "    limits: {}\n", "r.yaml:6:13: keys[0].limits: rps is missing; a limit without a rate limits nothing"},
		{"a service that is none", aService + "  serach:\n    rate_limit: {rps: 5}\n", "r.yaml:5:5: services.serach: base_url is missing"},
		{"a tenant that is none", "tenants: {acme: {rps: 5}}\n" + aKey + "    tenant: acem\n", "r.yaml:7:13: keys[0].tenant: there is no tenant acem; did you mean acme?"},
	} {
		if _, got := checked(t, c.file); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s:\n got %q\nwant %s", c.name, got, c.want)
		}
	}

	got, problems := checked(t, "tenants: {acme: {}, half: {rps: 0.5}}\n"+aKey+aService+"    rate_limit: {rps: 2.5}\n", "AGENTGATE_RATE_TENANT_BURST=150")
	if problems != nil {
		t.Fatal(problems)
	}
	type row struct {
		rps       float64
		burst     int
		defaulted bool
	}
	rows := map[string]row{}
	for _, l := range slices.Concat(got.Keys, got.Tenants, got.Services) {
		r := row{defaulted: l.BurstDefaulted}
		if l.RPS != nil {
			r.rps, r.burst = *l.RPS, *l.Burst
		}
		rows[l.Name] = r
	}
	want := map[string]row{"ci": {20, 40, false}, "acme": {100, 150, false}, "half": {0.5, 1, true}, "search": {2.5, 3, true}, others: {100, 150, false}}
	if diff := cmp.Diff(want, rows, cmp.AllowUnexported(row{})); diff != "" {
		t.Error(diff)
	}
}

// TestMistakesHaveTheirPlaceAndAHint: what a reader of the file would overlook.
func TestMistakesHaveTheirPlaceAndAHint(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"misspelt", aService + "    max_in_fligth: 3\n", "r.yaml:4:5: services.search.max_in_fligth: unknown key; did you mean max_inflight?"},
		{"misspelt setting", "server:\n  rate_kye_rps: 3\n", "r.yaml:2:3: server.rate_kye_rps: there is no such setting; did you mean rate_key_rps?"},
		{"one indent too far left", "services: {}\nsearch:\n  base_url: https://u.example\n", "r.yaml:2:1: search: unknown key; it belongs under services"},
		{"on the parent", aService + "    rps: 3\n", "r.yaml:4:5: services.search.rps: unknown key; it belongs under rate_limit"},
		{"on the parent of a key", aKey + "    burst: 3\n", "r.yaml:6:5: keys[0].burst: unknown key; it belongs under limits"},
		{"at the root", "rate_key_rps: 3\n", "r.yaml:1:1: rate_key_rps: unknown key; it belongs under server, if it is a setting"},
		{"JSON, at its end", `{"services": {"search": {"base_url": "https://u.example", "timeout": "3s", "tmeout": "3s"}}}`, "r.yaml:1:76: services.search.tmeout: unknown key; did you mean timeout?"},
		{"twice", "tenants: {a: {rps: 1}}\nservices: {}\ntenants: {a: {rps: 1000}}\n", "r.yaml:3:1: tenants: is given twice; the first is at 1:1"},
		{"one tenant twice", "tenants:\n  a: {rps: 1}\n  a: {rps: 1000}\n", "r.yaml:3:3: tenants.a: is given twice; the first is at 2:3"},
		{"one service twice", aService + "  search:\n    base_url: https://v.example\n", "r.yaml:4:3: services.search: is given twice; the first is at 2:3"},
		{"by case alone", aService + "Services: {}\n", `r.yaml:4:1: Services: differs only by case from "services" at 1:1`},
		{"one key twice", aKey + strings.TrimPrefix(strings.Replace(aKey, "0123", "3210", 1), "keys:\n"), "r.yaml:6:9: keys[1].id: is given twice; the first is at 2:9"},
		{"another file", "include: [more.yaml]\n", "r.yaml:1:1: include: unknown key"},
	} {
		if _, got := checked(t, c.file); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s:\n got %q\nwant %s", c.name, got, c.want)
		}
	}
}

// oddTexts are texts that YAML, or a reader of numbers, could take for
// something else.
var oddTexts = []string{"0123", "0o17", "1e3", "1_000", "0x1F", "12:30:45", "~", "null", ".5"}

// TestNamesKeepTheirText: a name is what was written, bare or in quotes, or it
// is refused; it never becomes another.
func TestNamesKeepTheirText(t *testing.T) {
	const file = "tenants: {%[1]s: {rps: 1}}\nservices: {%[1]s: {base_url: \"https://u.example\"}}\nkeys:\n  - id: %[1]s\n" +
		"    sha256: \"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"\n    services: [%[1]s]\n    users: [\"*\"]\n    tenant: %[1]s\n"
	lawful := func(text string, quoted bool) bool { // an id, and a name to YAML
		return !slices.Contains([]string{"0x1F", "12:30:45", "~", ".5", "NO"}, text) && (quoted || text != "null")
	}
	for _, text := range append([]string{"no", "on", "off", "yes", "n", "y", "true", "false", "NO", "1.50", "2024-01-01", "0x1f", "00"}, oddTexts...) {
		for _, written := range []string{text, `"` + text + `"`, "'" + text + "'"} {
			got, problems := checked(t, fmt.Sprintf(file, written))
			if quoted := written != text; !lawful(text, quoted) {
				if len(problems) == 0 {
					t.Errorf("%s was taken for %q", written, got.Keys[0].Name)
				}
				continue
			}
			if problems != nil {
				t.Errorf("%s: %q", written, problems)
			} else if got.Keys[0].Name != text || got.Keys[0].Tenant != text || got.Tenants[0].Name != text || got.Services[0].Name != text {
				t.Errorf("%s became %+v", written, got)
			}
		}
	}
}

// TestNumbersArePlainDecimals: wherever a number stands, it is a plain decimal.
func TestNumbersArePlainDecimals(t *testing.T) {
	places := func(problems []string, want ...string) bool {
		return slices.EqualFunc(problems, want, func(problem, place string) bool { return strings.Contains(problem, ": "+place+": ") })
	}
	for _, text := range append([]string{"-1", "+1", "NaN", ".inf", "1,5", "5s", "five", "true", "1.", "05.0"}, oddTexts...) {
		for _, written := range []string{text, `"` + text + `"`} {
			file := strings.ReplaceAll("tenants:\n  a:\n    rps: N\n  b:\n    rps: 1\n    burst: N\n  c:\n    max_inflight: N\n"+aService+"    rate_limit:\n      rps: N\n", "N", written)
			if _, got := checked(t, file); !places(got, "tenants.a.rps", "tenants.b.burst", "tenants.c.max_inflight", "services.search.rate_limit.rps") {
				t.Errorf("%s in a registry: %q", written, got)
			}
			file = strings.ReplaceAll("server:\n  rate_key_rps: N\n  max_inflight: N\n", "N", written)
			if _, got := checked(t, file); len(got) != 2 {
				t.Errorf("%s among the settings: %q", written, got)
			}
		}
		names := []string{"RATE_KEY_RPS", "RATE_TENANT_BURST", "MAX_INFLIGHT", "KEY_MAX_PRINCIPALS"}
		var environ, args []string
		for _, name := range names {
			environ = append(environ, "AGENTGATE_"+name+"="+text)
			args = append(args, "--"+strings.ToLower(strings.ReplaceAll(name, "_", "-"))+"="+text)
		}
		if _, got := checked(t, "version: 1\n", environ...); !places(got, "AGENTGATE_RATE_KEY_RPS", "AGENTGATE_RATE_TENANT_BURST", "AGENTGATE_MAX_INFLIGHT", "AGENTGATE_KEY_MAX_PRINCIPALS") {
			t.Errorf("%s in the environment: %q", text, got)
		}
		code, out, _ := runCheck(t, "version: 1\n", nil, append(args, "r.yaml")...)
		for _, arg := range args {
			flag, _, _ := strings.Cut(arg, "=")
			if code != exitNotHold || !strings.Contains(out, "flag: "+flag+": ") {
				t.Errorf("%s: exit %d, %s", arg, code, out)
			}
		}
	}
}

// TestBooleansAreTrueOrFalse: a word that is neither is refused, not guessed.
func TestBooleansAreTrueOrFalse(t *testing.T) {
	for _, written := range []string{"off", "on", "yes", "no", "n", "y", "False", "TRUE", `"false"`, "'true'", "0", "1", "", "~", "[]"} {
		for _, member := range []string{"passthrough", "allow_private"} {
			_, problems := checked(t, aService+"    "+member+": "+written+"\n")
			if len(problems) != 1 || !strings.Contains(problems[0], "services.search."+member+": ") {
				t.Errorf("%s: %s: %q", member, written, problems)
			}
		}
	}
	for _, written := range []string{"true", "false"} {
		if _, problems := checked(t, aService+"    passthrough: "+written+"\n"); problems != nil {
			t.Error(problems)
		}
	}
}

// TestDurationsHaveAUnit: in the file, in the environment and as a flag alike.
func TestDurationsHaveAUnit(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "0.5m": 30 * time.Second, "250ms": 250 * time.Millisecond, "1h30m": 90 * time.Minute,
		"30": 0, "30 s": 0, "1d": 0, "-5s": 0, "5000000000": 0, "5S": 0, "s": 0, "1e3s": 0, "∞": 0,
	} {
		for _, written := range []string{text, `"` + text + `"`} {
			got, problems := checked(t, aService+"    timeout: "+written+"\n")
			switch {
			case want == 0 && (len(problems) != 1 || !strings.HasPrefix(problems[0], "r.yaml:4:14: services.search.timeout: ")):
				t.Errorf("timeout: %s: %q", written, problems)
			case want != 0 && (problems != nil || got.Services[0].Timeout != literal.Span(want)):
				t.Errorf("timeout: %s: %q %+v", written, problems, got.Services)
			}
			if _, problems := checked(t, "server:\n  stream_idle: "+written+"\n"); (problems == nil) != (want != 0) {
				t.Errorf("stream_idle: %s: %q", written, problems)
			}
		}
		if _, problems := checked(t, "version: 1\n", "AGENTGATE_STREAM_IDLE="+text, "AGENTGATE_DRAIN_TIMEOUT="+text); len(problems) != map[bool]int{true: 2}[want == 0] {
			t.Errorf("in the environment %s: %q", text, problems)
		}
		if code, out, _ := runCheck(t, "version: 1\n", nil, "--client-stall="+text, "r.yaml"); (code == exitDone) != (want != 0) {
			t.Errorf("as a flag %s: %s", text, out)
		}
	}
}

// TestEmptyVariablesAreUnset: an empty variable leaves what the file says, and
// one of spaces is an error; neither is ever zero, false or an empty secret.
func TestEmptyVariablesAreUnset(t *testing.T) {
	names := []string{"TENANT_MAX_INFLIGHT", "RATE_TENANT_RPS", "REDIS_URL", "ADMIN_TOKEN", "VAULT_KEY", "TRUSTED_PROXIES", "STREAM_IDLE", "RECEIPT_SYNC"}
	var empty, spaces []string
	for _, name := range names {
		empty = append(empty, "AGENTGATE_"+name+"=")
		spaces = append(spaces, "AGENTGATE_"+name+"=  ")
	}
	file := "server: {tenant_max_inflight: 7, rate_tenant_rps: 9, rate_tenant_burst: 9}\n"
	got, problems := checked(t, file, empty...)
	if l := got.Tenants[0]; problems != nil || *l.MaxInflight != 7 || *l.RPS != 9 {
		t.Errorf("%q %+v", problems, l)
	}
	if _, problems := checked(t, file, spaces...); len(problems) != len(names) {
		t.Errorf("%q", problems)
	}
}

// TestVariablesAreOfSettingsAlone: nothing inside the registry can be set by a
// variable, and one that tries is an error that names it.
func TestVariablesAreOfSettingsAlone(t *testing.T) {
	file := "tenants: {team-a.eu: {rps: 5}}\n" + aKey + aService
	for name, want := range map[string]string{
		"AGENTGATE_SERVICES_SEARCH_TIMEOUT": "there is no such setting",
		"AGENTGATE_TENANTS_TEAM_A_EU_RPS":   "there is no such setting",
		"AGENTGATE_TENANTS_team-a.eu_RPS":   "there is no such setting",
		"AGENTGATE_KEYS_0_LIMITS_RPS":       "there is no such setting",
		"AGENTGATE_SERVER__RATE_KEY_RPS":    "there is no such setting",
		"AGENTGATE_RATE-KEY-RPS":            "there is no such setting; did you mean AGENTGATE_RATE_KEY_RPS?",
		"AGENTGATE_rate_key_rps":            "there is no such setting; did you mean AGENTGATE_RATE_KEY_RPS?",
		"AGENTGATE_TENANT_MAX_IN_FLIGHT":    "there is no such setting; did you mean AGENTGATE_TENANT_MAX_INFLIGHT?",
		"AGENTGATE_TLS_CERT":                "there is no such setting",
	} {
		if _, got := checked(t, file, name+"=5"); len(got) != 1 || !strings.HasPrefix(got[0], "environment:0:0: "+name+": "+want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestAddressesReadAlike: a host means the same wherever an address is taken.
func TestAddressesReadAlike(t *testing.T) {
	for host, lawful := range map[string]bool{
		"[2001:db8::5]": true, "[::1]": true, "127.0.0.1": true, "localhost": true, "u.example": true,
		"2001:db8::5": false, "::1": false, "[fe80::1%25eth0]": false, "[fe80::1%eth0]": false, "[::1": false, "::1]": false, "[127.0.0.1]": false, "[]": false,
		"127.1": false, "0x7f000001": false, "0177.0.0.1": false, "a b": false, "bücher.example": false,
	} {
		urls := fmt.Sprintf("services:\n  a: {base_url: %[1]q}\n  b: {base_url: %[2]q}\n  c: {base_url: \"https://u.example\", credential: {type: oauth2, client_id: c, allow_private: true, authorize_url: %[1]q, token_url: %[2]q}}\n"+
			"issuers:\n  - {issuer: %[1]q, audience: a}\n  - {issuer: %[2]q, audience: a, allow_private: true}\ntunnels: {allow: [%[3]q]}\n", "https://"+host, "http://"+host+":8080/x", host+":443")
		if _, got := checked(t, urls); len(got) != map[bool]int{false: 7}[lawful] {
			t.Errorf("%s in a registry: %q", host, got)
		}
		if _, got := checked(t, "version: 1\n", "AGENTGATE_LISTEN="+host+":8080", "AGENTGATE_ADMIN_LISTEN="+host+":8081"); len(got) != map[bool]int{false: 2}[lawful] {
			t.Errorf("%s among the settings: %q", host, got)
		}
		if _, got := checked(t, "version: 1\n", "AGENTGATE_LISTEN="+host, "AGENTGATE_ADMIN_LISTEN="+host); len(got) != 2 {
			t.Errorf("%s without a port: %q", host, got)
		}
	}
}
