// Package architecture holds the project's few structural rules as a test:
// who may import what, and which calls stand where. .semgrep.yml says the same
// for editors and reviewers; this runs with nothing but Go.
package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rule finds what must not stand in a file. Paths are relative to the root.
type rule struct {
	name, why string
	allowed   func(path string) bool // files in which it may stand
	imports   []string               // import paths that it is about
	calls     []string               // package.Name selectors that it is about
}

func in(places ...string) func(string) bool {
	return func(path string) bool {
		return slices.ContainsFunc(places, func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") })
	}
}

var rules = []rule{
	{name: "gin at the edge", why: "below http.go nobody knows the router",
		allowed: in("internal/gateway/http.go"), imports: []string{"github.com/gin-gonic/gin"}},
	{name: "yaml in one place", why: "strictness lives there", allowed: in("internal/registry"), imports: []string{"gopkg.in/yaml.v3"}},
	{name: "envconfig in one place", why: "precedence lives there", allowed: in("internal/config"), imports: []string{"github.com/kelseyhightower/envconfig"}},
	{name: "expressions in one place", why: "their cost is bounded there", allowed: in("internal/rules"), imports: []string{"cel.dev/cel-go/cel", "cel.dev/cel-go/interpreter"}},
	{name: "Redis in one place", why: "deadlines and the order of commands are kept there", allowed: in("internal/ratelimit/redisstore"), imports: []string{"github.com/redis/go-redis/v9"}},
	{name: "the limiter knows no HTTP", why: "a decision must not depend on how it was asked for",
		allowed: func(path string) bool { return !in("internal/ratelimit", "internal/receipts")(path) }, imports: []string{"net/http", "github.com/gin-gonic/gin"}},
	{name: "time is an argument", why: "a fake clock must move everything",
		allowed: in("cmd", "internal/gateway/deadline.go", "internal/ratelimit/redisstore/link.go", "internal/redistest", "internal/pgtest"), calls: []string{"time.Now", "time.Sleep", "time.After", "time.AfterFunc", "time.NewTimer", "time.NewTicker", "time.Since"}},
	{name: "exit in main", why: "deferred work must run", allowed: in("cmd/agentgw/main.go"), calls: []string{"os.Exit", "log.Fatal", "log.Fatalf"}},
	{name: "no default client", why: "it follows redirects and has no guard", allowed: in(), calls: []string{"http.DefaultClient", "http.Get", "http.Post", "http.Head"}},
	{name: "URLs are built, not edited", why: "replaced text is how paths escape",
		allowed: func(path string) bool { return !in("internal/registry", "internal/gateway")(path) }, calls: []string{"strings.ReplaceAll", "strings.Replace"}},
}

// broken lists where file, standing at path, breaks r.
func (r rule) broken(path string, set *token.FileSet, file *ast.File) []string {
	if r.allowed(path) {
		return nil
	}
	var found []string
	for _, spec := range file.Imports {
		if name, err := strconv.Unquote(spec.Path.Value); err == nil && slices.Contains(r.imports, name) {
			found = append(found, fmt.Sprintf("%s:%d: imports %s (%s: %s)", path, set.Position(spec.Pos()).Line, name, r.name, r.why))
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Obj == nil && slices.Contains(r.calls, x.Name+"."+s.Sel.Name) {
				found = append(found, fmt.Sprintf("%s:%d: uses %s.%s (%s: %s)", path, set.Position(s.Pos()).Line, x.Name, s.Sel.Name, r.name, r.why))
			}
		}
		return true
	})
	return found
}

func TestRules(t *testing.T) {
	const root = "../.."
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || rel == "bench" || rel == "drills" || rel == "interop" || strings.HasPrefix(d.Name(), ".") && rel != ".") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		files++
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		for _, r := range rules {
			for _, b := range r.broken(filepath.ToSlash(rel), set, file) {
				t.Error(b)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 20 {
		t.Fatalf("only %d files were looked at", files)
	}
}

// TestRulesCatch holds each rule against a case that it must catch and one
// that it must pass: a rule that catches nothing is a comment.
func TestRulesCatch(t *testing.T) {
	for _, c := range []struct{ rule, path, bad, good string }{
		{"gin at the edge", "internal/gateway/pipeline.go", `import "github.com/gin-gonic/gin"`, `import "net/http"`},
		{"yaml in one place", "internal/config/x.go", `import "gopkg.in/yaml.v3"`, `import "fmt"`},
		{"envconfig in one place", "internal/registry/x.go", `import "github.com/kelseyhightower/envconfig"`, `import "fmt"`},
		{"expressions in one place", "internal/gateway/x.go", `import "cel.dev/cel-go/cel"`, `import "fmt"`},
		{"Redis in one place", "internal/ratelimit/shared.go", `import "github.com/redis/go-redis/v9"`, `import "sync"`},
		{"the limiter knows no HTTP", "internal/ratelimit/x.go", `import "net/http"`, `import "sync"`},
		{"time is an argument", "internal/vault/x.go", `var _ = time.Now()`, `var _ = time.Second`},
		{"exit in main", "cmd/agentgw/serve.go", `func f() { os.Exit(1) }`, `func f() { os.Getpid() }`},
		{"no default client", "internal/vault/x.go", `var _ = http.DefaultClient`, `var _ http.Client`},
		{"URLs are built, not edited", "internal/registry/url.go", `var _ = strings.ReplaceAll("", "", "")`, `var _ = strings.ToLower("")`},
	} {
		i := slices.IndexFunc(rules, func(r rule) bool { return r.name == c.rule })
		if i < 0 {
			t.Fatalf("there is no rule %q", c.rule)
		}
		for source, want := range map[string]bool{c.bad: true, c.good: false} {
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, c.path, "package x\n"+source, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(rules[i].broken(c.path, set, file)) > 0; got != want {
				t.Errorf("%s: %q: caught %v, want %v", c.rule, source, got, want)
			}
		}
	}
}
