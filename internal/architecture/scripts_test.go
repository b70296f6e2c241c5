package architecture

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// storeCommand is what has a store run something.
var storeCommand = regexp.MustCompile(`\b(redis|server)\.p?call\b`)

// commandsIn lists the lines of a file, at path, that have a store run something and
// stand where they must not: what replicas share is decided by the scripts of one folder,
// each in one step, so that nothing can come between two commands.
func commandsIn(path, text string) (lines []string) {
	if in("internal/ratelimit/queries")(path) || strings.HasSuffix(path, "_test.go") {
		return nil
	}
	for _, line := range strings.Split(text, "\n") {
		if storeCommand.MatchString(line) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// TestScriptsStandInOneFolder: redis.call stands nowhere else.
func TestScriptsStandInOneFolder(t *testing.T) {
	scripts := 0
	for _, folder := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".lua") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			if strings.HasSuffix(name, ".lua") && in("internal/ratelimit/queries")(name) {
				scripts++
			}
			for _, line := range commandsIn(filepath.ToSlash(name), string(text)) {
				t.Errorf("%s: %s", name, line)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if scripts < 5 {
		t.Errorf("%d scripts were looked at", scripts)
	}
}

// TestScriptsStandInOneFolderCatches holds the rule against what it must catch and what
// it must pass.
func TestScriptsStandInOneFolderCatches(t *testing.T) {
	for path, text := range map[string]string{
		"internal/ratelimit/shared.go":            "const script = `return redis.call('INCR', KEYS[1])`",
		"internal/ratelimit/redisstore/extra.lua": "redis.pcall('DEL', KEYS[1])",
		"cmd/agentgw/fleet.go":                    `"local n = server.call('GET', KEYS[1])"`,
	} {
		if len(commandsIn(path, text)) != 1 {
			t.Errorf("%s: %q passes", path, text)
		}
	}
	for path, text := range map[string]string{
		"internal/ratelimit/queries/decide.lua":   "redis.call('TIME')",
		"internal/ratelimit/redisstore/a_test.go": "redis.call('GET', 'now')",
		"internal/ratelimit/redisstore/send.go":   "pipe.Do(ended, command(program.SHA1, jobs, deadline)...)",
		"internal/ratelimit/redisstore/errors.go": "// what redis calls an error",
	} {
		if found := commandsIn(path, text); len(found) != 0 {
			t.Errorf("%s: %q is caught", path, found)
		}
	}
}
