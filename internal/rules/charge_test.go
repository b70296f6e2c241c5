package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/registry"
	"agentgw/internal/rules"
)

// compile makes the rules of a registry's text.
func compile(t testing.TB, text string) []*rules.Rule {
	t.Helper()
	s, err := registry.Parse("r.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	return set.Rules()
}

// one makes a rule of some members, beside which it has what it needs.
func one(t testing.TB, members string) *rules.Rule {
	t.Helper()
	text := "rules:\n  - name: r\n"
	for _, m := range strings.Split(strings.TrimSpace(members), "\n") {
		text += "    " + m + "\n"
	}
	for _, need := range []string{"key: caller", "window: 1m", "max: 10"} {
		name, _, _ := strings.Cut(need, " ")
		if !strings.Contains(text, " "+name) {
			text += "    " + need + "\n"
		}
	}
	return compile(t, text)[0]
}

// call is a call as the tests see it, unless they say otherwise.
func call() *rules.Call {
	return &rules.Call{
		Caller: "key:k", Tenant: "tenant:acme", Service: "github", Action: "list_issues", ClientIP: "203.0.113.7",
		Org: "o", User: "u", Principal: "alice", ID: "REQ", Method: "GET", Path: "/repos/{owner}", Bytes: 321,
		Params: []byte(`{"q":"text","n":3,"f":2.5,"neg":-4,"big":9007199254740993,"huge":1e400,"t":true,"z":null,"l":[1,"a",{"b":2}],"o":{"p":{"q":7}},"empty":""}`),
	}
}

// TestKeys: what an expression makes of a call is its partition, and null and the
// empty text are none.
func TestKeys(t *testing.T) {
	for expression, want := range map[string]string{
		"caller": "key:k", "tenant": "tenant:acme", "service": "github", "action": "list_issues", "client_ip": "203.0.113.7",
		"org": "o", "space": "", "user": "u", "principal": "alice", "principal_or_ip": "human:alice",
		"request.id": "REQ", "request.method": "GET", "request.path": "/repos/{owner}", "request.bytes": "321",
		"'all'": "all", "null == space ? caller : space": "key:k", "org + '/' + service": "o/github",
		"user != null ? user : caller": "u",
		"request.params.q":             "text", "request.params.n": "3", "request.params.f": "2.5", "request.params.t": "true", "request.params.z": "",
		"request.params.big": "9007199254740993", "request.params['empty']": "", "request.params.o.p.q": "7", "request.params.l[2].b": "2",
		"has(request.params.nope) ? 'a' : 'b'": "b", "request.params.?nope": "", "request.params.?q": "text", "request.params.?nope.orValue('x')": "x",
		"string(size(request.params.l))": "3", "size(request.params)": "11", "'q' in request.params": "true", "1u": "1", "2.0": "2",
		"request.params.l.exists(x, x == 'a')": "true", "caller.matches('^key:[a-z]$')": "true",
	} {
		ch, applies := one(t, "key: >\n    "+expression).Charge(call())
		if ch.Partition != want || applies != (want != "") || len(ch.Faults) > 0 {
			t.Errorf("%s: %q, applies %v, %v; want %q", expression, ch.Partition, applies, ch.Faults, want)
		}
	}
	nobody := call()
	nobody.Principal, nobody.Org, nobody.User = "", "", ""
	for expression, want := range map[string]string{"principal_or_ip": "203.0.113.7", "org": "", "user": "", "principal": ""} {
		if ch, applies := one(t, "key: "+expression).Charge(nobody); ch.Partition != want || applies != (want != "") {
			t.Errorf("of nobody, %s: %q, %v", expression, ch.Partition, applies)
		}
	}
}

// TestAPrincipalIsNoAddress: who is called like somebody's address does not get to
// that address's count.
func TestAPrincipalIsNoAddress(t *testing.T) {
	r := one(t, "key: principal_or_ip")
	victim, liar := call(), call()
	victim.Principal, liar.Principal = "", victim.ClientIP
	a, _ := r.Charge(victim)
	b, _ := r.Charge(liar)
	if a.Partition == b.Partition {
		t.Errorf("both are %q", a.Partition)
	}
}

// TestFaults: what a stranger sends neither opens a limit nor closes it.
func TestFaults(t *testing.T) {
	const keyless = "\x00"
	for _, tt := range []struct {
		members string
		want    rules.Charge
		why     string
	}{
		{"key: request.params.nope", rules.Charge{Partition: keyless, Count: 1, Max: 10}, "it looks at a parameter that is not there"},
		{"key: request.params[request.params.q]", rules.Charge{Partition: keyless, Count: 1, Max: 10}, "it looks at a parameter that is not there"},
		{"key: request.params.l", rules.Charge{Partition: keyless, Count: 1, Max: 10}, "its result is neither a text nor null"},
		{"key: request.params.l[9]", rules.Charge{Partition: keyless, Count: 1, Max: 10}, "it looks past the end of a list"},
		{"key: space + caller", rules.Charge{Partition: keyless, Count: 1, Max: 10}, "a value is of another type than it takes"},
		{"when: request.params.nope == 1", rules.Charge{Partition: "key:k", Count: 1, Max: 10}, "it looks at a parameter that is not there"},
		{"when: request.params.q", rules.Charge{Partition: "key:k", Count: 1, Max: 10}, "its result is neither true nor false"},
		{"max: request.params.q", rules.Charge{Partition: "key:k", Count: 1, Max: -1}, "its result is no number"},
		{"max: 10 / (request.params.n - 3)", rules.Charge{Partition: "key:k", Count: 1, Max: -1}, "it divides by zero"},
		{"max: 0.0 / double(request.params.n - 3)", rules.Charge{Partition: "key:k", Count: 1, Max: -1}, "its result is no number"},
		{"count: request.params.nope", rules.Charge{Partition: "key:k", Count: 1, Max: 10}, "it looks at a parameter that is not there"},
		{"count: request.params.t", rules.Charge{Partition: "key:k", Count: 1, Max: 10}, "its result is no number"},
		{"count: request.params.neg", rules.Charge{Partition: "key:k", Count: 1, Max: 10}, "its result is negative"},
		{"key: int(request.params.q)", rules.Charge{Partition: keyless, Count: 1, Max: 10}, "it has no result"},
		{"when: duration(request.params.q) > duration('1s')", rules.Charge{Partition: "key:k", Count: 1, Max: 10}, "it has no result"},
		{"when: request.params.n.matches('a')", rules.Charge{Partition: "key:k", Count: 1, Max: 10}, "a value is of another type than it takes"},
		{"count: request.params.n - 3.25", rules.Charge{Partition: "key:k", Count: 1, Max: 10}, "a value is of another type than it takes"},
		{"count: request.params.f - 2.75", rules.Charge{Partition: "key:k", Count: 1, Max: 10}, "its result is negative"},
		{"count: request.params.f - 3.5", rules.Charge{Partition: "key:k", Count: 1, Max: 10}, "its result is negative"},
		{"count: request.params.big * request.params.big", rules.Charge{Partition: "key:k", Count: 1, Max: 10}, "a number is too large"},
	} {
		ch, applies := one(t, tt.members).Charge(call())
		if len(ch.Faults) != 1 || ch.Faults[0].Why != tt.why || !strings.HasPrefix(tt.members, ch.Faults[0].Part) {
			t.Errorf("%s: %+v, want %s", tt.members, ch.Faults, tt.why)
		}
		ch.Faults = nil
		if diff := cmp.Diff(tt.want, ch); !applies || diff != "" {
			t.Errorf("%s: applies %v, %s", tt.members, applies, diff)
		}
	}
	all := "key: request.params.a\nwhen: request.params.b\nmax: request.params.c\ncount: request.params.d"
	if ch, applies := one(t, all).Charge(call()); !applies || len(ch.Faults) != 4 || ch.Max != -1 || ch.Count != 1 || ch.Partition != keyless {
		t.Errorf("%+v", ch)
	}
}

// TestNumbers: what is not a whole number from 0 is cut to one, to the strict side.
func TestNumbers(t *testing.T) {
	for expression, want := range map[string]int64{
		"request.params.n": 3, "request.params.n * 4": 12, "7u + 0u": 7, "request.params.f": 2, "-5 + request.params.n": 0, "request.params.neg": 0,
		"request.params.huge": registry.MaxQuota, "9223372036854775806 + 1": registry.MaxQuota, "18446744073709551614u + 1u": registry.MaxQuota,
		"-1.0 / 0.0": 0, "tenant == 'tenant:acme' ? 100 : 10": 100, "request.params.?nope.orValue(6)": 6,
	} {
		if ch, _ := one(t, "max: \""+expression+"\"").Charge(call()); ch.Max != want || ch.Faults != nil {
			t.Errorf("max %s: %d, want %d; %v", expression, ch.Max, want, ch.Faults)
		}
	}
	for expression, want := range map[string]int64{
		"request.params.n": 3, "request.params.f": 3, "2.000001": 3, "0": 0, "0.0": 0, "-0.0": 0, "0.25": 1, "request.bytes": 321, "size(request.params.l)": 3,
		"request.params.huge": registry.MaxQuota + 1, "9223372036854775807": registry.MaxQuota + 1, "request.params.l.size() * 2": 6,
	} {
		if ch, _ := one(t, "count: \""+expression+"\"").Charge(call()); ch.Count != want || ch.Faults != nil {
			t.Errorf("count %s: %d, want %d; %v", expression, ch.Count, want, ch.Faults)
		}
	}
	for count, want := range map[string]int64{"requests": 1, "bytes": 321} {
		if ch, _ := one(t, "count: "+count).Charge(call()); ch.Count != want {
			t.Errorf("count %s: %d, want %d", count, ch.Count, want)
		}
	}
	if ch, _ := one(t, "count: bytes").Charge(&rules.Call{Caller: "k"}); ch.Count != 1 {
		t.Errorf("no bytes count %d, want 1", ch.Count)
	}
}

// TestWhen: a rule applies where it says so.
func TestWhen(t *testing.T) {
	for expression, want := range map[string]bool{
		"service == 'github'": true, "service in ['a', 'b']": false, "true": true, "false": false, "org == null": false, "space == null": true,
		"request.method == 'POST' || action.startsWith('list_')": true, "request.params.?nope.orValue(false)": false,
		"has(request.params.nope) && request.params.nope == 1": false,
	} {
		if ch, applies := one(t, "when: \""+expression+"\"").Charge(call()); applies != want || ch.Faults != nil {
			t.Errorf("%s: %v, %v", expression, applies, ch.Faults)
		}
	}
}

// TestLongKeysAreHashed: what is kept for a key is short, whatever it is, and no
// two keys become one, nor one of those that have none.
func TestLongKeysAreHashed(t *testing.T) {
	r := one(t, "key: request.params.q")
	seen := map[string]string{}
	for _, q := range []string{
		"x", strings.Repeat("x", 128), strings.Repeat("x", 129), strings.Repeat("x", 100_000), strings.Repeat("x", 99_999), `\u0000`, `\u0000\u0000`, `\u0000x`,
	} {
		c := call()
		c.Params = []byte(`{"q":"` + q + `"}`)
		ch, applies := r.Charge(c)
		if !applies || len(ch.Partition) > 128 || ch.Partition == "\x00" {
			t.Errorf("%.20q: %q, %v", q, ch.Partition, applies)
		}
		if other, twice := seen[ch.Partition]; twice {
			t.Errorf("%.20q and %.20q are one", q, other)
		}
		seen[ch.Partition] = q
	}
}

// TestWorkIsBounded: an expression that was thought cheap, and meets what is not,
// is broken off, and fails like any other.
func TestWorkIsBounded(t *testing.T) {
	r := one(t, `when: "request.params.l.all(x, x != 'no' && x != 'nope')"`)
	for _, items := range []int{19_000, 1_000_000} { // too much to look through, and too much to read
		c := call()
		c.Params = []byte(`{"l":["a"` + strings.Repeat(`,"a"`, items) + `]}`)
		began := time.Now()
		ch, applies := r.Charge(c)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("took %v", took)
		}
		if want := []rules.Fault{{Part: "when", Why: "it would take too much work"}}; !applies || cmp.Diff(want, ch.Faults) != "" {
			t.Errorf("applies %v, %v", applies, ch.Faults)
		}
	}
	// However little it looks at, what is too much to read is not read.
	c := call()
	c.Params = []byte(`{"l":["a"` + strings.Repeat(`,"a"`, 20_000) + `],"q":"b"}`)
	if ch, applies := one(t, "key: request.params.l[0]").Charge(c); !applies || len(ch.Faults) != 1 || ch.Faults[0].Why != "it would take too much work" {
		t.Errorf("applies %v, %v", applies, ch.Faults)
	}
	if ch, _ := one(t, "key: request.params.q").Charge(c); ch.Partition != "b" || ch.Faults != nil {
		t.Errorf("a parameter beside it: %+v", ch)
	}
	c = call()
	c.Params = []byte(`{"l":["a","no"]}`)
	if _, applies := r.Charge(c); applies {
		t.Error("a call of usual size is refused its result")
	}
}

