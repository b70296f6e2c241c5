package registry_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/registry"
)

// TestProblemsAreToldTogether: one mistake hides no other, and causes none.
func TestProblemsAreToldTogether(t *testing.T) {
	const key = "sha256: \"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\", users: [\"*\"]"
	for _, c := range []struct {
		name, file string
		want       []string
	}{
		{"within what has a bad name", "services:\n  A_B:\n    base_url: ftp://x\n    actions:\n      Bad Id: {method: FOO, path: /x, params: {b: strin}}\ntenants: {X Y: {rps: -1}}\n", []string{
			`f:2:3: services.A_B: "A_B" is not an id: up to 64 of a-z 0-9 . _ - beginning with a letter or digit`,
			`f:3:15: services.A_B.base_url: does not begin with http:// or https://`,
			`f:5:7: services.A_B.actions."Bad Id": "Bad Id" is not an id: up to 64 of a-z 0-9 . _ - beginning with a letter or digit`,
			`f:5:24: services.A_B.actions."Bad Id".method: "FOO" is none of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS`,
			`f:5:51: services.A_B.actions."Bad Id".params.b: "strin" is no type: write one of string, int, number, bool, array, object (with ? when optional, in quotes: "string?"), or a JSON Schema; did you mean string?`,
			`f:6:11: tenants."X Y": "X Y" is not an id: up to 64 of a-z 0-9 . _ - beginning with a letter or digit`,
			`f:6:22: tenants."X Y".rps: "-1" is negative`,
		}},
		{"who names what has a bad name", "services: {GitHub: {base_url: http://u.example}}\nkeys: [{id: k, services: [GitHub], " + key + "}]\n", []string{
			`f:1:12: services.GitHub: "GitHub" is not an id: up to 64 of a-z 0-9 . _ - beginning with a letter or digit`,
		}},
		{"who names what stands in a misspelt section", "servces: {a: {base_url: http://u.example}}\ntenant: {t: {}}\nkeys: [{id: k, services: [a], actions: [a.x], tenant: t, " + key + "}]\n", []string{
			"f:1:1: servces: unknown key; did you mean services?",
			"f:2:1: tenant: unknown key; did you mean tenants?",
		}},
		{"who names what stands in a second section", "services: {}\nservices: {a: {base_url: http://u.example}}\nkeys: [{id: k, services: [a], " + key + "}]\n", []string{
			"f:2:1: services: is given twice; the first is at 1:1",
		}},
		{"who names what was merged", "x: &x {a: 1}\nservices: {<<: *x}\nkeys: [{id: k, services: [b], " + key + "}]\n", []string{
			"f:1:1: x: unknown key",
			"f:1:4: x: anchors (&) are not taken: put the value in quotes if it begins with &",
			"f:2:12: services: merge keys (<<) are not taken: write the members out",
			`f:2:16: services."<<": aliases (*) are not taken: write the value out, in quotes if it begins with *`,
		}},
		{"who names what a merge may have brought", "<<: {services: {b: {}}}\nkeys: [{id: k, services: [b], " + key + "}]\n", []string{
			"f:1:1: merge keys (<<) are not taken: write the members out",
		}},
		{"who names an action of a list", "services: {a: {base_url: http://u.example, actions: [x]}}\nkeys: [{id: k, services: [a], actions: [a.x], " + key + "}]\n", []string{
			"f:1:53: services.a.actions: must be a mapping of names to values, not a list",
		}},
		{"who names a call of a passthrough", "services: {a: {base_url: http://u.example, passthrough: yes}}\nkeys: [{id: k, services: [a], actions: [a.*], " + key + "}]\n", []string{
			`f:1:57: services.a.passthrough: "yes" is not a boolean: write true or false`,
		}},
		{"a path and its parameters", "services: {a: {base_url: http://u.example, actions: {x: {method: GET, path: x, params: {o: {type: string, in: path}}}, y: {method: GET, path: \"/{o}\", parms: {o: string}}, z: {methd: GET, path: /}}}}\n", []string{
			`f:1:77: services.a.actions.x.path: "x" does not begin with a slash`,
			"f:1:151: services.a.actions.y.parms: unknown key; did you mean params?",
			"f:1:176: services.a.actions.z.methd: unknown key; did you mean method?",
		}},
		{"what stands a level off", "tenants: {t: {queue: 4}}\nrules: [{name: a, key: caller, window: 1m, max: 1, service: a}]\n", []string{
			"f:1:15: tenants.t.queue: unknown key; it belongs under server, as tenant_queue",
			"f:2:52: rules[0].service: unknown key; it belongs under when, as an expression: service == \"...\"",
		}},
		{"a comma in an expression within braces", "rules: [{name: a, key: caller, window: 1m, max: 1, when: service in [\"a\", \"b\"]}]\n", []string{
			"f:1:1: not sound YAML: did not find expected ',' or '}'; a text with a comma, a bracket, a quote or a colon in it may want quotes around it",
		}},
		{"what is really not there", "services: {a: {base_url: http://u.example}}\nkeys: [{id: k, services: [b], actions: [a.x], tenant: t, " + key + "}]\nbogus: 1\n", []string{
			`f:2:27: keys[0].services[0]: there is no service "b"`,
			`f:2:41: keys[0].actions[0]: "a.x" matches no declared action: write SERVICE.ACTION, with * for any letters`,
			`f:2:55: keys[0].tenant: there is no tenant t`,
			"f:3:1: bogus: unknown key; it belongs under server, if it is a setting",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := registry.Parse("f", []byte(c.file))
			var problems registry.Problems
			if !errors.As(err, &problems) {
				t.Fatal(err)
			}
			var got []string
			for _, p := range problems {
				got = append(got, p.Error())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestDoubtfulSettings: a setting whose value the file's problems leave open is
// marked, and no other.
func TestDoubtfulSettings(t *testing.T) {
	for file, want := range map[string]map[string]bool{
		"bogus: 1\nserver: {a: 1, b: , c: [x, x], d: 1, D: 2, e: {}}\n": {"a": false, "b": true, "c": true, "d": true, "e": true},
		"server: 5\n":                      {"": true},
		"servr: {a: 1}\n":                  {"": true},
		"server: {a: 1}\nserver: {b: 1}\n": {"": true, "a": false},
		"- server\n":                       {"": true},
		"server: {a: 1}\nbogus: 1\n":       {"a": false},
	} {
		s, err := registry.Parse("f", []byte(file))
		if err == nil {
			t.Errorf("%q is sound", file)
		}
		got := map[string]bool{}
		for _, set := range s.Server {
			got[set.Name] = set.Doubt
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", file, diff)
		}
	}
}
