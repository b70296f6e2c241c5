package architecture

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "agentgw/internal/"

// arrows says what each package may know of ours. They point one way: what
// decides knows nothing of what serves, and what stands alone can be read alone.
var arrows = map[string][]string{
	"admin":        {"config", "explain", "registry", "secret"},
	"config":       {"literal", "pgaddr", "redisaddr", "secret"},
	"delegation":   nil,
	"explain":      nil,
	"gateway":      {"config", "delegation", "explain", "hangup", "identity", "literal", "oauth", "oidc", "ratelimit", "receipts", "redact", "registry", "rules", "tunnel", "vault", "websocket"},
	"hangup":       {"http1"},
	"http1":        nil,
	"identity":     {"secret"},
	"literal":      nil,
	"oauth":        {"secret"},
	"oidc":         {"identity", "registry"},
	"ratelimit":    nil,
	"receipts":     nil,
	"pgaddr":       nil,
	"receiptindex": {"pgaddr", "receipts"},
	"redisaddr":    nil,
	"redisstore":   {"ratelimit", "redisaddr"},
	"redact":       nil,
	"registry":     {"literal"},
	"rules":        {"registry"},
	"secret":       nil,
	"store":        {"pgaddr"},
	"tools":        nil,
	"tunnel":       nil,
	"vault":        {"oauth", "redact", "secret", "store"},
	"websocket":    nil,
	"limitertest":  {"ratelimit"}, // the suites that any implementation runs
	"storetest":    {"store"},
	"oidctest":     nil,
	"freeport":     nil,
	"pgtest":       {"freeport"},
	"redistest":    {"freeport"}, // servers for tests
	"drilltest":    nil,          // what drills measured
}

// wrong lists the imports of ours that a package may not have. An unknown
// package may have none: it is to be entered above, with a thought.
func wrong(pkg string, imports []string) (list []string) {
	for _, path := range imports {
		if name, ours := strings.CutPrefix(path, module); ours && !slices.Contains(arrows[pkg], name) {
			list = append(list, name)
		}
	}
	return list
}

func TestArrows(t *testing.T) {
	const root = ".."
	seen := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		pkg := filepath.Base(filepath.Dir(path))
		seen[pkg] = true
		var imports []string
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			imports = append(imports, name)
		}
		for _, name := range wrong(pkg, imports) {
			t.Errorf("%s imports %s%s: the arrows in %s do not say so", path, module, name, "arrows_test.go")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range arrows {
		if !seen[pkg] {
			t.Errorf("there is no package %s", pkg)
		}
	}
}

func TestArrowsCatch(t *testing.T) {
	for _, c := range []struct {
		pkg, path string
		wrong     bool
	}{
		{"ratelimit", module + "identity", true}, {"receipts", module + "gateway", true}, {"registry", module + "config", true},
		{"anything", module + "store", true}, {"gateway", module + "store", true},
		{"gateway", module + "ratelimit", false}, {"vault", module + "store", false}, {"ratelimit", "time", false},
	} {
		if got := len(wrong(c.pkg, []string{c.path})) > 0; got != c.wrong {
			t.Errorf("%s imports %s: caught %v, want %v", c.pkg, c.path, got, c.wrong)
		}
	}
}