// TestOneNumberIsOneKey, however it is written, and two numbers are two.
func TestOneNumberIsOneKey(t *testing.T) {
	r, seen := one(t, "key: request.params.x"), map[string]bool{}
	for _, same := range [][]string{
		{"0", "-0", "0.0", "-0.0", "0e9", "-1e-999"}, {"1", "1.0", "1e0", "10e-1", `"1"`}, {"-7", "-7.00", "-70e-1"}, {"2.5", "25e-1", "2.50"},
		{"9007199254740992", "9007199254740992.0", "9.007199254740992e15"}, {"-9007199254740993", "-9007199254740993.0"},
		{"9007199254740993", "9007199254740993.0", "9007199254740993.000", "9007199254740993e0", "90071992547409930e-1", "9.007199254740993e15", `"9007199254740993"`},
		{"9223372036854775807", "9223372036854775807.0"}, {"10000000000000000", "1e16"}, {"1234567.5"}, {"1234568.5"}, {"1234567"}, {"18446744073709551615", "18446744073709551615.0"},
		{"1e300", "10e299"}, {"1e301"}, {"9007199254740993." + strings.Repeat("0", 400)},
	} {
		of := map[string]bool{}
		for _, x := range same {
			c := call()
			c.Params = []byte(`{"x":` + x + `}`)
			ch, applies := r.Charge(c)
			if of[ch.Partition] = true; !applies || ch.Partition == "" || len(ch.Partition) > 128 {
				t.Errorf("%s: %q, %v", x, ch.Partition, applies)
			}
		}
		if len(of) != 1 {
			t.Errorf("%v is %d keys: %v", same, len(of), of)
		}
		for partition := range of {
			if seen[partition] {
				t.Errorf("%v shares %q with another number", same, partition)
			}
			seen[partition] = true
		}
	}
}

