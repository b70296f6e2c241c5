package rules_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"agentgw/internal/registry"
	"agentgw/internal/rules"
)

func page(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/registry.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// TestDocumentedRules: the rules of the examples of docs/registry.md compile, and
// mean something to a call.
func TestDocumentedRules(t *testing.T) {
	applied := 0
	for _, block := range regexp.MustCompile("(?s)\n```yaml\n(.*?)```\n").FindAllStringSubmatch(page(t), -1) {
		s, err := registry.Parse("docs/registry.md", []byte(block[1]))
		if err != nil {
			t.Fatal(err)
		}
		set, err := rules.Compile(s)
		if err != nil {
			t.Errorf("%v in:\n%s", err, block[1])
		}
		for _, r := range set.Rules() {
			c := call()
			c.Space, c.Method, c.Params = "s", "POST", []byte(`{"max_tokens":100}`)
			ch, applies := r.Charge(c)
			if !applies || ch.Faults != nil || ch.Max < 1 {
				t.Errorf("%s: %+v, %v", r.Name, ch, applies)
			}
			applied++
		}
	}
	if applied < 7 {
		t.Errorf("only %d rules were found", applied)
	}
}

// TestDocumentedVariables: docs/registry.md and the package's comment name every
// variable that an expression may look at, and no other.
func TestDocumentedVariables(t *testing.T) {
	comment, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("compile.go")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"request.params"}
	for _, m := range regexp.MustCompile(`cel\.Variable\("([a-z_.]+)"`).FindAllSubmatch(source, -1) {
		names = append(names, string(m[1]))
	}
	if len(names) < 15 {
		t.Fatalf("only %v were found", names)
	}
	_, table, _ := strings.Cut(page(t), "| variable | type | |")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, name := range names {
		if !strings.Contains(table, "`"+name+"`") {
			t.Errorf("docs/registry.md does not name %s", name)
		}
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`).Match(comment) {
			t.Errorf("doc.go does not name %s", name)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(table, -1) {
		for _, name := range regexp.MustCompile("`([a-z_.]+)`").FindAllStringSubmatch(m[1], -1) {
			if _, known := call().ResolveName(name[1]); !known {
				t.Errorf("docs/registry.md names %s, which there is not", name[1])
			}
		}
	}
}
