package registry_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"agentgw/internal/registry"
)

// TestDocumentedBlocks: every example of docs/registry.md is sound.
func TestDocumentedBlocks(t *testing.T) {
	blocks := regexp.MustCompile("(?s)\n```yaml\n(.*?)```\n").FindAllStringSubmatch(document(t), -1)
	if len(blocks) < 5 {
		t.Errorf("%d examples", len(blocks))
	}
	for _, block := range blocks {
		s, err := registry.Parse("docs/registry.md", []byte(block[1]))
		if err != nil {
			t.Errorf("%v in:\n%s", err, block[1])
			continue
		}
		if _, err := s.Effective(registry.Defaults{KeyRPS: 20, KeyBurst: 40, TenantRPS: 100, TenantBurst: 200, TenantMaxInflight: 32}); err != nil {
			t.Errorf("%v in:\n%s", err, block[1])
		}
	}
}

// TestDocumentedKeys: docs/registry.md names every key that the file may have.
func TestDocumentedKeys(t *testing.T) {
	page := document(t)
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	known := 0
	for _, file := range sources {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// reader.object takes the keys that a mapping may have.
		for _, call := range regexp.MustCompile(`(?s)\.object\([^")]*((?:"[^)]*)?)\)`).FindAllSubmatch(source, -1) {
			for _, key := range regexp.MustCompile(`"([a-z0-9_]+)"`).FindAllSubmatch(call[1], -1) {
				known++
				if !strings.Contains(page, "`"+string(key[1])+"`") {
					t.Errorf("docs/registry.md does not name %s (%s)", key[1], file)
				}
			}
		}
	}
	if known < 60 {
		t.Errorf("only %d keys were found in the source", known)
	}
}

func document(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/registry.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}