// TestTextsAreNotSearchedForLong: what a pattern costs is known before a text is
// matched, and what a loop looks at is read once.
func TestTextsAreNotSearchedForLong(t *testing.T) {
	long := strings.Repeat("a", 1_000_000)
	many := "[1" + strings.Repeat(",1", 9_000) + "]"
	const cut = "it would take too much work"
	for _, tt := range []struct{ when, params, why string }{
		{"request.params.t.matches('(.*a.*){30}b')", `{"t":"` + long + `"}`, cut},
		{"request.params.t.matches('(?i)password')", `{"t":"` + long + `"}`, cut},
		{"matches(request.params.t, 'b')", `{"t":"` + long + `"}`, cut},
		{"request.params.t.matches('(?i)password')", `{"t":"` + long[:100_000] + `"}`, ""},
		{"request.params.t.matches('(.*a.*){30}b')", `{"t":"` + long[:2000] + `"}`, ""},
		{"request.params.l.exists(x, x.matches('(.*a.*){30}b'))", `{"l":["` + long[:200] + `"` + strings.Repeat(`,"`+long[:200]+`"`, 5000) + `]}`, cut},
		{"size(request.params.t) > 0", `{"t":"` + long + `"}`, ""},
		{"request.params.l.exists(x, x == size(request.params.t))", `{"t":"` + long + `","l":` + many + `}`, cut},
		{"request.params.l.exists(x, double(request.params.t) == 2.0)", `{"t":"` + strings.Repeat("0", 1_000_000) + `1","l":` + many + `}`, cut},
		{"request.params.l.exists(x, x == request.params.t)", `{"t":"` + long + `","l":` + many + `}`, ""},
		{"request.params.t.contains('password')", `{"t":"` + long + `"}`, ""},
		{"request.params.l.exists(x, request.params.t.contains('password'))", `{"t":"` + long + `","l":` + many + `}`, cut},
		{"request.params.l.exists(x, request.params.t in ['a', 'b'])", `{"t":"` + long + `","l":` + many + `}`, cut},
		{"request.params.l.exists(x, x == request.params.l[0] + 1)", `{"l":` + many + `}`, ""},
	} {
		c := call()
		c.Params = []byte(tt.params)
		r := one(t, `when: "`+tt.when+`"`)
		began := time.Now()
		ch, _ := r.Charge(c)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%s: took %v", tt.when, took)
		}
		why := ""
		for _, fault := range ch.Faults {
			why = fault.Why
		}
		if why != tt.why {
			t.Errorf("%s: %q, want %q", tt.when, why, tt.why)
		}
	}
}

// TestIdentityLimits: a second's window for whoever owns the key; 0 is no limit.
func TestIdentityLimits(t *testing.T) {
	list := compile(t, "identity_limits: {org: 60, user: 20, space: 0}\nrules: [{name: space, key: space, window: 1h, max: 5}]")
	type line struct {
		name, partition string
		window          time.Duration
		most            int64
		identity        bool
	}
	var got []line
	c := call()
	c.Space = "s"
	for _, r := range list {
		ch, _ := r.Charge(c)
		got = append(got, line{r.Name, ch.Partition, r.Window, ch.Max, r.Identity})
	}
	want := []line{{"user", "u", time.Second, 20, true}, {"org", "o", time.Second, 60, true}, {"space", "s", time.Hour, 5, false}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(line{})); diff != "" {
		t.Error(diff)
	}
	if _, applies := list[0].Charge(&rules.Call{}); applies {
		t.Error("applies to a key that nobody owns")
	}
}

// TestZeroSwitchesOff: like everywhere, but an expression that yields 0 means it.
func TestZeroSwitchesOff(t *testing.T) {
	if list := compile(t, "rules: [{name: r, key: caller, window: 1m, max: 0}]\nidentity_limits: {}"); len(list) != 0 {
		t.Errorf("%d rules", len(list))
	}
	if ch, applies := one(t, "max: 1 - 1").Charge(call()); !applies || ch.Max != 0 {
		t.Errorf("%+v, %v", ch, applies)
	}
	var none *rules.Set
	if none.Rules() != nil {
		t.Error("no set has rules")
	}
}

// TestOncePerMinute: what every call may give rise to is logged once a minute.
func TestOncePerMinute(t *testing.T) {
	r := one(t, "max: 1")
	at := time.Unix(1_790_000_000, 0)
	for _, step := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {0, false}, {time.Minute - 1, false}, {time.Minute, true}, {time.Minute + 1, false}, {2 * time.Hour, true}} {
		if got := r.FaultDue(at.Add(step.after)); got != step.want {
			t.Errorf("after %v: %v", step.after, got)
		}
		if got := r.ObservedDue(at.Add(step.after)); got != step.want {
			t.Errorf("observed, after %v: %v", step.after, got)
		}
	}
}

// TestWhatARuleIs is what the limiter and operators are told of it.
func TestWhatARuleIs(t *testing.T) {
	r := one(t, "window: 90m\nmode: observe\ncost: true\non_store_failure: closed\ncount: bytes\nmax: 10MiB")
	ch, _ := r.Charge(call())
	if r.Name != "r" || r.Window != 90*time.Minute || !r.Observe || !r.Cost || r.OnStoreFailure != "closed" || !r.Bytes() || r.Identity || ch.Max != 10<<20 || r.Pos.String() != "r.yaml:2:5" {
		t.Errorf("%+v", r)
	}
	if r := one(t, "count: request.bytes + 1"); r.Bytes() || r.Of != "request.bytes + 1" || r.Observe || r.OnStoreFailure != "open" {
		t.Errorf("%+v", r)
	}
}

func BenchmarkCharge(b *testing.B) {
	for name, members := range map[string]string{
		"name": "key: client_ip", "when": "key: client_ip\nwhen: service == 'github' && org != null", "params": "key: request.params.q",
		"max": "key: org\nmax: \"tenant == 'tenant:acme' ? 100 : 10\"",
	} {
		r := one(b, members)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if ch, applies := r.Charge(call()); !applies || ch.Faults != nil {
					b.Fatal(ch)
				}
			}
		})
	}
}
